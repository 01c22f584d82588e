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
	inbound, outbound = make([]calico.Rule, 0, (len(selectors)+1)/2), make([]calico.Rule, 0, len(selectors)/2)
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

// A change of one label of a local endpoint, which brings it into a set with 200,000 members or out of it, where 1,000
// policies pick the endpoint either way.
func BenchmarkLabelChange(b *testing.B) {
	c := calc.New(here)
	for i := range 200_000 {
		c.Update(workload("host-1", 1+i, map[string]string{"alpha": "beta", "app": fmt.Sprintf("app-%d", i%1000)}))
	}
	for i := range 1000 {
		p := &calico.Policy{Selector: `role == "web"`, Order: order(i)}
		p.InboundRules, _ = fromSelectors(`alpha == "beta"`)
		c.Update(policyKey(i), p)
	}
	key, in := workload(here, 0, map[string]string{"role": "web", "alpha": "beta"})
	out := *in
	out.Labels = map[string]string{"role": "web", "alpha": "gamma"}
	c.Update(key, in)
	c.Changes()
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		object := in
		if i%2 == 1 {
			object = &out
		}
		c.Update(key, object)
		if changes := c.Changes(); len(changes.Sets) != 1 {
			b.Fatalf("%d sets change", len(changes.Sets))
		}
	}
}

// A change of one of 10,000 policies that all pick 200 endpoints here: of its rules, and of its order.
func BenchmarkPolicyChange(b *testing.B) {
	c := calc.New(here)
	for n := range 200 {
		c.Update(workload(here, n, map[string]string{"alpha": "beta", "name": fmt.Sprint(n)}))
	}
	version := func(order *float64, from string) *calico.Policy {
		p := &calico.Policy{Selector: "all()", Order: order}
		p.InboundRules, _ = fromSelectors(from)
		return p
	}
	for i := range 10_000 {
		c.Update(policyKey(i), version(order(i), `alpha == "beta"`))
	}
	c.Changes()
	for _, v := range []struct {
		name     string
		versions [2]*calico.Policy
	}{
		{"rules", [2]*calico.Policy{version(order(5000), `name == "1"`), version(order(5000), `alpha == "beta"`)}},
		{"order", [2]*calico.Policy{version(order(7000), `alpha == "beta"`), version(order(5000), `alpha == "beta"`)}},
	} {
		b.Run(v.name, func(b *testing.B) {
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				c.Update(policyKey(5000), v.versions[i%2])
				if out := c.Changes(); len(out.Lists)+len(out.Workloads) == 0 {
					b.Fatal("nothing changes")
				}
				i++
			}
		})
	}
}

// What decoding the objects of BenchmarkSnapshotManyEndpoints costs beside: 250,000 endpoints and 10,000 policies.
func BenchmarkDecodeManyEndpoints(b *testing.B) {
	key, endpoint := workload(here, 0, map[string]string{"alpha": "beta", "app": "app-1", "role": "role-1"}, "profile-1")
	p := &calico.Policy{Selector: `app == "app-1"`, Order: order(1)}
	p.InboundRules, p.OutboundRules = fromSelectors(`role == "role-1"`, `role == "role-2"`, `role == "role-3"`, `role == "role-4"`, `role == "role-5"`)
	decode := func(key calico.Key, object any, times int) {
		value, err := calico.Encode(key, object)
		if err != nil {
			b.Fatal(err)
		}
		for range times {
			if _, err := calico.Decode(key, value); err != nil {
				b.Fatal(err)
			}
		}
	}
	for range b.N {
		decode(key, endpoint, 250_000)
		decode(policyKey(0), p, 10_000)
	}
}
