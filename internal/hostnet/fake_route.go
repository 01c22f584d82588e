package hostnet

import (
	"fmt"
	"net/netip"
	"slices"
)

// byHand is the protocol of routes for which none is given, RTPROT_BOOT; byKernel RTPROT_KERNEL.
const byHand, byKernel = 3, 2

func (f *Fake) addRoute(r Route) {
	f.routes = slices.DeleteFunc(f.routes, func(x Route) bool { return x.Dst == r.Dst })
	f.routes = append(f.routes, r)
	f.sendRoute(r, false)
}

func (f *Fake) sendRoute(r Route, removed bool) {
	e := Event{Kind: RouteChanged, Removed: removed}
	if l := f.links[r.Link]; l != nil {
		e.LinkIndex = l.Index
	}
	r.Link = ""
	e.Route = r
	f.send(e)
}

func (f *Fake) dropRoutes(match func(Route) bool) {
	f.routes = slices.DeleteFunc(f.routes, func(r Route) bool {
		if !match(r) {
			return false
		}
		f.sendRoute(r, true)
		return true
	})
}

func (f *Fake) Routes() ([]Route, error) {
	defer f.lock()()
	out := slices.Clone(f.routes)
	sortRoutes(out)
	return out, nil
}

func (f *Fake) SetRoute(r Route) error {
	defer f.lock()()
	r.Dst, r.Kernel = r.Dst.Masked(), false
	if r.Protocol == 0 {
		r.Protocol = byHand
	}
	if r.Blackhole {
		f.addRoute(Route{Dst: r.Dst, Protocol: r.Protocol, Blackhole: true})
		return nil
	}
	if r.Link != "" {
		l, err := f.find(r.Link)
		if err != nil {
			return fmt.Errorf("set route to %s: %w", r.Dst, err)
		}
		if !l.Up {
			return fmt.Errorf("set route to %s: link %s is down: %w", r.Dst, r.Link, ErrUnreachable)
		}
	}
	switch way, ok := f.connected(r.Gateway); {
	case r.Gateway.IsValid() && r.OnLink && r.Link != "":
	case r.Gateway.IsValid() && (!ok || r.Link != "" && way.Link != r.Link):
		return fmt.Errorf("set route to %s: gateway %s: %w", r.Dst, r.Gateway, ErrUnreachable)
	case r.Gateway.IsValid():
		r.Link = way.Link
	case r.Link == "":
		return fmt.Errorf("set route to %s: neither gateway nor link: %w", r.Dst, ErrInvalid)
	}
	f.addRoute(r)
	return nil
}

// connected returns the on-link route that contains an address.
func (f *Fake) connected(ip netip.Addr) (Route, bool) {
	r, ok := f.longest(ip)
	return r, ok && !r.Gateway.IsValid()
}

func (f *Fake) longest(ip netip.Addr) (Route, bool) {
	best, found := Route{}, false
	for _, r := range f.routes {
		if r.Dst.Contains(ip) && (!found || r.Dst.Bits() > best.Dst.Bits()) {
			best, found = r, true
		}
	}
	return best, found
}

func (f *Fake) DeleteRoute(dst netip.Prefix) error { return f.DeleteRouteOf(Route{Dst: dst}) }

func (f *Fake) DeleteRouteOf(r Route) error {
	defer f.lock()()
	f.dropRoutes(func(x Route) bool {
		return x.Dst == r.Dst.Masked() && (r.Link == "" || x.Link == r.Link) && (r.Protocol == 0 || x.Protocol == r.Protocol)
	})
	return nil
}

func (f *Fake) RouteTo(dst netip.Addr) (Hop, error) {
	defer f.lock()()
	if l := f.owner(dst); l != nil {
		return Hop{Link: f.links["lo"].Link, Source: dst, NextHop: dst, MTU: f.links["lo"].MTU, Local: true}, nil
	}
	r, ok := f.longest(dst)
	switch {
	case !ok:
		return Hop{}, fmt.Errorf("route to %s: %w", dst, ErrNotFound)
	case r.Blackhole:
		return Hop{}, fmt.Errorf("route to %s: %w (a route refuses it)", dst, ErrNotFound)
	}
	l := f.links[r.Link]
	h := Hop{Link: l.Link, Source: r.Source, NextHop: dst, MTU: r.MTU}
	if r.Gateway.IsValid() {
		h.NextHop = r.Gateway
	}
	if !h.Source.IsValid() {
		h.Source = l.source(h.NextHop)
	}
	if h.MTU == 0 {
		h.MTU = l.MTU
	}
	return h, nil
}

// source chooses the address of a link that shares a prefix with the next hop.
func (l *fakeLink) source(hop netip.Addr) netip.Addr {
	for _, a := range l.addresses {
		if a.Contains(hop) {
			return a.Addr()
		}
	}
	return netip.Addr{}
}

// owner returns the link that has the address.
func (f *Fake) owner(ip netip.Addr) *fakeLink {
	for _, l := range f.links {
		for _, a := range l.addresses {
			if a.Addr() == ip {
				return l
			}
		}
	}
	return nil
}

func (f *Fake) Neighbours() ([]Neighbour, error) {
	defer f.lock()()
	var out []Neighbour
	for _, l := range f.links {
		for _, n := range l.neighbours {
			out = append(out, n)
		}
	}
	sortNeighbours(out)
	return out, nil
}

func (f *Fake) SetNeighbour(link string, ip netip.Addr, mac MAC) error {
	return f.change(link, func(l *fakeLink) {
		l.neighbour(Neighbour{Link: link, IP: ip, MAC: mac, State: Reachable, Permanent: true})
	})
}

func (l *fakeLink) neighbour(n Neighbour) {
	l.neighbours[n.IP] = n
	n.Link = ""
	l.home.send(Event{Kind: NeighbourSet, LinkIndex: l.Index, Neighbour: n})
}

func (f *Fake) DeleteNeighbour(link string, ip netip.Addr) error {
	return f.remove(link, func(l *fakeLink) {
		if n, ok := l.neighbours[ip]; ok {
			delete(l.neighbours, ip)
			n.Link = ""
			f.send(Event{Kind: NeighbourGone, LinkIndex: l.Index, Neighbour: n})
		}
	})
}

// Probe has an answer at once: from the machine at the other end of the link if it has the address.
func (f *Fake) Probe(link string, ip netip.Addr) error {
	return f.change(link, func(l *fakeLink) {
		if n, known := l.neighbours[ip]; known && n.State == Reachable {
			return
		}
		n := Neighbour{Link: link, IP: ip, State: Failed}
		if l.Running && l.peer != nil {
			if other := l.peer.home.owner(ip); other != nil && other.Up {
				n.State, n.MAC = Reachable, l.peer.MAC
			}
		}
		l.neighbour(n)
	})
}

// LinksTo returns one link: routes of a Fake have one next hop.
func (f *Fake) LinksTo(dst netip.Addr) ([]Link, error) {
	h, err := f.RouteTo(dst)
	if err != nil {
		return nil, err
	}
	return []Link{h.Link}, nil
}
