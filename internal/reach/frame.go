package reach

import (
	"encoding/binary"
	"net/netip"

	"heddle/internal/topology/packet"
)

// headers are the headers of a packet that one end sends to the other.
type headers struct {
	srcMAC, dstMAC   packet.MAC
	src, dst         netip.Addr
	proto            uint8
	srcPort, dstPort uint16 // type and code of ICMP
	echoID           uint16
	reply            bool
}

// room is the length of what follows the IP header: enough for each protocol's own.
const room = 24

// offsets of fields in headers.
const (
	ethernetSize, ipv4Size, ipv6Size = 14, 20, 40
	ttl                              = 64
	tcpHeaderWords                   = 5 << 4
)

// append appends the packet to b. Its checksums are not set, since no decision rests on them.
func (h *headers) append(b []byte) []byte {
	size := ethernetSize + ipv4Size + room
	if h.src.Is6() {
		size = ethernetSize + ipv6Size + room
	}
	at := len(b)
	b = append(b, make([]byte, size)...)
	f := b[at:]
	copy(f, h.dstMAC[:])
	copy(f[6:], h.srcMAC[:])
	ip := f[ethernetSize:]
	var t []byte
	if h.src.Is4() {
		binary.BigEndian.PutUint16(f[12:], packet.TypeIPv4)
		src, dst := h.src.As4(), h.dst.As4()
		ip[0], ip[8], ip[9] = 4<<4|ipv4Size/4, ttl, h.proto
		binary.BigEndian.PutUint16(ip[2:], ipv4Size+room)
		copy(ip[12:], src[:])
		copy(ip[16:], dst[:])
		t = ip[ipv4Size:]
	} else {
		binary.BigEndian.PutUint16(f[12:], packet.TypeIPv6)
		src, dst := h.src.As16(), h.dst.As16()
		ip[0], ip[6], ip[7] = 6<<4, h.proto, ttl
		binary.BigEndian.PutUint16(ip[4:], room)
		copy(ip[8:], src[:])
		copy(ip[24:], dst[:])
		t = ip[ipv6Size:]
	}
	h.putTransport(t)
	return b
}

func (h *headers) putTransport(t []byte) {
	switch {
	case h.isICMP():
		t[0], t[1] = byte(h.srcPort), byte(h.dstPort)
		binary.BigEndian.PutUint16(t[4:], h.echoID)
	case packet.HasPorts(h.proto):
		binary.BigEndian.PutUint16(t, h.srcPort)
		binary.BigEndian.PutUint16(t[2:], h.dstPort)
		if h.proto != packet.ProtoTCP {
			return
		}
		t[12], t[13] = tcpHeaderWords, packet.TCPSyn
		if h.reply {
			t[13] |= packet.TCPAck
		}
	}
}

// isICMP reports whether the packet is of the ICMP of its version of IP.
func (h *headers) isICMP() bool {
	return h.proto == packet.ProtoICMP && h.src.Is4() || h.proto == packet.ProtoICMPv6 && h.src.Is6()
}

// isEcho reports whether the packet is an echo request.
func (h *headers) isEcho() bool {
	return h.isICMP() && (h.srcPort == uint16(packet.ICMPEchoRequest) && h.src.Is4() || h.srcPort == uint16(packet.ICMPv6EchoRequest) && h.src.Is6())
}
