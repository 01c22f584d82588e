package packet

import (
	"fmt"
	"net/netip"
)

// Limits of what an ICMP error quotes (RFC 1812 §4.3.2.3, RFC 4443 §2.4).
const (
	quoteMaxV4 = 576 - 20 - 8
	quoteMaxV6 = 1280 - 40 - 8
)

// longest is more than any frame with an IP packet has.
const longest = 1 << 17

// TooBig builds the answer to the sender of the IP packet in frame, or in its head, that at most
// mtu bytes of it pass (RFC 1191, RFC 4443 §3.2), as About does.
func TooBig(frame []byte, mtu int, src netip.Addr, srcMAC MAC) ([]byte, error) {
	h := ICMP{Type: ICMPUnreachable, Code: ICMPFragNeeded, Rest: uint32(uint16(mtu))}
	if src.Is6() {
		h = ICMP{Type: ICMPv6PacketTooBig, Rest: uint32(mtu)}
	}
	return h.About(frame, src, srcMAC)
}

// About builds the ICMP or ICMPv6 error h to the sender of the IP packet in frame, or in its head,
// which it quotes. It comes from src and srcMAC with the frame's outer VLAN tag. It is an error to
// answer ICMP errors, later fragments, packets to many or from nobody (RFC 1122 §3.2.2), and what
// does not decode.
func (h ICMP) About(frame []byte, src netip.Addr, srcMAC MAC) ([]byte, error) {
	var f Frame
	if err := DecodeHead(frame, longest, &f); err != nil {
		return nil, err
	}
	if err := answerable(&f); err != nil {
		return nil, err
	}
	if src.Is4() != f.SrcIP.Is4() {
		return nil, fmt.Errorf("an answer from %v to %v: addresses of two families", src, f.SrcIP)
	}
	eth := Ethernet{Dst: f.Src, Src: srcMAC, Tagged: f.VLANs > 0, VLAN: f.VLAN, Type: f.EtherType}
	packet := frame[f.L3:min(f.End, len(frame))]
	if f.EtherType == TypeIPv4 {
		quote := packet[:min(len(packet), quoteMaxV4)]
		b := eth.Append(make([]byte, 0, 18+28+len(quote)))
		b = IPv4{TTL: 64, Proto: ProtoICMP, Src: src, Dst: f.SrcIP}.Append(b, 8+len(quote))
		return h.Append(b, quote), nil
	}
	quote := packet[:min(len(packet), quoteMaxV6)]
	b := eth.Append(make([]byte, 0, 18+48+len(quote)))
	b = IPv6{HopLimit: 64, Next: ProtoICMPv6, Src: src, Dst: f.SrcIP}.Append(b, 8+len(quote))
	return h.AppendV6(b, src, f.SrcIP, quote), nil
}

// limitedBroadcast is the address of all hosts on a link (RFC 919 §7).
var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

func answerable(f *Frame) error {
	switch {
	case !f.IsIP():
		return fmt.Errorf("EtherType %#04x has no ICMP", f.EtherType)
	case f.IsICMPError():
		return fmt.Errorf("an ICMP error is not answered with another")
	case f.Frag == FragLater:
		return fmt.Errorf("a later fragment is not answered")
	case f.Dst.IsMulticast() || f.DstIP.IsMulticast() || f.Src.IsMulticast() || f.DstIP == limitedBroadcast:
		return fmt.Errorf("a packet to many is not answered")
	case f.SrcIP.IsUnspecified() || f.SrcIP.IsMulticast() || f.SrcIP == limitedBroadcast:
		return fmt.Errorf("a packet from %v is not answered", f.SrcIP)
	}
	return nil
}
