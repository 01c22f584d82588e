package hostnet

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// settings is the directory of the parameters of a thread's network namespace.
const settings = "/proc/sys/net/"

// settingError maps a missing parameter to ErrNotFound.
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
	all, err := listWhole(func() ([]netlink.Neigh, error) { return l.handle.NeighProxyList(0, netlink.FAMILY_V6) })
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
	return l.setNeighbour(p.Link, netlink.Neigh{IP: p.IP.AsSlice(), Flags: netlink.NTF_PROXY}, "set proxy for %s on link %s", p.IP, p.Link)
}

func (l *Linux) DeleteProxy(p Proxy) error {
	return l.deleteNeighbour(p.Link, netlink.Neigh{IP: p.IP.AsSlice(), Flags: netlink.NTF_PROXY}, "delete proxy for %s on link %s", p.IP, p.Link)
}

func (l *Linux) Forwards(link string) ([]Forward, error) {
	found, err := l.find(link)
	if err != nil {
		return nil, err
	}
	all, err := listWhole(func() ([]netlink.Neigh, error) { return l.handle.NeighList(found.Attrs().Index, unix.AF_BRIDGE) })
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
	return l.setNeighbour(link, forward(f), "forward %s on link %s to %s", net.HardwareAddr(f.MAC[:]), link, f.Remote)
}

func (l *Linux) DeleteForward(link string, f Forward) error {
	return l.deleteNeighbour(link, forward(f), "forget that %s is behind %s on link %s", net.HardwareAddr(f.MAC[:]), f.Remote, link)
}

func forward(f Forward) netlink.Neigh {
	return netlink.Neigh{Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT | netlink.NUD_NOARP,
		HardwareAddr: f.MAC[:], IP: f.Remote.AsSlice()}
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

// filterFrom is the number of connections for each IPv4 address from which the kernel's filter is
// faster: it searches its whole table four times (90 ms), while a list of all takes 10 ms, and 5 µs
// for each.
const filterFrom = 20_000

// ForgetConnections uses the kernel's filter for few IPv4 addresses among many connections. For
// IPv6 the filter is inverted (Linux 6.18): it matches connections without the address.
func (l *Linux) ForgetConnections(addresses ...netip.Addr) error {
	tracked, err := l.tracked()
	if err != nil || tracked == 0 {
		return err
	}
	ends := map[uint8]endsAt{unix.AF_INET: {}, unix.AF_INET6: {}}
	for _, a := range addresses {
		ends[familyOf(a)][a] = true
	}
	if v4 := ends[unix.AF_INET]; tracked > filterFrom*len(v4) {
		for a := range v4 {
			if l.forgetByFilter(a) == nil { // else the kernel is older than 6.8, which cannot do that
				delete(v4, a)
			}
		}
	}
	var errs []error
	for family, some := range ends {
		if len(some) == 0 {
			continue
		}
		_, err := l.handle.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(family), some)
		// Entries that ended by themselves meanwhile are forgotten too.
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, netlink.ErrDumpInterrupted) {
			errs = append(errs, wrap(err, "forget connections"))
		}
	}
	return errors.Join(errs...)
}

// tracked returns the number of connections that the kernel tracks in this namespace, 0 without
// connection tracking.
func (l *Linux) tracked() (int, error) {
	text, err := l.Setting("netfilter/nf_conntrack_count")
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

func familyOf(a netip.Addr) uint8 {
	if a.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// Constants of include/uapi/linux/netfilter/nfnetlink_conntrack.h that no package has.
const (
	ctaFilter                           = 25
	ctaFilterOrigFlags                  = 1
	ctaFilterReplyFlags                 = 2
	filterBySource, filterByDestination = 1 << 0, 1 << 1
)

// forgetByFilter has the kernel delete the connections with an IPv4 address at either end, before
// or after translation. A request has a tuple even so: a kernel without filters takes it for a
// connection that lacks its ports, and refuses.
func (l *Linux) forgetByFilter(a netip.Addr) error {
	socket, err := nl.GetNetlinkSocketAt(l.namespace.handle, netns.None(), unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	sockets := map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: {Socket: socket}}
	defer sockets[unix.NETLINK_NETFILTER].Close()
	for _, end := range []struct{ tuple, attribute, orig, reply int }{
		{nl.CTA_TUPLE_ORIG, nl.CTA_IP_V4_SRC, filterBySource, 0}, {nl.CTA_TUPLE_ORIG, nl.CTA_IP_V4_DST, filterByDestination, 0},
		{nl.CTA_TUPLE_REPLY, nl.CTA_IP_V4_SRC, 0, filterBySource}, {nl.CTA_TUPLE_REPLY, nl.CTA_IP_V4_DST, 0, filterByDestination},
	} {
		request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
		request.Sockets = sockets
		request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
		tuple := nl.NewRtAttr(unix.NLA_F_NESTED|end.tuple, nil)
		tuple.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_IP, nil).AddRtAttr(end.attribute, a.AsSlice())
		filter := nl.NewRtAttr(unix.NLA_F_NESTED|ctaFilter, nil)
		filter.AddRtAttr(ctaFilterOrigFlags, nl.Uint32Attr(uint32(end.orig)))
		filter.AddRtAttr(ctaFilterReplyFlags, nl.Uint32Attr(uint32(end.reply)))
		request.AddData(tuple)
		request.AddData(filter)
		if _, err := request.Execute(unix.NETLINK_NETFILTER, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return wrap(err, "forget the connections of %s", a)
		}
	}
	return nil
}
