package calc_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"heddle/calico"
	"heddle/internal/policy/calc"
)

const here = "host-0"

// workload is an endpoint of a host, by number.
func workload(host string, n int, labels map[string]string, profiles ...string) (calico.WorkloadEndpointKey, *calico.WorkloadEndpoint) {
	key := calico.WorkloadEndpointKey{Host: host, Orchestrator: "openstack", Workload: fmt.Sprintf("workload-%08d", n), Endpoint: fmt.Sprintf("endpoint-%08d", n)}
	mac := calico.MAC{2, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	return key, &calico.WorkloadEndpoint{
		State: calico.Active, Name: fmt.Sprintf("cali%08x", n), MAC: &mac, ProfileIDs: profiles, Labels: labels,
		IPv4Nets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 32)},
	}
}

// hostOf spreads endpoints so that the first local ones are here and the others on 1,000 other hosts.
func hostOf(n, local int) string {
	if n < local {
		return here
	}
	return fmt.Sprintf("host-%d", 1+n%1000)
}

// snapshot measures a calculation from decoded objects, which fill makes and hands over one by one as an agent does, to
// the outcome. Beside the time, which includes making the objects, it reports the heap that is live when all is done,
// with calculation and outcome.
func snapshot(b *testing.B, fill func(*calc.Calc)) {
	for range b.N {
		b.StopTimer()
		before := liveHeap()
		b.StartTimer()
		c := calc.New(here)
		fill(c)
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
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fromSelectors are rules that allow from the endpoints of selectors, one each, split over both directions.
func fromSelectors(selectors ...string) (inbound, outbound []calico.Rule) {
	for i, s := range selectors {
		r := calico.Rule{Action: calico.Allow, Protocol: calico.ProtocolTCP, DstPorts: []calico.Ports{{Low: 80, High: 80}}}
		if i%2 == 0 {
			r.SrcSelector = s
			inbound = append(inbound, r)
		} else {
			r.DstSelector = s
			outbound = append(outbound, r)
		}
	}
	return inbound, outbound
}

func policyKey(i int) calico.PolicyKey {
	return calico.PolicyKey{Tier: "default", Policy: fmt.Sprintf("policy-%05d", i)}
}

func order(n int) *float64 {
	o := float64(n)
	return &o
}

// 250,000 endpoints, 200 of them here, and 10,000 policies of 5 rules with 29 distinct selectors; each policy picks an
// endpoint here.
func BenchmarkSnapshotManyEndpoints(b *testing.B) {
	snapshot(b, func(c *calc.Calc) {
		for n := range 250_000 {
			key, o := workload(hostOf(n, 200), n, map[string]string{
				"alpha": "beta", "app": fmt.Sprintf("app-%d", n%1000), "role": fmt.Sprintf("role-%d", n%29),
			}, fmt.Sprintf("profile-%d", n%100))
			c.Update(key, o)
		}
		for i := range 100 {
			c.Update(calico.ProfileRulesKey{Profile: fmt.Sprintf("profile-%d", i)}, &calico.ProfileRules{OutboundRules: []calico.Rule{{Action: calico.Allow}}})
			c.Update(calico.ProfileTagsKey{Profile: fmt.Sprintf("profile-%d", i)}, &calico.ProfileTags{fmt.Sprintf("tag-%d", i)})
		}
		for i := range 10_000 {
			p := &calico.Policy{Selector: fmt.Sprintf(`app == "app-%d"`, i%200), Order: order(i)}
			var selectors []string
			for r := range 5 {
				selectors = append(selectors, fmt.Sprintf(`role == "role-%d"`, (i+r)%29))
			}
			p.InboundRules, p.OutboundRules = fromSelectors(selectors...)
			c.Update(policyKey(i), p)
		}
	})
}

// 10,000 endpoints, 200 of them here, and 10,000 policies that select all endpoints, each with one rule that has a
// selector of its own.
func BenchmarkSnapshotManySelectors(b *testing.B) {
	snapshot(b, func(c *calc.Calc) {
		for n := range 10_000 {
			c.Update(workload(hostOf(n, 200), n, map[string]string{"alpha": "beta", fmt.Sprintf("ipset-%d", n): ""}))
		}
		for i := range 10_000 {
			p := &calico.Policy{Selector: "all()", Order: order(i)}
			p.InboundRules, _ = fromSelectors(ipset(i))
			c.Update(policyKey(i), p)
		}
	})
}

func ipset(i int) string { return fmt.Sprintf(`(alpha == "beta" && has(ipset-%d))`, i) }

// 100,000 customers with an endpoint, a profile and a policy each that concern nobody else, 100 of them here.
func BenchmarkSnapshotManyCustomers(b *testing.B) {
	snapshot(b, func(c *calc.Calc) {
		for n := range 100_000 {
			c.Update(workload(hostOf(n, 100), n, map[string]string{"customer": fmt.Sprintf("c%d", n)}, fmt.Sprintf("profile-%d", n)))
		}
		for n := range 100_000 {
			name := fmt.Sprintf("profile-%d", n)
			c.Update(calico.ProfileRulesKey{Profile: name}, &calico.ProfileRules{InboundRules: []calico.Rule{{Action: calico.Allow, SrcTag: name}}})
			c.Update(calico.ProfileTagsKey{Profile: name}, &calico.ProfileTags{name})
		}
		for n := range 100_000 {
			p := &calico.Policy{Selector: fmt.Sprintf(`customer == "c%d"`, n), Order: order(n)}
			p.InboundRules, p.OutboundRules = fromSelectors(p.Selector, p.Selector)
			c.Update(policyKey(n), p)
		}
	})
}

// One new endpoint among N selectors of which one matches.
func BenchmarkNewEndpoint(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("selectors=%d", n), func(b *testing.B) {
			c := calc.New(here)
			c.Update(workload(here, 0, nil))
			p := &calico.Policy{Selector: "all()"}
			for i := range n {
				inbound, _ := fromSelectors(ipset(i))
				p.InboundRules = append(p.InboundRules, inbound...)
			}
			c.Update(policyKey(0), p)
			for i := range n { // so that labels and hosts are known
				c.Update(workload("host-1", 1+i, map[string]string{"alpha": "beta", fmt.Sprintf("ipset-%d", i): ""}))
			}
			c.Changes()
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				i++
				key, o := workload("host-1", 1_000_000, map[string]string{"alpha": "beta", fmt.Sprintf("ipset-%d", i%n): "", "name": fmt.Sprint(i)})
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

// A new selector, in a policy that is in force, where there are 100,000 endpoints of which one matches.
func BenchmarkNewSelector(b *testing.B) {
	const n = 100_000
	c := calc.New(here)
	c.Update(workload(here, 0, nil))
	for i := range n {
		c.Update(workload("host-1", 1+i, map[string]string{"alpha": "beta", fmt.Sprintf("ipset-%d", i): ""}))
	}
	c.Changes()
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		i++
		p := &calico.Policy{Selector: "all()"}
		p.InboundRules, _ = fromSelectors(ipset(i % n))
		b.StartTimer()
		c.Update(policyKey(0), p)
		out := c.Changes()
		b.StopTimer()
		if len(out.Sets) < 1 {
			b.Fatalf("%d sets change", len(out.Sets))
		}
		b.StartTimer()
	}
}
