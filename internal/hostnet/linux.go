package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
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

// NewLinux opens the network of a namespace, which must stay open as long as the network is used. It takes
// CAP_NET_ADMIN to change anything.
func NewLinux(n *Namespace) (*Linux, error) {
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

// Close gives up the sockets.
func (l *Linux) Close() error {
	l.handle.Close()
	if l.own {
		return l.namespace.Close()
	}
	return nil
}

// again repeats a listing that the kernel changed under: the answer would be incomplete. After a few turns on a busy
// machine the last answer stands; watchers hear of what it missed.
func again[T any](list func() ([]T, error)) ([]T, error) {
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
	found, err := again(l.handle.LinkList)
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

func (l *Linux) find(name string) (netlink.Link, error) {
	found, err := l.handle.LinkByName(name)
	var gone netlink.LinkNotFoundError
	if errors.As(err, &gone) || errors.Is(err, unix.ENODEV) {
		return nil, fmt.Errorf("link %s: %w", name, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", name, err)
	}
	return found, nil
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

// addTap makes a tap that stays when nobody has it open. A tap is born where /dev/net/tun is opened, not by netlink.
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
	found, err := l.find(name)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := l.handle.LinkDel(found); err != nil && !errors.Is(err, unix.ENODEV) {
		return wrap(err, "delete link %s", name)
	}
	return nil
}

func (l *Linux) SetUp(name string, up bool) error {
	found, err := l.find(name)
	if err != nil {
		return err
	}
	set := l.handle.LinkSetDown
	if up {
		set = l.handle.LinkSetUp
	}
	return wrap(set(found), "set link %s up=%v", name, up)
}

func (l *Linux) SetMTU(name string, mtu int) error {
	found, err := l.find(name)
	if err != nil {
		return err
	}
	return wrap(l.handle.LinkSetMTU(found, mtu), "set MTU %d of link %s", mtu, name)
}

func (l *Linux) Silence(name string) error {
	if _, err := l.find(name); err != nil {
		return err
	}
	// /proc/sys/net shows the namespace of the thread that opens it.
	err := l.namespace.Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0)
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil // a kernel without IPv6
	}
	return wrap(err, "keep IPv6 off link %s", name)
}

func (l *Linux) Addresses(link string) ([]netip.Prefix, error) {
	found, err := l.find(link)
	if err != nil {
		return nil, err
	}
	all, err := again(func() ([]netlink.Addr, error) { return l.handle.AddrList(found, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, wrap(err, "addresses of link %s", link)
	}
	return addressesByLink(all)[found.Attrs().Index], nil
}

func (l *Linux) AllAddresses() (map[int][]netip.Prefix, error) {
	all, err := again(func() ([]netlink.Addr, error) { return l.handle.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, wrap(err, "addresses of all links")
	}
	return addressesByLink(all), nil
}

// addressesByLink sorts addresses by the index of their link, and leaves those out that the kernel gave itself.
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
	all, err := again(func() ([]netlink.Addr, error) { return l.handle.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return Link{}, wrap(err, "link with address %s", address)
	}
	for _, a := range all {
		if p, ok := prefixOf(a.IPNet); !ok || p.Addr() != address {
			continue
		}
		found, err := l.handle.LinkByIndex(a.LinkIndex)
		if err != nil {
			return Link{}, wrap(err, "link with address %s", address)
		}
		return linkOf(found), nil
	}
	return Link{}, fmt.Errorf("link with address %s: %w", address, ErrNotFound)
}

func (l *Linux) AddAddress(link string, address netip.Prefix) error {
	found, err := l.find(link)
	if err != nil {
		return err
	}
	a := &netlink.Addr{IPNet: ipNet(address)}
	if address.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD // usable at once: whoever sets an address by hand has chosen it
	}
	return wrap(l.handle.AddrReplace(found, a), "add address %s to link %s", address, link)
}

func (l *Linux) DeleteAddress(link string, address netip.Prefix) error {
	found, err := l.find(link)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	err = l.handle.AddrDel(found, &netlink.Addr{IPNet: ipNet(address)})
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil
	}
	return wrap(err, "delete address %s of link %s", address, link)
}

// wrap names what failed and turns the kernel's answers that a caller can act on into our sentinels.
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
