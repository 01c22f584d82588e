// Package flow holds the decision about one packet: the verdict with its reason, the outputs, the
// connections to remember, and the ports whose configuration it rests on. The simulator makes
// decisions, the agent installs them (midonet-simulation §1, §5, §15).
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
	// ErrorDrop: something is wrong or unknown (no such port); cached for 5 s, commits no state.
	ErrorDrop
	// Consumed: answered or absorbed (ARP, ND, DHCP); never cached.
	Consumed
)

func (v Verdict) String() string {
	return [...]string{"none", "forward", "drop", "error drop", "consumed"}[v]
}

// Output is one delivery of the packet to an exterior port.
type Output struct {
	PortID    string
	HostID    string // where the port is bound
	TunnelKey uint32 // of the port; used when HostID is another host
	// LocalIP and RemoteIP are the tunnel addresses of the ingress host and of HostID in their
	// common zone; invalid if they are one host, or not both are known.
	LocalIP, RemoteIP netip.Addr
}

// Dropped is one end of the packet, or of one of its copies: where and why, in words.
type Dropped struct {
	Device string `json:"device"` // id of the port or network that dropped it
	Chain  string `json:"chain,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason"`
}

// Emission is a packet of the virtual network's own: ARP, ND, DHCP replies, ICMP errors.
type Emission struct {
	PortID string
	Frame  []byte
}

// ConnKey names one direction of a tracked connection within a device (midonet-simulation §5). Both
// ports are the id of an ICMP echo, and 0 for protocols without ports.
type ConnKey struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
	Proto            uint8
	Ingress          bool   // the forward direction, for ICMP-error look-ups alone
	Device           string // id of the network (or router) that scopes the key
}

// Learned is a source address seen behind a port (midonet-simulation §7.2).
type Learned struct {
	NetworkID string
	VLAN      uint16
	MAC       packet.MAC
	PortID    string
}

// LearnedNeighbour is learned from a gratuitous ARP or an unsolicited advertisement.
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

// Step is one line of a trace: what happened, and the chain and rule if one decided.
type Step struct {
	Device string `json:"device"`
	Chain  string `json:"chain,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Text   string `json:"text"`
}

// Decision is the result of one simulation. The simulator reuses it for the next packet.
type Decision struct {
	Verdict Verdict
	Reason  string // of a drop: which chain and rule, in words
	Device  string // id of the device where a drop happened
	Outputs []Output
	Emit    []Emission
	// Drops are all ends of the packet and its copies: one when Verdict is a drop, and of a flood
	// those of the ports that refused it.
	Drops []Dropped

	// Cacheable: a packet with the same headers on the same port gets the same decision until a
	// port in Touched changes or, when Tracked, the answer for Lookup does. The headers are MACs,
	// EtherType, outermost VLAN id, IP addresses, protocol, fragment kind and ports; of ICMP echo
	// type, code and id.
	Cacheable bool
	// Touched are the ids of the ports that the decision rests on: the ingress port and all to
	// which the packet went or would have gone. Changes of chains, groups, tables and networks
	// affect their ports.
	Touched []string

	// Tracked: a rule asked whether the packet is a reply; Return is the answer, for the key
	// Lookup.
	Tracked, Return bool
	Lookup          ConnKey
	// NewConns are the keys to store, and to send to the outputs' hosts, before the packet leaves:
	// the reply's and the ingress key.
	NewConns []ConnKey

	// Learn is the packet's reference to its source address, nil when the address is seeded.
	Learn          *Learned
	LearnNeighbour *LearnedNeighbour
	// Asker is the sender of a Consumed question about a neighbour if the answer would be alike
	// about any other neighbour in the network's table, until a change affects its port. Else nil.
	Asker *Asker
	// FirstFrag names a datagram whose first fragment passed: remember FragPorts for the later
	// ones. They are its ports; of ICMP the echo id (0 without one), and type<<8 | code.
	FirstFrag *FragKey
	FragPorts [2]uint16

	// Warnings are faults of the configuration that did not decide the verdict, for the log.
	Warnings []string
	Walk     []Step // only when the simulation was asked to explain itself
}
