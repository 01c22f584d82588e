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
	Gateway     netip.Addr // invalid: the destination is on the link
}

// appendRoutes appends a text to b that is the same for ends with the same routes alone.
func (e *End) appendRoutes(b []byte) []byte {
	for _, r := range e.Routes {
		b = r.Destination.AppendTo(b)
		b = append(r.Gateway.AppendTo(append(b, ' ')), '\n')
	}
	return b
}

// nextHop returns the neighbour to which the machine sends packets for dst: by the longest prefix,
// and the first of several of one length. It reports false if the machine has no route.
func (e *End) nextHop(dst netip.Addr) (netip.Addr, bool) {
	longest := -1
	var hop netip.Addr
	for _, r := range e.Routes {
		if r.Destination.Bits() > longest && r.Destination.Contains(dst) {
			longest, hop = r.Destination.Bits(), r.Gateway
		}
	}
	if !hop.IsValid() {
		hop = dst
	}
	return hop, longest >= 0
}
