package nft

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"heddle/calico"
	"heddle/internal/policy/calc"
	"heddle/internal/policy/calctest"
)

// written is a key with what one writer puts there.
type written struct {
	key   calico.Key
	value string
}

// repeat joins n texts.
func repeat(n int, f func(i int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = f(i)
	}
	return strings.Join(all, ", ")
}

func address24(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255) }

// large objects of n parts each, of which one writer may store as many as there are keys.
var shapes = map[string]func(n int) []written{
	"nets of a rule": rules1(func(n int) string {
		return `{"src_nets": [` + repeat(n, func(i int) string { return `"` + address24(i) + `"` }) + `]}`
	}),
	"overlapping nets": rules1(func(n int) string {
		return `{"src_nets": [` + repeat(n, func(i int) string { return fmt.Sprintf(`"%s/%d"`, address24(i*64), 8+i%25) }) + `]}`
	}),
	"negated nets": rules1(func(n int) string {
		return `{"!src_nets": [` + repeat(n, func(i int) string { return `"` + address24(2*i) + `"` }) + `], "src_nets": [` + repeat(n, func(i int) string { return `"` + address24(i) + `"` }) + `]}`
	}),
	"both sides": rules1(func(n int) string {
		return `{"dst_nets": [` + repeat(n, func(i int) string { return `"` + address24(2*i) + `"` }) + `], "src_nets": [` + repeat(n, func(i int) string { return `"` + address24(i) + `"` }) + `]}`
	}),
	"ports of a rule": rules1(func(n int) string {
		p := repeat(n, func(i int) string { return fmt.Sprint(1 + i*2%65535) })
		return `{"protocol": "tcp", "dst_ports": [` + p + `], "!src_ports": [` + p + `]}`
	}),
	"ranges of a rule": rules1(func(n int) string {
		return `{"protocol": "udp", "src_ports": [` + repeat(n, func(i int) string { return fmt.Sprintf(`"%d:%d"`, 1+i%30000, 30000+i%30000) }) + `]}`
	}),
	"rules of a policy": rules1(func(n int) string {
		return repeat(n, func(i int) string { return fmt.Sprintf(`{"src_net": "%s"}`, address24(i)) })
	}),
	"selectors of a policy": rules1(func(n int) string {
		return repeat(n, func(i int) string { return fmt.Sprintf(`{"src_selector": "l == 'v%d'"}`, i) })
	}),
	"equal selectors": rules1(func(n int) string { return repeat(n, func(i int) string { return `{"src_selector": "l == 'v1'"}` }) }),
	"tags of a policy": rules1(func(n int) string {
		return repeat(n, func(i int) string { return fmt.Sprintf(`{"src_tag": "t%d"}`, i) })
	}),
	"next-tiers of a policy": rules1(func(n int) string { return repeat(n, func(i int) string { return `{"action": "next-tier"}` }) }),
	"labels of an endpoint": endpoint1(func(n int) string {
		return `"labels": {` + repeat(n, func(i int) string { return fmt.Sprintf(`"l%d": "v%d"`, i, i) }) + `}`
	}),
	"profiles of an endpoint": endpoint1(func(n int) string {
		return `"profile_ids": [` + repeat(n, func(i int) string { return fmt.Sprintf(`"p%d"`, i) }) + `]`
	}),
	"equal profiles": endpoint1(func(n int) string { return `"profile_ids": [` + repeat(n, func(i int) string { return `"p"` }) + `]` }),
	"addresses": endpoint1(func(n int) string {
		return `"ipv4_nets": [` + repeat(n, func(i int) string { return `"` + address24(i) + `"` }) + `]`
	}),
	"equal addresses": endpoint1(func(n int) string {
		return `"ipv4_nets": [` + repeat(n, func(i int) string { return `"10.0.0.1"` }) + `]`
	}),
	"floating addresses": endpoint1(func(n int) string {
		return `"ipv4_nets": ["10.0.0.1"], "ipv4_nat": [` + repeat(n, func(i int) string { return `{"int_ip": "10.0.0.1", "ext_ip": "` + address24(1+i) + `"}` }) + `]`
	}),
	"unknown members": endpoint1(func(n int) string { return repeat(n, func(i int) string { return fmt.Sprintf(`"x%d": [1]`, i) }) }),
	"tiers": func(n int) (all []written) {
		for i := range n {
			name := fmt.Sprint("t", i)
			all = append(all, written{calico.TierKey{Tier: name}, `{"order": 1}`},
				written{calico.PolicyKey{Tier: name, Policy: "p"}, `{"selector": "all()", "inbound_rules": [{"action": "next-tier"}], "outbound_rules": []}`})
		}
		return all
	},
	"tiers without metadata": func(n int) (all []written) {
		for i := range n {
			all = append(all, written{calico.PolicyKey{Tier: fmt.Sprint("t", i), Policy: "p"}, `{"selector": "all()", "inbound_rules": [{}], "outbound_rules": []}`})
		}
		return all
	},
	"policies": func(n int) (all []written) {
		for i := range n {
			all = append(all, written{calico.PolicyKey{Tier: "default", Policy: fmt.Sprint("p", i)}, `{"selector": "all()", "inbound_rules": [{"src_net": "10.0.0.1"}], "outbound_rules": []}`})
		}
		return all
	},
	"policies of one set": func(n int) (all []written) {
		for i := range n {
			all = append(all, written{calico.PolicyKey{Tier: "default", Policy: fmt.Sprint("p", i)}, `{"selector": "all()", "inbound_rules": [{"src_selector": "has(a)"}], "outbound_rules": []}`})
		}
		return all
	},
	"labels of a profile": func(n int) []written {
		return []written{{calico.ProfileLabelsKey{Profile: "open"}, `{` + repeat(n, func(i int) string { return fmt.Sprintf(`"l%d": "v"`, i) }) + `}`}}
	},
	"tags of a profile": func(n int) []written {
		return []written{{calico.ProfileTagsKey{Profile: "open"}, `[` + repeat(n, func(i int) string { return fmt.Sprintf(`"t%d"`, i) }) + `]`}}
	},
	"selector of many values": func(n int) []written {
		return []written{{calico.PolicyKey{Tier: "default", Policy: "p"}, `{"selector": "role in {` + repeat(n, func(i int) string { return fmt.Sprintf(`'%d'`, i) }) + `}", "inbound_rules": [], "outbound_rules": []}`}}
	},
}

// rules1 is a policy with inbound rules.
func rules1(rules func(n int) string) func(n int) []written {
	return func(n int) []written {
		return []written{{calico.PolicyKey{Tier: "default", Policy: "p"}, `{"selector": "all()", "inbound_rules": [` + rules(n) + `], "outbound_rules": [{"action": "next-tier"}]}`}}
	}
}

// endpoint1 is a workload of this host with members.
func endpoint1(members func(n int) string) func(n int) []written {
	return func(n int) []written {
		return []written{{calico.WorkloadEndpointKey{Host: calctest.Here, Orchestrator: "o", Workload: "big", Endpoint: "e"},
			`{"state": "active", "name": "cali-big", ` + members(n) + `}`}}
	}
}

// pipeline is the agent's work between the store and the kernel.
type pipeline struct {
	calc  *calc.Calc
	table *Table
}

const localEndpoints = 20

func newPipeline(t testing.TB) *pipeline {
	t.Helper()
	table, err := New(&Fake{}, usual(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &pipeline{calc.New(calctest.Here), table}
	p.relabel("b")
	return p
}

// relabel gives the local endpoints labels with a value.
func (p *pipeline) relabel(value string) {
	for i := range localEndpoints {
		p.calc.Update(calctest.Workload(calctest.Here, i, map[string]string{"a": value, "role": fmt.Sprint("v", i)}, "open"))
	}
	p.apply()
}

// apply renders all that has changed.
func (p *pipeline) apply() {
	p.table.Update(p.calc.Changes())
	p.table.rules.settle()
	plan := p.table.plan(newFound())
	for _, part := range plan.parts() {
		for _, o := range part {
			if o.kind == addRules {
				for _, r := range o.rules() {
					_ = r.sum()
				}
			}
		}
	}
	plan.done(p.table)
}

// run takes in what a writer has written, then a change of other endpoints beside it, then its
// removal.
func (p *pipeline) run(t testing.TB, all []written) {
	for _, w := range all {
		object, err := calico.Decode(w.key, []byte(w.value))
		if err != nil {
			t.Fatalf("%v: %.200v", w.key, err)
		}
		p.calc.Update(w.key, object)
	}
	p.apply()
	p.relabel("c")
	for _, w := range all {
		p.calc.Update(w.key, nil)
	}
	p.apply()
}

// TestWorkFollowsSize: whatever one writer stores, from its bytes to rules for the kernel, a later
// change beside it and its removal take work that follows its size: four times as much allocates at
// most about four times as much. What does not allocate is shown by BenchmarkShapes.
func TestWorkFollowsSize(t *testing.T) {
	const few, factor = 500, 4
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		work := func(n int) uint64 {
			all := shapes[name](n)
			p := newPipeline(t)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			p.run(t, all)
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		a, b := work(few), work(few*factor)
		if b > 2*factor*a {
			t.Errorf("%s: %d bytes for %d parts, %d for %d", name, a, few, b, few*factor)
		}
	}
}

// The time per part is about that of one part in all sizes of a shape.
func BenchmarkShapes(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		for _, n := range []int{500, 2000, 8000} {
			all := shapes[name](n)
			b.Run(fmt.Sprintf("%s/parts=%d", strings.ReplaceAll(name, " ", "-"), n), func(b *testing.B) {
				for range b.N {
					b.StopTimer()
					p := newPipeline(b)
					b.StartTimer()
					p.run(b, all)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/part")
			})
		}
	}
}
