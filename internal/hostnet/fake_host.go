package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Connection is a tracked connection of a [Fake]: the addresses of its packets and of the replies.
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

// The parameters of a fake, with their initial values: of each link, and of the namespace.
var (
	linkSettings = map[string]string{"ipv4/conf/*/rp_filter": "0", "ipv4/conf/*/route_localnet": "0", "ipv4/conf/*/proxy_arp": "0",
		"ipv4/conf/*/forwarding": "0", "ipv4/conf/*/accept_local": "0", "ipv4/neigh/*/proxy_delay": "80", "ipv6/conf/*/proxy_ndp": "0", "ipv6/conf/*/forwarding": "0",
		"ipv6/conf/*/disable_ipv6": "0", "ipv6/conf/*/accept_ra": "1"}
	hostSettings = map[string]string{"ipv4/ip_forward": "0", "ipv4/ip_nonlocal_bind": "0"}
)

// known returns a parameter's value: as set, or the initial one.
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
	return f.change(p.Link, func(l *fakeLink) { l.proxies[p.IP] = true })
}

func (f *Fake) DeleteProxy(p Proxy) error {
	return f.remove(p.Link, func(l *fakeLink) { delete(l.proxies, p.IP) })
}

func (f *Fake) Forwards(link string) (out []Forward, err error) {
	err = f.change(link, func(l *fakeLink) {
		for mac, remote := range l.forwards {
			out = append(out, Forward{MAC: mac, Remote: remote})
		}
	})
	sortForwards(out)
	return out, err
}

func (f *Fake) SetForward(link string, e Forward) error {
	return f.change(link, func(l *fakeLink) { l.forwards[e.MAC] = e.Remote })
}

func (f *Fake) DeleteForward(link string, e Forward) error {
	return f.remove(link, func(l *fakeLink) {
		if l.forwards[e.MAC] == e.Remote {
			delete(l.forwards, e.MAC)
		}
	})
}
