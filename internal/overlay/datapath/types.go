package datapath

import (
	"hash/fnv"
	"net/netip"
	"time"

	"heddle/internal/topology/packet"
)

// Port is the number of an attached workload interface. It holds a generation and is never given twice, unlike an
// interface index. Zero is no port.
type Port uint32

// Tunnel is the number of the path to one remote host, with a generation like Port. Zero is no tunnel.
type Tunnel uint32

const (
	// StateKey is the tunnel key of state messages between agents (midonet-simulation §13).
	StateKey = 0xFFFFFF
	// TunnelPort is the UDP port of the overlay (midonet-simulation §14).
	TunnelPort = 6677
	// Overhead is what a tunnel adds to an IP packet, in bytes: inner Ethernet, VXLAN, UDP and IPv4 headers.
	Overhead = 50
	// UpcallBytes is the longest frame that goes up by the ring buffer.
	UpcallBytes = 2048
	// MaxTags is how many tags one flow can carry.
	MaxTags = 6
)

// Slot is the place of one tag's epoch. Flows name tags by slot.
type Slot uint16

// SlotAll is the slot that no id has: a flow that carries it is stopped by Bump(SlotAll).
const SlotAll Slot = 0

// SlotOf is the slot of the tag called id, the same in every process. Two ids may share a slot: bumping one then also
// stops the other's flows, which costs a miss and is never wrong.
func SlotOf(id string) Slot {
	h := fnv.New32a()
	h.Write([]byte(id))
	return Slot(1 + h.Sum32()%(slotCount-1))
}

const slotCount = 1 << 16

// Tag is a slot with the epoch that a decision rests on. Read tags (Datapath.Tags) before taking the snapshot that is
// simulated, so that a change in between makes the flow stale at once.
type Tag struct {
	Slot  Slot
	Epoch uint32
}

// Frag says which part of a datagram a frame carries.
type Frag uint8

const (
	Whole     Frag = iota // the whole datagram
	FirstFrag             // the first fragment; the ports of its key are 0
	LaterFrag             // any other fragment; the ports of its key are 0
)

// Key is the exact headers by which a flow is found. Frames of other ethertypes than IPv4 and IPv6, ICMP other than
// echo, and what does not parse have no key and always go up.
type Key struct {
	Port             Port // where the frame came in
	SrcMAC, DstMAC   packet.MAC
	VLAN             uint16 // 0x1000 | VLAN id of a tagged frame, else 0
	Src, Dst         netip.Addr
	Proto            uint8  // behind IPv6 extension headers
	SrcPort, DstPort uint16 // echo: the id, and type<<8 | code; protocols without ports: 0
	Frag             Frag
}

// Output is where a frame goes: Port, or the port called TunnelKey behind Tunnel. The zero Output is nowhere: drop.
type Output struct {
	Port      Port
	Tunnel    Tunnel
	TunnelKey uint32
}

// Drops says whether o leads nowhere.
func (o Output) Drops() bool { return o.Port == 0 && o.Tunnel == 0 }

// Flow is a cached decision: frames with exactly Key go to Out.
type Flow struct {
	Key
	Out  Output
	Tags []Tag // at most MaxTags
	// Cookie is the caller's own mark; it is kept with the flow and given back by Dump.
	Cookie uint64
}

// FlowState is a flow as found in the kernel.
type FlowState struct {
	Flow
	Packets, Bytes uint64        // since it was installed; a segmentation-offload frame counts as one packet
	Idle           time.Duration // since the last hit, or since it was installed; a few milliseconds coarse
	Stale          bool          // a tag has moved: the flow no longer acts
}

// PortOptions are the properties of a port that the datapath needs.
type PortOptions struct {
	// TunnelKey names the port to other hosts: frames that arrive with it are delivered here. 0: none.
	TunnelKey uint32
	// MTU is the largest IP packet the workload takes, in bytes; larger ones go up (TooBigPort). 0: any.
	MTU int
}

// PortInfo is an attached port. Name is the caller's, usually the port's UUID.
type PortInfo struct {
	Name      string
	Port      Port
	Interface string // empty when the interface has gone
	Index     int    // of the interface
	PortOptions
}

// TunnelPath is how a remote host is reached: the outer headers to write and the interface to leave by. Watch routes
// and neighbours and set it again when they change; flows need not.
type TunnelPath struct {
	Interface      int        // index of the underlay interface
	Local, Remote  netip.Addr // IPv4
	SrcMAC, DstMAC packet.MAC // of the interface and of the next hop
	MTU            int        // of the underlay, bytes; larger frames go up (TooBigTunnel)
}

// Reason says why a frame was given to the agent.
type Reason uint8

const (
	Miss         Reason = iota + 1 // no flow with its key
	Stale                          // a flow, but one of its tags has moved or its output has gone
	NoKey                          // ARP, ICMP other than echo, another ethertype
	Malformed                      // cut short, or lengths that contradict each other
	TooBigTunnel                   // its IP packet exceeds what the tunnel of its flow carries
	TooBigPort                     // its IP packet exceeds the MTU of the port of its flow
	State                          // a state message of another host's agent
)

func (r Reason) String() string {
	switch r {
	case Miss:
		return "miss"
	case Stale:
		return "stale"
	case NoKey:
		return "no key"
	case Malformed:
		return "malformed"
	case TooBigTunnel:
		return "too big for tunnel"
	case TooBigPort:
		return "too big for port"
	case State:
		return "state"
	}
	return "unknown reason"
}

// Upcall is a frame given to the agent. It belongs to the datapath: Frame is valid until the handler returns.
type Upcall struct {
	Reason Reason
	Port   Port       // where it came in; 0 for State
	From   netip.Addr // State: the sender's underlay address
	VLAN   uint16     // 0x1000 | VLAN id when the frame was tagged; Frame then begins with the tag in place
	// Frame is the whole Ethernet frame, or its first UpcallBytes when Length says more (only for the reasons TooBig…
	// and Malformed, which are answered or dropped and never sent on). For State it is the message.
	Frame   []byte
	Length  int     // of the frame as it came in, bytes
	Offload Offload // hand it to Send with the frame
}

// Offload is work on a frame that its sender left to hardware: checksum and segmentation. The zero value is a finished
// frame, such as one the agent built. Send puts the checksum right for the addresses and ports that the frame then has.
type Offload struct {
	unknown bool // from the ring buffer: the checksum may or may not be finished
	vnet    vnetHeader
}
