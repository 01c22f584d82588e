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
	// Postponed: Wait is missing; simulate the packet again when it is there, for at most 5 s.
	Postponed
)

func (v Verdict) String() string {
	return [...]string{"none", "forward", "drop", "error drop", "consumed", "postponed"}[v]
}

// Output is one delivery of the packet to an exterior port.
type Output struct {
	PortID    string
	HostID    string // where the port is bound
	StandbyID string // the host by which replies come in when HostID is gone, "" for none
	TunnelKey uint32 // of the port; used when HostID is another host
	// LocalIP and RemoteIP are the tunnel addresses of the ingress host and of HostID in their
	// common zone; invalid if they are one host, or not both are known.
	LocalIP, RemoteIP netip.Addr
	Framing
}

// Copy is a delivery of a copy of the packet for a mirror. It is sent whatever becomes of the
// packet, unless that is Postponed.
type Copy struct {
	Output
	// Rewrite has the headers of the packet where it was copied, nil for those it came in with.
	Rewrite *Rewrite
}

// Dropped is one end of the packet, or of one of its copies: where and why.
type Dropped struct {
	Device string `json:"device"` // id of the port or network that dropped it
	Code   Code   `json:"code"`
	Chain  string `json:"chain,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason"` // in words
}

// Ruling is the rule by which the filter of a network's port has let a packet pass.
type Ruling struct {
	PortID  string
	Ingress bool   // the packet was to go to the port's machine; else it came from there
	Chain   string // of the rule, "" if the packet is a reply to one that has passed
	Rule    string
}

// Emission is a packet of the virtual network's own: ARP, ND, DHCP replies, ICMP errors.
type Emission struct {
	Output
	Frame []byte
}

// Rewrite holds the headers with which a packet leaves, after routing and NAT. Fields that were not
// changed have the packet's own values.
type Rewrite struct {
	SrcMAC  packet.MAC `json:"srcMac"`
	DstMAC  packet.MAC `json:"dstMac"`
	Src     netip.Addr `json:"src"`
	Dst     netip.Addr `json:"dst"`
	SrcPort uint16     `json:"srcPort"` // of an ICMP echo both are the id; without ports 0
	DstPort uint16     `json:"dstPort"`
	Hops    uint8      `json:"hops"` // routers passed: TTL or hop limit is lower by so much
	// Quote has the addresses and ports that an ICMP error's quoted packet gets, nil to leave it.
	Quote *Quote `json:"quote,omitempty"`
}

// Quote is the rewritten part of the packet that an ICMP error quotes.
type Quote struct {
	Src     netip.Addr `json:"src"`
	Dst     netip.Addr `json:"dst"`
	SrcPort uint16     `json:"srcPort"`
	DstPort uint16     `json:"dstPort"`
}

// NATKind is the rule and direction of a translation (midonet-simulation §6).
type NATKind uint8

// The kinds of translations. Each connection has one of a Forward kind, by which later packets find
// it, and the Reverse of that for the replies. ForwardSticky is no translation of its own: it holds
// the member of a load balancer's pool that the connections of a client go to, and has no Reverse.
// Its source is the client's address, or the prefix that it is in, without a port.
const (
	ForwardSNAT NATKind = iota + 1
	ReverseSNAT
	ForwardDNAT
	ReverseDNAT
	ForwardSticky
)

// NATKey identifies a translation by the packet's headers before it, on one device. Of ICMP echo
// both ports are the id; for an ICMP error they are those of the quoted packet's replies.
type NATKey struct {
	Src     netip.Addr `json:"src"`
	Dst     netip.Addr `json:"dst"`
	SrcPort uint16     `json:"srcPort"`
	DstPort uint16     `json:"dstPort"`
	Kind    NATKind    `json:"kind"`
	Proto   uint8      `json:"proto"`
	Device  string     `json:"device"` // id of the router, or of the load balancer
}

// NATBinding is the translated address and port: of the source for ForwardSNAT and ReverseDNAT, of
// the destination for the others.
type NATBinding struct {
	Addr netip.Addr `json:"addr"`
	Port uint16     `json:"port"`
	// Life is that of a ForwardSticky after its last use, seconds; 0 of other kinds.
	Life uint16 `json:"life,omitempty"`
}

// NATEntry is one translation.
type NATEntry struct {
	NATKey
	NATBinding
}

// IsForward reports whether packets of a connection's first direction find it.
func (k *NATKey) IsForward() bool {
	return k.Kind == ForwardSNAT || k.Kind == ForwardDNAT || k.Kind == ForwardSticky
}

// Reverse returns the translation of the connection's other direction, and a ForwardSticky as it
// is. Both live and die together.
func (e NATEntry) Reverse() NATEntry {
	if e.Kind == ForwardSticky {
		return e
	}
	r := NATEntry{NATKey: NATKey{Proto: e.Proto, Device: e.Device}}
	if e.Kind == ForwardSNAT || e.Kind == ReverseDNAT { // the source is translated
		r.Kind = ReverseSNAT
		if e.Kind == ReverseDNAT {
			r.Kind = ForwardDNAT
		}
		r.Src, r.SrcPort, r.Dst, r.DstPort = e.Dst, e.DstPort, e.Addr, e.Port
		r.NATBinding = NATBinding{Addr: e.Src, Port: e.SrcPort}
	} else {
		r.Kind = ForwardSNAT
		if e.Kind == ForwardDNAT {
			r.Kind = ReverseDNAT
		}
		r.Src, r.SrcPort, r.Dst, r.DstPort = e.Addr, e.Port, e.Src, e.SrcPort
		r.NATBinding = NATBinding{Addr: e.Dst, Port: e.DstPort}
	}
	if isEcho(e.Proto) {
		r.SrcPort, r.DstPort = e.Port, e.Port
	}
	return r
}

// isEcho reports whether a protocol is ICMP, of which echo alone is translated.
func isEcho(proto uint8) bool { return proto == packet.ProtoICMP || proto == packet.ProtoICMPv6 }

// Taken returns the key that a connection with this source would have for its replies.
func (r *NATRequest) Taken(source NATBinding) NATKey {
	key := NATKey{Kind: ForwardSNAT, Dst: r.Dst, DstPort: r.DstPort, Proto: r.Proto, Device: r.Device}
	e := NATEntry{NATKey: key, NATBinding: source}
	return e.Reverse().NATKey
}

// Meter names a counter: of a metering label, for a project whose router is passed; or of a VIP and
// a member of its pool, for one direction.
type Meter struct {
	Label, Project string
	Vip, Member    string
	Reply          bool
}

// Endpoint is an address and port on a device: a VIP of a load balancer, or a member of its pools.
type Endpoint struct {
	Device string
	Addr   netip.Addr
	Port   uint16
	Proto  uint8
}

// Logged is a decision that a log asks for (services §9.2), of the filter of a network's port or of
// a firewall, about a packet with the headers that it had there.
type Logged struct {
	Log      string // id
	Accepted bool   // else it was dropped
	TenantID string // of the port or the firewall

	// Of a port's filter.
	PortID  string
	Ingress bool // the packet was to go to the port's machine; else it came from there

	// Of a firewall.
	Resource string // id of the logging resource, to which the record goes
	Firewall string // id
	RouterID string // that the packet was in

	Chain, Rule      string // that decided
	InPort, OutPort  string // of the network or router; "" = not known there
	Proto            uint8
	Src, Dst         netip.Addr
	HasPorts         bool
	SrcPort, DstPort uint16 // of ICMP type and code
	Frag             packet.FragKind
}

// Event returns what logs call the decision.
func (l *Logged) Event() string {
	if l.Accepted {
		return "ACCEPT"
	}
	return "DROP"
}

// NATTarget is a range of addresses and ports to translate to, ends included.
type NATTarget struct {
	First, Last         netip.Addr
	FirstPort, LastPort uint16
	FromPort            uint16 // of destinations, the port that becomes FirstPort; 0 = any port is chosen
}

// NATRequest asks for a free source for a new connection: one that no other connection to the same
// destination has on this router.
type NATRequest struct {
	Device  string // id of the router
	Targets []NATTarget
	Src     netip.Addr // before the translation
	Dst     netip.Addr
	DstPort uint16 // of an ICMP echo 0: the reply has the chosen id in the places of both ports
	Proto   uint8
	Keep    uint16 // of an ICMP echo the id, to be kept if it is free; else 0
	// Reserved are ports that are not chosen, in order: those of VIPs at the address, where a reply
	// would be taken for a new connection.
	Reserved []uint16
}

// NATAnswer is the outcome of a NATRequest.
type NATAnswer uint8

// The outcomes of a NATRequest.
const (
	NATChosen    NATAnswer = iota + 1
	NATWaiting             // this host has leased no ports yet: ask again when it has
	NATExhausted           // all ports are in use for this destination
	NATShareUsed           // those in use by connections of Src are as many as one source may have
)

// Limited names limits of rate that a packet is subject to.
type Limited struct {
	ID       string // of the floating IP, or of the gateway's port
	LimitsID string // of the topology.Limits
	Ingress  bool   // it goes to the machines; else it comes from one
}

// Wait names what a Postponed packet waits for: a neighbour's MAC address, or NAT ports.
type Wait struct {
	Device string // id of the router, or of the network of the neighbour
	// Neighbour is the address to be resolved on Device; Decision.Emit holds the request. Invalid:
	// the packet waits for ports leased for NATAddr.
	Neighbour netip.Addr
	NATAddr   netip.Addr
}

// ConnKey names one direction of a tracked connection within a device (midonet-simulation §5). Both
// ports are the id of an ICMP echo, and 0 for protocols without ports.
type ConnKey struct {
	Src     netip.Addr `json:"src"`
	Dst     netip.Addr `json:"dst"`
	SrcPort uint16     `json:"srcPort"`
	DstPort uint16     `json:"dstPort"`
	Proto   uint8      `json:"proto"`
	Ingress bool       `json:"ingress,omitempty"` // the forward direction, for ICMP-error look-ups alone
	Device  string     `json:"device"`            // id of the network (or router) that scopes the key
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

// Conflict is an address at home at this host that another machine on the LAN speaks for.
type Conflict struct {
	NetworkID string
	MAC       packet.MAC
	IP        netip.Addr // that the other says is at another MAC address; invalid: it sends from MAC
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

// Decision is the result of one simulation. The simulator reuses it for the next packet.
type Decision struct {
	Verdict Verdict
	Code    Code   // of a drop
	Reason  string // of a drop: which chain and rule, in words
	Device  string // id of the device where a drop happened
	Outputs []Output
	Copies  []Copy // for mirrors, made on the way
	// Emit are packets of the virtual network's own. Those of a drop are errors to the sender: of
	// later packets it hears only if the drop is not cached for long.
	Emit []Emission
	// Rulings are the rules by which filters of networks' ports have let the packet pass, in order.
	Rulings []Ruling
	// Drops are all ends of the packet and its copies: one when Verdict is a drop, and of a flood
	// those of the ports that refused it.
	Drops []Dropped

	// Cacheable: a packet with the same headers on the same port gets the same decision until
	// something in Touched changes, a translation in NATs ends, one in MissingNATs comes or,
	// when Tracked, the answer for Lookup changes. The headers are MACs, EtherType, outermost VLAN
	// id, IP addresses, protocol, fragment kind and ports; of ICMP echo type, code and id. The time
	// to live must be above Rewrite.Hops.
	Cacheable bool
	// Touched are the ids of the ports and routers that the decision rests on: the ingress port,
	// the routers passed, the port by which a network between two routers was entered, and all
	// ports to which the packet went or would have gone. Changes of chains, groups, tables, routes
	// and networks affect their ports and routers. Then come the addresses that filters looked up
	// in address groups: if one joins or leaves such a group, only they are affected. Where there
	// is a load balancer they are followed by the names of a VIP with a member, of a VIP alone, or
	// of an address and port where no VIP is.
	Touched []string

	// Rewrite is nil if the packet leaves as it came in. It holds for all Outputs.
	Rewrite *Rewrite
	// Decap is set if the packet is a VXLAN packet to one of our VTEPs, and Rewrite and Outputs are
	// about the frame inside.
	Decap *Decap
	// NATs are the stored translations that the packet used, for as long as flows are in use.
	NATs []NATKey
	// NewNATs are the translations to store, and to send to the outputs' hosts, before the packet
	// leaves: both directions of each connection.
	NewNATs []NATEntry
	// GoneNATs are stored translations to delete: the members that they lead to have left.
	GoneNATs []NATKey
	// Opened are the counters of the VIPs and members of which the packet opens a connection.
	Opened []Meter
	// Meters are those that count the packet, once for each router and load balancer that it
	// passes.
	Meters []Meter
	// Logged are the decisions on the way that logs ask for: to be recorded once, when the packet
	// has not been Postponed.
	Logged []Logged
	// MissingNATs are the translations that the packet would have used: the decision ends when one
	// of them comes.
	MissingNATs []NATKey
	Wait        Wait // of a Postponed packet
	// Limits are those of the translations that the packet went through, each once.
	Limits []Limited

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
	// Conflicts are the addresses at home here that the sender on the LAN speaks for: to be
	// announced again.
	Conflicts []Conflict
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
