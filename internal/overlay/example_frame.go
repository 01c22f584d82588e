package overlay

import (
	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/packet"
)

// vlanPresent marks the VLAN of a key that has one; see datapath.Key.
const vlanPresent = 0x1000

// exampleFrame builds a frame with the headers of key. Decisions that may be cached are the same
// for all such frames, so a flow can be verified without a packet.
func exampleFrame(b []byte, key datapath.Key) []byte {
	eth := packet.Ethernet{Dst: key.DstMAC, Src: key.SrcMAC, Type: packet.TypeIPv4}
	if key.VLAN&vlanPresent != 0 {
		eth.Tagged, eth.VLAN = true, key.VLAN&^vlanPresent
	}
	if key.Src.Is6() {
		eth.Type = packet.TypeIPv6
	}
	b = eth.Append(b)
	var room [64]byte
	body := exampleBody(room[:0], key)
	if key.Src.Is6() {
		b = packet.IPv6{HopLimit: 64, Next: key.Proto, Src: key.Src, Dst: key.Dst, Fragment: key.Frag != datapath.Whole,
			MoreFragments: key.Frag == datapath.FirstFrag, Offset: fragmentOffset(key.Frag)}.Append(b, len(body))
	} else {
		b = packet.IPv4{TTL: 64, Proto: key.Proto, Src: key.Src, Dst: key.Dst,
			MoreFragments: key.Frag == datapath.FirstFrag, Offset: fragmentOffset(key.Frag)}.Append(b, len(body))
	}
	return append(b, body...)
}

func fragmentOffset(f datapath.Frag) uint16 {
	if f == datapath.LaterFrag {
		return 1
	}
	return 0
}

// exampleBody returns the key's transport header, or padding for protocols without ports.
func exampleBody(b []byte, key datapath.Key) []byte {
	if key.Frag == datapath.LaterFrag {
		return append(b, make([]byte, 16)...)
	}
	switch key.Proto {
	case packet.ProtoTCP:
		return packet.TCP{SrcPort: key.SrcPort, DstPort: key.DstPort, Flags: packet.TCPAck}.Append(b, key.Src, key.Dst, nil)
	case packet.ProtoUDP, packet.ProtoUDPLite:
		return packet.UDP{SrcPort: key.SrcPort, DstPort: key.DstPort}.Append(b, key.Src, key.Dst, nil)
	case packet.ProtoSCTP, packet.ProtoDCCP:
		return append(b, byte(key.SrcPort>>8), byte(key.SrcPort), byte(key.DstPort>>8), byte(key.DstPort), 0, 0, 0, 0, 0, 0, 0, 0)
	case packet.ProtoICMP:
		return packet.ICMP{Type: uint8(key.DstPort >> 8), Code: uint8(key.DstPort), Rest: packet.EchoRest(key.SrcPort, 0)}.Append(b, nil)
	case packet.ProtoICMPv6:
		return packet.ICMP{Type: uint8(key.DstPort >> 8), Code: uint8(key.DstPort), Rest: packet.EchoRest(key.SrcPort, 0)}.AppendV6(b, key.Src, key.Dst, nil)
	}
	return append(b, make([]byte, 16)...)
}
