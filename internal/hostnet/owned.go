package hostnet

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ProtocolBGP is the protocol number of the BGP speaker's routes in the main table (`ip route show
// proto 81`). The kernel gives it no meaning.
const ProtocolBGP uint8 = 81

// Owner marks the routes of one program in the main table by a protocol number and a metric that no
// other program uses. The metric keeps them apart from others' routes to the same destination; the
// lower metric wins.
type Owner struct {
	Protocol uint8
	Metric   int
}

// Path is a way by which a route leaves.
type Path struct {
	Gateway netip.Addr // the zero Addr: the destination is on the link
	Link    string
	OnLink  bool // Link reaches the gateway whatever addresses it has, as a tunnel does
}

// OwnedRoute is a route of an [Owner]. Traffic is spread over its paths; without any it is dropped.
type OwnedRoute struct {
	Dst   netip.Prefix
	Paths []Path
}

// Equal reports whether both are the same, in whatever order their paths are.
func (r OwnedRoute) Equal(other OwnedRoute) bool {
	if r.Dst != other.Dst || len(r.Paths) != len(other.Paths) {
		return false
	}
	for _, p := range r.Paths {
		if !slices.Contains(other.Paths, p) {
			return false
		}
	}
	return true
}

// OwnedRoutes returns the routes of an owner.
func (l *Linux) OwnedRoutes(o Owner) ([]OwnedRoute, error) {
	names, err := l.names()
	if err != nil {
		return nil, err
	}
	all, err := l.mainRoutes(o.Protocol)
	if err != nil {
		return nil, err
	}
	var out []OwnedRoute
	for _, r := range all {
		if r.Priority != o.Metric {
			continue
		}
		x := OwnedRoute{Dst: routeOf(r).Dst}
		if r.Type != unix.RTN_BLACKHOLE {
			x.Paths = pathsOf(r, names)
		}
		out = append(out, x)
	}
	return out, nil
}

func pathsOf(r netlink.Route, names map[int]string) (paths []Path) {
	hops := r.MultiPath
	if len(hops) == 0 {
		hops = []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw, Flags: r.Flags}}
	}
	for _, h := range hops {
		paths = append(paths, Path{Link: names[h.LinkIndex], Gateway: addrOf(h.Gw), OnLink: h.Flags&unix.RTNH_F_ONLINK != 0})
	}
	return paths
}

// SetOwned adds an owner's route, or replaces the owner's one to the same destination, in one step.
// ErrNotFound: a link is missing. ErrUnreachable: a gateway is not on its link, or the link is
// down.
func (l *Linux) SetOwned(o Owner, r OwnedRoute) error {
	k := &netlink.Route{Dst: ipNet(r.Dst.Masked()), Table: unix.RT_TABLE_MAIN, Protocol: netlink.RouteProtocol(o.Protocol), Priority: o.Metric}
	if len(r.Paths) == 0 {
		k.Type = unix.RTN_BLACKHOLE
	}
	for _, p := range r.Paths {
		found, err := l.find(p.Link)
		if err != nil {
			return fmt.Errorf("set route to %s: %w", r.Dst, err)
		}
		hop := &netlink.NexthopInfo{LinkIndex: found.Attrs().Index, Gw: p.Gateway.AsSlice()}
		if p.OnLink {
			hop.Flags = unix.RTNH_F_ONLINK
		}
		k.MultiPath = append(k.MultiPath, hop)
	}
	if len(k.MultiPath) == 1 {
		hop := k.MultiPath[0]
		k.LinkIndex, k.Gw, k.Flags, k.MultiPath = hop.LinkIndex, hop.Gw, hop.Flags, nil
		if k.Gw == nil {
			k.Scope = netlink.SCOPE_LINK
		}
	}
	return wrap(l.handle.RouteReplace(k), "set route to %s", r.Dst)
}

// DeleteOwned removes an owner's route to a destination; those of others stay.
func (l *Linux) DeleteOwned(o Owner, dst netip.Prefix) error {
	return l.deleteRoute(dst, netlink.Route{Protocol: netlink.RouteProtocol(o.Protocol), Priority: o.Metric})
}

// TableEvent is a change of the main table or of a link, as sent by [Linux.WatchTable], in one of
// these forms:
//
//	Lost         events were missed, or the watch has just begun: read all again
//	Link not ""  this link, of LinkIndex, appeared or changed (Up: set up by the operator), or
//	             went (Removed). The kernel drops the IPv4 routes of a link that goes or is set
//	             down without an event.
//	else         the route to Route.Dst with Metric was set, or removed; Route.Link is empty, and
//	             LinkIndex set
type TableEvent struct {
	Lost      bool
	Link      string
	Up        bool
	Route     Route
	LinkIndex int
	Metric    int
	Removed   bool
}

// Table returns the contents of the main table, as events that lead there.
func (l *Linux) Table() ([]TableEvent, error) {
	all, err := l.mainRoutes(0)
	if err != nil {
		return nil, err
	}
	events := make([]TableEvent, 0, len(all))
	for _, r := range all {
		events = append(events, routeEvent(r, false))
	}
	return events, nil
}

func routeEvent(r netlink.Route, removed bool) TableEvent {
	return TableEvent{Route: routeOf(r), LinkIndex: r.LinkIndex, Metric: r.Priority, Removed: removed}
}

// WatchTable sends changes of the main table and of links. The channel is closed when ctx ends or
// the namespace is gone. Changes of routes come in order, so do those of links. Each life of the
// watch begins with Lost.
func (l *Linux) WatchTable(ctx context.Context) (<-chan TableEvent, error) {
	return follow(ctx, l, linkUpdates|routeUpdates, TableEvent{Lost: true}, true, func(update any) (e TableEvent, ok bool) {
		switch u := update.(type) {
		case netlink.LinkUpdate:
			a := u.Link.Attrs()
			return TableEvent{Link: a.Name, LinkIndex: a.Index, Up: a.RawFlags&unix.IFF_UP != 0, Removed: u.Header.Type == unix.RTM_DELLINK}, true
		case netlink.RouteUpdate:
			return routeEvent(u.Route, u.Type == unix.RTM_DELROUTE), u.Table == unix.RT_TABLE_MAIN
		}
		return e, false
	})
}
