// Package flow holds what a simulation decides about one packet: the verdict with its reason, the outputs, the
// connections to remember, and the ports on whose configuration the decision rests. It is data shared by the simulator
// that makes decisions and the agent that installs them (midonet-simulation §1, §5, §15).
package flow

import (
	"net/netip"

	"heddle/internal/topology/packet"
)

// Verdict is the closed set of results of a simulation (midonet-simulation §1.3).
type Verdict uint8

const (
	// Forward: send to Outputs (one or many).
	Forward Verdict = iota + 1
	// Drop: a decision of the topology (filter, admin state); cached like any flow.
	Drop
	// ErrorDrop: something is wrong or unknown (loop, no such port); cached for 5 s, commits no state.
	ErrorDrop
	// Consumed: answered or absorbed (ARP, ND, DHCP); never cached.
	Consumed
)

func (v Verdict) String() string {
	switch v {
	case Forward:
		return "forward"
	case Drop:
		return "drop"
	case ErrorDrop:
		return "error drop"
	case Consumed:
		return "consumed"
	}
	return "none"
}

// Output is one delivery of the packet to an exterior port.
type Output struct {
	PortID    string
	HostID    string // where the port is bound
	TunnelKey uint32 // of the port; used when HostID is another host
	// LocalIP and RemoteIP are the tunnel addresses of the ingress host and of HostID in the zone that they share;
	// invalid when the port is bound to the ingress host, or when the simulator was not told of both hosts.
	LocalIP, RemoteIP netip.Addr
}

// Dropped is one end of the packet, or of one of its copies: where and why, in words.
type Dropped struct {
	Device string `json:"device"` // id of the port or network that dropped it
	Chain  string `json:"chain,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason"`
}

// Emission is a packet that the virtual network itself sends to an exterior port (ARP, ND, DHCP replies, ICMP errors).
type Emission struct {
	PortID string
	Frame  []byte
}

// ConnKey names one direction of a tracked connection within a device (midonet-simulation §5). For ICMP echo the id
// stands in both port fields; for protocols without ports both are 0.
type ConnKey struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
	Proto            uint8
	Ingress          bool   // the stored key of the forward direction itself: seen only by ICMP-error look-ups
	Device           string // id of the network (or router) that scopes the key
}

// Learned is a source address seen behind a port (midonet-simulation §7.2).
type Learned struct {
	NetworkID string
	VLAN      uint16
	MAC       packet.MAC
	PortID    string
}

// LearnedNeighbour is an IP to MAC binding learned from a gratuitous ARP or an unsolicited advertisement.
type LearnedNeighbour struct {
	NetworkID string
	IP        netip.Addr
	MAC       packet.MAC
}

// Asker is a sender that asks about a neighbour in its network.
type Asker struct {
	NetworkID string
	MAC       packet.MAC
	IP        netip.Addr
	Target    netip.Addr
}

// FragKey names the datagram whose first fragment passed (midonet-simulation §5, Heddle).
type FragKey struct {
	Src, Dst netip.Addr
	Proto    uint8 // as every fragment names it: of IPv6 the one in the fragment header
	ID       uint32
	Device   string // id of the network that the datagram entered
}

// Step is one line of a trace: a device, the chain and rule if one decided, and what happened in words.
type Step struct {
	Device string `json:"device"`
	Chain  string `json:"chain,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Text   string `json:"text"`
}

// Decision is the result of one simulation. The simulator reuses it and its slices for the next packet: keep a copy.
type Decision struct {
	Verdict Verdict
	Reason  string // of a drop: which chain and rule, in words
	Device  string // id of the device where a drop happened
	Outputs []Output
	Emit    []Emission
	// Drops are all ends that the packet and its copies met: one when Verdict is a drop, and of a flood also those of
	// the ports that would not take it.
	Drops []Dropped

	// Cacheable: a packet with the same headers on the same port gets the same decision until one of the ports in
	// Touched changes or, when Tracked, the answer for Asked does. The same headers are: MACs, EtherType, outermost VLAN
	// id, IP addresses, IP protocol, fragment kind, and ports; of an ICMP echo type, code and id.
	Cacheable bool
	// Touched are the ids of the ports whose configuration the decision rests on: the ingress port and every port
	// to which the packet was delivered or would have been. Changes of chains, groups, tables and networks fold into the
	// ports they reach.
	Touched []string

	// Tracked says that a rule asked whether the packet is a reply; Return is the answer, for the key Asked.
	Tracked, Return bool
	Asked           ConnKey
	// NewConns are the keys to store before the packet leaves, with the outputs' hosts told first: the reply key of
	// each emission and the ingress key.
	NewConns []ConnKey

	// Learn is the reference that the packet takes on its source address, nil when the address is seeded.
	Learn          *Learned
	LearnNeighbour *LearnedNeighbour
	// Asker is the sender of a Consumed question about a neighbour (an ARP request, a neighbour solicitation) if it would
	// be answered alike about any other neighbour in the network's table, until the port it came in at is affected by a
	// change: nothing rests on the target, and nothing is to be learned. Else nil.
	Asker *Asker
	// FirstFrag names a datagram whose first fragment passed: remember FragPorts for its later fragments. They are its
	// source and destination port; of ICMP the echo id (0 without one), and type<<8 | code.
	FirstFrag *FragKey
	FragPorts [2]uint16

	// Warnings are faults of the configuration that did not decide the verdict, for the log.
	Warnings []string
	Walk     []Step // only when the simulation was asked to explain itself
}
