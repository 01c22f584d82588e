package judge

import (
	"net/netip"
	"slices"

	"heddle/calico"
	"heddle/internal/policy/calc"
)

// matches reports whether every criterion of the rule holds for the packet.
func (j *judgement) matches(r *calc.Rule) bool {
	p := &j.p
	return (p.Src.Is4() && r.IPv4 || p.Src.Is6() && r.IPv6) &&
		(r.Protocol == 0 || r.Protocol == p.Protocol) && (r.NotProtocol == 0 || r.NotProtocol != p.Protocol) &&
		matchNets(p.Src, r.SrcNets, r.NotSrcNets) && matchNets(p.Dst, r.DstNets, r.NotDstNets) &&
		matchPorts(p.SrcPort, r.SrcPorts, r.NotSrcPorts) && matchPorts(p.DstPort, r.DstPorts, r.NotDstPorts) &&
		matchICMP(p, r) &&
		j.matchSets(p.Src, r.SrcSets, r.NotSrcSets) && j.matchSets(p.Dst, r.DstSets, r.NotDstSets)
}

func matchNets(a netip.Addr, in, notIn []netip.Prefix) bool {
	contains := func(net netip.Prefix) bool { return net.Contains(a) }
	return (len(in) == 0 || slices.ContainsFunc(in, contains)) && !slices.ContainsFunc(notIn, contains)
}

func matchPorts(port uint16, in, notIn []calico.Ports) bool {
	contains := func(r calico.Ports) bool { return r.Low <= port && port <= r.High }
	return (len(in) == 0 || slices.ContainsFunc(in, contains)) && !slices.ContainsFunc(notIn, contains)
}

// matchICMP matches type and code; the negated two are one criterion.
func matchICMP(p *Packet, r *calc.Rule) bool {
	is := func(typ, code *uint8) bool {
		return (typ == nil || *typ == p.ICMPType) && (code == nil || *code == p.ICMPCode)
	}
	return is(r.ICMPType, r.ICMPCode) && (r.NotICMPType == nil || !is(r.NotICMPType, r.NotICMPCode))
}

func (j *judgement) matchSets(a netip.Addr, in, notIn []calc.SetID) bool {
	holds := func(id calc.SetID) bool { return j.rules.sets[id][a] }
	return !slices.ContainsFunc(in, func(id calc.SetID) bool { return !holds(id) }) && !slices.ContainsFunc(notIn, holds)
}
