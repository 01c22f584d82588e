package hostnet

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// settings is where the kernel keeps the parameters of a network namespace: of that of the thread that opens it.
const settings = "/proc/sys/net/"

// settingError tells a parameter that is not there from one that cannot be written.
func settingError(name string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("kernel parameter %s: %w", name, ErrNotFound)
	}
	return wrap(err, "kernel parameter %s", name)
}

// badSetting refuses names that lead out of settings.
func badSetting(name string) error {
	if name == "" || slices.Contains(strings.Split(name, "/"), "..") {
		return fmt.Errorf("kernel parameter %q: %w", name, ErrInvalid)
	}
	return nil
}

func (l *Linux) Setting(name string) (value string, err error) {
	if err := badSetting(name); err != nil {
		return "", err
	}
	err = l.namespace.Do(func() error {
		raw, err := os.ReadFile(settings + name)
		value = string(bytes.TrimSpace(raw))
		return err
	})
	return value, settingError(name, err)
}

func (l *Linux) Set(all ...Setting) error {
	var errs []error
	err := l.namespace.Do(func() error {
		for _, s := range all {
			if err := badSetting(s.Name); err != nil {
				errs = append(errs, err)
				continue
			}
			if raw, err := os.ReadFile(settings + s.Name); err == nil && string(bytes.TrimSpace(raw)) == s.Value {
				continue
			}
			// Without O_CREATE: /proc would answer it with "permission denied".
			f, err := os.OpenFile(settings+s.Name, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString(s.Value)
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				errs = append(errs, settingError(s.Name, err))
			}
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

func (l *Linux) Proxies() ([]Proxy, error) {
	names, err := l.names()
	if err != nil {
		return nil, err
	}
	all, err := again(func() ([]netlink.Neigh, error) { return l.handle.NeighProxyList(0, netlink.FAMILY_V6) })
	if err != nil {
		return nil, wrap(err, "list proxies")
	}
	var out []Proxy
	for _, n := range all {
		if n.Flags&netlink.NTF_PROXY != 0 {
			out = append(out, Proxy{Link: names[n.LinkIndex], IP: addrOf(n.IP)})
		}
	}
	sortProxies(out)
	return out, nil
}

func (l *Linux) SetProxy(p Proxy) error {
	found, err := l.find(p.Link)
	if err != nil {
		return err
	}
	return wrap(l.handle.NeighSet(&netlink.Neigh{LinkIndex: found.Attrs().Index, IP: p.IP.AsSlice(), Flags: netlink.NTF_PROXY}),
		"set proxy for %s on link %s", p.IP, p.Link)
}

func (l *Linux) DeleteProxy(p Proxy) error {
	found, err := l.find(p.Link)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	err = l.handle.NeighDel(&netlink.Neigh{LinkIndex: found.Attrs().Index, IP: p.IP.AsSlice(), Flags: netlink.NTF_PROXY})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return wrap(err, "delete proxy for %s on link %s", p.IP, p.Link)
}

func (l *Linux) Forwards(link string) ([]Forward, error) {
	found, err := l.find(link)
	if err != nil {
		return nil, err
	}
	all, err := again(func() ([]netlink.Neigh, error) { return l.handle.NeighList(found.Attrs().Index, unix.AF_BRIDGE) })
	if err != nil {
		return nil, wrap(err, "forwarding entries of link %s", link)
	}
	var out []Forward
	for _, n := range all {
		f := Forward{Remote: addrOf(n.IP)}
		copy(f.MAC[:], n.HardwareAddr)
		if n.State&netlink.NUD_PERMANENT != 0 && f.Remote.IsValid() && f.MAC != (MAC{}) {
			out = append(out, f)
		}
	}
	sortForwards(out)
	return out, nil
}

func (l *Linux) SetForward(link string, f Forward) error {
	found, err := l.find(link)
	if err != nil {
		return err
	}
	return wrap(l.handle.NeighSet(forward(found, f)), "forward %s on link %s to %s", net.HardwareAddr(f.MAC[:]), link, f.Remote)
}

func forward(link netlink.Link, f Forward) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: link.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF,
		State: netlink.NUD_PERMANENT | netlink.NUD_NOARP, HardwareAddr: net.HardwareAddr(f.MAC[:]), IP: f.Remote.AsSlice()}
}

func (l *Linux) DeleteForward(link string, f Forward) error {
	found, err := l.find(link)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	err = l.handle.NeighDel(forward(found, f))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return wrap(err, "forget that %s is behind %s on link %s", net.HardwareAddr(f.MAC[:]), f.Remote, link)
}

// endsAt matches tracked connections by the addresses at their ends.
type endsAt map[netip.Addr]bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (e endsAt) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	for _, t := range []netlink.IPTuple{f.Forward, f.Reverse} {
		if e[addrOf(t.SrcIP)] || e[addrOf(t.DstIP)] {
			return true
		}
	}
	return false
}

func (l *Linux) ForgetConnections(addresses ...netip.Addr) (int, error) {
	byFamily := map[netlink.InetFamily]endsAt{}
	for _, a := range addresses {
		family := netlink.InetFamily(unix.AF_INET)
		if a.Is6() {
			family = unix.AF_INET6
		}
		if byFamily[family] == nil {
			byFamily[family] = endsAt{}
		}
		byFamily[family][a] = true
	}
	forgotten := 0
	var errs []error
	for family, ends := range byFamily {
		n, err := l.handle.ConntrackDeleteFilters(netlink.ConntrackTable, family, ends)
		forgotten += int(n)
		// Entries that ended by themselves meanwhile are forgotten too.
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, netlink.ErrDumpInterrupted) {
			errs = append(errs, wrap(err, "forget connections"))
		}
	}
	return forgotten, errors.Join(errs...)
}
