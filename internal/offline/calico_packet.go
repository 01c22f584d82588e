package offline

import (
	"encoding/binary"
	"hash/crc32"
	"slices"

	"heddle/calico"
	"heddle/internal/policy/judge"
	"heddle/internal/topology/packet"
)

// askable are the ICMP types by which connection tracking lets a connection begin. Neighbour
// discovery and listener messages, of IPv6, are never tracked.
func askable(p calico.Protocol) []uint8 {
	if p == calico.ProtocolICMPv6 {
		return []uint8{128, 139, 130, 131, 132, 133, 134, 135, 136, 137, 143}
	}
	return []uint8{8, 13, 15, 17}
}

// sendable refuses what no real packet can be: a state that connection tracking does not give to
// its kind.
func (p *policyPacket) sendable() error {
	protocol := p.packet.Protocol
	icmp := protocol == calico.ProtocolICMP || protocol == calico.ProtocolICMPv6
	hasState := icmp || protocol == calico.ProtocolTCP || protocol == calico.ProtocolUDP
	six := p.packet.Src.Is6()
	switch {
	case icmp && six != (protocol == calico.ProtocolICMPv6):
		return fileErrorf(p.place, "--kernel: a kernel does not track %s between these addresses", protocolText(protocol))
	case p.packet.State != judge.New && !hasState:
		return fileErrorf(p.place, "--kernel: of protocol %s there is no such packet that is not new", protocolText(protocol))
	case icmp && p.packet.State != judge.Invalid && !slices.Contains(askable(protocol), p.packet.ICMPType):
		return fileErrorf(p.place, "--kernel: no connection begins with %s type %d, which is invalid to the kernel unless something asked for it",
			protocolText(protocol), p.packet.ICMPType)
	}
	return nil
}

// ip is the packet from its IP header on, with payload as its data.
func (p *policyPacket) ip(payload []byte) []byte {
	q := &p.packet
	body := p.transport(payload)
	if q.Src.Is4() {
		return append(packet.IPv4{TTL: 64, Proto: uint8(q.Protocol), Src: q.Src, Dst: q.Dst}.Append(nil, len(body)), body...)
	}
	hops := uint8(64)
	if q.Protocol == calico.ProtocolICMPv6 && q.ICMPType >= 130 && q.ICMPType <= 143 {
		hops = 255 // what neighbours say to each other (RFC 4861 §6.1)
	}
	return append(packet.IPv6{HopLimit: hops, Next: uint8(q.Protocol), Src: q.Src, Dst: q.Dst}.Append(nil, len(body)), body...)
}

// transport is the packet behind its IP header.
func (p *policyPacket) transport(payload []byte) []byte {
	q := &p.packet
	switch q.Protocol {
	case calico.ProtocolTCP:
		return packet.TCP{SrcPort: q.SrcPort, DstPort: q.DstPort, Seq: 1000, Ack: 1000, Flags: p.tcpFlags(), Window: 1000}.Append(nil, q.Src, q.Dst, payload)
	case calico.ProtocolUDP:
		body := packet.UDP{SrcPort: q.SrcPort, DstPort: q.DstPort}.Append(nil, q.Src, q.Dst, payload)
		if q.State == judge.Invalid {
			binary.BigEndian.PutUint16(body[4:], uint16(len(body)+8)) // longer than it is
		}
		return body
	case calico.ProtocolICMP:
		return p.spoilt(packet.ICMP{Type: q.ICMPType, Code: q.ICMPCode, Rest: packet.EchoRest(echoID, 1)}.Append(nil, payload))
	case calico.ProtocolICMPv6:
		return p.spoilt(packet.ICMP{Type: q.ICMPType, Code: q.ICMPCode, Rest: packet.EchoRest(echoID, 1)}.AppendV6(nil, q.Src, q.Dst, payload))
	case calico.ProtocolUDPLite:
		return p.udpLite(payload)
	case calico.ProtocolSCTP:
		return p.sctp(payload)
	}
	return slices.Concat(make([]byte, 8), payload)
}

// echoID is the identifier of the echo requests.
const echoID = 77

// tcpFlags are those of the first packet of a connection, of a later one, or of one that ends what
// never began.
func (p *policyPacket) tcpFlags() uint8 {
	switch p.packet.State {
	case judge.Established:
		return packet.TCPAck | packet.TCPPsh
	case judge.Invalid:
		return packet.TCPRst
	}
	return packet.TCPSyn
}

// spoils reports whether the packet has to be invalid by its checksum: an ICMP request may begin a
// connection, and its type has to stay, since rules name types.
func (p *policyPacket) spoils() bool {
	q := &p.packet
	icmp := q.Protocol == calico.ProtocolICMP || q.Protocol == calico.ProtocolICMPv6
	return icmp && q.State == judge.Invalid && slices.Contains(askable(q.Protocol), q.ICMPType)
}

// spoilt is an ICMP message, with a wrong checksum if that makes it invalid.
func (p *policyPacket) spoilt(message []byte) []byte {
	if p.spoils() {
		message[2] ^= 0xff
	}
	return message
}

// udpLite is a UDP-Lite datagram (RFC 3828) whose checksum covers all of it.
func (p *policyPacket) udpLite(payload []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, p.packet.SrcPort)
	b = binary.BigEndian.AppendUint16(b, p.packet.DstPort)
	b = append(b, 0, 0, 0, 0) // coverage: all; checksum
	b = append(b, payload...)
	sum := packet.PseudoSum(p.packet.Src, p.packet.Dst, uint8(calico.ProtocolUDPLite), len(b))
	binary.BigEndian.PutUint16(b[6:], packet.Fold(packet.Sum(sum, b)))
	return b
}

// sctp is the INIT that asks for an association (RFC 9260 §3.3.2). The payload is a parameter that
// nobody knows.
func (p *policyPacket) sctp(payload []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, p.packet.SrcPort)
	b = binary.BigEndian.AppendUint16(b, p.packet.DstPort)
	b = append(b, make([]byte, 8)...) // verification tag; checksum
	padding := make([]byte, (4-len(payload)%4)%4)
	b = append(b, 1, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(20+4+len(payload)+len(padding)))
	b = binary.BigEndian.AppendUint32(b, 1)     // initiate tag
	b = binary.BigEndian.AppendUint32(b, 1<<16) // window
	b = append(b, 0, 1, 0, 1, 0, 0, 0, 1)       // streams out and in; first number
	b = append(b, 0x80, 0x77)                   // a parameter that may be skipped
	b = binary.BigEndian.AppendUint16(b, uint16(4+len(payload)+len(padding)))
	b = slices.Concat(b, payload, padding)
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// frame is the packet as it arrives at an interface with the given address.
func (p *policyPacket) frame(from, to packet.MAC, payload []byte) []byte {
	typ := packet.TypeIPv4
	if p.packet.Src.Is6() {
		typ = packet.TypeIPv6
	}
	switch dst := p.packet.Dst; {
	case dst.IsMulticast():
		to = packet.MulticastMAC(dst)
	case dst == broadcast():
		to = packet.Broadcast
	}
	return append(packet.Ethernet{Dst: to, Src: from, Type: typ}.Append(nil), p.ip(payload)...)
}
