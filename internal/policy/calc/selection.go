package calc

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"heddle/calico"
)

// selection has the policies for endpoints of one kind, in order. Many endpoints may share it.
type selection struct {
	key       string    // the policies and the kind: under which it is in Calc.selections
	policies  []*policy // that pick them, sorted by id, be it that they apply or not
	lists     []*list   // that it needs
	tiers     []Tier
	untracked []Tier
	preDNAT   []Tier
	problems  []string // what its endpoints have to report of it
	users     int
}

// endpointKind distinguishes workloads from host endpoints, which have more kinds of policy.
type endpointKind uint8

const (
	workloads endpointKind = iota
	hosts
	endpointKinds = 2
)

// selection finds or makes the selection by policies, sorted by id.
func (le *localEndpoints) selection(policies []*policy, of endpointKind, like *selection) *selection {
	b := append(le.room[:0], byte(of))
	for _, p := range policies {
		b = binary.AppendUvarint(b, p.id)
	}
	le.room = b
	s := le.selections[string(b)]
	if s == nil {
		s = newSelection(string(b), policies, of)
		if like != nil && slices.EqualFunc(s.tiers, like.tiers, sameTier) {
			s.tiers = like.tiers
		}
		le.selections[s.key] = s
	}
	return s
}

func newSelection(key string, policies []*policy, of endpointKind) *selection {
	s := &selection{key: key, policies: slices.Clone(policies)}
	stages := make([][]*policy, 3)
	for _, p := range policies {
		stage, object := 0, p.inForce()
		switch {
		case !p.tier.counts():
			continue
		case object.Untracked:
			stage = 1
		case object.PreDNAT:
			stage = 2
		}
		if stage == 0 || of == hosts {
			stages[stage] = append(stages[stage], p)
		}
	}
	s.tiers = s.order(stages[0], false)
	s.untracked = s.order(stages[1], false)
	s.preDNAT = s.order(stages[2], true)
	return s
}

// order groups policies by tier, in order of evaluation, and records which lists that needs.
func (s *selection) order(policies []*policy, inboundOnly bool) []Tier {
	slices.SortFunc(policies, func(a, b *policy) int {
		if a.tier != b.tier {
			return cmp.Or(cmp.Compare(a.tier.order, b.tier.order), cmp.Compare(a.tier.name, b.tier.name))
		}
		return cmp.Or(cmp.Compare(orderOf(a), orderOf(b)), cmp.Compare(a.key.Policy, b.key.Policy))
	})
	var tiers []Tier
	for _, p := range policies {
		if len(tiers) == 0 || tiers[len(tiers)-1].Name != p.tier.name {
			tiers = append(tiers, Tier{Name: p.tier.name})
		}
		t := &tiers[len(tiers)-1]
		if p.governs(Inbound) {
			t.Inbound = append(t.Inbound, p.list(Inbound).id)
			s.lists = append(s.lists, p.list(Inbound))
		}
		if p.governs(Outbound) && !inboundOnly {
			t.Outbound = append(t.Outbound, p.list(Outbound).id)
			s.lists = append(s.lists, p.list(Outbound))
		}
	}
	return tiers
}

func orderOf(p *policy) float64 {
	if o := p.inForce().Order; o != nil {
		return *o
	}
	return math.Inf(1)
}

// governs reports whether a policy applies in a direction. A refused one denies both.
func (p *policy) governs(d Direction) bool {
	types := p.inForce().Types
	if len(types) == 0 || p.denies() {
		return true
	}
	if d == Inbound {
		return slices.Contains(types, calico.TypeIngress)
	}
	return slices.Contains(types, calico.TypeEgress)
}

func sameTier(a, b Tier) bool {
	return a.Name == b.Name && sameLists(a.Inbound, b.Inbound) && sameLists(a.Outbound, b.Outbound)
}

// sameLists compares lists of lists. Endpoints mostly share them, which one comparison shows.
func sameLists(a, b []ListID) bool {
	if len(a) != len(b) {
		return false
	}
	return len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b)
}

func (le *localEndpoints) use(s *selection) {
	if s.users++; s.users == 1 {
		for _, l := range s.lists {
			le.lists.need(l)
		}
	}
}

func (le *localEndpoints) unuse(s *selection) {
	if s.users--; s.users > 0 {
		return
	}
	for _, l := range s.lists {
		le.lists.unneed(l)
	}
	if le.selections[s.key] == s {
		delete(le.selections, s.key)
	}
}

func findPolicy(sorted []*policy, p *policy) (int, bool) {
	return slices.BinarySearchFunc(sorted, p, byPolicyID)
}

func byPolicyID(a, b *policy) int { return cmp.Compare(a.id, b.id) }
