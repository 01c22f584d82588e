package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Connection is a tracked connection of a [Fake]: the addresses of a packet of it, and of its replies.
type Connection struct{ Source, Destination, ReplySource, ReplyDestination netip.Addr }

// Connect has the fake track a connection.
func (f *Fake) Connect(c Connection) {
	defer f.lock()()
	f.connections = append(f.connections, c)
}

// Connections returns what the fake tracks.
func (f *Fake) Connections() []Connection {
	defer f.lock()()
	return slices.Clone(f.connections)
}

func (f *Fake) ForgetConnections(addresses ...netip.Addr) error {
	defer f.lock()()
	f.connections = slices.DeleteFunc(f.connections, func(c Connection) bool {
		return slices.ContainsFunc(addresses, func(a netip.Addr) bool {
			return a == c.Source || a == c.Destination || a == c.ReplySource || a == c.ReplyDestination
		})
	})
	return nil
}

// The parameters that a fake has, with their values at first: of each link, and of the namespace.
var (
	linkSettings = map[string]string{"ipv4/conf/*/rp_filter": "0", "ipv4/conf/*/route_localnet": "0", "ipv4/conf/*/proxy_arp": "0",
		"ipv4/conf/*/forwarding": "0", "ipv4/conf/*/accept_local": "0", "ipv4/neigh/*/proxy_delay": "80", "ipv6/conf/*/proxy_ndp": "0", "ipv6/conf/*/forwarding": "0",
		"ipv6/conf/*/disable_ipv6": "0", "ipv6/conf/*/accept_ra": "1"}
	hostSettings = map[string]string{"ipv4/ip_forward": "0", "ipv4/ip_nonlocal_bind": "0"}
)

// known finds a parameter's value: what it was set to, or what it is at first.
func (f *Fake) known(name string) (string, error) {
	if err := badSetting(name); err != nil {
		return "", err
	}
	if v, ok := f.settings[name]; ok {
		return v, nil
	}
	if v, ok := hostSettings[name]; ok {
		return v, nil
	}
	if parts := strings.Split(name, "/"); len(parts) == 4 {
		link := parts[2]
		parts[2] = "*"
		v, ok := linkSettings[strings.Join(parts, "/")]
		if f.links[link] != nil && ok || link == "all" || link == "default" {
			return v, nil
		}
	}
	return "", fmt.Errorf("kernel parameter %s: %w", name, ErrNotFound)
}

func (f *Fake) Setting(name string) (string, error) {
	defer f.lock()()
	return f.known(name)
}

func (f *Fake) Set(all ...Setting) error {
	defer f.lock()()
	var errs []error
	for _, s := range all {
		if _, err := f.known(s.Name); err != nil {
			errs = append(errs, err)
			continue
		}
		f.settings[s.Name] = s.Value
	}
	return errors.Join(errs...)
}

func (f *Fake) dropSettings(link string) {
	for name := range f.settings {
		if parts := strings.Split(name, "/"); len(parts) == 4 && parts[2] == link {
			delete(f.settings, name)
		}
	}
}

func (f *Fake) Proxies() ([]Proxy, error) {
	defer f.lock()()
	var out []Proxy
	for _, l := range f.links {
		for ip := range l.proxies {
			out = append(out, Proxy{Link: l.Name, IP: ip})
		}
	}
	sortProxies(out)
	return out, nil
}

func (f *Fake) SetProxy(p Proxy) error {
	defer f.lock()()
	l, err := f.find(p.Link)
	if err != nil {
		return err
	}
	l.proxies[p.IP] = true
	return nil
}

func (f *Fake) DeleteProxy(p Proxy) error {
	defer f.lock()()
	if l, ok := f.links[p.Link]; ok {
		delete(l.proxies, p.IP)
	}
	return nil
}

func (f *Fake) Forwards(link string) ([]Forward, error) {
	defer f.lock()()
	l, err := f.find(link)
	if err != nil {
		return nil, err
	}
	var out []Forward
	for mac, remote := range l.forwards {
		out = append(out, Forward{MAC: mac, Remote: remote})
	}
	sortForwards(out)
	return out, nil
}

func (f *Fake) SetForward(link string, e Forward) error {
	defer f.lock()()
	l, err := f.find(link)
	if err != nil {
		return err
	}
	l.forwards[e.MAC] = e.Remote
	return nil
}

func (f *Fake) DeleteForward(link string, e Forward) error {
	defer f.lock()()
	if l, ok := f.links[link]; ok {
		if l.forwards[e.MAC] == e.Remote {
			delete(l.forwards, e.MAC)
		}
	}
	return nil
}
