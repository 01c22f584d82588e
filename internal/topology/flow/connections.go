package flow

import (
	"net/netip"
	"slices"
)

// ConnectionsRequest asks a host's agent for the connections that are open: those whose opener has
// sent packets in the last minute, and whose end was not seen.
type ConnectionsRequest struct {
	Sets []ConnectionSet `json:"sets"` // those in any of them
}

// ConnectionSet is the connections with any of some services between some ends.
type ConnectionSet struct {
	// Ports are the ids of those by which the connections come in; From is their addresses outside,
	// if they come from there. One of both is empty.
	Ports    []string       `json:"ports,omitempty"`
	From     []AddressRange `json:"from,omitempty"`
	To       []AddressRange `json:"to"` // as the packets leave; in order
	Services []ServiceRange `json:"services"`
}

// AddressRange is a range of addresses.
type AddressRange struct {
	First netip.Addr `json:"first"`
	Last  netip.Addr `json:"last"` // inclusive
}

// ServiceRange is a range of destination ports of a protocol.
type ServiceRange struct {
	Protocol uint8  `json:"protocol"`
	Low      uint16 `json:"low"`
	High     uint16 `json:"high"` // inclusive
}

// OpenConnection is a connection that goes on, as far as its host knows.
type OpenConnection struct {
	Protocol    uint8          `json:"protocol"`
	Source      netip.AddrPort `json:"source"`
	Destination netip.AddrPort `json:"destination"` // as the opener knows it
}

// ConnectionsAnswer is the answer to a [ConnectionsRequest].
type ConnectionsAnswer struct {
	Count    int              `json:"count"`
	Examples []OpenConnection `json:"examples"` // a few of them
}

// Has reports whether packets are of a connection of the set: they come in by a port, from an
// address, and leave to another one.
func (s *ConnectionSet) Has(port string, from netip.Addr, proto uint8, to netip.AddrPort) bool {
	if !slices.ContainsFunc(s.Services, func(r ServiceRange) bool { return r.Protocol == proto && r.Low <= to.Port() && to.Port() <= r.High }) {
		return false
	}
	return (slices.Contains(s.Ports, port) || inRanges(s.From, from)) && inRanges(s.To, to.Addr())
}

// inRanges reports whether an address is in one of some ranges, which are in order.
func inRanges(ranges []AddressRange, a netip.Addr) bool {
	i, exactly := slices.BinarySearchFunc(ranges, a, func(r AddressRange, a netip.Addr) int { return r.First.Compare(a) })
	return exactly || i > 0 && ranges[i-1].Last.Compare(a) >= 0
}
