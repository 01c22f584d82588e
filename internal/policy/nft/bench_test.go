package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/calico"
	"heddle/internal/netlab"
	"heddle/internal/policy/calc"
)

// large is a host's needs of so many policies of ten rules, each naming a set of its own; one
// workload has them all.
func large(policies, members int) *calc.Changes {
	c := &calc.Changes{Sets: map[calc.SetID]*calc.SetChange{}, Lists: map[calc.ListID]*calc.List{},
		Workloads: map[calico.WorkloadEndpointKey]*calc.Workload{}}
	tier := calc.Tier{Name: "default"}
	for p := range policies {
		id := benchSet(p)
		set := &calc.SetChange{New: true}
		for m := range members {
			set.Added = append(set.Added, member(p*members+m))
		}
		c.Sets[id] = set
		list := &calc.List{}
		for r := range 10 {
			list.Rules = append(list.Rules, calc.Rule{Action: calico.Allow, Index: r + 1, IPv4: true, Protocol: 6,
				DstPorts: []calico.Ports{{Low: uint16(r + 1), High: uint16(r + 1)}}, SrcSets: []calc.SetID{id}})
		}
		in := calc.ListID{Tier: "default", Name: fmt.Sprint("policy", p), Direction: calc.Inbound}
		c.Lists[in] = list
		tier.Inbound = append(tier.Inbound, in)
	}
	key := calico.WorkloadEndpointKey{Host: labHost, Orchestrator: "o", Workload: "w", Endpoint: "e"}
	c.Workloads[key] = &calc.Workload{Key: key, Tiers: []calc.Tier{tier}, Endpoint: benchWorkload(0)}
	return c
}

func member(n int) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 10<<24+uint32(n))))
}

func benchWorkload(n int) *calico.WorkloadEndpoint {
	return &calico.WorkloadEndpoint{State: calico.Active, Name: fmt.Sprint("cali", n), IPv4Nets: []netip.Prefix{netip.PrefixFrom(member(1<<20+n), 32)}}
}

func benchTable(b *testing.B, backend Backend) *Table {
	b.Helper()
	table, err := New(backend, usual(), nil)
	must(b, err)
	return table
}

// used is the processor time of this process: it tells more than the time that passed where others
// are at work.
func used(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	must(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// busy reports the processor time of f, which loops.
func busy(b *testing.B, f func()) {
	b.Helper()
	before := used(b)
	f()
	b.ReportMetric(float64((used(b)-before).Nanoseconds())/float64(b.N)/1e6, "cpu-ms/op")
}

// From nothing to 2,000 sets of 100 members and 2,000 chains of 10 rules: goal at most 2 s.
func BenchmarkFullLoad(b *testing.B) {
	k := openIn(b, netlab.ForTest(b).MustNamespace(b, "host"))
	needs := large(2000, 100)
	var busy time.Duration
	for b.Loop() {
		b.StopTimer()
		must(b, Cleanup(b.Context(), k))
		table := benchTable(b, k)
		before := used(b)
		b.StartTimer()
		table.Update(needs)
		must(b, table.Commit(b.Context()))
		busy += used(b) - before
	}
	b.ReportMetric(float64(busy.Nanoseconds())/float64(b.N)/1e6, "cpu-ms/op")
}

// With 200,000 members and 20,000 rules in the kernel: one address comes or goes, one policy
// changes, an endpoint's policies change, everything is read back and compared.
func BenchmarkOneChange(b *testing.B) {
	k := openIn(b, netlab.ForTest(b).MustNamespace(b, "host"))
	table := benchTable(b, k)
	needs := large(2000, 100)
	table.Update(needs)
	must(b, table.Commit(b.Context()))
	small := calico.WorkloadEndpointKey{Host: labHost, Orchestrator: "o", Workload: "small", Endpoint: "e"}
	list := func(n int) calc.ListID {
		return calc.ListID{Tier: "default", Name: fmt.Sprint("policy", n), Direction: calc.Inbound}
	}
	for _, c := range []struct {
		name string
		next func(n int) *calc.Changes
	}{
		{"member", func(n int) *calc.Changes {
			change := &calc.SetChange{Added: []netip.Addr{member(1 << 22)}}
			if n%2 == 1 {
				change.Added, change.Removed = nil, change.Added
			}
			return &calc.Changes{Sets: map[calc.SetID]*calc.SetChange{benchSet(7): change}}
		}},
		{"policy", func(n int) *calc.Changes {
			l := *needs.Lists[list(3)]
			l.Rules = l.Rules[:5+n%2]
			return &calc.Changes{Lists: map[calc.ListID]*calc.List{list(3): &l}}
		}},
		{"endpoint", func(n int) *calc.Changes {
			w := &calc.Workload{Key: small, Endpoint: benchWorkload(1), Tiers: []calc.Tier{{Name: "default", Inbound: []calc.ListID{list(1), list(10 + n%2)}}}}
			return &calc.Changes{Workloads: map[calico.WorkloadEndpointKey]*calc.Workload{small: w}}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			n := 0
			busy(b, func() {
				for b.Loop() {
					table.Update(c.next(n))
					must(b, table.Commit(b.Context()))
					n++
				}
			})
		})
	}
	b.Run("read-back", func(b *testing.B) {
		busy(b, func() {
			for b.Loop() {
				table.have.certain = false
				if todo, err := table.Mend(b.Context()); err != nil || todo != "" {
					b.Fatal(todo, err)
				}
			}
		})
	})
}

// shared gives all policies of a large host to so many more workloads.
func shared(needs *calc.Changes, workloads int) *calc.Changes {
	var first *calc.Workload
	for _, w := range needs.Workloads {
		first = w
	}
	for n := range workloads {
		key := calico.WorkloadEndpointKey{Host: labHost, Orchestrator: "o", Workload: fmt.Sprint(n), Endpoint: "e"}
		needs.Workloads[key] = &calc.Workload{Key: key, Tiers: first.Tiers, Endpoint: benchWorkload(n + 1)}
	}
	return needs
}

// One policy of 2,000 changes, which one workload has, and 200: the kernel checks anew where chains
// lead, and should look at each but once.
func BenchmarkSharedPolicy(b *testing.B) {
	id := calc.ListID{Tier: "default", Name: "policy3", Direction: calc.Inbound}
	for _, workloads := range []int{1, 200} {
		b.Run(fmt.Sprintf("workloads=%d", workloads), func(b *testing.B) {
			table := benchTable(b, openIn(b, netlab.ForTest(b).MustNamespace(b, "host")))
			needs := shared(large(2000, 1), workloads-1)
			table.Update(needs)
			must(b, table.Commit(b.Context()))
			busy(b, func() {
				for n := 0; b.Loop(); n++ {
					l := *needs.Lists[id]
					l.Rules = l.Rules[:5+n%2]
					table.Update(&calc.Changes{Lists: map[calc.ListID]*calc.List{id: &l}})
					must(b, table.Commit(b.Context()))
				}
			})
		})
	}
}

// Rules of 10,000 policies for 200 endpoints that all of them select: time and memory without a
// kernel.
func BenchmarkRender(b *testing.B) {
	needs := shared(large(10000, 0), 200)
	b.ReportAllocs()
	for b.Loop() {
		table := benchTable(b, &Fake{})
		table.Update(needs)
		table.rules.settle()
		found, err := table.backend.read(b.Context())
		must(b, err)
		must(b, encode(slicesOf(table.plan(found))).err)
	}
}

func slicesOf(p plan) (all batch) {
	for _, part := range p.parts() {
		all = append(all, part...)
	}
	return all
}

// What a packet costs between two workloads of a host: with 1,000 policies that select other
// endpoints against one, and with 500 workloads against two; as ratios of round trips on a
// connection, and of new connections. Goals: at most 1.1 and 1.05.
func BenchmarkPacket(b *testing.B) {
	host, path := benchPath(b)
	benchPackets(b, newWorld(b, openIn(b, host)), path)
}

// What counters of rules cost a new connection between two workloads of a host: of a policy with
// 100 rules, of which the last one allows it. Goal: at most 1.02 of what it costs without.
func BenchmarkCounters(b *testing.B) {
	host, path := benchPath(b)
	w := newWorld(b, openIn(b, host))
	objects := both()
	objects[policyAt("one")] = `{"selector": "has(w)", "inbound_rules": [` + strings.Repeat(`{"protocol": "udp"}, `, 99) + `{}], "outbound_rules": [{}]}`
	w.put(b, objects)
	var connects [2][]time.Duration
	for b.Loop() {
		for i, most := range []int{0, 5000} {
			s := usual()
			s.MostCounted = most
			must(b, w.table.Configure(s))
			must(b, w.table.Commit(b.Context()))
			conn, _, err := path.Connects(2000)
			must(b, err)
			connects[i] = append(connects[i], conn.P50)
		}
	}
	// Load of others only ever adds to a median, so the least of them tells most.
	b.ReportMetric(float64(slices.Min(connects[1]))/float64(slices.Min(connects[0])), "connect-ratio")
	b.ReportMetric(float64(slices.Min(connects[0]).Nanoseconds()), "ns/connect")
}

// benchPath makes a host and two workloads, the ends of a path over it.
func benchPath(b *testing.B) (host *netlab.Namespace, path netlab.Path) {
	b.Helper()
	lab := netlab.ForTest(b)
	host = lab.MustNamespace(b, "host")
	path = netlab.Path{Name: "workload to workload", Address: netip.MustParseAddr(w2)}
	for n, end := range []**netlab.Namespace{&path.Client, &path.Server} {
		*end = lab.MustNamespace(b, fmt.Sprint("w", n+1))
		device, own := fmt.Sprint("cali", n+1), fmt.Sprint("10.65.0.", n+1)
		(*end).MustIP(b, fmt.Sprintf("link add eth0 address 02:00:00:00:%02d:01 type veth peer name %s netns %s", n+1, device, host.Name), "link set eth0 up",
			"addr add "+own+"/32 dev eth0", "route add default dev eth0")
		host.MustIP(b, "link set "+device+" up", "route add "+own+"/32 dev "+device)
		must(b, host.Sysctl("net/ipv4/conf/"+device+"/proxy_arp", "1"))
		must(b, host.Sysctl("net/ipv4/neigh/"+device+"/proxy_delay", "0"))
	}
	must(b, host.Sysctl("net/ipv4/ip_forward", "1"))
	return host, path
}

func benchPackets(b *testing.B, w *world, path netlab.Path) {
	b.Helper()
	one, more := both(), store{}
	one[policyAt("one")] = `{"selector": "has(w)", "inbound_rules": [{}], "outbound_rules": [{}]}`
	for n := range 1000 {
		more[policyAt(fmt.Sprint("other", n))] = `{"selector": "tenant == \"` + fmt.Sprint(n) + `\"", "order": 1, "inbound_rules": [{"action": "deny"}], "outbound_rules": []}`
	}
	w.put(b, one)
	crowd := store{}
	for n := range 498 {
		crowd[workloadAt(fmt.Sprint("crowd", n))] = fmt.Sprintf(`{"state": "active", "name": "cali%d", "mac": "02:00:00:01:00:01",
			"labels": {"tenant": "%d"}, "ipv4_nets": ["10.66.%d.%d/32"]}`, 100+n, n%50, n/256, n%256)
	}
	gone := func(s store) store {
		none := store{}
		for path := range s {
			none[path] = ""
		}
		return none
	}
	for _, c := range []struct {
		name string
		with store
	}{{"1000-policies", more}, {"500-workloads", crowd}} {
		b.Run(c.name, func(b *testing.B) {
			var trips, connects [2][]time.Duration
			measure := func(i int) {
				rtt, err := path.RoundTrips(5000)
				must(b, err)
				conn, _, err := path.Connects(1000)
				must(b, err)
				trips[i], connects[i] = append(trips[i], rtt.P50), append(connects[i], conn.P50)
			}
			for b.Loop() {
				measure(0)
				w.put(b, c.with)
				must(b, w.table.Commit(b.Context()))
				measure(1)
				w.put(b, gone(c.with))
				must(b, w.table.Commit(b.Context()))
			}
			b.ReportMetric(float64(netlab.Median(trips[1]))/float64(netlab.Median(trips[0])), "round-trip-ratio")
			b.ReportMetric(float64(netlab.Median(connects[1]))/float64(netlab.Median(connects[0])), "connect-ratio")
			b.ReportMetric(float64(netlab.Median(trips[0]).Nanoseconds()), "ns/round-trip")
		})
	}
}

func benchSet(n int) calc.SetID { return calc.SetID(fmt.Sprintf("s:%020d%018d", n, 0)) }
