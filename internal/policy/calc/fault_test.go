package calc_test

import (
	"slices"
	"strings"
	"testing"

	"heddle/calico"
	"heddle/internal/policy/calc"
)

func (b *bench) wantErrors(name string, parts ...string) {
	b.t.Helper()
	errors := b.Workloads[epKey("here", name)].Errors
	if len(errors) != len(parts) {
		b.t.Errorf("endpoint %s reports %q, want %q", name, errors, parts)
		return
	}
	for i, part := range parts {
		if !strings.Contains(errors[i], part) {
			b.t.Errorf("endpoint %s reports %q, want %q", name, errors[i], part)
		}
	}
}

func (b *bench) wantProblem(key calico.Key, part string) {
	b.t.Helper()
	for _, p := range b.Problems() {
		if p.Key == key && strings.Contains(p.Text, part) {
			return
		}
	}
	b.t.Errorf("problems are %v, want %q of %v among them", b.Problems(), part, key)
}

func TestProfileWithoutRules(t *testing.T) {
	b := newBench(t)
	rules := &calico.ProfileRules{InboundRules: []calico.Rule{{Action: calico.Allow}}}
	b.Update(epKey("here", "1"), ep("", "in", "good", "missing", "good", "bad"))
	b.Update(calico.ProfileRulesKey{Profile: "good"}, rules)
	b.Invalid(calico.ProfileRulesKey{Profile: "bad"}, nil, "no such action")
	b.settle()
	if got := b.Workloads[epKey("here", "1")].Profiles; !slices.Equal(got, []string{"good", "missing", "bad"}) {
		t.Errorf("profiles are %v", got)
	}
	for name, part := range map[string]string{"good": "", "missing": "no rules", "bad": "no such action"} {
		for _, d := range []calc.Direction{calc.Inbound, calc.Outbound} {
			if l := b.list("", name, d); (l.Missing != "") != (part != "") || !strings.Contains(l.Missing, part) {
				t.Errorf("profile %s: %+v, want %q", name, l, part)
			}
		}
	}
	b.wantErrors("1", "profile bad: its rules are invalid: no such action", "profile missing: it has no rules")
	b.wantProblem(calico.ProfileRulesKey{Profile: "bad"}, "no such action")

	b.Update(calico.ProfileRulesKey{Profile: "missing"}, rules)
	b.Update(calico.ProfileRulesKey{Profile: "bad"}, rules)
	b.settle()
	b.wantErrors("1")
	if p := b.Problems(); len(p) != 0 {
		t.Errorf("problems: %v", p)
	}
}

// An invalid policy never opens traffic: with a readable selector it denies everything, at its
// order.
func TestInvalidPolicyDenies(t *testing.T) {
	b := newBench(t)
	key := polKey("default", "p")
	b.Update(epKey("here", "1"), ep("", "a="))
	b.Update(epKey("here", "2"), ep("", "b="))
	first, last := uses("all()"), uses("all()")
	first.Order, last.Order = order(1), order(3)
	b.Update(polKey("default", "first"), first)
	b.Update(polKey("default", "last"), last)
	b.Update(key, uses("has(b)"))
	b.Invalid(key, &calico.Policy{Selector: "has(a)", Order: order(2), Types: []string{calico.TypeIngress}}, "rule 3: bad port")
	b.settle()
	b.wantTiers("1", "default[first,p,last|first,p,last]")
	b.wantTiers("2", "default[first,last|first,last]")
	for _, d := range []calc.Direction{calc.Inbound, calc.Outbound} {
		if l := b.list("default", "p", d); !strings.Contains(l.Missing, "rule 3: bad port") {
			t.Errorf("the invalid policy is %+v", l)
		}
	}
	b.wantErrors("1", "policy default/p: it is invalid, and denies everything: rule 3: bad port")
	b.wantErrors("2")
	b.wantProblem(key, "bad port")

	b.Update(key, uses("has(b)"))
	b.settle()
	b.wantTiers("1", "default[first,last|first,last]")
	b.wantTiers("2", "default[first,last,p|first,last,p]")
	b.wantErrors("1")
	if p := b.Problems(); len(p) != 0 {
		t.Errorf("problems: %v", p)
	}
}

// Of an invalid policy whose selector cannot be read the last valid version stays, and it is absent
// if there is none.
func TestUnreadablePolicy(t *testing.T) {
	b := newBench(t)
	key, new := polKey("default", "p"), polKey("default", "new")
	b.Update(epKey("here", "1"), ep(""))
	b.Update(key, uses("all()", "has(a)"))
	b.Invalid(key, nil, "not JSON")
	b.Invalid(new, nil, "not JSON")
	b.settle()
	b.wantTiers("1", "default[p|p]")
	if l := b.list("default", "p", calc.Inbound); l.Missing != "" || len(l.Rules) != 1 {
		t.Errorf("the last valid version does not stay: %+v", l)
	}
	b.wantErrors("1", "its last valid version stays: not JSON")
	b.wantProblem(key, "not JSON")
	b.wantProblem(new, "not JSON")

	b.Update(key, &calico.Policy{Selector: "has("}) // no decoder gives that; it must not matter
	b.settle()
	b.wantTiers("1", "default[p|p]")
	b.wantProblem(key, "selector")

	b.Update(key, nil)
	b.settle()
	b.wantTiers("1", "")
	b.Invalid(key, nil, "not JSON") // the version before it was deleted does not count
	b.settle()
	b.wantTiers("1", "")
	b.wantErrors("1")
}

// A selector of a rule that does not parse fails the list, not the agent.
func TestUnreadableSelectorOfRule(t *testing.T) {
	b := newBench(t)
	b.Update(epKey("here", "1"), ep(""))
	b.Update(polKey("default", "p"), uses("all()", "has(a)", "has("))
	b.settle()
	if l := b.list("default", "p", calc.Inbound); !strings.Contains(l.Missing, "rule 2") || len(l.Rules) != 0 {
		t.Errorf("the list is %+v", l)
	}
	b.wantErrors("1", "rule 2")
	if len(b.Sets) != 0 {
		t.Errorf("sets: %v", b.Sets)
	}
}

func TestInvalidHostEndpoint(t *testing.T) {
	b := newBench(t)
	key, fresh, nameless := heKey("here", "eth0"), heKey("here", "eth1"), heKey("here", "eth2")
	b.Update(key, he("eth0", "192.0.2.1", "a="))
	b.Update(polKey("default", "p"), uses("all()", "has(a)"))
	b.settle()
	b.Invalid(key, he("eth9", "192.0.2.9"), "bad address")
	b.Invalid(fresh, he("eth1", "192.0.2.8", "a="), "bad label")
	b.Invalid(nameless, nil, "not JSON")
	b.settle()
	if h := b.Hosts[key]; h.Endpoint.Name != "eth0" || h.Invalid != "bad address" || text(h.Tiers) != "default[p|p]" {
		t.Errorf("the last valid version does not stay: %+v", h)
	}
	if h := b.Hosts[fresh]; h.Endpoint.Name != "eth1" || len(h.Endpoint.ExpectedIPv4Addrs) != 0 || h.Invalid != "bad label" || len(h.Tiers)+len(h.Profiles) != 0 {
		t.Errorf("without a valid version there is %+v", h)
	}
	if h, there := b.Hosts[nameless]; !there || h.Endpoint.Name != "" || h.Invalid != "not JSON" {
		t.Errorf("without a name there is %+v", h)
	}
	b.wantMembers(setID("has(a)"), "192.0.2.1")
	b.wantProblem(fresh, "bad label")

	b.Update(key, nil)
	b.Update(fresh, he("eth1", "192.0.2.8", "a="))
	b.Update(nameless, nil)
	b.settle()
	b.wantMembers(setID("has(a)"), "192.0.2.8")
	if _, there := b.Hosts[key]; there || len(b.Hosts) != 1 || b.Hosts[fresh].Invalid != "" {
		t.Errorf("host endpoints: %+v", b.Hosts)
	}
}

func TestInvalidEndpointIsGone(t *testing.T) {
	b := newBench(t)
	b.Update(polKey("default", "p"), uses("all()", "has(a)"))
	b.Update(epKey("here", "1"), ep("192.0.2.1", "a="))
	b.Update(epKey("here", "2"), ep("192.0.2.2"))
	b.settle()
	b.Invalid(epKey("here", "1"), nil, "no state")
	b.settle()
	if _, there := b.Workloads[epKey("here", "1")]; there {
		t.Error("the invalid endpoint is still there")
	}
	b.wantMembers(setID("has(a)"), "")
	b.wantProblem(epKey("here", "1"), "no state")
}

// A tier does not vanish, with policies that close traffic, because its metadata cannot be read.
func TestInvalidTierStays(t *testing.T) {
	b := newBench(t)
	b.Update(epKey("here", "1"), ep(""))
	for _, tier := range []string{"a", "b", "default"} {
		b.Update(polKey(tier, tier), uses("all()"))
	}
	b.Update(calico.TierKey{Tier: "b"}, &calico.Tier{Order: order(1)})
	b.Invalid(calico.TierKey{Tier: "a"}, nil, "bad order")
	b.Invalid(calico.TierKey{Tier: "b"}, nil, "bad order")
	b.settle()
	b.wantTiers("1", "b[b|b] a[a|a] default[default|default]")
	b.wantProblem(calico.TierKey{Tier: "a"}, "bad order")
}

// A set that outgrows the maximum closes the lists that name it, and is an error on the endpoints
// that they judge.
func TestSetTooLarge(t *testing.T) {
	b := newBench(t)
	b.SetMaxSetSize(2)
	b.Update(epKey("here", "1"), ep("", "role=web"))
	b.Update(epKey("here", "2"), ep("", "role=db"))
	deny := uses(`role == "web"`)
	deny.InboundRules = []calico.Rule{{Action: calico.Deny, SrcSelector: "has(a)"}, {Action: calico.Allow}}
	b.Update(polKey("default", "p"), deny)
	b.Update(polKey("default", "q"), uses("all()", "has(b)"))
	for _, n := range []string{"1", "2"} {
		b.Update(epKey("there", n), ep("192.0.2."+n+" 2001:db8::"+n, "a=", "b="))
	}
	b.settle()
	b.wantMembers(setID("has(a)"), "192.0.2.1 192.0.2.2 2001:db8::1 2001:db8::2")
	b.wantErrors("1")

	b.Update(epKey("there", "3"), ep("192.0.2.3", "a="))
	b.settle()
	b.wantMembers(setID("has(a)"), "-")
	b.wantMembers(setID("has(b)"), "192.0.2.1 192.0.2.2 2001:db8::1 2001:db8::2")
	if l := b.list("default", "p", calc.Inbound); !strings.Contains(l.Missing, "MaxIpsetSize") || len(l.Rules) != 0 {
		t.Errorf("the list is %+v", l)
	}
	b.wantErrors("1", "policy default/p: has(a) picks 3 addresses of one family; a set may hold 2")
	b.wantErrors("2")
	if p := b.Problems(); len(p) != 1 || p[0].Set != setID("has(a)") {
		t.Errorf("problems: %v", p)
	}

	b.SetMaxSetSize(3)
	b.settle()
	b.wantMembers(setID("has(a)"), "192.0.2.1 192.0.2.2 192.0.2.3 2001:db8::1 2001:db8::2")
	b.wantErrors("1")
	b.SetMaxSetSize(1)
	b.settle()
	b.wantErrors("2", "policy default/q")
	b.Update(epKey("there", "2"), nil)
	b.Update(epKey("there", "3"), nil)
	b.settle()
	b.wantMembers(setID("has(a)"), "192.0.2.1 2001:db8::1")
	b.wantErrors("1")
	b.wantErrors("2")
}

// What is no concern of a calculation is let pass: other kinds, and the legacy tree, which comes by
// v1 keys.
func TestOtherKeysPass(t *testing.T) {
	b := newBench(t)
	legacy := epKey("here", "1")
	legacy.Legacy = true
	b.Update(legacy, ep(""))
	b.Invalid(legacy, nil, "reason")
	b.Update(calico.ProfileRulesKey{Profile: "p", Legacy: true}, &calico.ProfileRules{})
	b.Invalid(calico.ProfileRulesKey{Profile: "p", Legacy: true}, nil, "reason")
	b.Update(calico.ProfileTagsKey{Profile: "p", Legacy: true}, &calico.ProfileTags{"t"})
	b.Invalid(calico.ProfileTagsKey{Profile: "p", Legacy: true}, nil, "reason")
	b.Update(calico.ReadyKey{}, true)
	b.Invalid(calico.PoolKey{}, nil, "reason")
	b.Update(polKey("default", "p"), "text") // and what is no policy is an invalid one
	b.settle()
	if len(b.Workloads) != 0 {
		t.Errorf("workloads: %v", b.Workloads)
	}
	if p := b.Problems(); len(p) != 1 || p[0].Key != calico.Key(polKey("default", "p")) {
		t.Errorf("problems: %v", p)
	}
}
