package datapath

import (
	"hash/fnv"
	"net/netip"
	"time"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// Port is the number of an attached workload interface. It has a generation and is never reused,
// unlike an interface index. 0 is no port.
type Port uint32

// Tunnel is the number of the path to one remote host, with a generation like Port. 0 is no tunnel.
type Tunnel uint32

const (
	// StateKey is the tunnel key of state messages between agents (midonet-simulation §13).
	StateKey = 0xFFFFFF
	// TunnelPort is the UDP port of the overlay (midonet-simulation §14).
	TunnelPort = 6677
	// Overhead is the size that a tunnel adds: inner Ethernet, VXLAN, UDP, IPv4.
	Overhead = 50
	// UpcallBytes is the longest frame that goes up by the ring buffer.
	UpcallBytes = 2048
	// MaxTags is the number of tags of one flow, less one if it has limits or copies, less two if
	// it has a Framing.
	MaxTags = 6
	// MaxLimits is the number of limits of one flow.
	MaxLimits = 2
)

// Slot is the place of one tag's epoch. Flows name tags by slot.
type Slot uint16

// SlotAll is the slot that no id has: a flow that carries it is stopped by Bump(SlotAll).
const SlotAll Slot = 0

// SlotOf returns the slot of the tag called id, the same in every process. Two ids may share a
// slot: bumping one also stops the other's flows, which costs a miss each.
func SlotOf(id string) Slot {
	h := fnv.New32a()
	h.Write([]byte(id))
	return Slot(1 + h.Sum32()%(slotCount-1))
}

const slotCount = 1 << 16

// Tag is a slot with the epoch that a decision rests on. Read tags before the snapshot that is
// simulated, so that a change in between makes the flow stale at once.
type Tag struct {
	Slot  Slot
	Epoch uint32
}

// Frag is the part of a datagram that a frame carries.
type Frag uint8

const (
	Whole     Frag = iota // the whole datagram
	FirstFrag             // the first fragment; the ports of its key are 0
	LaterFrag             // any other fragment; the ports of its key are 0
)

// Key holds the exact headers by which a flow is found. Frames other than IPv4 and IPv6, ICMP other
// than echo, and what does not parse have no key and always go up.
type Key struct {
	Port             Port // where the frame came in
	SrcMAC, DstMAC   packet.MAC
	VLAN             uint16 // 0x1000 | VLAN id of a tagged frame, else 0
	Src, Dst         netip.Addr
	Proto            uint8  // behind IPv6 extension headers
	SrcPort, DstPort uint16 // echo: the id, and type<<8 | code; protocols without ports: 0
	Frag             Frag
}

// Output is a Port, or the port called TunnelKey behind Tunnel. The zero Output drops.
type Output struct {
	Port      Port
	Tunnel    Tunnel
	TunnelKey uint32
	Framing   Framing
	// Inside stands for what is inside the frames, VXLAN packets for a VTEP of the virtual network:
	// that comes in at the port of its VNI (AttachVTEP), and goes on by its own flow. Packets with
	// a TTL of up to Hops, and what is not plain VXLAN or of another VNI, go up.
	Inside bool
	Hops   uint8
}

// Drops reports whether o has no destination.
func (o Output) Drops() bool { return o.Port == 0 && o.Tunnel == 0 && !o.Inside }

// Flow is a cached decision: frames with exactly Key go to Out.
type Flow struct {
	Key
	Out  Output
	Tags []Tag // at most MaxTags
	// Rewrite holds the headers with which frames leave; nil: as they came. Checksums follow. It
	// has no effect on a flow that drops, but on its copies. The ports of fragments stay, since
	// their keys have none: if the first fragment needs others, do not cache its decision. Install
	// takes no rewrite of frames that keep their tag, of quoted packets, and of SCTP ports, whose
	// checksum covers the whole packet: such packets must be sent one by one. A frame that
	// Rewrite.Hops would leave without TTL or hop limit goes up.
	Rewrite *flow.Rewrite
	// Limits are those of a flow with a Rewrite, at most MaxLimits. Such a flow has one tag less.
	Limits []Limit
	// Copies are sent before the frame itself, whatever the flow does with that; at most MaxCopies.
	// Such a flow has one tag less too.
	Copies []Copy
	// NotesEnd has the programs note the end of the frames' TCP connection: see FlowState. If the
	// connection is Shared with other hosts, a SYN goes up as Stale: a new one may begin.
	NotesEnd, Shared bool
	// Cookie is the caller's own mark; it is kept with the flow and given back by Dump.
	Cookie uint64
}

// FlowState is a flow as found in the kernel.
type FlowState struct {
	Flow
	Packets, Bytes uint64        // since installed; a segmentation-offload frame counts as one
	Idle           time.Duration // since the last hit or the installation, to a few ms
	Stale          bool          // a tag has moved: the flow no longer acts
	SYN            bool          // of a flow with NotesEnd: a frame had SYN
	FIN            bool          // likewise: a frame had FIN, since the last SYN
	RST            bool          // likewise: the last frame had RST
}

// PortOptions are the properties of a port that the datapath needs.
type PortOptions struct {
	// TunnelKey names the port to other hosts, whose frames with it are delivered here. 0: none.
	TunnelKey uint32
	// MTU is the largest IP packet the workload takes, in bytes; larger ones go up. 0: any.
	MTU int
	// Localnet makes the port that of one VLAN of the LAN behind the interface, which may have
	// several such ports and stays the host's own otherwise. Frames to MAC addresses at home here
	// (SetHomes) come in by it without their tag; of frames to many the agent gets copies.
	Localnet bool
	// VLAN makes a port that is no localnet port a subport: frames with this tag on the interface,
	// which is that of a port with Trunk, are its own. Of a localnet port 0 stands for frames
	// without a tag.
	VLAN uint16
	// Trunk has frames with a tag on the interface belong to subports alone; others are dropped.
	Trunk bool
	// VTEP makes the port, which has no interface, that of a VNI of a VTEP; see AttachVTEP.
	VTEP VTEP
	// Limits are those of the port's machine. A localnet port, or one that has moved, has none.
	Limits PortLimits
}

// VTEP is one VNI of a VTEP of the virtual network, which unpacks VXLAN packets to IP.
type VTEP struct {
	IP  netip.Addr // IPv4; invalid: it is none
	VNI uint32
}

// PortLimits are the limits of what a machine sends (Egress) and receives (Ingress), and the mark
// that IP packets it sends get: see topology.Limits.
type PortLimits struct {
	Egress, Ingress topology.Limit
	Marks           bool
	DSCP            uint8 // 0 to 63
}

// subport reports whether the port shares the interface of another.
func (o *PortOptions) subport() bool { return !o.Localnet && o.VLAN != 0 }

// PortInfo is an attached port. Name is the caller's, usually the port's UUID.
type PortInfo struct {
	Name      string
	Port      Port
	Interface string // empty when the interface has gone, or the port has moved
	Index     int    // of the interface
	PortOptions
}

// TunnelPath is the way to a remote host: outer headers, and the interface to leave by. It must be
// set again when routes or neighbours change; flows need not be.
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
	Stale                          // a flow, but a tag has moved, its output has gone, or a TCP connection begins
	NoKey                          // ARP, ICMP other than echo, another ethertype
	Malformed                      // cut short, or lengths that contradict each other
	TooBigTunnel                   // its IP packet exceeds what the tunnel of its flow carries
	TooBigPort                     // its IP packet exceeds the MTU of the port of its flow
	State                          // a state message of another host's agent
	Expired                        // the routers of its flow would use up its TTL or hop limit
	HasOptions                     // routers are on the way of its flow, and may refuse its IP options
)

func (r Reason) String() string {
	names := [...]string{Miss: "miss", Stale: "stale", NoKey: "no key", Malformed: "malformed",
		TooBigTunnel: "too big for tunnel", TooBigPort: "too big for port", State: "state", Expired: "expired",
		HasOptions: "has IP options"}
	if r == 0 || int(r) >= len(names) {
		return "unknown reason"
	}
	return names[r]
}

// Upcall is a frame given to the agent. Frame is valid until the handler returns.
type Upcall struct {
	Reason Reason
	Port   Port       // where it came in; 0 for State
	From   netip.Addr // State: the sender's underlay address
	// Frame is the whole Ethernet frame with its VLAN tag, or its first UpcallBytes when Length is
	// more, which only TooBig…, Malformed and Expired allow. For State it is the message.
	Frame   []byte
	Length  int     // of the frame as it came in, bytes
	Offload Offload // hand it to Send with the frame
}

// Offload is work on a frame that its sender left to hardware: checksum and segmentation. The zero
// value is a finished frame. Send sets a checksum that is left to hardware for the headers that the
// frame then has. Whoever changes headers changes the checksum as that of a finished frame, since
// the frame may be one.
type Offload struct {
	unknown bool // from the ring buffer: the checksum may or may not be finished
	vnet    vnetHeader
}
