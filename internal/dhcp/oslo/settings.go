package oslo

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"heddle/internal/dhcp/plan"
)

// Settings are the DHCP agent's settings in the files.
type Settings struct {
	Host string // this host's name in etcd; "" for the system's
	Etcd Etcd
	Plan plan.Options // without Device and Advertise, which are not for files to say
}

// Etcd holds the settings for the connection to etcd.
type Etcd struct {
	Endpoint                      string // scheme://host:port
	KeyFile, CertFile, CACertFile string // "" for none
	Username, Password            string
}

// Settings reads the agent's options. The error names all wrong ones, each with its file and line.
func (c *Config) Settings() (Settings, error) {
	l := &lookup{Config: c, defaults: map[place]string{
		{defaultGroup, "state_path"}: "/var/lib/neutron",
		{defaultGroup, "dhcp_confs"}: "$state_path/dhcp",
		{calicoGroup, "etcd_host"}:   "127.0.0.1",
	}}
	s := Settings{Host: l.text(place{defaultGroup, "host"}, "", checkHost), Etcd: l.etcd(), Plan: l.plan()}
	return s, l.err()
}

const calicoGroup = "calico"

// etcd reads the group calico, as networking-calico's plug-in has it too.
func (l *lookup) etcd() Etcd {
	option := func(name string) place { return place{calicoGroup, name} }
	scheme := l.text(option("etcd_scheme"), "http", func(s string) error {
		if s != "http" && s != "https" {
			return errors.New("want http or https")
		}
		return nil
	})
	host := l.text(option("etcd_host"), "127.0.0.1", checkServer)
	port := l.number(option("etcd_port"), 2379, "a port, 1 to 65535", func(n int) bool { return n > 0 && n < 1<<16 })
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && a.Is6() {
		host = "[" + a.String() + "]"
	}
	e := Etcd{
		Endpoint: fmt.Sprintf("%s://%s:%d", scheme, host, port),
		KeyFile:  l.text(option("etcd_key_file"), "", anything), CertFile: l.text(option("etcd_cert_file"), "", anything),
		CACertFile: l.text(option("etcd_ca_cert_file"), "", anything),
		Username:   l.text(option("etcd_username"), "", anything), Password: l.text(option("etcd_password"), "", anything),
	}
	l.together(option("etcd_key_file"), option("etcd_cert_file"))
	return e
}

// together refuses one of two options without the other.
func (l *lookup) together(a, b place) {
	_, atA, hasA := l.find(a)
	_, atB, hasB := l.find(b)
	switch {
	case hasA && !hasB:
		l.refuse(a, atA, "want "+b.option+" too")
	case hasB && !hasA:
		l.refuse(b, atB, "want "+a.option+" too")
	}
}

// plan reads Neutron's options for DHCP, with Neutron's defaults.
func (l *lookup) plan() plan.Options {
	option := func(name string) place { return place{defaultGroup, name} }
	directory := l.text(option("dhcp_confs"), "", checkPath)
	if directory == "" {
		directory = filepath.Join(l.text(option("state_path"), "/var/lib/neutron", checkPath), "dhcp")
	}
	seconds := func(name string) int {
		return l.number(option(name), 0, "a number of seconds, or 0 for what dnsmasq thinks right", func(n int) bool { return n >= 0 })
	}
	return plan.Options{
		Dir:               filepath.Join(directory, "calico"),
		InterfacePrefixes: l.list(place{calicoGroup, "interface_prefix"}, []string{"tap"}, plan.CheckPrefix),
		LeaseSeconds: l.number(option("dhcp_lease_duration"), 86400, "a number of seconds of at least 120, or -1 for no end",
			func(n int) bool { return n == plan.Infinite || n >= 120 }),
		RenewalSeconds: seconds("dhcp_renewal_time"), RebindingSeconds: seconds("dhcp_rebinding_time"),
		Domain:       l.domain(option("dns_domain"), option("dhcp_domain")),
		Servers:      l.list(option("dnsmasq_dns_servers"), nil, plan.CheckServer),
		LocalResolve: l.flag(option("dnsmasq_local_resolv")),
		ConfigFile:   l.text(option("dnsmasq_config_file"), "", checkPath),
		Broadcast:    l.flag(option("dhcp_broadcast_reply")),
		LogQueries:   l.text(option("dnsmasq_base_log_dir"), "", anything) != "",
	}
}

// domain returns the value of the first option that is set. One set to nothing means no domain.
func (l *lookup) domain(names ...place) string {
	for _, p := range names {
		if _, there := l.values[p]; there {
			return l.text(p, "", plan.CheckDomain)
		}
	}
	return "openstacklocal"
}

func checkHost(name string) error {
	if strings.ContainsAny(name, "/ \t") {
		return errors.New("want the name of a host, without slashes and spaces")
	}
	return nil
}

// checkServer accepts what a URL may have between the slashes and the port.
func checkServer(name string) error {
	if a, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil && a.Zone() == "" {
		return nil
	}
	if plan.CheckDomain(name) != nil {
		return errors.New("want the name or the address of a server")
	}
	return nil
}

func checkPath(path string) error {
	if !filepath.IsAbs(path) {
		return errors.New("want an absolute path")
	}
	return plan.CheckPath(path)
}
