package reach

import (
	"net/netip"

	"heddle/internal/topology/packet"
)

// End is a port, with what the machine at it knows of the way to others.
type End struct {
	PortID, NetworkID string
	HostID            string // that serves it
	MAC               packet.MAC
	Addresses         []netip.Addr
	Routes            []Route
}

// Route is a route of a machine.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr   // invalid: the destination is on the link
	Subnet      netip.Prefix // that has the route
}

// Address returns the machine's first address of a version of IP, invalid if there is none.
func (e *End) Address(is4 bool) netip.Addr {
	for _, a := range e.Addresses {
		if a.Is4() == is4 {
			return a
		}
	}
	return netip.Addr{}
}

// appendRoutes appends a text to b that is the same for ends with the same routes alone.
func (e *End) appendRoutes(b []byte) []byte {
	for _, r := range e.Routes {
		b = r.Destination.AppendTo(b)
		b = append(r.Gateway.AppendTo(append(b, ' ')), '\n')
	}
	return b
}

// prefixes yields what the machine compares the addresses of others with: destinations of its
// routes, and gateways.
func (e *End) prefixes(yield func(netip.Prefix) bool) {
	for _, r := range e.Routes {
		if !yield(r.Destination.Masked()) || r.Gateway.IsValid() && !yield(netip.PrefixFrom(r.Gateway, r.Gateway.BitLen())) {
			return
		}
	}
}

// NextHop returns the neighbour to which the machine sends packets from source to dst: by the
// longest prefix, then by a route of source's own subnet, then by the first. It reports false if
// there is no route.
func (e *End) NextHop(source, dst netip.Addr) (netip.Addr, bool) {
	var best *Route
	for i := range e.Routes {
		r := &e.Routes[i]
		if !r.Destination.Contains(dst) {
			continue
		}
		if best == nil || r.Destination.Bits() > best.Destination.Bits() ||
			r.Destination.Bits() == best.Destination.Bits() && r.Subnet.Contains(source) && !best.Subnet.Contains(source) {
			best = r
		}
	}
	switch {
	case best == nil:
		return netip.Addr{}, false
	case best.Gateway.IsValid():
		return best.Gateway, true
	}
	return dst, true
}
