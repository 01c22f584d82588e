package packet

import "net/netip"

// NeighborAdvert answers a neighbour solicitation in the name of target's owner (RFC 4861 §4.4).
func NeighborAdvert(dstMAC, mac MAC, dst, target netip.Addr, flags uint8) []byte {
	return neighbor(dstMAC, mac, target, dst, ICMPv6NeighborAdvert, uint32(flags)<<24, target, ndOptTarget)
}

// NeighborSolicit builds a neighbour solicitation for target from src and mac. From the unspecified
// address it carries no link-layer address (RFC 4861 §4.3).
func NeighborSolicit(dstMAC, mac MAC, src, dst, target netip.Addr) []byte {
	return neighbor(dstMAC, mac, src, dst, ICMPv6NeighborSolicit, 0, target, ndOptSource)
}

func neighbor(dstMAC, mac MAC, src, dst netip.Addr, typ uint8, rest uint32, target netip.Addr, option byte) []byte {
	t := target.As16()
	body := append(make([]byte, 0, 24), t[:]...)
	if !src.IsUnspecified() {
		body = append(body, option, 1)
		body = append(body, mac[:]...)
	}
	b := make([]byte, 0, 14+40+8+len(body))
	b = Ethernet{Dst: dstMAC, Src: mac, Type: TypeIPv6}.Append(b)
	b = IPv6{HopLimit: 255, Next: ProtoICMPv6, Src: src, Dst: dst}.Append(b, 8+len(body))
	return ICMP{Type: typ, Rest: rest}.AppendV6(b, src, dst, body)
}

// SolicitedNode is the multicast address of solicitations for target (RFC 4291 §2.7.1).
func SolicitedNode(target netip.Addr) netip.Addr {
	t := target.As16()
	return netip.AddrFrom16([16]byte{0xff, 0x02, 11: 1, 12: 0xff, 13: t[13], 14: t[14], 15: t[15]})
}

// MulticastMAC is the address of an IP multicast group (RFC 1112 §6.4, RFC 2464 §7).
func MulticastMAC(group netip.Addr) MAC {
	if group.Is4() {
		g := group.As4()
		return MAC{0x01, 0x00, 0x5e, g[1] & 0x7f, g[2], g[3]}
	}
	g := group.As16()
	return MAC{0x33, 0x33, g[12], g[13], g[14], g[15]}
}

// LinkLocal is the address in fe80::/64 that a MAC address makes (RFC 4291 appendix A).
func LinkLocal(m MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}
