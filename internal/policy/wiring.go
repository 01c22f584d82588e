package policy

import (
	"net/netip"
	"slices"

	"heddle/calico"
)

// wiring is the state of an active workload's interface.
type wiring struct {
	MAC      *calico.MAC  // of the workload: its IPv4 addresses get permanent neighbour entries
	Routed   []netip.Addr // in order: its own and its floating addresses
	Own      []netip.Addr // in order: its own IPv4 addresses
	Gateway  netip.Addr   // IPv6 address for which the host answers, if valid
	observed *observation // of a wiring that was read from the kernel; nil of a desired one
}

// observation has further findings about an interface.
type observation struct {
	strangeRoutes int  // routes that must go now
	misconfigured bool // a kernel parameter is not as it should be
}

// wiringOf returns the desired wiring of a workload, empty if the endpoint is inactive.
func wiringOf(ep *calico.WorkloadEndpoint, ipv6 bool) wiring {
	w := wiring{}
	if ep.State != calico.Active {
		return w
	}
	for _, c := range claimsOf(ep, ipv6) {
		w.Routed = append(w.Routed, c.address)
	}
	if ipv6 {
		w.Gateway = ep.IPv6Gateway
	}
	for _, n := range ep.IPv4Nets {
		w.Own = append(w.Own, n.Addr())
	}
	slices.SortFunc(w.Routed, netip.Addr.Compare)
	w.Routed = slices.Compact(w.Routed)
	slices.SortFunc(w.Own, netip.Addr.Compare)
	w.MAC = ep.MAC
	return w
}

func (w wiring) equal(o wiring) bool {
	return slices.Equal(w.Routed, o.Routed) && slices.Equal(w.Own, o.Own) && w.Gateway == o.Gateway && equalValues(w.MAC, o.MAC)
}

// equalValues reports whether both pointers are nil, or point to equal values.
func equalValues[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// inPlace reports whether an interface has all of w, and nothing that must go now. If found is a
// desired wiring too, it reports whether both are equal.
func (w wiring) inPlace(found wiring) bool {
	if found.observed == nil {
		return w.equal(found)
	}
	slices.SortFunc(found.Routed, netip.Addr.Compare)
	slices.SortFunc(found.Own, netip.Addr.Compare)
	if w.MAC == nil {
		w.Own, found.Own, found.MAC = nil, nil, nil
	} else if len(w.Own) == 0 {
		w.MAC, found.MAC = nil, nil
	}
	return *found.observed == observation{} && w.equal(found)
}

func (w wiring) routes(dst netip.Prefix) bool {
	return dst.IsSingleIP() && slices.Contains(w.Routed, dst.Addr())
}

// owns reports whether an address is one of the workload's own IPv4 addresses.
func (w wiring) owns(a netip.Addr) bool { return slices.Contains(w.Own, a) }

// common returns the part of w that stays when next takes its place.
func (w wiring) common(next wiring) wiring {
	w.Routed, w.Own = intersect(w.Routed, next.Routed), intersect(w.Own, next.Own)
	if next.MAC == nil {
		w.MAC = nil
	}
	if w.Gateway != next.Gateway {
		w.Gateway = netip.Addr{}
	}
	return w
}

func intersect(a, b []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(a), func(x netip.Addr) bool { return !slices.Contains(b, x) })
}

// subtract returns the addresses of a that b lacks.
func subtract(a, b []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(a), func(x netip.Addr) bool { return slices.Contains(b, x) })
}
