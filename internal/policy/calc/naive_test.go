package calc_test

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"heddle/calico"
	"heddle/calico/selector"
	"heddle/internal/policy/calc"
)

// stored is the value of a key, with earlier ones.
type stored struct {
	object  any // valid; nil: refused
	invalid string
	partial any // of a refused one
	last    any // last valid one since the key came to be
}

// world is the state of the store, from which everything follows.
type world map[calico.Key]stored

func (w world) put(key calico.Key, object any) {
	if object == nil {
		delete(w, key)
		return
	}
	w[key] = stored{object: object, last: object}
}

func (w world) refuse(key calico.Key, partial any, reason string) {
	w[key] = stored{invalid: reason, partial: partial, last: w[key].last}
}

// outcome accumulates Changes.
type outcome struct {
	Sets      map[calc.SetID]map[netip.Addr]bool
	Lists     map[calc.ListID]calc.List
	Workloads map[calico.WorkloadEndpointKey]calc.Workload
	Hosts     map[calico.HostEndpointKey]calc.Host
}

func newOutcome() *outcome {
	return &outcome{
		map[calc.SetID]map[netip.Addr]bool{}, map[calc.ListID]calc.List{},
		map[calico.WorkloadEndpointKey]calc.Workload{}, map[calico.HostEndpointKey]calc.Host{},
	}
}

// naive works the outcome out from the state alone, the long way.
type naive struct {
	world   world
	host    string
	max     int
	out     *outcome
	reports map[calc.ListID]string // what endpoints that need a list have to report
}

func calculate(w world, host string, max int) *outcome {
	n := &naive{w, host, max, newOutcome(), map[calc.ListID]string{}}
	for key, s := range w {
		switch k := key.(type) {
		case calico.WorkloadEndpointKey:
			if o, ok := s.object.(*calico.WorkloadEndpoint); ok && k.Host == host {
				out := calc.Workload{Key: k, Endpoint: o, Profiles: distinct(o.ProfileIDs)}
				out.Tiers, _, _ = n.tiers(o.Labels, o.ProfileIDs, false)
				out.Errors = n.errors(out.Profiles, out.Tiers)
				n.out.Workloads[k] = out
			}
		case calico.HostEndpointKey:
			if k.Host == host {
				n.hostEndpoint(k, s)
			}
		}
	}
	return n.out
}

func (n *naive) hostEndpoint(k calico.HostEndpointKey, s stored) {
	out := calc.Host{Key: k, Invalid: s.invalid}
	o, ok := s.last.(*calico.HostEndpoint)
	if !ok {
		out.Endpoint = &calico.HostEndpoint{}
		if p, ok := s.partial.(*calico.HostEndpoint); ok {
			out.Endpoint.Name = p.Name
		}
		n.out.Hosts[k] = out
		return
	}
	out.Endpoint, out.Profiles = o, distinct(o.ProfileIDs)
	out.Tiers, out.Untracked, out.PreDNAT = n.tiers(o.Labels, o.ProfileIDs, true)
	out.Errors = n.errors(out.Profiles, out.Tiers, out.Untracked, out.PreDNAT)
	n.out.Hosts[k] = out
}

func distinct(names []string) (kept []string) {
	for _, name := range names {
		if !slices.Contains(kept, name) {
			kept = append(kept, name)
		}
	}
	return kept
}

// errors brings the lists of an endpoint into the outcome, and collects what is wrong with them.
func (n *naive) errors(profiles []string, stages ...[]calc.Tier) (all []string) {
	var ids []calc.ListID
	for _, p := range profiles {
		ids = append(ids, calc.ListID{Name: p, Direction: calc.Inbound}, calc.ListID{Name: p, Direction: calc.Outbound})
	}
	for _, tiers := range stages {
		for _, t := range tiers {
			ids = append(append(ids, t.Inbound...), t.Outbound...)
		}
	}
	for _, id := range ids {
		n.need(id)
		if r := n.reports[id]; r != "" && !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	slices.Sort(all)
	return all
}

func (n *naive) labels(own map[string]string, profileIDs []string) (labels selector.Map, tags map[string]bool) {
	labels, tags = selector.Map{}, map[string]bool{}
	for i := len(profileIDs) - 1; i >= 0; i-- {
		if l, ok := n.world[calico.ProfileLabelsKey{Profile: profileIDs[i]}].object.(*calico.ProfileLabels); ok {
			for name, value := range *l {
				labels[name] = value
			}
		}
		if t, ok := n.world[calico.ProfileTagsKey{Profile: profileIDs[i]}].object.(*calico.ProfileTags); ok {
			for _, tag := range *t {
				tags[tag] = true
			}
		}
	}
	for name, value := range own {
		labels[name] = value
	}
	return labels, tags
}

// inForce is the version of a policy that counts.
func (n *naive) inForce(s stored) (p *calico.Policy, deny bool) {
	if partial, ok := s.partial.(*calico.Policy); ok && s.invalid != "" {
		return partial, true
	}
	p, _ = s.last.(*calico.Policy)
	return p, false
}

func (n *naive) tierOrder(name string) (order float64, counts bool) {
	s, present := n.world[calico.TierKey{Tier: name}]
	if t, ok := s.last.(*calico.Tier); ok && t.Order != nil {
		return *t.Order, true
	}
	return math.Inf(1), present || name == "default"
}

type candidate struct {
	key       calico.PolicyKey
	policy    *calico.Policy
	tier, own float64
	deny      bool
}

func (n *naive) tiers(own map[string]string, profileIDs []string, host bool) (normal, untracked, preDNAT []calc.Tier) {
	labels, _ := n.labels(own, profileIDs)
	var all []candidate
	for key, s := range n.world {
		k, ok := key.(calico.PolicyKey)
		if !ok {
			continue
		}
		p, deny := n.inForce(s)
		order, counts := n.tierOrder(k.Tier)
		if p == nil || !counts || !must(selector.Parse(p.Selector)).Match(labels) {
			continue
		}
		c := candidate{k, p, order, math.Inf(1), deny}
		if p.Order != nil {
			c.own = *p.Order
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.tier, b.tier), cmp.Compare(a.key.Tier, b.key.Tier), cmp.Compare(a.own, b.own), cmp.Compare(a.key.Policy, b.key.Policy))
	})
	for _, c := range all {
		switch {
		case c.policy.Untracked && host:
			untracked = appendTo(untracked, c, true)
		case c.policy.PreDNAT && host:
			preDNAT = appendTo(preDNAT, c, false)
		case !c.policy.Untracked && !c.policy.PreDNAT:
			normal = appendTo(normal, c, true)
		}
	}
	return normal, untracked, preDNAT
}

func appendTo(tiers []calc.Tier, c candidate, outbound bool) []calc.Tier {
	if len(tiers) == 0 || tiers[len(tiers)-1].Name != c.key.Tier {
		tiers = append(tiers, calc.Tier{Name: c.key.Tier})
	}
	t := &tiers[len(tiers)-1]
	if c.deny || len(c.policy.Types) == 0 || slices.Contains(c.policy.Types, "ingress") {
		t.Inbound = append(t.Inbound, calc.ListID{Tier: c.key.Tier, Name: c.key.Policy, Direction: calc.Inbound})
	}
	if outbound && (c.deny || len(c.policy.Types) == 0 || slices.Contains(c.policy.Types, "egress")) {
		t.Outbound = append(t.Outbound, calc.ListID{Tier: c.key.Tier, Name: c.key.Policy, Direction: calc.Outbound})
	}
	return tiers
}

// need brings a list and its sets into the outcome.
func (n *naive) need(id calc.ListID) {
	if _, known := n.out.Lists[id]; known {
		return
	}
	inbound, outbound, missing, report := n.source(id)
	list := calc.List{Missing: missing}
	if missing == "" {
		rules := inbound
		if id.Direction == calc.Outbound {
			rules = outbound
		}
		sets := map[calc.SetID]map[netip.Addr]bool{}
		for i := range rules {
			if r := n.rule(&rules[i], i+1, id.Tier == "", sets); r.IPv4 || r.IPv6 {
				list.Rules = append(list.Rules, r)
			}
		}
		for setID, members := range sets {
			if tooMany(members, n.max) {
				list, report = calc.List{Missing: "too large"}, "too large"
			} else {
				n.out.Sets[setID] = members // of a list that is given up too: calc keeps those ready
			}
		}
	}
	n.out.Lists[id] = list
	n.reports[id] = report
}

func (n *naive) source(id calc.ListID) (inbound, outbound []calico.Rule, missing, report string) {
	if id.Tier == "" {
		s := n.world[calico.ProfileRulesKey{Profile: id.Name}]
		if r, ok := s.object.(*calico.ProfileRules); ok {
			return r.InboundRules, r.OutboundRules, "", ""
		}
		return nil, nil, "missing", "missing"
	}
	s := n.world[calico.PolicyKey{Tier: id.Tier, Policy: id.Name}]
	p, deny := n.inForce(s)
	switch {
	case deny:
		return nil, nil, "invalid", "invalid"
	case s.invalid != "":
		report = "last"
	}
	return p.InboundRules, p.OutboundRules, "", report
}

func tooMany(members map[netip.Addr]bool, max int) bool {
	n := [2]int{}
	for a := range members {
		if a.Is4() {
			n[0]++
		} else {
			n[1]++
		}
	}
	return n[0] > max || n[1] > max
}

func (n *naive) rule(s *calico.Rule, index int, profile bool, sets map[calc.SetID]map[netip.Addr]bool) calc.Rule {
	r := calc.Rule{
		Action: s.Action, Index: index, IPv4: s.IPVersion != 6 && s.Protocol != calico.ProtocolICMPv6, IPv6: s.IPVersion != 4 && s.Protocol != calico.ProtocolICMP,
		Protocol: s.Protocol, LogPrefix: s.LogPrefix,
	}
	if profile && r.Action == calico.NextTier {
		r.Action = calico.Allow
	}
	nets := func(stored []netip.Prefix) (masked []netip.Prefix) {
		if len(stored) == 0 {
			return nil
		}
		var has [2]bool
		for _, p := range stored {
			masked = append(masked, p.Masked())
			if p.Addr().Is4() {
				has[0] = true
			} else {
				has[1] = true
			}
		}
		r.IPv4, r.IPv6 = r.IPv4 && has[0], r.IPv6 && has[1]
		return masked
	}
	r.SrcNets, r.NotDstNets = nets(s.SrcNets), nets(s.NotDstNets)
	if !r.IPv4 && !r.IPv6 {
		return r
	}
	name := func(tag, sel string) (ids []calc.SetID) {
		if tag != "" {
			id := calc.SetID("t:" + tag)
			ids = append(ids, id)
			sets[id] = n.members(func(_ selector.Map, tags map[string]bool) bool { return tags[tag] })
		}
		if sel != "" {
			parsed := must(selector.Parse(sel))
			ids = append(ids, calc.SetID(parsed.UID()))
			sets[ids[len(ids)-1]] = n.members(func(labels selector.Map, _ map[string]bool) bool { return parsed.Match(labels) })
		}
		return ids
	}
	r.SrcSets, r.DstSets = name(s.SrcTag, s.SrcSelector), name(s.DstTag, s.DstSelector)
	r.NotSrcSets, r.NotDstSets = name(s.NotSrcTag, s.NotSrcSelector), name(s.NotDstTag, s.NotDstSelector)
	return r
}

// members are the addresses of the endpoints that fulfil a condition.
func (n *naive) members(fulfils func(labels selector.Map, tags map[string]bool) bool) map[netip.Addr]bool {
	members := map[netip.Addr]bool{}
	for _, s := range n.world {
		switch o := s.last.(type) {
		case *calico.WorkloadEndpoint:
			if s.object != nil && fulfils(n.labels(o.Labels, o.ProfileIDs)) {
				for _, net := range append(slices.Clone(o.IPv4Nets), o.IPv6Nets...) {
					members[net.Addr()] = true
				}
			}
		case *calico.HostEndpoint:
			if fulfils(n.labels(o.Labels, o.ProfileIDs)) {
				for _, a := range append(slices.Clone(o.ExpectedIPv4Addrs), o.ExpectedIPv6Addrs...) {
					members[a] = true
				}
			}
		}
	}
	return members
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprint("test: ", err))
	}
	return v
}
