package offline

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"heddle/internal/topology/packet"
)

// showFrame are all fields of a frame, in the form in which files write them; what a frame does not have is left out.
func showFrame(raw []byte) fields {
	var f packet.Frame
	if err := packet.Decode(raw, &f); err != nil {
		return fields{"type": "malformed", "problem": err.Error()}
	}
	show := fields{"eth_src": f.Src.String(), "eth_dst": f.Dst.String()}
	if f.VLANs > 0 {
		show["vlan"] = int(f.VLAN)
	}
	switch {
	case f.ARPOp != 0:
		showARP(show, &f)
	case f.IsIP():
		showIP(show, &f, raw)
	default:
		show["type"] = fmt.Sprintf("%#04x", f.EtherType)
	}
	return show
}

func showARP(show fields, f *packet.Frame) {
	show["type"] = "arp"
	show["op"] = "request"
	if f.ARPOp == packet.ARPReply {
		show["op"] = "reply"
	}
	show["sha"], show["spa"] = f.SHA.String(), f.SrcIP.String()
	show["tha"], show["tpa"] = f.THA.String(), f.DstIP.String()
}

func showIP(show fields, f *packet.Frame, raw []byte) {
	show["type"] = "ipv4"
	if f.EtherType == packet.TypeIPv6 {
		show["type"] = "ipv6"
	}
	show["ip_src"], show["ip_dst"] = f.SrcIP.String(), f.DstIP.String()
	show["proto"], show["ttl"] = protocolName(f.Proto), int(f.TTL)
	if f.Frag != packet.FragNone {
		show["frag"] = f.Frag.String()
	}
	switch {
	case !f.HasTp:
	case f.Proto == packet.ProtoICMP || f.Proto == packet.ProtoICMPv6:
		showICMP(show, f, raw)
	default:
		show["sport"], show["dport"] = int(f.TpSrc), int(f.TpDst)
		if f.Proto == packet.ProtoUDP && f.End >= f.L4+8 {
			if dhcp, ok := showDHCP(raw[f.L4+8 : f.End]); ok {
				show["dhcp"] = dhcp
			}
		}
	}
}

func showICMP(show fields, f *packet.Frame, raw []byte) {
	show["icmp_type"], show["icmp_code"] = int(f.TpSrc), int(f.TpDst)
	if f.Echo {
		show["icmp_id"] = int(f.EchoID)
	}
	if q := f.Quote; q.Valid {
		inner := fields{"ip_src": q.Src.String(), "ip_dst": q.Dst.String(), "proto": protocolName(q.Proto)}
		if packet.HasPorts(q.Proto) || q.SrcPort != 0 { // of an echo the id, in both places
			inner["sport"], inner["dport"] = int(q.SrcPort), int(q.DstPort)
		}
		show["inner"] = inner
	}
	if f.NDTarget.IsValid() {
		show["nd_target"] = f.NDTarget.String()
	}
	if f.HasNDOpt {
		show["nd_lladdr"] = f.NDLink.String()
	}
	if f.EtherType == packet.TypeIPv6 && f.TpSrc == uint16(packet.ICMPv6RouterAdvert) {
		if ra, ok := showRA(raw[f.L4:f.End]); ok {
			show["ra"] = ra
		}
	}
}

// Options of a router advertisement (RFC 4861 §4.6).
const (
	raSourceLink = 1
	raPrefix     = 3
	raMTU        = 5
)

// raHeader are the four bytes behind the checksum: hop limit, flags, lifetime (RFC 4861 §4.2).
func (b *builder) raHeader() uint32 {
	h := uint32(defaultTTL)<<24 | uint32(b.number("lifetime", 0, 65535))
	if managed, _ := b.known("managed").(bool); managed {
		h |= 0x80 << 16
	}
	if other, _ := b.known("other").(bool); other {
		h |= 0x40 << 16
	}
	return h
}

// raBody are the timers, of which none is set, and the options.
func (b *builder) raBody(mac packet.MAC) []byte {
	body := append(make([]byte, 8), raSourceLink, 1)
	body = append(body, mac[:]...)
	if b.has("mtu") {
		body = append(body, raMTU, 1, 0, 0)
		body = binary.BigEndian.AppendUint32(body, uint32(b.number("mtu", 0, 1<<32-1)))
	}
	prefixes, _ := b.known("prefixes").([]string)
	for _, text := range prefixes {
		p, err := (node{b.place + ".prefixes", text}).prefix()
		if err != nil || !p.Addr().Is6() {
			b.fail("prefixes: %q is not an IPv6 prefix", text)
			return nil
		}
		body = append(body, raPrefix, 4, byte(p.Bits()), 0xc0) // on link, autonomous
		body = append(body, make([]byte, 12)...)               // lifetimes
		a := p.Addr().As16()
		body = append(body, a[:]...)
	}
	return body
}

// showRA are the fields of a router advertisement, from its ICMP header on.
func showRA(m []byte) (fields, bool) {
	if len(m) < 16 {
		return nil, false
	}
	f := fields{
		"managed": m[5]&0x80 != 0, "other": m[5]&0x40 != 0, "lifetime": int(binary.BigEndian.Uint16(m[6:])),
	}
	var prefixes []string
	for o := m[16:]; len(o) >= 8 && o[1] > 0 && len(o) >= int(o[1])*8; o = o[int(o[1])*8:] {
		switch {
		case o[0] == raMTU:
			f["mtu"] = int(binary.BigEndian.Uint32(o[4:]))
		case o[0] == raPrefix && o[1] == 4:
			prefixes = append(prefixes, netip.PrefixFrom(netip.AddrFrom16([16]byte(o[16:32])), int(o[2])).String())
		}
	}
	f["prefixes"] = prefixes
	return f, true
}
