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
	all, err := again(func() ([]netlink.Route, error) {
		return l.handle.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, wrap(err, "list routes")
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

func routeOf(r netlink.Route) Route {
	x := Route{MTU: r.MTU, Kernel: r.Protocol == unix.RTPROT_KERNEL, Protocol: uint8(r.Protocol),
		OnLink: r.Flags&int(netlink.FLAG_ONLINK) != 0, Blackhole: r.Type == unix.RTN_BLACKHOLE}
	if dst, ok := prefixOf(r.Dst); ok {
		x.Dst = dst
	} else if r.Family == netlink.FAMILY_V6 {
		x.Dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	} else {
		x.Dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	if r.Gw != nil {
		x.Gateway = addrOf(r.Gw)
	}
	if r.Src != nil {
		x.Source = addrOf(r.Src)
	}
	return x
}

func (l *Linux) SetRoute(r Route) error {
	k := &netlink.Route{Dst: ipNet(r.Dst.Masked()), MTU: r.MTU, Table: unix.RT_TABLE_MAIN, Protocol: netlink.RouteProtocol(r.Protocol)}
	if r.Blackhole {
		k.Type = unix.RTN_BLACKHOLE
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
	switch {
	case r.Gateway.IsValid():
		k.Gw = r.Gateway.AsSlice()
	case !r.Blackhole:
		k.Scope = netlink.SCOPE_LINK
	}
	if r.Source.IsValid() {
		k.Src = r.Source.AsSlice()
	}
	return routeError(l.handle.RouteReplace(k), "set route to %s", r.Dst)
}

// routeError tells a gateway that is not on any link, which the kernel answers in several ways, from bad input.
func routeError(err error, format string, args ...any) error {
	if errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.ENETDOWN) {
		return fmt.Errorf("%s: %w (%w)", fmt.Sprintf(format, args...), ErrUnreachable, err)
	}
	return wrap(err, format, args...)
}

func (l *Linux) DeleteRoute(dst netip.Prefix) error {
	err := l.handle.RouteDel(&netlink.Route{Dst: ipNet(dst.Masked()), Table: unix.RT_TABLE_MAIN, Scope: netlink.SCOPE_NOWHERE})
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return wrap(err, "delete route to %s", dst)
}

func (l *Linux) DeleteRouteOf(r Route) error {
	k := &netlink.Route{Dst: ipNet(r.Dst.Masked()), Table: unix.RT_TABLE_MAIN, Scope: netlink.SCOPE_NOWHERE, Protocol: netlink.RouteProtocol(r.Protocol)}
	if r.Link != "" {
		found, err := l.find(r.Link)
		if errors.Is(err, ErrNotFound) {
			return nil // its routes went with it
		}
		if err != nil {
			return err
		}
		k.LinkIndex = found.Attrs().Index
	}
	err := l.handle.RouteDel(k)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return wrap(err, "delete route to %s", r.Dst)
}

func (l *Linux) RouteTo(dst netip.Addr) (Hop, error) {
	found, err := l.handle.RouteGet(dst.AsSlice())
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || err == nil && len(found) == 0 {
		return Hop{}, fmt.Errorf("route to %s: %w", dst, ErrNotFound)
	}
	if err != nil {
		return Hop{}, wrap(err, "route to %s", dst)
	}
	r := found[0]
	link, err := l.handle.LinkByIndex(r.LinkIndex)
	if err != nil {
		return Hop{}, wrap(err, "route to %s: link %d", dst, r.LinkIndex)
	}
	h := Hop{Link: linkOf(link), NextHop: dst, MTU: r.MTU, Local: r.Type == unix.RTN_LOCAL}
	if r.Type != unix.RTN_LOCAL && r.Type != unix.RTN_UNICAST {
		return Hop{}, fmt.Errorf("route to %s: %w (a route refuses it)", dst, ErrNotFound)
	}
	if r.Gw != nil {
		h.NextHop = addrOf(r.Gw)
	}
	if r.Src != nil {
		h.Source = addrOf(r.Src)
	}
	if h.MTU == 0 {
		h.MTU = h.Link.MTU
	}
	return h, nil
}

func (l *Linux) LinksTo(dst netip.Addr) ([]Link, error) {
	found, err := l.handle.RouteGetWithOptions(dst.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || err == nil && len(found) == 0 {
		return nil, fmt.Errorf("route to %s: %w", dst, ErrNotFound)
	}
	if err != nil {
		return nil, wrap(err, "route to %s", dst)
	}
	indexes := []int{found[0].LinkIndex}
	if hops := found[0].MultiPath; len(hops) > 0 {
		indexes = nil
		for _, h := range hops {
			if !slices.Contains(indexes, h.LinkIndex) {
				indexes = append(indexes, h.LinkIndex)
			}
		}
	}
	var links []Link
	for _, i := range indexes {
		link, err := l.handle.LinkByIndex(i)
		if err != nil {
			return nil, wrap(err, "route to %s: link %d", dst, i)
		}
		links = append(links, linkOf(link))
	}
	return links, nil
}

func (l *Linux) Neighbours() ([]Neighbour, error) {
	names, err := l.names()
	if err != nil {
		return nil, err
	}
	all, err := again(func() ([]netlink.Neigh, error) { return l.handle.NeighList(0, netlink.FAMILY_ALL) })
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

// neighbourOf leaves out what needs no asking: multicast, and links without addresses.
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
	found, err := l.find(link)
	if err != nil {
		return err
	}
	return wrap(l.handle.NeighSet(&netlink.Neigh{LinkIndex: found.Attrs().Index, IP: ip.AsSlice(),
		HardwareAddr: net.HardwareAddr(mac[:]), State: netlink.NUD_PERMANENT}), "set neighbour %s on link %s", ip, link)
}

func (l *Linux) DeleteNeighbour(link string, ip netip.Addr) error {
	found, err := l.find(link)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	err = l.handle.NeighDel(&netlink.Neigh{LinkIndex: found.Attrs().Index, IP: ip.AsSlice()})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return wrap(err, "delete neighbour %s on link %s", ip, link)
}

func (l *Linux) Probe(link string, ip netip.Addr) error {
	found, err := l.find(link)
	if err != nil {
		return err
	}
	return wrap(l.handle.NeighSet(&netlink.Neigh{LinkIndex: found.Attrs().Index, IP: ip.AsSlice(), Flags: netlink.NTF_USE}),
		"probe %s on link %s", ip, link)
}
