package packet

import (
	"encoding/binary"
	"net/netip"
)

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

// Binding returns the IP address that an ARP message or one of neighbour discovery says is at a MAC
// address: that of its sender or, of an advertisement, of its target. ok is false if it says none.
func (f *Frame) Binding() (ip netip.Addr, mac MAC, ok bool) {
	switch {
	case f.ARPOp != 0:
		ip, mac = f.SrcIP, f.SHA
	case !f.IsND():
		return ip, mac, false
	case f.TpSrc == uint16(ICMPv6NeighborAdvert):
		if ip, mac = f.NDTarget, f.Src; f.HasNDOpt {
			mac = f.NDLink
		}
	case f.HasNDOpt:
		ip, mac = f.SrcIP, f.NDLink
	}
	return ip, mac, ip.IsValid() && !ip.IsUnspecified()
}

// RouterAdvert is a router advertisement (RFC 4861 §4.2, RFC 8106 §5.1). Times are in seconds.
type RouterAdvert struct {
	Managed, Other bool
	Lifetime       uint16 // of the router as a default one; 0: it is none
	MTU            uint32
	Prefixes       []AdvertPrefix
	DNS            []netip.Addr
	DNSLifetime    uint32
}

// AdvertPrefix is a prefix whose addresses are on the link.
type AdvertPrefix struct {
	netip.Prefix
	Autonomous       bool // machines may make addresses of it
	Valid, Preferred uint32
}

// Options of a router advertisement.
const (
	ndOptPrefix = 3
	ndOptMTU    = 5
	ndOptDNS    = 25
)

// Frame builds the advertisement from mac and its link-local address.
func (a *RouterAdvert) Frame(dstMAC, mac MAC, dst netip.Addr) []byte {
	rest := uint32(64)<<24 | uint32(a.Lifetime) // hop limit
	if a.Managed {
		rest |= 0x80 << 16
	}
	if a.Other {
		rest |= 0x40 << 16
	}
	body := make([]byte, 8, 128) // reachable time and retransmission timer: unspecified
	body = append(append(body, ndOptSource, 1), mac[:]...)
	body = binary.BigEndian.AppendUint32(append(body, ndOptMTU, 1, 0, 0), a.MTU)
	for _, p := range a.Prefixes {
		flags := byte(0x80) // on link
		if p.Autonomous {
			flags |= 0x40
		}
		body = append(body, ndOptPrefix, 4, byte(p.Bits()), flags)
		body = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(body, p.Valid), p.Preferred)
		base := p.Masked().Addr().As16()
		body = append(append(body, 0, 0, 0, 0), base[:]...)
	}
	if len(a.DNS) > 0 {
		body = binary.BigEndian.AppendUint32(append(body, ndOptDNS, byte(1+2*len(a.DNS)), 0, 0), a.DNSLifetime)
		for _, s := range a.DNS {
			b := s.As16()
			body = append(body, b[:]...)
		}
	}
	src := LinkLocal(mac)
	b := Ethernet{Dst: dstMAC, Src: mac, Type: TypeIPv6}.Append(make([]byte, 0, 14+40+8+len(body)))
	b = IPv6{HopLimit: 255, Next: ProtoICMPv6, Src: src, Dst: dst}.Append(b, 8+len(body))
	return ICMP{Type: ICMPv6RouterAdvert, Rest: rest}.AppendV6(b, src, dst, body)
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
