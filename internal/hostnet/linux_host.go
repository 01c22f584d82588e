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

// filterFrom is how many connections there must be, for each IPv4 address, to have the kernel find those of the address: it
// goes through its whole table four times then (90 ms), instead of telling us of all (10 ms, and 5 µs for each).
const filterFrom = 20_000

// ForgetConnections has the kernel find the connections of few IPv4 addresses among many. Its filter for IPv6 is upside
// down (Linux 6.18): it finds what has not the address.
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

// tracked is how many connections the kernel tracks in this namespace; none where it has no connection tracking.
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

// What include/uapi/linux/netfilter/nfnetlink_conntrack.h has and no package does.
const (
	ctaFilter                           = 25
	ctaFilterOrigFlags                  = 1
	ctaFilterReplyFlags                 = 2
	filterBySource, filterByDestination = 1 << 0, 1 << 1
)

// forgetByFilter has the kernel delete the connections with an IPv4 address at either end, before or after translation. A
// request always has a tuple: kernels that know no filters take it for a connection that lacks its ports, and refuse.
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
