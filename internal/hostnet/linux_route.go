package hostnet

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func (l *Linux) names() (map[int]string, error) {
	links, err := l.Links()
	if err != nil {
		return nil, err
	}
	names := make(map[int]string, len(links))
	for _, x := range links {
		names[x.Index] = x.Name
	}
	return names, nil
}

func (l *Linux) Routes() ([]Route, error) {
	names, err := l.names()
	if err != nil {
		return nil, err
	}
	all, err := l.mainRoutes(0)
	if err != nil {
		return nil, err
	}
	var routes []Route
	for _, r := range all {
		if r.Type != unix.RTN_UNICAST && r.Type != unix.RTN_BLACKHOLE {
			continue
		}
		x := routeOf(r)
		if !x.Blackhole {
			x.Link = names[r.LinkIndex] // the kernel puts IPv6 blackholes on the loopback
		}
		if x.Dst.Addr().IsLinkLocalUnicast() && x.Dst.Addr().Is6() || x.Dst.Addr().IsMulticast() {
			continue
		}
		routes = append(routes, x)
	}
	sortRoutes(routes)
	return routes, nil
}

// mainRoutes lists the main table: all routes, or those of one protocol.
func (l *Linux) mainRoutes(protocol uint8) ([]netlink.Route, error) {
	filter, by := &netlink.Route{Table: unix.RT_TABLE_MAIN, Protocol: netlink.RouteProtocol(protocol)}, netlink.RT_FILTER_TABLE
	if protocol != 0 {
		by |= netlink.RT_FILTER_PROTOCOL
	}
	all, err := listWhole(func() ([]netlink.Route, error) { return l.handle.RouteListFiltered(netlink.FAMILY_ALL, filter, by) })
	return all, wrap(err, "list routes")
}

func routeOf(r netlink.Route) Route {
	x := Route{MTU: r.MTU, Kernel: r.Protocol == unix.RTPROT_KERNEL, Protocol: uint8(r.Protocol), Gateway: addrOf(r.Gw), Source: addrOf(r.Src),
		OnLink: r.Flags&int(netlink.FLAG_ONLINK) != 0, Blackhole: r.Type == unix.RTN_BLACKHOLE}
	if dst, ok := prefixOf(r.Dst); ok {
		x.Dst = dst
	} else {
		x.Dst = everything(r.Family)
	}
	return x
}

// everything returns the destination of a default route of a family of the kernel's.
func everything(family int) netip.Prefix {
	if family == netlink.FAMILY_V6 {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

func (l *Linux) SetRoute(r Route) error {
	k := &netlink.Route{Dst: ipNet(r.Dst.Masked()), MTU: r.MTU, Table: unix.RT_TABLE_MAIN, Protocol: netlink.RouteProtocol(r.Protocol),
		Gw: r.Gateway.AsSlice(), Src: r.Source.AsSlice()}
	if r.Blackhole {
		k.Type, k.Gw = unix.RTN_BLACKHOLE, nil
	} else if k.Gw == nil {
		k.Scope = netlink.SCOPE_LINK
	}
	if r.OnLink {
		k.SetFlag(netlink.FLAG_ONLINK)
	}
	if r.Link != "" {
		found, err := l.find(r.Link)
		if err != nil {
			return fmt.Errorf("set route to %s: %w", r.Dst, err)
		}
		k.LinkIndex = found.Attrs().Index
	}
	return wrap(l.handle.RouteReplace(k), "set route to %s", r.Dst)
}

func (l *Linux) DeleteRoute(dst netip.Prefix) error { return l.DeleteRouteOf(Route{Dst: dst}) }

func (l *Linux) DeleteRouteOf(r Route) error {
	k := netlink.Route{Protocol: netlink.RouteProtocol(r.Protocol)}
	if r.Link == "" {
		return l.deleteRoute(r.Dst, k)
	}
	return l.remove(r.Link, func(found netlink.Link) error { // without the link its routes are gone too
		k.LinkIndex = found.Attrs().Index
		return l.deleteRoute(r.Dst, k)
	}, "link %s", r.Link)
}

// deleteRoute deletes the route of the main table to a destination that matches k.
func (l *Linux) deleteRoute(dst netip.Prefix, k netlink.Route) error {
	k.Dst, k.Table, k.Scope = ipNet(dst.Masked()), unix.RT_TABLE_MAIN, netlink.SCOPE_NOWHERE
	return ifThere(wrap(l.handle.RouteDel(&k), "delete route to %s", dst))
}

// lookUp asks the kernel for the route to an address.
func (l *Linux) lookUp(dst netip.Addr, options *netlink.RouteGetOptions) (netlink.Route, error) {
	found, err := l.handle.RouteGetWithOptions(dst.AsSlice(), options)
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || err == nil && len(found) == 0 {
		return netlink.Route{}, fmt.Errorf("route to %s: %w", dst, ErrNotFound)
	}
	if err != nil {
		return netlink.Route{}, wrap(err, "route to %s", dst)
	}
	return found[0], nil
}

func (l *Linux) RouteTo(dst netip.Addr) (Hop, error) {
	r, err := l.lookUp(dst, nil)
	if err != nil {
		return Hop{}, err
	}
	link, err := l.LinkByIndex(r.LinkIndex)
	if err != nil {
		return Hop{}, wrap(err, "route to %s: link %d", dst, r.LinkIndex)
	}
	if r.Type != unix.RTN_LOCAL && r.Type != unix.RTN_UNICAST {
		return Hop{}, fmt.Errorf("route to %s: %w (a route refuses it)", dst, ErrNotFound)
	}
	h := Hop{Link: link, Source: addrOf(r.Src), NextHop: dst, MTU: cmp.Or(r.MTU, link.MTU), Local: r.Type == unix.RTN_LOCAL}
	if r.Gw != nil {
		h.NextHop = addrOf(r.Gw)
	}
	return h, nil
}

func (l *Linux) LinksTo(dst netip.Addr) ([]Link, error) {
	r, err := l.lookUp(dst, &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil {
		return nil, err
	}
	var indexes []int
	for _, h := range r.MultiPath {
		indexes = append(indexes, h.LinkIndex)
	}
	if len(indexes) == 0 {
		indexes = []int{r.LinkIndex}
	}
	var links []Link
	for n, i := range indexes {
		if slices.Contains(indexes[:n], i) {
			continue
		}
		link, err := l.LinkByIndex(i)
		if err != nil {
			return nil, wrap(err, "route to %s: link %d", dst, i)
		}
		links = append(links, link)
	}
	return links, nil
}

func (l *Linux) Neighbours() ([]Neighbour, error) {
	names, err := l.names()
	if err != nil {
		return nil, err
	}
	all, err := listWhole(func() ([]netlink.Neigh, error) { return l.handle.NeighList(0, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, wrap(err, "list neighbours")
	}
	var out []Neighbour
	for _, n := range all {
		if x, ok := neighbourOf(n); ok {
			x.Link = names[n.LinkIndex]
			out = append(out, x)
		}
	}
	sortNeighbours(out)
	return out, nil
}

// neighbourOf skips entries that need no resolution: multicast, and links without addresses.
func neighbourOf(n netlink.Neigh) (Neighbour, bool) {
	x := Neighbour{IP: addrOf(n.IP), Permanent: n.State&netlink.NUD_PERMANENT != 0}
	copy(x.MAC[:], n.HardwareAddr)
	switch {
	case !x.IP.IsValid() || n.State&netlink.NUD_NOARP != 0:
		return x, false
	case n.State&(netlink.NUD_REACHABLE|netlink.NUD_PERMANENT) != 0:
		x.State = Reachable
	case n.State&(netlink.NUD_STALE|netlink.NUD_DELAY|netlink.NUD_PROBE) != 0:
		x.State = Stale
	case n.State&netlink.NUD_FAILED != 0:
		x.State = Failed
	case n.State&netlink.NUD_INCOMPLETE != 0:
		x.State = Incomplete
	default:
		return x, false
	}
	return x, true
}

func (l *Linux) SetNeighbour(link string, ip netip.Addr, mac MAC) error {
	return l.setNeighbour(link, netlink.Neigh{IP: ip.AsSlice(), HardwareAddr: mac[:], State: netlink.NUD_PERMANENT},
		"set neighbour %s on link %s", ip, link)
}

func (l *Linux) DeleteNeighbour(link string, ip netip.Addr) error {
	return l.deleteNeighbour(link, netlink.Neigh{IP: ip.AsSlice()}, "delete neighbour %s on link %s", ip, link)
}

func (l *Linux) Probe(link string, ip netip.Addr) error {
	return l.setNeighbour(link, netlink.Neigh{IP: ip.AsSlice(), Flags: netlink.NTF_USE}, "probe %s on link %s", ip, link)
}

// setNeighbour sets an entry of a link: a neighbour, a proxy or a forwarding entry.
func (l *Linux) setNeighbour(link string, n netlink.Neigh, format string, args ...any) error {
	return l.change(link, func(found netlink.Link) error {
		n.LinkIndex = found.Attrs().Index
		return l.handle.NeighSet(&n)
	}, format, args...)
}

func (l *Linux) deleteNeighbour(link string, n netlink.Neigh, format string, args ...any) error {
	return l.remove(link, func(found netlink.Link) error {
		n.LinkIndex = found.Attrs().Index
		return l.handle.NeighDel(&n)
	}, format, args...)
}
