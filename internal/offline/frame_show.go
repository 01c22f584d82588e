package offline

import (
	"fmt"

	"heddle/internal/topology/packet"
)

// showFrame are all fields of a frame, in the form in which files write them; what a frame does not
// have is left out.
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
			payload := raw[f.L4+8 : f.End]
			if dhcp, ok := showDHCP(payload); ok {
				show["dhcp"] = dhcp
			}
			if vni, inner, err := packet.ParseVXLAN(payload); err == nil && f.TpDst == packet.VXLANPort {
				show["vxlan"] = fields{"vni": int(vni), "frame": showFrame(inner)}
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
