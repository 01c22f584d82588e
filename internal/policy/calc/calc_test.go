package calc_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/calico"
	"heddle/calico/selector"
	"heddle/internal/policy/calc"
)

// bench is a calculation for host "here" with what its changes have added up to.
type bench struct {
	*calc.Calc
	t *testing.T
	*outcome
}

func newBench(t *testing.T) *bench {
	t.Parallel()
	return &bench{calc.New("here"), t, newOutcome()}
}

// settle adds up what has changed.
func (b *bench) settle() *calc.Changes {
	b.t.Helper()
	c := b.Changes()
	if err := b.accumulate(c); err != nil {
		b.t.Fatal(err)
	}
	return c
}

func epKey(host, name string) calico.WorkloadEndpointKey {
	return calico.WorkloadEndpointKey{Host: host, Orchestrator: "o", Workload: "w", Endpoint: name}
}

func heKey(host, name string) calico.HostEndpointKey {
	return calico.HostEndpointKey{Host: host, Endpoint: name}
}

func polKey(tier, name string) calico.PolicyKey { return calico.PolicyKey{Tier: tier, Policy: name} }

// ep is a workload endpoint with addresses, labels like "a=x" and, after "in", profiles.
func ep(addresses string, labels ...string) *calico.WorkloadEndpoint {
	o := &calico.WorkloadEndpoint{State: calico.Active, Name: "cali1", Labels: map[string]string{}}
	for _, a := range strings.Fields(addresses) {
		ip := netip.MustParseAddr(a)
		if ip.Is4() {
			o.IPv4Nets = append(o.IPv4Nets, netip.PrefixFrom(ip, 32))
		} else {
			o.IPv6Nets = append(o.IPv6Nets, netip.PrefixFrom(ip, 128))
		}
	}
	if i := slices.Index(labels, "in"); i >= 0 {
		o.ProfileIDs, labels = labels[i+1:], labels[:i]
	}
	for _, l := range labels {
		name, value, _ := strings.Cut(l, "=")
		o.Labels[name] = value
	}
	return o
}

// he is a host endpoint with a name and expected addresses.
func he(name, addresses string, labels ...string) *calico.HostEndpoint {
	like := ep("", labels...)
	o := &calico.HostEndpoint{Name: name, Labels: like.Labels, ProfileIDs: like.ProfileIDs}
	for _, a := range strings.Fields(addresses) {
		if ip := netip.MustParseAddr(a); ip.Is4() {
			o.ExpectedIPv4Addrs = append(o.ExpectedIPv4Addrs, ip)
		} else {
			o.ExpectedIPv6Addrs = append(o.ExpectedIPv6Addrs, ip)
		}
	}
	return o
}

// uses is a policy that picks endpoints and allows from selectors.
func uses(picks string, from ...string) *calico.Policy {
	p := &calico.Policy{Selector: picks}
	for _, s := range from {
		p.InboundRules = append(p.InboundRules, calico.Rule{Action: calico.Allow, SrcSelector: s})
	}
	return p
}

func setID(text string) calc.SetID { return calc.SetID(must(selector.Parse(text)).UID()) }

// members are the sorted addresses of a set; "-" when it is not there.
func (b *bench) members(id calc.SetID) string {
	set, there := b.Sets[id]
	if !there {
		return "-"
	}
	var all []string
	for a := range set {
		all = append(all, a.String())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (b *bench) wantMembers(id calc.SetID, want string) {
	b.t.Helper()
	if got := b.members(id); got != want {
		b.t.Errorf("set %s has %q, want %q", id, got, want)
	}
}

// text writes tiers as name[inbound|outbound], with the policies of each direction.
func text(tiers []calc.Tier) string {
	var all []string
	names := func(ids []calc.ListID) string {
		var n []string
		for _, id := range ids {
			n = append(n, id.Name)
		}
		return strings.Join(n, ",")
	}
	for _, t := range tiers {
		all = append(all, fmt.Sprintf("%s[%s|%s]", t.Name, names(t.Inbound), names(t.Outbound)))
	}
	return strings.Join(all, " ")
}

func (b *bench) wantTiers(name, want string) {
	b.t.Helper()
	if got := text(b.Workloads[epKey("here", name)].Tiers); got != want {
		b.t.Errorf("endpoint %s is judged by %q, want %q", name, got, want)
	}
}

func (b *bench) list(tier, name string, d calc.Direction) calc.List {
	b.t.Helper()
	l, there := b.Lists[calc.ListID{Tier: tier, Name: name, Direction: d}]
	if !there {
		b.t.Errorf("no list %s/%s %d", tier, name, d)
	}
	return l
}

func TestLabelsAreInherited(t *testing.T) {
	b := newBench(t)
	b.Update(epKey("here", "1"), ep("192.0.2.1", "own=mine", "in", "first", "unknown", "second"))
	b.Update(calico.ProfileLabelsKey{Profile: "first"}, &calico.ProfileLabels{"own": "no", "both": "first", "one": "1"})
	b.Update(calico.ProfileLabelsKey{Profile: "second"}, &calico.ProfileLabels{"both": "second", "two": "2"})
	b.Update(polKey("default", "p"), uses("all()", `own == "mine"`, `both == "first"`, `one == "1"`, `two == "2"`, `both == "second"`, `own == "no"`))
	b.settle()
	for text, want := range map[string]string{
		`own == "mine"`: "192.0.2.1", `both == "first"`: "192.0.2.1", `one == "1"`: "192.0.2.1", `two == "2"`: "192.0.2.1",
		`both == "second"`: "", `own == "no"`: "",
	} {
		b.wantMembers(setID(text), want)
	}

	b.Update(calico.ProfileLabelsKey{Profile: "first"}, nil)
	b.settle()
	b.wantMembers(setID(`both == "first"`), "")
	b.wantMembers(setID(`both == "second"`), "192.0.2.1")
	b.wantMembers(setID(`one == "1"`), "")
}

func TestTagsAreNotLabels(t *testing.T) {
	b := newBench(t)
	b.Update(epKey("there", "1"), ep("192.0.2.1", "blue=", "in", "p"))
	b.Update(epKey("here", "2"), ep("192.0.2.2", "in", "q", "p"))
	b.Update(calico.ProfileTagsKey{Profile: "p"}, &calico.ProfileTags{"red"})
	b.Update(calico.ProfileTagsKey{Profile: "q"}, &calico.ProfileTags{"red", "green"})
	p := uses("all()", "has(red)", "has(blue)")
	p.OutboundRules = []calico.Rule{{Action: calico.Allow, DstTag: "red"}, {Action: calico.Allow, NotSrcTag: "green"}, {Action: calico.Allow, SrcTag: "blue"}}
	b.Update(polKey("default", "p"), p)
	b.settle()
	b.wantMembers("t:red", "192.0.2.1 192.0.2.2")
	b.wantMembers("t:green", "192.0.2.2")
	b.wantMembers("t:blue", "")
	b.wantMembers(setID("has(red)"), "")
	b.wantMembers(setID("has(blue)"), "192.0.2.1")

	b.Update(calico.ProfileTagsKey{Profile: "p"}, nil)
	b.settle()
	b.wantMembers("t:red", "192.0.2.2")
}

func TestSetMembers(t *testing.T) {
	b := newBench(t)
	b.Update(epKey("here", "local"), ep("192.0.2.1 2001:db8::1", "a="))
	remote := ep("192.0.2.2", "a=")
	remote.State = calico.Inactive // whatever the state
	remote.IPv4NAT = []calico.NAT{{IntIP: netip.MustParseAddr("192.0.2.2"), ExtIP: netip.MustParseAddr("203.0.113.2")}}
	b.Update(epKey("there", "remote"), remote)
	b.Update(heKey("there", "eth0"), he("eth0", "192.0.2.3 2001:db8::3", "a="))
	b.Update(heKey("there", "eth1"), he("eth1", "", "a=")) // only a name: no address
	b.Update(epKey("there", "other"), ep("192.0.2.9"))
	b.Update(polKey("default", "p"), uses("all()", "has(a)"))
	b.settle()
	b.wantMembers(setID("has(a)"), "192.0.2.1 192.0.2.2 192.0.2.3 2001:db8::1 2001:db8::3")

	b.Update(heKey("there", "eth0"), nil)
	b.Update(epKey("there", "other"), ep("192.0.2.9", "a="))
	if c := b.settle(); len(c.Sets) != 1 || len(c.Workloads)+len(c.Lists)+len(c.Hosts) != 0 {
		t.Errorf("members change, and so does %+v", c)
	}
	b.wantMembers(setID("has(a)"), "192.0.2.1 192.0.2.2 192.0.2.9 2001:db8::1")
}

func TestAddressLeavesWithItsLastHolder(t *testing.T) {
	b := newBench(t)
	b.Update(epKey("here", "1"), ep(""))
	b.Update(polKey("default", "p"), uses("all()", "has(a)", "has(b)"))
	for _, name := range []string{"1", "2", "3"} {
		b.Update(epKey("there", name), ep("192.0.2.7", "a=", "n="+name))
	}
	b.settle()
	for i, left := range []string{"192.0.2.7", "192.0.2.7", ""} {
		b.Update(epKey("there", fmt.Sprint(i+1)), nil)
		b.settle()
		b.wantMembers(setID("has(a)"), left)
	}
}

func TestOnlyWhatLocalEndpointsNeedIsActive(t *testing.T) {
	b := newBench(t)
	b.Update(epKey("there", "1"), ep("192.0.2.1", "role=db", "in", "theirs"))
	b.Update(calico.ProfileRulesKey{Profile: "ours"}, &calico.ProfileRules{InboundRules: []calico.Rule{{Action: calico.Allow, SrcTag: "t"}}})
	b.Update(calico.ProfileRulesKey{Profile: "theirs"}, &calico.ProfileRules{})
	b.Update(polKey("default", "web"), uses(`role == "web"`, `role == "db"`))
	b.Update(polKey("default", "db"), uses(`role == "db"`, `role == "web"`))
	if c := b.settle(); len(c.Lists)+len(c.Sets)+len(c.Workloads) != 0 {
		t.Errorf("without local endpoints there is %+v", c)
	}

	b.Update(epKey("here", "1"), ep("192.0.2.2", "role=web", "in", "ours"))
	b.settle()
	want := []calc.ListID{
		{Name: "ours"}, {Name: "ours", Direction: calc.Outbound},
		{Tier: "default", Name: "web"}, {Tier: "default", Name: "web", Direction: calc.Outbound},
	}
	for _, id := range want {
		if _, there := b.Lists[id]; !there {
			t.Errorf("no list %v", id)
		}
	}
	if len(b.Lists) != len(want) || len(b.Sets) != 2 {
		t.Errorf("there are lists %v and sets %v", slices.Collect(maps.Keys(b.Lists)), slices.Collect(maps.Keys(b.Sets)))
	}
	b.wantMembers(setID(`role == "db"`), "192.0.2.1")
	b.wantMembers("t:t", "")

	b.Update(epKey("here", "1"), nil)
	b.settle()
	if len(b.Lists)+len(b.Sets)+len(b.Workloads) != 0 {
		t.Errorf("after the last local endpoint there is still %+v", b.outcome)
	}
}

func TestOrderOfTiersAndPolicies(t *testing.T) {
	b := newBench(t)
	b.Update(epKey("here", "1"), ep("", "a="))
	ordered := func(o *float64) *calico.Policy { p := uses("has(a)"); p.Order = o; return p }
	b.Update(polKey("default", "b"), ordered(nil)) // missing: last
	b.Update(polKey("default", "a"), ordered(nil))
	b.Update(polKey("default", "z"), ordered(order(-1)))
	b.Update(polKey("default", "y"), ordered(order(10)))
	b.Update(polKey("default", "x"), ordered(order(10))) // equal: by name
	b.Update(polKey("default", "elsewhere"), uses("has(b)"))
	b.Update(polKey("second", "s"), ordered(nil))
	b.Update(polKey("first", "f"), ordered(nil))
	b.Update(polKey("bare", "ignored"), ordered(nil)) // its tier has no metadata
	b.Update(polKey("empty", "none"), uses("has(b)"))
	b.Update(calico.TierKey{Tier: "second"}, &calico.Tier{Order: order(2)})
	b.Update(calico.TierKey{Tier: "first"}, &calico.Tier{Order: order(2)})
	b.Update(calico.TierKey{Tier: "empty"}, &calico.Tier{Order: order(1)})
	b.settle()
	b.wantTiers("1", "first[f|f] second[s|s] default[z,x,y,a,b|z,x,y,a,b]")
	if p := b.Problems(); len(p) != 1 || p[0].Key != calico.Key(calico.TierKey{Tier: "bare"}) {
		t.Errorf("problems: %v", p)
	}

	b.Update(calico.TierKey{Tier: "bare"}, &calico.Tier{})
	b.Update(calico.TierKey{Tier: "first"}, &calico.Tier{Order: order(3)})
	b.Update(calico.TierKey{Tier: "default"}, &calico.Tier{Order: order(0)})
	b.Update(polKey("default", "b"), ordered(order(0)))
	b.settle()
	b.wantTiers("1", "default[z,b,x,y,a|z,b,x,y,a] second[s|s] first[f|f] bare[ignored|ignored]")
	if p := b.Problems(); len(p) != 0 {
		t.Errorf("problems: %v", p)
	}

	b.Update(calico.TierKey{Tier: "second"}, nil)
	b.settle()
	b.wantTiers("1", "default[z,b,x,y,a|z,b,x,y,a] first[f|f] bare[ignored|ignored]")
}

func TestPolicyCountsInBothDirections(t *testing.T) {
	b := newBench(t)
	b.Update(epKey("here", "1"), ep(""))
	only := uses("all()")
	only.InboundRules = []calico.Rule{{Action: calico.Allow}}
	b.Update(polKey("default", "only-inbound-rules"), only)
	b.settle()
	b.wantTiers("1", "default[only-inbound-rules|only-inbound-rules]")

	in, out := uses("all()"), uses("all()")
	in.Types, out.Types = []string{calico.TypeIngress}, []string{calico.TypeEgress}
	b.Update(polKey("default", "only-inbound-rules"), nil)
	b.Update(polKey("default", "in"), in)
	b.settle()
	b.wantTiers("1", "default[in|]")
	b.Update(polKey("default", "out"), out)
	b.settle()
	b.wantTiers("1", "default[in|out]")
}

func TestEarlyPolicies(t *testing.T) {
	b := newBench(t)
	b.Update(epKey("here", "1"), ep("", "a="))
	untracked, pre := uses("has(a)"), uses("has(a)")
	untracked.Untracked, pre.PreDNAT = true, true
	b.Update(polKey("default", "untracked"), untracked)
	b.Update(polKey("default", "pre"), pre)
	b.settle()
	b.wantTiers("1", "")
	if len(b.Lists) != 0 {
		t.Errorf("policies for host endpoints are active on a workload: %v", b.Lists)
	}

	b.Update(heKey("here", "eth0"), he("eth0", "", "a="))
	b.Update(polKey("default", "normal"), uses("has(a)"))
	b.settle()
	h := b.Hosts[heKey("here", "eth0")]
	if got, want := text(h.Tiers)+" / "+text(h.Untracked)+" / "+text(h.PreDNAT), "default[normal|normal] / default[untracked|untracked] / default[pre|]"; got != want {
		t.Errorf("the host endpoint is judged by %q, want %q", got, want)
	}
	b.wantTiers("1", "default[normal|normal]")
}

func TestFamiliesOfRules(t *testing.T) {
	b := newBench(t)
	v4, v6 := netip.MustParsePrefix("192.0.2.77/24"), netip.MustParsePrefix("2001:db8::77/32")
	nets := func(p ...netip.Prefix) []netip.Prefix { return p }
	cases := []struct {
		rule calico.Rule
		want string // families; empty: left out
	}{
		{calico.Rule{}, "46"},
		{calico.Rule{IPVersion: 4}, "4"},
		{calico.Rule{IPVersion: 6}, "6"},
		{calico.Rule{Protocol: calico.ProtocolICMP}, "4"},
		{calico.Rule{Protocol: calico.ProtocolICMPv6}, "6"},
		{calico.Rule{NotProtocol: calico.ProtocolICMP}, "46"},
		{calico.Rule{SrcNets: nets(v4)}, "4"},
		{calico.Rule{SrcNets: nets(v6)}, "6"},
		{calico.Rule{SrcNets: nets(v4, v6)}, "46"},
		{calico.Rule{NotSrcNets: nets(v4)}, "4"},
		{calico.Rule{NotDstNets: nets(v6)}, "6"},
		{calico.Rule{DstNets: nets(v4, v6), IPVersion: 6}, "6"},
		{calico.Rule{SrcNets: nets(v4), DstNets: nets(v6)}, ""},
		{calico.Rule{SrcNets: nets(v4), NotDstNets: nets(v6)}, ""},
		{calico.Rule{SrcNets: nets(v6), Protocol: calico.ProtocolICMP}, ""},
	}
	p := &calico.Policy{Selector: "all()"}
	for _, c := range cases {
		p.InboundRules = append(p.InboundRules, c.rule)
	}
	b.Update(epKey("here", "1"), ep(""))
	b.Update(polKey("default", "p"), p)
	b.settle()
	got := map[int]string{}
	for _, r := range b.list("default", "p", calc.Inbound).Rules {
		for family, in := range map[string]bool{"4": r.IPv4 && !r.IPv6, "6": r.IPv6 && !r.IPv4, "46": r.IPv4 && r.IPv6} {
			if in {
				got[r.Index] = family
			}
		}
		for _, n := range slices.Concat(r.SrcNets, r.DstNets, r.NotSrcNets, r.NotDstNets) {
			if n != n.Masked() {
				t.Errorf("rule %d has %s, which is not masked", r.Index, n)
			}
		}
	}
	for i, c := range cases {
		if got[i+1] != c.want {
			t.Errorf("rule %+v is for families %q, want %q", c.rule, got[i+1], c.want)
		}
	}
}

func TestRulesAreResolved(t *testing.T) {
	b := newBench(t)
	b.Update(epKey("here", "1"), ep("", "in", "p"))
	eight := uint8(8)
	rules := []calico.Rule{
		{Action: calico.NextTier},
		{Action: calico.Log, LogPrefix: "mine"},
		{
			Action: calico.Deny, Protocol: calico.ProtocolTCP, SrcTag: "t", SrcSelector: "has(a)", NotDstTag: "u", NotDstSelector: "has(b)",
			DstPorts: []calico.Ports{{Low: 1, High: 2}}, NotSrcPorts: []calico.Ports{{Low: 3, High: 3}},
		},
		{Action: calico.Allow, Protocol: calico.ProtocolICMP, ICMPType: &eight, NotICMPType: &eight, NotICMPCode: &eight},
	}
	b.Update(calico.ProfileRulesKey{Profile: "p"}, &calico.ProfileRules{InboundRules: rules})
	b.Update(polKey("default", "p"), &calico.Policy{Selector: "all()", OutboundRules: rules})
	b.settle()
	want := []calc.Rule{
		{Action: calico.Allow, Index: 1, IPv4: true, IPv6: true},
		{Action: calico.Log, Index: 2, IPv4: true, IPv6: true, LogPrefix: "mine"},
		{
			Action: calico.Deny, Index: 3, IPv4: true, IPv6: true, Protocol: calico.ProtocolTCP,
			SrcSets: []calc.SetID{"t:t", setID("has(a)")}, NotDstSets: []calc.SetID{"t:u", setID("has(b)")},
			DstPorts: []calico.Ports{{Low: 1, High: 2}}, NotSrcPorts: []calico.Ports{{Low: 3, High: 3}},
		},
		{Action: calico.Allow, Index: 4, IPv4: true, Protocol: calico.ProtocolICMP, ICMPType: &eight, NotICMPType: &eight, NotICMPCode: &eight},
	}
	if d := cmp.Diff(want, b.list("", "p", calc.Inbound).Rules); d != "" {
		t.Errorf("rules of the profile:\n%s", d)
	}
	want[0].Action = calico.NextTier // which only in a profile has no next tier
	if d := cmp.Diff(want, b.list("default", "p", calc.Outbound).Rules); d != "" {
		t.Errorf("rules of the policy:\n%s", d)
	}
}

func TestOneSelectorIsOneSet(t *testing.T) {
	b := newBench(t)
	b.Update(epKey("here", "1"), ep("192.0.2.1", "a="))
	b.Update(polKey("default", "1"), uses("all()", "has(a)"))
	b.Update(polKey("default", "2"), uses("all()", " ! ! has( a )"))
	b.settle()
	if len(b.Sets) != 1 {
		t.Errorf("sets: %v", b.Sets)
	}
	b.Update(polKey("default", "1"), nil)
	if c := b.settle(); len(c.Sets) != 0 {
		t.Errorf("the set changes although a rule still names it: %+v", c.Sets)
	}
}

// Many policies that change at once are found by another way than few.
func TestManyPoliciesAtOnce(t *testing.T) {
	b := newBench(t)
	w := world{}
	put := func(key calico.Key, object any) { w.put(key, object); b.Update(key, object) }
	for i := range 5 {
		put(epKey("here", fmt.Sprint(i)), ep("", fmt.Sprintf("n=%d", i)))
	}
	for round := range 4 {
		for i := range 50 * (round + 1) {
			put(polKey("default", fmt.Sprint(i)), uses(fmt.Sprintf(`n in {"%d", "%d"}`, (i+round)%5, i*round%5)))
		}
		if round == 3 {
			put(epKey("here", "0"), nil)
			put(epKey("here", "1"), ep("", "n=2"))
		}
		b.settle()
		if d := diff(b.outcome, calculate(w, "here", calc.DefaultMaxSetSize)); d != "" {
			t.Fatalf("round %d: in force (+) and wanted (-) differ:\n%s", round, d)
		}
	}
}

func order(n int) *float64 {
	o := float64(n)
	return &o
}
