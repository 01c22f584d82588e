package flow

import (
	"net/netip"

	"heddle/internal/topology/packet"
)

// Framing is the change of the headers in front of an output's network header, in this order. The
// headers of Rewrite are those of the frame before it is popped.
type Framing struct {
	// Inner has the frame inside the VXLAN packet that came in go out, in place of the packet:
	// Decision.Decap says where it begins.
	Inner    bool
	PopVLAN  bool   // without its outermost tag
	PushVLAN uint16 // with a tag of this VLAN in front; 0 = none
	Encap    *Encap // inside a VXLAN packet; nil = as it is
}

// Encap is the outside of a VXLAN packet as it leaves.
type Encap struct {
	VNI              uint32
	SrcMAC, DstMAC   packet.MAC
	Src, Dst         netip.Addr // IPv4
	SrcPort, DstPort uint16
	TTL              uint8
}

// IsPlain reports whether a frame leaves with the headers that it came in with, but for those of
// Rewrite.
func (f *Framing) IsPlain() bool { return *f == Framing{} }

// Wrap returns a frame, from which the VXLAN packet around it has been taken, as it leaves. It is
// not changed.
func (f *Framing) Wrap(frame []byte) []byte {
	if f.PopVLAN {
		frame = packet.PopVLAN(frame)
	}
	if f.PushVLAN != 0 {
		frame = packet.PushVLAN(frame, f.PushVLAN)
	}
	if e := f.Encap; e != nil {
		h := packet.VXLAN{VNI: e.VNI, Dst: e.DstMAC, Src: e.SrcMAC, From: e.Src, To: e.Dst, SrcPort: e.SrcPort, DstPort: e.DstPort, TTL: e.TTL}
		frame = h.Append(nil, frame)
	}
	return frame
}

// Decap is the decapsulation of a VXLAN packet that came in for a VTEP of a router. For the frame
// inside its own headers count, and the port: any packet with such a frame comes to the same.
type Decap struct {
	PortID string // of the router's port with the VNI
	VNI    uint32
	Offset int // of the frame inside, bytes
	// Cacheable: a packet with the same outer headers at the same port comes to the router, until
	// something in Touched changes. Its time to live must be above Hops.
	Cacheable bool
	Hops      uint8
	// Touched are the ids on which that rests. InnerTouched are those on which the way of the frame
	// inside does, as Decision.Cacheable is about that alone. Decision.Touched has both.
	Touched, InnerTouched []string
}
