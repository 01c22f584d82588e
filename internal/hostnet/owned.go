package hostnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ProtocolBGP is the protocol number of the routes that Heddle's BGP speaker puts into the main table. The kernel gives
// it no meaning; it tells them from all others (`ip route show proto 81`).
const ProtocolBGP uint8 = 81

// Owner marks the routes of one program in the main table: its protocol number, and a metric that nobody else uses. The
// metric keeps them apart from routes of others to the same destination; the lower metric wins.
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

// Equal says whether both are the same, in whatever order their paths are.
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
	filter := &netlink.Route{Table: unix.RT_TABLE_MAIN, Protocol: netlink.RouteProtocol(o.Protocol)}
	all, err := again(func() ([]netlink.Route, error) {
		return l.handle.RouteListFiltered(netlink.FAMILY_ALL, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return nil, wrap(err, "list routes of protocol %d", o.Protocol)
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

func pathsOf(r netlink.Route, names map[int]string) []Path {
	if len(r.MultiPath) == 0 {
		p := Path{Link: names[r.LinkIndex], OnLink: r.Flags&unix.RTNH_F_ONLINK != 0}
		if r.Gw != nil {
			p.Gateway = addrOf(r.Gw)
		}
		return []Path{p}
	}
	var paths []Path
	for _, hop := range r.MultiPath {
		p := Path{Link: names[hop.LinkIndex], OnLink: hop.Flags&unix.RTNH_F_ONLINK != 0}
		if hop.Gw != nil {
			p.Gateway = addrOf(hop.Gw)
		}
		paths = append(paths, p)
	}
	return paths
}

// SetOwned adds an owner's route or puts it in place of the owner's one to the same destination, in one step.
// ErrNotFound: a link is not there. ErrUnreachable: a gateway is not on its link, or the link is down.
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
		hop := &netlink.NexthopInfo{LinkIndex: found.Attrs().Index}
		if p.Gateway.IsValid() {
			hop.Gw = p.Gateway.AsSlice()
		}
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
	return routeError(l.handle.RouteReplace(k), "set route to %s", r.Dst)
}

// DeleteOwned removes an owner's route to a destination; those of others stay.
func (l *Linux) DeleteOwned(o Owner, dst netip.Prefix) error {
	err := l.handle.RouteDel(&netlink.Route{Dst: ipNet(dst.Masked()), Table: unix.RT_TABLE_MAIN, Scope: netlink.SCOPE_NOWHERE,
		Protocol: netlink.RouteProtocol(o.Protocol), Priority: o.Metric})
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return wrap(err, "delete route to %s", dst)
}

// TableEvent is a change of the main table or of a link, as [Linux.WatchTable] tells it. Exactly one of its forms:
//
//	Lost:         events were missed, or the watch has just begun: read all anew
//	Link not "":  this link, of LinkIndex, appeared or changed (Up: set up by the administrator), or went (Removed). When a
//	              link goes or is set down the kernel drops its IPv4 routes without a word.
//	else:         the route to Route.Dst with Metric was set, or removed; Route.Link is empty, LinkIndex tells it
type TableEvent struct {
	Lost      bool
	Link      string
	Up        bool
	Route     Route
	LinkIndex int
	Metric    int
	Removed   bool
}

// Table returns what the main table holds, as events that lead there.
func (l *Linux) Table() ([]TableEvent, error) {
	all, err := again(func() ([]netlink.Route, error) {
		return l.handle.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, wrap(err, "list routes")
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

// WatchTable tells changes of the main table and of links until ctx ends; the channel is then closed, as it is when the
// namespace is gone. Changes of routes come in order, so do those of links. Each life of the watch begins with Lost.
func (l *Linux) WatchTable(ctx context.Context) (<-chan TableEvent, error) {
	f, err := l.openTableFeed()
	if err != nil {
		return nil, err
	}
	out := make(chan TableEvent, watchQueue)
	go func() {
		defer close(out)
		for f != nil {
			again := f.forward(ctx, out)
			f.close()
			if f = nil; again {
				f, _ = l.openTableFeed() // it fails when the namespace is gone: nothing to watch any more
			}
		}
	}()
	return out, nil
}

// tableFeed is one life of the subscriptions.
type tableFeed struct {
	done   chan struct{}
	links  chan netlink.LinkUpdate
	routes chan netlink.RouteUpdate
}

func (l *Linux) openTableFeed() (*tableFeed, error) {
	f := &tableFeed{done: make(chan struct{}), links: make(chan netlink.LinkUpdate), routes: make(chan netlink.RouteUpdate)}
	ns := l.namespace.handle
	ignore := func(error) {} // a failed feed closes its channel
	err := netlink.LinkSubscribeWithOptions(f.links, f.done, netlink.LinkSubscribeOptions{Namespace: &ns, ErrorCallback: ignore, ReceiveBufferSize: watchBuffer})
	if err != nil {
		return nil, fmt.Errorf("watch links of network namespace %s: %w", l.namespace, err)
	}
	err = netlink.RouteSubscribeWithOptions(f.routes, f.done, netlink.RouteSubscribeOptions{Namespace: &ns, ErrorCallback: ignore, ReceiveBufferSize: watchBuffer})
	if err != nil {
		close(f.done)
		drain(f.links)
		return nil, fmt.Errorf("watch routes of network namespace %s: %w", l.namespace, err)
	}
	return f, nil
}

func (f *tableFeed) close() {
	close(f.done)
	drain(f.links)
	drain(f.routes)
}

// forward returns true when the feed failed and false when ctx ended.
func (f *tableFeed) forward(ctx context.Context, out chan<- TableEvent) bool {
	e := TableEvent{Lost: true}
	for {
		select {
		case out <- e:
		case <-ctx.Done():
			return false
		}
		told := false
		for !told {
			select {
			case <-ctx.Done():
				return false
			case u, ok := <-f.links:
				if !ok {
					return true
				}
				a := u.Link.Attrs()
				e, told = TableEvent{Link: a.Name, LinkIndex: a.Index, Up: a.RawFlags&unix.IFF_UP != 0, Removed: u.Header.Type == unix.RTM_DELLINK}, true
			case u, ok := <-f.routes:
				if !ok {
					return true
				}
				e, told = routeEvent(u.Route, u.Type == unix.RTM_DELROUTE), u.Table == unix.RT_TABLE_MAIN
			}
		}
	}
}
