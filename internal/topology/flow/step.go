package flow

import (
	"fmt"
	"net/netip"
	"slices"

	"heddle/internal/topology/packet"
)

// Step is one line of a trace: what happened, what decided it, and what it rests on.
type Step struct {
	Device string   `json:"device"`
	Kind   StepKind `json:"kind,omitempty"` // agents of earlier versions name none
	Chain  string   `json:"chain,omitempty"`
	Rule   string   `json:"rule,omitempty"`
	// Purpose names the use of the chain, as topology.ChainPurpose does.
	Purpose string `json:"purpose,omitempty"`
	Code    Code   `json:"code,omitzero"` // of a drop
	Text    string `json:"text"`
	// Connection is the state of connections that the step has read or leaves behind, and
	// Translation that of NAT.
	Connection  *Connection  `json:"connection,omitempty"`
	Translation *Translation `json:"translation,omitempty"`
	// Before and After are the packet's headers where the step has changed them.
	Before *Headers `json:"before,omitempty"`
	After  *Headers `json:"after,omitempty"`
	// Routes are those to the packet's destination that a router has had to choose from.
	Routes []RouteChoice `json:"routes,omitempty"`
	// Object is the user's object that decided. Agents know no names.
	Object *Object `json:"object,omitempty"`
}

// StepKind is the kind of a [Step] in a closed set, which docs/codes.md lists.
type StepKind string

// Kinds of steps.
const (
	StepIn          StepKind = "in"          // the packet comes in by a port
	StepOut         StepKind = "out"         // it leaves by a port
	StepDrop        StepKind = "drop"        // it is dropped; the code says why
	StepWait        StepKind = "wait"        // it waits for a neighbour or for NAT ports
	StepFilter      StepKind = "filter"      // a filter lets it pass
	StepConnection  StepKind = "connection"  // state of connections is read or left behind
	StepTranslation StepKind = "translation" // NAT changes its addresses or ports
	StepBalance     StepKind = "balance"     // a load balancer does
	StepRoute       StepKind = "route"       // a router chooses a route
	StepNextHop     StepKind = "next-hop"    // a router finds the next hop's MAC address
	StepPath        StepKind = "path"        // a network finds the port behind a MAC address
	StepFlood       StepKind = "flood"       // a network sends it to all of its ports
	StepLearn       StepKind = "learn"       // an address is seen at its place
	StepAnswer      StepKind = "answer"      // the virtual network answers itself
	StepRedirect    StepKind = "redirect"    // a router sends it to a service container
	StepVLAN        StepKind = "vlan"        // a VLAN tag is put on or taken off
	StepVXLAN       StepKind = "vxlan"       // it is put into a VXLAN packet or taken out of it
	StepLocalIP     StepKind = "local-ip"    // a local IP leads to a port of this host
	StepLimit       StepKind = "limit"       // a limit of rate or a mark applies to it
	StepCopy        StepKind = "copy"        // a mirror copies it
	StepLog         StepKind = "log"         // a log records the decision
	StepMetadata    StepKind = "metadata"    // it goes to the metadata service or comes from there
)

// StepKinds returns all kinds of steps.
func StepKinds() []StepKind {
	return []StepKind{StepIn, StepOut, StepDrop, StepWait, StepFilter, StepConnection, StepTranslation, StepBalance, StepRoute, StepNextHop, StepPath,
		StepFlood, StepLearn, StepAnswer, StepRedirect, StepVLAN, StepVXLAN, StepLocalIP, StepLimit, StepCopy, StepLog, StepMetadata}
}

// Connection is the state of a connection as a step has met it.
type Connection struct {
	Key   ConnKey `json:"key"`
	Known bool    `json:"known"`         // it is there, so that the packet is a reply
	New   bool    `json:"new,omitempty"` // the packet leaves it behind
	// Idle is the time since its last use, seconds; null: not known.
	Idle *int `json:"idleSeconds,omitempty"`
}

// Translation is the state of NAT as a step has met it: what became of an address and port.
type Translation struct {
	Kind   NATKind        `json:"kind"`
	Device string         `json:"device"` // id of the router or load balancer
	From   netip.AddrPort `json:"from"`
	To     netip.AddrPort `json:"to"`
	New    bool           `json:"new,omitempty"` // the packet makes it
	// Host is the id of the host that owns the block of the translated port; "": not known, or
	// there are no blocks.
	Host string `json:"host,omitempty"`
	// Idle is the time since its last use, seconds; null: not known.
	Idle *int `json:"idleSeconds,omitempty"`
}

// Headers are those of a packet that routers and translations change.
type Headers struct {
	SrcMAC  packet.MAC `json:"srcMac"`
	DstMAC  packet.MAC `json:"dstMac"`
	Src     netip.Addr `json:"src"`
	Dst     netip.Addr `json:"dst"`
	SrcPort uint16     `json:"srcPort"` // of an ICMP echo both are the id; without ports 0
	DstPort uint16     `json:"dstPort"`
}

// RouteChoice is a route to a packet's destination, and whether the packet takes it.
type RouteChoice struct {
	ID     string       `json:"id"`
	To     netip.Prefix `json:"to"`
	Text   string       `json:"text"`
	WhyNot string       `json:"whyNot,omitempty"` // "": it is taken
	Object *Object      `json:"object,omitempty"` // of a user's that the route is of
}

// Object is an object of a user's.
type Object struct {
	Kind string `json:"kind"` // such as port, router, security-group-rule
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Group is the object that this one is part of, such as the security group of a rule.
	Group *Object `json:"group,omitempty"`
}

var natKindNames = []string{ForwardSNAT: "snat", ReverseSNAT: "snat-reply", ForwardDNAT: "dnat", ReverseDNAT: "dnat-reply", ForwardSticky: "sticky"}

// String returns the kind's name.
func (k NATKind) String() string {
	if int(k) >= len(natKindNames) {
		return fmt.Sprintf("nat-%d", uint8(k))
	}
	return natKindNames[k]
}

// MarshalText implements [encoding.TextMarshaler].
func (k NATKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *NATKind) UnmarshalText(name []byte) error {
	i := slices.Index(natKindNames, string(name))
	if i < 1 {
		return fmt.Errorf("%q is no kind of translation", name)
	}
	*k = NATKind(i)
	return nil
}

// State holds the connections and translations that packets leave behind: by it their replies are
// known.
type State struct {
	Connections  []ConnKey  `json:"connections"`
	Translations []NATEntry `json:"translations"`
}
