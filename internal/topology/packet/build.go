package packet

import (
	"encoding/binary"
	"net/netip"
)

// Headers are built outermost first: each Append adds one header to b and returns the longer slice.

// Ethernet is an Ethernet header, with one 802.1Q tag if Tagged.
type Ethernet struct {
	Dst, Src MAC
	Tagged   bool
	VLAN     uint16
	Type     uint16
}

// Append adds the header to b.
func (h Ethernet) Append(b []byte) []byte {
	b = append(append(b, h.Dst[:]...), h.Src[:]...)
	if h.Tagged {
		b = binary.BigEndian.AppendUint16(b, TypeVLAN)
		b = binary.BigEndian.AppendUint16(b, h.VLAN&0x0fff)
	}
	return binary.BigEndian.AppendUint16(b, h.Type)
}

// ARP is an ARP message about IPv4 over Ethernet.
type ARP struct {
	Op       uint16
	SHA, THA MAC
	SPA, TPA netip.Addr // IPv4
}

// Append adds the message to b.
func (a ARP) Append(b []byte) []byte {
	b = append(b, 0, 1, 8, 0, 6, 4)
	b = binary.BigEndian.AppendUint16(b, a.Op)
	spa, tpa := as4(a.SPA), as4(a.TPA)
	b = append(append(b, a.SHA[:]...), spa[:]...)
	return append(append(b, a.THA[:]...), tpa[:]...)
}

// ARPRequestFor asks everybody for the MAC address of target, in the name of src and mac.
func ARPRequestFor(target netip.Addr, mac MAC, src netip.Addr) []byte {
	b := Ethernet{Dst: Broadcast, Src: mac, Type: TypeARP}.Append(make([]byte, 0, 42))
	return ARP{Op: ARPRequest, SHA: mac, SPA: src, TPA: target}.Append(b)
}

// ARPReplyTo answers an ARP request: its target is at mac.
func ARPReplyTo(request *Frame, mac MAC) []byte {
	b := Ethernet{Dst: request.SHA, Src: mac, Type: TypeARP}.Append(make([]byte, 0, 42))
	return ARP{Op: ARPReply, SHA: mac, SPA: request.DstIP, THA: request.SHA, TPA: request.SrcIP}.Append(b)
}

// as4 is the address in 4 bytes, zeros when it is no IPv4 address.
func as4(a netip.Addr) [4]byte {
	if a.Is4() || a.Is4In6() {
		return a.As4()
	}
	return [4]byte{}
}

// IPv4 is an IPv4 header without options.
type IPv4 struct {
	TOS, TTL, Proto uint8
	ID              uint16
	DontFragment    bool
	MoreFragments   bool
	Offset          uint16 // of a fragment, in 8-byte units
	Src, Dst        netip.Addr
}

// Append adds the header of a packet with payloadLen bytes behind it.
func (h IPv4) Append(b []byte, payloadLen int) []byte {
	at := len(b)
	b = append(b, 0x45, h.TOS)
	b = binary.BigEndian.AppendUint16(b, uint16(20+payloadLen))
	b = binary.BigEndian.AppendUint16(b, h.ID)
	fragment := h.Offset & 0x1fff
	if h.DontFragment {
		fragment |= 0x4000
	}
	if h.MoreFragments {
		fragment |= 0x2000
	}
	b = binary.BigEndian.AppendUint16(b, fragment)
	b = append(b, h.TTL, h.Proto, 0, 0)
	src, dst := as4(h.Src), as4(h.Dst)
	b = append(append(b, src[:]...), dst[:]...)
	binary.BigEndian.PutUint16(b[at+10:], Fold(Sum(0, b[at:])))
	return b
}

// IPv6 is an IPv6 header. A fragment has a fragment header behind it.
type IPv6 struct {
	Class, HopLimit, Next uint8
	Src, Dst              netip.Addr

	Fragment      bool
	MoreFragments bool
	Offset        uint16 // of a fragment, in 8-byte units
	ID            uint32
}

// Append adds the header, and that of a fragment, of a packet with payloadLen bytes behind them.
func (h IPv6) Append(b []byte, payloadLen int) []byte {
	next := h.Next
	if h.Fragment {
		next = extFragment
		payloadLen += 8
	}
	b = append(b, 0x60|h.Class>>4, h.Class<<4, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(payloadLen))
	b = append(b, next, h.HopLimit)
	src, dst := h.Src.As16(), h.Dst.As16()
	b = append(append(b, src[:]...), dst[:]...)
	if !h.Fragment {
		return b
	}
	field := h.Offset << 3
	if h.MoreFragments {
		field |= 1
	}
	b = append(b, h.Next, 0)
	b = binary.BigEndian.AppendUint16(b, field)
	return binary.BigEndian.AppendUint32(b, h.ID)
}

// UDP is a UDP header.
type UDP struct{ SrcPort, DstPort uint16 }

// Append adds header and payload, with the checksum for a packet from src to dst.
func (h UDP) Append(b []byte, src, dst netip.Addr, payload []byte) []byte {
	at := len(b)
	b = binary.BigEndian.AppendUint16(b, h.SrcPort)
	b = binary.BigEndian.AppendUint16(b, h.DstPort)
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(payload)))
	b = append(append(b, 0, 0), payload...)
	sum := Fold(Sum(PseudoSum(src, dst, ProtoUDP, len(b)-at), b[at:]))
	if sum == 0 {
		sum = 0xffff // 0 would mean that there is none (RFC 768)
	}
	binary.BigEndian.PutUint16(b[at+6:], sum)
	return b
}

// TCP flags.
const (
	TCPFin uint8 = 1 << iota
	TCPSyn
	TCPRst
	TCPPsh
	TCPAck
)

// TCP is a TCP header without options.
type TCP struct {
	SrcPort, DstPort uint16
	Seq, Ack         uint32
	Flags            uint8
	Window           uint16
}

// Append adds header and payload, with the checksum for a packet from src to dst.
func (h TCP) Append(b []byte, src, dst netip.Addr, payload []byte) []byte {
	at := len(b)
	b = binary.BigEndian.AppendUint16(b, h.SrcPort)
	b = binary.BigEndian.AppendUint16(b, h.DstPort)
	b = binary.BigEndian.AppendUint32(b, h.Seq)
	b = binary.BigEndian.AppendUint32(b, h.Ack)
	b = append(b, 5<<4, h.Flags)
	b = binary.BigEndian.AppendUint16(b, h.Window)
	b = append(append(b, 0, 0, 0, 0), payload...)
	binary.BigEndian.PutUint16(b[at+16:], Fold(Sum(PseudoSum(src, dst, ProtoTCP, len(b)-at), b[at:])))
	return b
}

// ICMP is an ICMP or ICMPv6 header, with the four bytes after its checksum (of an echo: EchoRest).
type ICMP struct {
	Type, Code uint8
	Rest       uint32
}

// EchoRest is the Rest of an ICMP echo.
func EchoRest(id, seq uint16) uint32 { return uint32(id)<<16 | uint32(seq) }

// Append adds an ICMPv4 message.
func (h ICMP) Append(b []byte, payload []byte) []byte { return h.append(b, 0, payload) }

// AppendV6 adds an ICMPv6 message, with the checksum for a packet from src to dst.
func (h ICMP) AppendV6(b []byte, src, dst netip.Addr, payload []byte) []byte {
	return h.append(b, PseudoSum(src, dst, ProtoICMPv6, 8+len(payload)), payload)
}

func (h ICMP) append(b []byte, sum uint32, payload []byte) []byte {
	at := len(b)
	b = append(b, h.Type, h.Code, 0, 0)
	b = binary.BigEndian.AppendUint32(b, h.Rest)
	b = append(b, payload...)
	binary.BigEndian.PutUint16(b[at+2:], Fold(Sum(sum, b[at:])))
	return b
}
