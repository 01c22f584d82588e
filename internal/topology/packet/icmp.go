package packet

import (
	"encoding/binary"
	"net/netip"
)

// ICMP types that Heddle reads or builds.
const (
	ICMPEchoReply    uint8 = 0
	ICMPUnreachable  uint8 = 3
	ICMPEchoRequest  uint8 = 8
	ICMPTimeExceeded uint8 = 11
	ICMPParameter    uint8 = 12
)

// Codes of ICMPUnreachable and ICMPv6Unreachable.
const (
	ICMPNoNetwork  uint8 = 0
	ICMPNoHost     uint8 = 1
	ICMPFragNeeded uint8 = 4
	ICMPProhibited uint8 = 13

	ICMPv6NoRoute    uint8 = 0
	ICMPv6Prohibited uint8 = 1
	ICMPv6NoAddress  uint8 = 3
)

// ICMPv6 types that Heddle reads or builds.
const (
	ICMPv6Unreachable     uint8 = 1
	ICMPv6PacketTooBig    uint8 = 2
	ICMPv6TimeExceeded    uint8 = 3
	ICMPv6Parameter       uint8 = 4
	ICMPv6EchoRequest     uint8 = 128
	ICMPv6EchoReply       uint8 = 129
	ICMPv6RouterSolicit   uint8 = 133
	ICMPv6RouterAdvert    uint8 = 134
	ICMPv6NeighborSolicit uint8 = 135
	ICMPv6NeighborAdvert  uint8 = 136
	ICMPv6Redirect        uint8 = 137
)

// Flags of a neighbour advertisement (RFC 4861 §4.4).
const (
	NDRouter    uint8 = 0x80
	NDSolicited uint8 = 0x40
	NDOverride  uint8 = 0x20
)

// Link-layer address options of neighbour discovery.
const (
	ndOptSource = 1
	ndOptTarget = 2
)

// EchoReply turns a frame with an echo request, which must be whole, into the reply to it.
func EchoReply(frame []byte) []byte {
	var f Frame
	if Decode(frame, &f) != nil || !f.Echo || f.Frag != FragNone {
		return frame
	}
	t := frame[f.L4:f.End]
	eth := Ethernet{Dst: f.Src, Src: f.Dst, Type: f.EtherType}
	b := eth.Append(make([]byte, 0, 14+40+len(t)))
	if f.EtherType == TypeIPv4 {
		b = IPv4{TOS: f.TOS, TTL: 64, Proto: ProtoICMP, Src: f.DstIP, Dst: f.SrcIP}.Append(b, len(t))
		return ICMP{Type: ICMPEchoReply, Rest: binary.BigEndian.Uint32(t[4:])}.Append(b, t[8:])
	}
	b = IPv6{Class: f.TOS, HopLimit: 64, Next: ProtoICMPv6, Src: f.DstIP, Dst: f.SrcIP}.Append(b, len(t))
	return ICMP{Type: ICMPv6EchoReply, Rest: binary.BigEndian.Uint32(t[4:])}.AppendV6(b, f.DstIP, f.SrcIP, t[8:])
}

// IsICMPError reports whether the frame is an ICMP message about another packet.
func (f *Frame) IsICMPError() bool {
	if !f.HasTp {
		return false
	}
	t := uint8(f.TpSrc)
	switch {
	case f.EtherType == TypeIPv4 && f.Proto == ProtoICMP:
		return t == ICMPUnreachable || t == ICMPTimeExceeded || t == ICMPParameter
	case f.EtherType == TypeIPv6 && f.Proto == ProtoICMPv6:
		return t >= ICMPv6Unreachable && t <= ICMPv6Parameter
	}
	return false
}

// IsND reports whether the frame is neighbour discovery.
func (f *Frame) IsND() bool {
	return f.EtherType == TypeIPv6 && f.Proto == ProtoICMPv6 && f.HasTp &&
		f.TpSrc >= uint16(ICMPv6RouterSolicit) && f.TpSrc <= uint16(ICMPv6Redirect)
}

func (f *Frame) decodeICMP(t []byte) error {
	if len(t) < 8 {
		return errICMP
	}
	f.HasTp, f.TpSrc, f.TpDst = true, uint16(t[0]), uint16(t[1])
	switch {
	case t[0] == ICMPEchoRequest || t[0] == ICMPEchoReply:
		f.Echo, f.EchoID = true, binary.BigEndian.Uint16(t[4:])
	case f.IsICMPError():
		f.Quote = quoteIPv4(t[8:])
	}
	return nil
}

func (f *Frame) decodeICMPv6(t []byte) error {
	if len(t) < 4 {
		return errICMPv6
	}
	f.HasTp, f.TpSrc, f.TpDst = true, uint16(t[0]), uint16(t[1])
	typ := t[0]
	switch {
	case typ == ICMPv6EchoRequest || typ == ICMPv6EchoReply:
		if len(t) < 8 {
			return errICMPv6
		}
		f.Echo, f.EchoID = true, binary.BigEndian.Uint16(t[4:])
	case f.IsICMPError():
		if len(t) < 8 {
			return errICMPv6
		}
		f.Quote = quoteIPv6(t[8:])
	case f.IsND():
		if f.fragmentHeader {
			return errNDFrag
		}
		switch typ {
		case ICMPv6NeighborSolicit, ICMPv6NeighborAdvert:
			return f.decodeNeighbor(t)
		case ICMPv6RouterSolicit:
			if len(t) < 8 {
				return errICMPv6
			}
			return f.decodeNDOptions(t[8:], ndOptSource)
		}
	}
	return nil
}

// decodeNeighbor reads a neighbour solicitation or advertisement.
func (f *Frame) decodeNeighbor(t []byte) error {
	if len(t) < 24 {
		return errICMPv6
	}
	want := byte(ndOptSource)
	if t[0] == ICMPv6NeighborAdvert {
		f.NDFlags = t[4] & (NDRouter | NDSolicited | NDOverride)
		want = ndOptTarget
	}
	f.NDTarget = netip.AddrFrom16([16]byte(t[8:24]))
	return f.decodeNDOptions(t[24:], want)
}

// decodeNDOptions reads link-layer address options. NDLink is the first of kind want, but any may
// be foreign: receivers differ in which of several they take.
func (f *Frame) decodeNDOptions(o []byte, want byte) error {
	for len(o) > 0 {
		if len(o) < 2 || o[1] == 0 || len(o) < int(o[1])*8 {
			return errNDOption
		}
		if o[0] == want && !f.HasNDOpt {
			f.NDLink, f.HasNDOpt = MAC(o[2:8]), true
		}
		if o[0] == ndOptSource || o[0] == ndOptTarget {
			f.NDForeign = f.NDForeign || MAC(o[2:8]) != f.Src
		}
		o = o[int(o[1])*8:]
	}
	return nil
}

// quoteIPv4 reads the packet that an ICMP error quotes, whose length is that of the whole packet.
func quoteIPv4(b []byte) (q Quote) {
	if len(b) < 20 || b[0]>>4 != 4 {
		return q
	}
	headerLen := int(b[0]&15) * 4
	if headerLen < 20 || len(b) < headerLen || binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
		return q
	}
	q.Src, q.Dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	q.Proto = b[9]
	q.readPorts(b[headerLen:], ProtoICMP, ICMPEchoRequest, ICMPEchoReply)
	return q
}

func quoteIPv6(b []byte) (q Quote) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return q
	}
	x := walkExtensions(b, b[6], 40)
	if x.err != nil || x.offset > 0 {
		return q
	}
	q.Src, q.Dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	q.Proto = x.proto
	q.readPorts(b[x.at:], ProtoICMPv6, ICMPv6EchoRequest, ICMPv6EchoReply)
	return q
}

// readPorts reads the ports of the quoted packet, or its id if it is an echo of protocol icmp.
func (q *Quote) readPorts(t []byte, icmp, request, reply uint8) {
	switch {
	case HasPorts(q.Proto):
		if len(t) < 4 {
			return
		}
		q.SrcPort, q.DstPort = binary.BigEndian.Uint16(t), binary.BigEndian.Uint16(t[2:])
	case q.Proto == icmp:
		if len(t) < 8 {
			return
		}
		if t[0] == request || t[0] == reply {
			id := binary.BigEndian.Uint16(t[4:])
			q.SrcPort, q.DstPort = id, id
		}
	}
	q.Valid = true
}
