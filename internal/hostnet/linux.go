package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Linux is the kernel's network in one namespace, over netlink.
type Linux struct {
	namespace *Namespace
	handle    *netlink.Handle
	own       bool // it closes the namespace too
}

var _ Net = (*Linux)(nil)

// NewLinux opens the network of a namespace, which must stay open meanwhile; nil: this process's.
// Changes need CAP_NET_ADMIN.
func NewLinux(n *Namespace) (*Linux, error) {
	if n == nil {
		return Here()
	}
	h, err := netlink.NewHandleAt(n.handle, unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("netlink in network namespace %s: %w", n, err)
	}
	return &Linux{namespace: n, handle: h}, nil
}

// Here opens the network of the namespace that this process is in.
func Here() (*Linux, error) {
	n, err := CurrentNamespace()
	if err != nil {
		return nil, err
	}
	l, err := NewLinux(n)
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	l.own = true
	return l, nil
}

// Namespace returns the namespace of the network. It is open until the network is closed.
func (l *Linux) Namespace() *Namespace { return l.namespace }

// Close closes the sockets.
func (l *Linux) Close() error {
	l.handle.Close()
	if l.own {
		return l.namespace.Close()
	}
	return nil
}

// listWhole repeats a listing during which the kernel's state changed, since its result may be
// incomplete. On a busy machine the fifth result stands; watchers see what it lacks.
func listWhole[T any](list func() ([]T, error)) ([]T, error) {
	var all []T
	var err error
	for range 5 {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return all, nil
}

func (l *Linux) Links() ([]Link, error) {
	found, err := listWhole(l.handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	links := make([]Link, 0, len(found))
	for _, f := range found {
		links = append(links, linkOf(f))
	}
	slices.SortFunc(links, func(a, b Link) int { return a.Index - b.Index })
	return links, nil
}

func (l *Linux) Link(name string) (Link, error) {
	found, err := l.find(name)
	if err != nil {
		return Link{}, err
	}
	return linkOf(found), nil
}

// SetPromiscuous sets whether the link with that index takes in frames to any MAC address, for the
// administrator: captures that want that keep it. It reports whether the link did before;
// ErrNotFound without such a link.
func (l *Linux) SetPromiscuous(index int, on bool) (before bool, err error) {
	found, err := l.handle.LinkByIndex(index)
	var gone netlink.LinkNotFoundError
	if errors.As(err, &gone) {
		return false, fmt.Errorf("link %d: %w", index, ErrNotFound)
	}
	if err != nil {
		return false, wrap(err, "link %d", index)
	}
	if before = found.Attrs().RawFlags&unix.IFF_PROMISC != 0; before == on {
		return before, nil
	}
	set := l.handle.SetPromiscOff
	if on {
		set = l.handle.SetPromiscOn
	}
	return before, wrap(set(found), "set link %s promiscuous: %t", found.Attrs().Name, on)
}

func (l *Linux) find(name string) (netlink.Link, error) {
	found, err := l.handle.LinkByName(name)
	var gone netlink.LinkNotFoundError
	if errors.As(err, &gone) {
		return nil, fmt.Errorf("link %s: %w", name, ErrNotFound)
	}
	return found, wrap(err, "link %s", name)
}

// change does something to a link. The format names it in an error.
func (l *Linux) change(link string, do func(netlink.Link) error, format string, args ...any) error {
	found, err := l.find(link)
	if err != nil {
		return err
	}
	return wrap(do(found), format, args...)
}

// remove is change for a deletion, which succeeds where there is nothing to delete.
func (l *Linux) remove(link string, do func(netlink.Link) error, format string, args ...any) error {
	return ifThere(l.change(link, do, format, args...))
}

// ifThere returns the error of a deletion unless it means that there was nothing to delete.
func ifThere(err error) error {
	if errors.Is(err, ErrNotFound) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil
	}
	return err
}

func linkOf(found netlink.Link) Link {
	a := found.Attrs()
	l := Link{Index: a.Index, Name: a.Name, Kind: Kind(found.Type()), MTU: a.MTU, Master: a.MasterIndex,
		Up: a.RawFlags&unix.IFF_UP != 0}
	// The carrier itself: IFF_RUNNING follows it up to a second later.
	l.Running = l.Up && a.RawFlags&unix.IFF_LOWER_UP != 0
	copy(l.MAC[:], a.HardwareAddr)
	l.Elsewhere = l.Kind == Veth && a.NetNsID >= 0
	switch t := found.(type) {
	case *netlink.Vxlan:
		if !t.FlowBased {
			l.VXLAN = VXLANSpec{VNI: uint32(t.VxlanId), Port: uint16(t.Port), Local: addrOf(t.SrcAddr)}
		}
	case *netlink.Vlan:
		l.Parent, l.Tag = a.ParentIndex, t.VlanId
	case *netlink.Tuntap:
		l.Kind = Tun
		if t.Mode == netlink.TUNTAP_MODE_TAP {
			l.Kind = Tap
		}
	case *netlink.Device:
		if a.RawFlags&unix.IFF_LOOPBACK != 0 {
			l.Kind = Loopback
		}
	}
	return l
}

func (l *Linux) AddLink(spec LinkSpec) (Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = spec.Name, spec.MTU
	if spec.MAC != (MAC{}) {
		attrs.HardwareAddr = net.HardwareAddr(spec.MAC[:])
	}
	var made netlink.Link
	switch spec.Kind {
	case Veth:
		v := netlink.NewVeth(attrs)
		v.PeerName, v.PeerMTU = spec.Peer, uint32(spec.MTU)
		if spec.PeerNet != nil {
			other, ok := spec.PeerNet.(*Linux)
			if !ok {
				return Link{}, fmt.Errorf("link %s: peer %s in another kind of network: %w", spec.Name, spec.Peer, ErrInvalid)
			}
			v.PeerNamespace = netlink.NsFd(other.namespace.handle)
		}
		made = v
	case VXLAN:
		made = vxlan(spec, attrs)
	case IPIP:
		made = &netlink.Iptun{LinkAttrs: attrs, PMtuDisc: 1, Proto: unix.IPPROTO_IPIP}
	case Tap:
		return l.addTap(spec, attrs)
	case Bridge:
		made = &netlink.Bridge{LinkAttrs: attrs}
	case Dummy:
		made = &netlink.Dummy{LinkAttrs: attrs}
	case WireGuard:
		made = &netlink.Wireguard{LinkAttrs: attrs}
	default:
		return Link{}, fmt.Errorf("link %s: cannot make one of kind %q: %w", spec.Name, spec.Kind, ErrInvalid)
	}
	if err := l.handle.LinkAdd(made); err != nil {
		return Link{}, wrap(err, "add link %s", spec.Name)
	}
	return l.Link(spec.Name)
}

func vxlan(spec LinkSpec, attrs netlink.LinkAttrs) *netlink.Vxlan {
	if spec.VNI == 0 {
		return &netlink.Vxlan{LinkAttrs: attrs, FlowBased: true, Port: int(spec.Port)}
	}
	v := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: int(spec.VNI), Port: int(spec.Port)}
	if spec.Local.IsValid() {
		v.SrcAddr = spec.Local.AsSlice()
	}
	return v
}

// addTap makes a persistent tap, by /dev/net/tun: netlink cannot.
func (l *Linux) addTap(spec LinkSpec, attrs netlink.LinkAttrs) (Link, error) {
	if _, err := l.Link(spec.Name); err == nil {
		return Link{}, fmt.Errorf("add link %s: %w", spec.Name, ErrExists)
	}
	err := l.namespace.Do(func() error {
		return netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_DEFAULTS | netlink.TUNTAP_NO_PI})
	})
	if err != nil {
		return Link{}, wrap(err, "add link %s", spec.Name)
	}
	if spec.MTU > 0 {
		if err := l.SetMTU(spec.Name, spec.MTU); err != nil {
			return Link{}, err
		}
	}
	return l.Link(spec.Name)
}

func (l *Linux) DeleteLink(name string) error {
	return l.remove(name, l.handle.LinkDel, "delete link %s", name)
}

func (l *Linux) SetUp(name string, up bool) error {
	set := l.handle.LinkSetDown
	if up {
		set = l.handle.LinkSetUp
	}
	return l.change(name, set, "set link %s up=%v", name, up)
}

func (l *Linux) SetMTU(name string, mtu int) error {
	return l.change(name, func(found netlink.Link) error { return l.handle.LinkSetMTU(found, mtu) }, "set MTU %d of link %s", mtu, name)
}

// SetNoARP has the kernel send all on a link to the link's own MAC address, and resolve none.
func (l *Linux) SetNoARP(name string) error {
	return l.change(name, l.handle.LinkSetARPOff, "set link %s to resolve no addresses", name)
}

func (l *Linux) Silence(name string) error {
	if _, err := l.find(name); err != nil {
		return err
	}
	if err := l.Set(Setting{"ipv6/conf/" + name + "/disable_ipv6", "1"}); !errors.Is(err, ErrNotFound) {
		return wrap(err, "keep IPv6 off link %s", name)
	}
	return nil // a kernel without IPv6
}

func (l *Linux) Addresses(link string) ([]netip.Prefix, error) {
	found, err := l.find(link)
	if err != nil {
		return nil, err
	}
	all, err := l.addresses(found, netlink.FAMILY_ALL)
	return addressesByLink(all)[found.Attrs().Index], wrap(err, "addresses of link %s", link)
}

func (l *Linux) AllAddresses() (map[int][]netip.Prefix, error) {
	all, err := l.addresses(nil, netlink.FAMILY_ALL)
	return addressesByLink(all), wrap(err, "addresses of all links")
}

// addresses lists the addresses of a link, or with nil of all.
func (l *Linux) addresses(link netlink.Link, family int) ([]netlink.Addr, error) {
	return listWhole(func() ([]netlink.Addr, error) { return l.handle.AddrList(link, family) })
}

// addressesByLink groups addresses by the index of their link, without the kernel's own.
func addressesByLink(all []netlink.Addr) map[int][]netip.Prefix {
	out := map[int][]netip.Prefix{}
	for _, a := range all {
		if p, ok := prefixOf(a.IPNet); ok && !(p.Addr().Is6() && p.Addr().IsLinkLocalUnicast()) {
			out[a.LinkIndex] = append(out[a.LinkIndex], p)
		}
	}
	for _, addresses := range out {
		slices.SortFunc(addresses, netip.Prefix.Compare)
	}
	return out
}

func (l *Linux) LinkWith(address netip.Addr) (Link, error) {
	all, err := l.addresses(nil, netlink.FAMILY_ALL)
	if err != nil {
		return Link{}, wrap(err, "link with address %s", address)
	}
	for _, a := range all {
		if p, ok := prefixOf(a.IPNet); ok && p.Addr() == address {
			link, err := l.LinkByIndex(a.LinkIndex)
			return link, wrap(err, "link with address %s", address)
		}
	}
	return Link{}, fmt.Errorf("link with address %s: %w", address, ErrNotFound)
}

// LinkByIndex returns the link with an index.
func (l *Linux) LinkByIndex(index int) (Link, error) {
	found, err := l.handle.LinkByIndex(index)
	if err != nil {
		return Link{}, err
	}
	return linkOf(found), nil
}

func (l *Linux) AddAddress(link string, address netip.Prefix) error {
	return l.addAddress(link, address, 0)
}

func (l *Linux) addAddress(link string, address netip.Prefix, flags int) error {
	return l.change(link, func(found netlink.Link) error {
		a := ownAddress(address)
		a.Flags |= flags
		return l.handle.AddrReplace(found, a)
	}, "add address %s to link %s", address, link)
}

// ownAddress returns an address in the kernel's form. IPv6 addresses are usable at once, without a
// check whether another host has them: an operator or agent has chosen them.
func ownAddress(address netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: ipNet(address)}
	if address.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

func (l *Linux) DeleteAddress(link string, address netip.Prefix) error {
	return l.remove(link, func(found netlink.Link) error { return l.handle.AddrDel(found, &netlink.Addr{IPNet: ipNet(address)}) },
		"delete address %s of link %s", address, link)
}

// wrap names what failed, and turns errors of the kernel that a caller can act on into sentinels.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	for _, known := range []struct {
		kernel unix.Errno
		ours   error
	}{
		{unix.EEXIST, ErrExists}, {unix.ENODEV, ErrNotFound}, {unix.ESRCH, ErrNotFound}, {unix.ENETUNREACH, ErrUnreachable},
		{unix.EHOSTUNREACH, ErrUnreachable}, {unix.ENETDOWN, ErrUnreachable}, {unix.EINVAL, ErrInvalid}, {unix.ERANGE, ErrInvalid},
		{unix.EOPNOTSUPP, ErrUnsupported}, {unix.EPROTONOSUPPORT, ErrUnsupported},
	} {
		if errors.Is(err, known.kernel) {
			return fmt.Errorf("%s: %w (%w)", what, known.ours, err)
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones), ok
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
