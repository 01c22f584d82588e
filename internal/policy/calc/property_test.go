package calc_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"heddle/calico"
	"heddle/internal/policy/calc"
)

// accumulate adds changes to an outcome. An error says how they fail to describe a step from there:
// something that was not there goes, something comes twice, or nothing changes.
func (o *outcome) accumulate(c *calc.Changes) error {
	for id, s := range c.Sets {
		if err := o.changeSet(id, s); err != nil {
			return fmt.Errorf("set %s: %w", id, err)
		}
	}
	if err := apply(o.Lists, c.Lists); err != nil {
		return err
	}
	if err := apply(o.Workloads, c.Workloads); err != nil {
		return err
	}
	if err := apply(o.Hosts, c.Hosts); err != nil {
		return err
	}
	return o.whole()
}

func (o *outcome) changeSet(id calc.SetID, s *calc.SetChange) error {
	members, known := o.Sets[id]
	switch {
	case s == nil || s.New && s.Gone || s.New == known:
		return fmt.Errorf("%+v, and it is there: %t", s, known)
	case s.Gone:
		delete(o.Sets, id)
		return nil
	case s.New:
		members = map[netip.Addr]bool{}
		o.Sets[id] = members
	case len(s.Added)+len(s.Removed) == 0:
		return fmt.Errorf("nothing changes")
	}
	for _, a := range s.Added {
		if members[a] {
			return fmt.Errorf("%s comes twice", a)
		}
		members[a] = true
	}
	for _, a := range s.Removed {
		if !members[a] {
			return fmt.Errorf("%s goes but was not there", a)
		}
		delete(members, a)
	}
	return nil
}

func apply[K comparable, V any](all map[K]V, changes map[K]*V) error {
	for key, now := range changes {
		old, known := all[key]
		switch {
		case now == nil && !known:
			return fmt.Errorf("%v goes but was not there", key)
		case now == nil:
			delete(all, key)
		case known && reflect.DeepEqual(old, *now):
			return fmt.Errorf("%v does not change", key)
		default:
			all[key] = *now
		}
	}
	return nil
}

// whole returns an error if something is named that does not exist.
func (o *outcome) whole() error {
	for id, l := range o.Lists {
		for _, r := range l.Rules {
			for _, set := range slices.Concat(r.SrcSets, r.DstSets, r.NotSrcSets, r.NotDstSets) {
				if o.Sets[set] == nil {
					return fmt.Errorf("list %v names set %s, which is not there", id, set)
				}
			}
		}
	}
	check := func(of any, profiles []string, stages ...[]calc.Tier) error {
		var ids []calc.ListID
		for _, p := range profiles {
			ids = append(ids, calc.ListID{Name: p}, calc.ListID{Name: p, Direction: calc.Outbound})
		}
		for _, t := range slices.Concat(stages...) {
			ids = slices.Concat(ids, t.Inbound, t.Outbound)
		}
		for _, id := range ids {
			if _, there := o.Lists[id]; !there {
				return fmt.Errorf("%v names list %v, which is not there", of, id)
			}
		}
		return nil
	}
	for key, w := range o.Workloads {
		if err := check(key, w.Profiles, w.Tiers); err != nil {
			return err
		}
	}
	for key, h := range o.Hosts {
		if err := check(key, h.Profiles, h.Tiers, h.Untracked, h.PreDNAT); err != nil {
			return err
		}
	}
	return nil
}

var sameValues = cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}

// diff compares outcomes. Texts for people may differ, but not whether there are any.
func diff(got, want *outcome) string {
	return cmp.Diff(want.withoutTexts(), got.withoutTexts(), sameValues)
}

func (o *outcome) withoutTexts() *outcome {
	plain := newOutcome()
	plain.Sets = o.Sets
	for id, l := range o.Lists {
		if l.Missing != "" {
			l.Missing = "why"
		}
		plain.Lists[id] = l
	}
	for key, w := range o.Workloads {
		w.Errors = whether(w.Errors)
		plain.Workloads[key] = w
	}
	for key, h := range o.Hosts {
		h.Errors = whether(h.Errors)
		plain.Hosts[key] = h
	}
	return plain
}

func whether(errors []string) []string {
	if len(errors) == 0 {
		return nil
	}
	return []string{"why"}
}

// What may be stored: few names, so that everything meets.
var (
	someHosts     = rapid.SampledFrom([]string{"here", "here", "there"})
	someLabels    = rapid.MapOfN(rapid.SampledFrom([]string{"a", "b"}), rapid.SampledFrom([]string{"x", "y"}), 0, 2)
	someProfiles  = rapid.SliceOfN(rapid.SampledFrom([]string{"p", "q", "r"}), 0, 3)
	someSelectors = rapid.SampledFrom([]string{
		"all()", `a == "x"`, `has(a)`, `!has(a)`, `(a == "x" && has(b))`, `(a in {"x", "y"} || b != "x")`, `a not in {"y"}`,
		`(a == "x" && a == "y")`, `(b == "y" || a == "y")`, `(!has(b) && a == "y")`, "has(t)",
	})
	noOrSelector = rapid.OneOf(rapid.Just(""), rapid.Just(""), someSelectors)
	someTags     = rapid.SampledFrom([]string{"", "", "", "s", "t"})
	someActions  = rapid.SampledFrom([]string{calico.Allow, calico.Deny, calico.Log, calico.NextTier})
	someOrders   = rapid.Map(rapid.SampledFrom([]int{0, 1, 2, 3}), func(n int) *float64 {
		if n == 0 {
			return nil
		}
		o := float64(n) - 1.5
		return &o
	})
	someNets4 = rapid.SliceOfN(rapid.Map(rapid.IntRange(1, 4), func(n int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 32)
	}), 0, 2)
	someNets6 = rapid.SliceOfN(rapid.Map(rapid.IntRange(1, 4), func(n int) netip.Prefix {
		return netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", n)), 128)
	}), 0, 2)
	ruleNets = rapid.SliceOfN(rapid.SampledFrom([]netip.Prefix{
		netip.MustParsePrefix("10.1.2.3/8"), netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::7/32"),
	}), 0, 2)
)

func someRules(t *rapid.T) []calico.Rule {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) calico.Rule {
		return calico.Rule{
			Action: someActions.Draw(t, "action"), IPVersion: rapid.SampledFrom([]int{0, 0, 4, 6}).Draw(t, "version"),
			Protocol: rapid.SampledFrom([]calico.Protocol{0, 0, calico.ProtocolTCP, calico.ProtocolICMP, calico.ProtocolICMPv6}).Draw(t, "protocol"),
			SrcTag:   someTags.Draw(t, "srcTag"), NotDstTag: someTags.Draw(t, "notDstTag"),
			SrcSelector: noOrSelector.Draw(t, "srcSelector"), DstSelector: noOrSelector.Draw(t, "dstSelector"),
			NotSrcSelector: noOrSelector.Draw(t, "notSrcSelector"),
			SrcNets:        ruleNets.Draw(t, "srcNets"), NotDstNets: ruleNets.Draw(t, "notDstNets"),
		}
	}), 0, 2).Draw(t, "rules")
}

func addresses(nets []netip.Prefix) (all []netip.Addr) {
	for _, n := range nets {
		all = append(all, n.Addr())
	}
	return all
}

// someKey draws a key, and someObject an object for it.
func someKey(t *rapid.T) calico.Key {
	profile := rapid.SampledFrom([]string{"p", "q", "r"}).Draw(t, "profile")
	switch rapid.SampledFrom([]string{"workload", "workload", "host", "rules", "tags", "labels", "policy", "policy", "policy", "tier"}).Draw(t, "kind") {
	case "workload":
		return calico.WorkloadEndpointKey{Host: someHosts.Draw(t, "host"), Orchestrator: "o", Workload: "w", Endpoint: rapid.SampledFrom([]string{"1", "2", "3", "4"}).Draw(t, "endpoint")}
	case "host":
		return calico.HostEndpointKey{Host: someHosts.Draw(t, "host"), Endpoint: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "endpoint")}
	case "rules":
		return calico.ProfileRulesKey{Profile: profile}
	case "tags":
		return calico.ProfileTagsKey{Profile: profile}
	case "labels":
		return calico.ProfileLabelsKey{Profile: profile}
	case "policy":
		return calico.PolicyKey{Tier: rapid.SampledFrom([]string{"default", "first", "zero"}).Draw(t, "tier"), Policy: rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "policy")}
	}
	return calico.TierKey{Tier: rapid.SampledFrom([]string{"default", "first", "zero"}).Draw(t, "tier")}
}

func someObject(t *rapid.T, key calico.Key) any {
	switch key.(type) {
	case calico.WorkloadEndpointKey:
		return &calico.WorkloadEndpoint{
			State: calico.Active, Name: rapid.SampledFrom([]string{"cali1", "cali2"}).Draw(t, "name"), ProfileIDs: someProfiles.Draw(t, "profiles"),
			IPv4Nets: someNets4.Draw(t, "nets4"), IPv6Nets: someNets6.Draw(t, "nets6"), Labels: someLabels.Draw(t, "labels"),
		}
	case calico.HostEndpointKey:
		return &calico.HostEndpoint{
			Name: "eth0", ProfileIDs: someProfiles.Draw(t, "profiles"), Labels: someLabels.Draw(t, "labels"),
			ExpectedIPv4Addrs: addresses(someNets4.Draw(t, "nets4")), ExpectedIPv6Addrs: addresses(someNets6.Draw(t, "nets6")),
		}
	case calico.ProfileRulesKey:
		return &calico.ProfileRules{InboundRules: someRules(t), OutboundRules: someRules(t)}
	case calico.ProfileTagsKey:
		tags := calico.ProfileTags(rapid.SliceOfN(rapid.SampledFrom([]string{"s", "t"}), 0, 2).Draw(t, "tags"))
		return &tags
	case calico.ProfileLabelsKey:
		labels := calico.ProfileLabels(someLabels.Draw(t, "labels"))
		return &labels
	case calico.PolicyKey:
		p := &calico.Policy{Selector: someSelectors.Draw(t, "selector"), Order: someOrders.Draw(t, "order"), InboundRules: someRules(t), OutboundRules: someRules(t)}
		switch rapid.IntRange(0, 6).Draw(t, "form") {
		case 0:
			p.Untracked = true
		case 1:
			p.PreDNAT, p.OutboundRules = true, nil
		case 2:
			p.Types = []string{calico.TypeIngress}
		case 3:
			p.Types = []string{calico.TypeEgress}
		}
		return p
	}
	return &calico.Tier{Order: someOrders.Draw(t, "order")}
}

// step draws one change and makes it in all places.
func step(t *rapid.T, w world, c *calc.Calc) {
	if rapid.IntRange(0, 60).Draw(t, "again") == 0 && len(w) > 0 {
		rewrite(w, c)
		return
	}
	key := someKey(t)
	switch rapid.IntRange(0, 9).Draw(t, "what") {
	case 0, 1, 2:
		w.put(key, nil)
		c.Update(key, nil)
	case 3:
		var partial any
		if rapid.Bool().Draw(t, "readable") {
			partial = someObject(t, key)
		}
		w.refuse(key, partial, "reason")
		c.Invalid(key, partial, "reason")
	default:
		object := someObject(t, key)
		w.put(key, object)
		c.Update(key, object)
	}
}

// rewrite stores everything that is valid once more.
func rewrite(w world, c *calc.Calc) {
	for key, s := range w {
		if s.object != nil {
			c.Update(key, s.object)
		}
	}
}

// In whatever order things happen, the accumulated Changes follow from the state alone. No Changes
// leave something named that does not exist, or repeat what is so already.
func TestOutcomeFollowsFromState(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const most = 3
		w, c, got := world{}, calc.New("here"), newOutcome()
		c.SetMaxSetSize(most)
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			for range rapid.IntRange(1, 12).Draw(t, "steps") {
				step(t, w, c)
			}
			if err := got.accumulate(c.Changes()); err != nil {
				t.Fatal(err)
			}
			if d := diff(got, calculate(w, "here", most)); d != "" {
				t.Fatalf("in force (+) and wanted (-) differ:\n%s", d)
			}
		}
		if c := c.Changes(); len(c.Sets)+len(c.Lists)+len(c.Workloads)+len(c.Hosts) > 0 {
			t.Fatalf("nothing has happened, yet Changes says %+v", c)
		}
	})
}

// Changes that are undone before the next call are not reported.
func TestUndoneIsNotTold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, c := world{}, calc.New("here")
		c.SetMaxSetSize(3)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			key := someKey(t)
			object := someObject(t, key)
			w.put(key, object)
			c.Update(key, object)
		}
		c.Changes()
		before := maps.Clone(w)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			step(t, w, c)
		}
		for key := range w {
			if _, there := before[key]; !there {
				c.Update(key, nil)
			}
		}
		for key, s := range before {
			c.Update(key, s.object)
		}
		if c := c.Changes(); len(c.Sets)+len(c.Lists)+len(c.Workloads)+len(c.Hosts) > 0 {
			t.Fatalf("all is as it was, yet Changes says %v", cmp.Diff(&calc.Changes{}, c, sameValues))
		}
	})
}

// The order in which a state is reached does not matter: forward, backward, shuffled, with
// everything twice, with detours, asked in between or not.
func TestOrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := world{}
		for range rapid.IntRange(1, 40).Draw(t, "objects") {
			key := someKey(t)
			w.put(key, someObject(t, key))
		}
		want := calculate(w, "here", 3)
		keys := slices.SortedFunc(maps.Keys(w), func(a, b calico.Key) int { return cmpText(a, b) })
		backward := slices.Clone(keys)
		slices.Reverse(backward)
		shuffled := slices.Clone(keys)
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for name, order := range map[string][]calico.Key{
			"forward": keys, "backward": backward, "shuffled": shuffled, "twice": append(slices.Clone(shuffled), keys...),
		} {
			for _, detours := range []bool{false, true} {
				for _, every := range []int{1, 5, 1000} {
					c, got := calc.New("here"), newOutcome()
					c.SetMaxSetSize(3)
					for i, key := range order {
						if detours {
							c.Update(key, someDetour(key))
							c.Update(key, nil)
							c.Invalid(key, nil, "reason")
						}
						c.Update(key, w[key].object)
						if i%every == 0 {
							if err := got.accumulate(c.Changes()); err != nil {
								t.Fatal(err)
							}
						}
					}
					if err := got.accumulate(c.Changes()); err != nil {
						t.Fatal(err)
					}
					if d := diff(got, want); d != "" {
						t.Fatalf("%s, detours %t, asked every %d: in force (+) and wanted (-) differ:\n%s", name, detours, every, d)
					}
				}
			}
		}
	})
}

func cmpText(a, b calico.Key) int {
	x, y := fmt.Sprintf("%T%v", a, a), fmt.Sprintf("%T%v", b, b)
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// someDetour is an object for a key that is not the one wanted in the end.
func someDetour(key calico.Key) any {
	rules := []calico.Rule{{Action: calico.Deny, SrcTag: "t", DstSelector: "has(a)"}}
	switch key.(type) {
	case calico.WorkloadEndpointKey:
		return &calico.WorkloadEndpoint{
			State: calico.Active, Name: "cali9", ProfileIDs: []string{"r"}, Labels: map[string]string{"a": "x", "b": "y"},
			IPv4Nets: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.9/32")},
		}
	case calico.HostEndpointKey:
		return &calico.HostEndpoint{Name: "eth9", ExpectedIPv4Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.2")}}
	case calico.ProfileRulesKey:
		return &calico.ProfileRules{InboundRules: rules}
	case calico.ProfileTagsKey:
		return &calico.ProfileTags{"t"}
	case calico.ProfileLabelsKey:
		return &calico.ProfileLabels{"a": "y"}
	case calico.PolicyKey:
		return &calico.Policy{Selector: "all()", InboundRules: rules}
	}
	order := -7.0
	return &calico.Tier{Order: &order}
}
