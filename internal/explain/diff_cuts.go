package explain

import (
	"math"
	"net/netip"
	"slices"

	"heddle/internal/api/operator"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// cutProtocols are those whose connections stay open.
var cutProtocols = []uint8{packet.ProtoTCP, packet.ProtoUDP, packet.ProtoSCTP}

// cuts returns the connections that cannot go on after the change, of those that were open before.
func (c *comparison) cuts(findings []finding) (all []flow.ConnectionSet) {
	for i := range findings {
		f := &findings[i]
		if f.after >= f.before || fates[f.after] == operator.FateMay {
			continue
		}
		s := flow.ConnectionSet{To: c.addresses(&f.to, f.version)}
		if s.Ports = f.from.ids; len(f.from.outside) > 0 {
			s.From = flowRanges(f.from.outside)
		}
		whole := f.services.Whole()
		for _, p := range cutProtocols {
			if slices.Contains(whole, p) {
				s.Services = append(s.Services, flow.ServiceRange{Protocol: p, High: math.MaxUint16})
			}
		}
		for _, r := range f.services.Parts() {
			if slices.Contains(cutProtocols, r.Proto) {
				s.Services = append(s.Services, flow.ServiceRange{Protocol: r.Proto, Low: r.Low, High: r.High})
			}
		}
		if len(s.Services) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// addresses returns those of ends before the change, in order.
func (c *comparison) addresses(e *changedEnds, version int) []flow.AddressRange {
	if len(e.outside) > 0 {
		return flowRanges(e.outside)
	}
	var all []netip.Addr
	for _, id := range e.ids {
		p := c.sides[0].roster.machines[id]
		if p == nil {
			continue // nothing is open to one that was not there
		}
		for _, f := range p.FixedIPs {
			if f.IPAddress.Is4() == (version == 0) {
				all = append(all, f.IPAddress)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	ranges := make([]operator.AddressRange, len(all))
	for i, a := range all {
		ranges[i] = operator.AddressRange{First: a, Last: a}
	}
	return flowRanges(joinRanges(ranges))
}

func flowRanges(ranges []operator.AddressRange) []flow.AddressRange {
	all := make([]flow.AddressRange, len(ranges))
	for i, r := range ranges {
		all[i] = flow.AddressRange(r)
	}
	return all
}
