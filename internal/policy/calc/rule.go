package calc

import (
	"fmt"
	"net/netip"

	"heddle/calico"
)

// resolved is a list's rules with the sets that they name.
type resolved struct {
	rules []Rule
	sets  []*set // distinct
}

// resolve turns stored rules into rules with sets. An error names the rule.
func (rl *ruleLists) resolve(stored []calico.Rule, profile bool) (resolved, error) {
	var out resolved
	if len(stored) > 0 {
		out.rules = make([]Rule, 0, len(stored))
	}
	for i := range stored {
		r, err := rl.resolveRule(&stored[i], &out)
		if err != nil {
			return resolved{}, fmt.Errorf("rule %d: %w", i+1, err)
		}
		r.Index = i + 1
		switch {
		case r.Action == "", profile && r.Action == calico.NextTier: // nothing comes after profiles
			r.Action = calico.Allow
		}
		if r.IPv4 || r.IPv6 {
			out.rules = append(out.rules, r)
		}
	}
	out.sets = distinct(out.sets)
	if len(out.rules) == 0 {
		out.rules = nil // an empty list is always the same
	}
	return out, nil
}

func (rl *ruleLists) resolveRule(s *calico.Rule, out *resolved) (Rule, error) {
	r := Rule{
		Action: s.Action, IPv4: fits(s, 4), IPv6: fits(s, 6), Protocol: s.Protocol, NotProtocol: s.NotProtocol,
		SrcNets: masked(s.SrcNets), DstNets: masked(s.DstNets), NotSrcNets: masked(s.NotSrcNets), NotDstNets: masked(s.NotDstNets),
		SrcPorts: s.SrcPorts, DstPorts: s.DstPorts, NotSrcPorts: s.NotSrcPorts, NotDstPorts: s.NotDstPorts,
		ICMPType: s.ICMPType, ICMPCode: s.ICMPCode, NotICMPType: s.NotICMPType, NotICMPCode: s.NotICMPCode,
		LogPrefix: s.LogPrefix,
	}
	if !r.IPv4 && !r.IPv6 {
		return r, nil
	}
	for _, criterion := range []struct {
		sets          *[]SetID
		tag, selector string
	}{
		{&r.SrcSets, s.SrcTag, s.SrcSelector}, {&r.DstSets, s.DstTag, s.DstSelector},
		{&r.NotSrcSets, s.NotSrcTag, s.NotSrcSelector}, {&r.NotDstSets, s.NotDstTag, s.NotDstSelector},
	} {
		if criterion.tag != "" {
			out.name(criterion.sets, rl.sets.ofTag(criterion.tag))
		}
		if criterion.selector == "" {
			continue
		}
		set, err := rl.sets.ofSelector(criterion.selector)
		if err != nil {
			return r, err
		}
		out.name(criterion.sets, set)
	}
	return r, nil
}

// name adds a set to a criterion of a rule.
func (out *resolved) name(ids *[]SetID, s *set) {
	*ids = append(*ids, s.id)
	out.sets = append(out.sets, s)
}

// fits reports whether a rule may match packets of an IP version. A list of addresses, even a
// negated one, excludes the version of which it has none.
func fits(r *calico.Rule, version int) bool {
	switch {
	case r.IPVersion != 0 && r.IPVersion != version,
		r.Protocol == calico.ProtocolICMP && version != 4,
		r.Protocol == calico.ProtocolICMPv6 && version != 6:
		return false
	}
	for _, nets := range [][]netip.Prefix{r.SrcNets, r.DstNets, r.NotSrcNets, r.NotDstNets} {
		if len(nets) > 0 && !anyOf(nets, version) {
			return false
		}
	}
	return true
}

func anyOf(nets []netip.Prefix, version int) bool {
	for _, n := range nets {
		if n.Addr().Is4() == (version == 4) {
			return true
		}
	}
	return false
}

// masked removes the host bits. Most lists have none and are shared with the stored rule.
func masked(nets []netip.Prefix) []netip.Prefix {
	for i := range nets {
		if nets[i] != nets[i].Masked() {
			all := make([]netip.Prefix, len(nets))
			for j := range nets {
				all[j] = nets[j].Masked()
			}
			return all
		}
	}
	return nets
}
