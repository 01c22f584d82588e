package calc_test

import (
	"fmt"
	"runtime"
	"testing"

	"heddle/calico"
	"heddle/internal/policy/calc"
	"heddle/internal/policy/calctest"
)

const here = calctest.Here

// What the networks of calctest cost, from decoded objects to the outcome. The time includes making
// the objects. The heap is what is live when all is done, with calculation and outcome. Up to
// rules: BenchmarkSnapshot of internal/policy/nft.
func BenchmarkSnapshot(b *testing.B) {
	for _, network := range calctest.Networks() {
		b.Run(network.Name, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				before := liveHeap()
				b.StartTimer()
				c := calc.New(here)
				network.Fill(c.Update)
				out := c.Changes()
				b.StopTimer()
				members, rules := 0, 0
				for _, s := range out.Sets {
					members += len(s.Added)
				}
				for _, l := range out.Lists {
					rules += len(l.Rules)
				}
				b.ReportMetric(float64(liveHeap()-before)/1e6, "MB-heap")
				b.ReportMetric(float64(len(out.Workloads)), "workloads")
				b.ReportMetric(float64(rules), "rules")
				b.ReportMetric(float64(members), "members")
				runtime.KeepAlive(out)
				runtime.KeepAlive(c)
				b.StartTimer()
			}
		})
	}
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// What decoding the objects of the same networks costs beside.
func BenchmarkSnapshotDecode(b *testing.B) {
	for _, network := range calctest.Networks() {
		b.Run(network.Name, func(b *testing.B) {
			var keys []calico.Key
			var values [][]byte
			network.Fill(func(key calico.Key, object any) {
				value, err := calico.Encode(key, object)
				if err != nil {
					b.Fatal(err)
				}
				keys, values = append(keys, key), append(values, value)
			})
			b.ResetTimer()
			for range b.N {
				for i, key := range keys {
					if _, err := calico.Decode(key, values[i]); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(len(keys)), "objects")
		})
	}
}

// One new endpoint among N selectors of which one matches.
func BenchmarkNewEndpoint(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("selectors=%d", n), func(b *testing.B) {
			c := calc.New(here)
			c.Update(calctest.Workload(here, 0, nil))
			p := &calico.Policy{Selector: "all()"}
			for i := range n {
				inbound, _ := calctest.Rules(calctest.OneEndpoint(i))
				p.InboundRules = append(p.InboundRules, inbound...)
			}
			c.Update(calctest.PolicyKey(0), p)
			for i := range n { // so that labels and hosts are known
				c.Update(calctest.Workload("host-1", 1+i, map[string]string{"alpha": "beta", fmt.Sprintf("ipset-%d", i): ""}))
			}
			c.Changes()
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				i++
				key, o := calctest.Workload("host-1", 1_000_000, map[string]string{"alpha": "beta", fmt.Sprintf("ipset-%d", i%n): "", "name": fmt.Sprint(i)})
				b.StartTimer()
				c.Update(key, o)
				out := c.Changes()
				b.StopTimer()
				if len(out.Sets) != 1 {
					b.Fatalf("%d sets change", len(out.Sets))
				}
				c.Update(key, nil)
				c.Changes()
				b.StartTimer()
			}
		})
	}
}

// A new selector, in a policy that is in force, where there are 100,000 endpoints of which one
// matches.
func BenchmarkNewSelector(b *testing.B) {
	const n = 100_000
	c := calc.New(here)
	c.Update(calctest.Workload(here, 0, nil))
	for i := range n {
		c.Update(calctest.Workload("host-1", 1+i, map[string]string{"alpha": "beta", fmt.Sprintf("ipset-%d", i): ""}))
	}
	c.Changes()
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		i++
		key, p := calctest.Policy(0, "all()", calctest.OneEndpoint(i%n))
		b.StartTimer()
		c.Update(key, p)
		out := c.Changes()
		b.StopTimer()
		if len(out.Sets) < 1 {
			b.Fatalf("%d sets change", len(out.Sets))
		}
		b.StartTimer()
	}
}

// A change of one label of a local endpoint, which brings it into a set with 200,000 members or out
// of it, where 1,000 policies pick the endpoint either way.
func BenchmarkLabelChange(b *testing.B) {
	c := calc.New(here)
	for i := range 200_000 {
		c.Update(calctest.Workload("host-1", 1+i, map[string]string{"alpha": "beta", "app": fmt.Sprintf("app-%d", i%1000)}))
	}
	for i := range 1000 {
		c.Update(calctest.Policy(i, `role == "web"`, `alpha == "beta"`))
	}
	key, in := calctest.Workload(here, 0, map[string]string{"role": "web", "alpha": "beta"})
	_, out := calctest.Workload(here, 0, map[string]string{"role": "web", "alpha": "gamma"})
	c.Update(key, in)
	c.Changes()
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		c.Update(key, []any{in, out}[i%2])
		if changes := c.Changes(); len(changes.Sets) != 1 {
			b.Fatalf("%d sets change", len(changes.Sets))
		}
	}
}

// A change of one of 10,000 policies that all pick 200 endpoints here: of its rules, and of its
// order.
func BenchmarkPolicyChange(b *testing.B) {
	c := calc.New(here)
	for n := range 200 {
		c.Update(calctest.Workload(here, n, map[string]string{"alpha": "beta", "name": fmt.Sprint(n)}))
	}
	key := calctest.PolicyKey(5000)
	version := func(order int, from string) any {
		_, p := calctest.Policy(order, "all()", from)
		return p
	}
	for i := range 10_000 {
		c.Update(calctest.Policy(i, "all()", `alpha == "beta"`))
	}
	c.Changes()
	for _, v := range []struct {
		name     string
		versions [2]any
	}{
		{"rules", [2]any{version(5000, `name == "1"`), version(5000, `alpha == "beta"`)}},
		{"order", [2]any{version(7000, `alpha == "beta"`), version(5000, `alpha == "beta"`)}},
	} {
		b.Run(v.name, func(b *testing.B) {
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				c.Update(key, v.versions[i%2])
				if out := c.Changes(); len(out.Lists)+len(out.Workloads) == 0 {
					b.Fatal("nothing changes")
				}
				i++
			}
		})
	}
}
