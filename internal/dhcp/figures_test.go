package dhcp

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkOffer is the time from the write of an endpoint until its machine is offered its
// address, on a host that serves 500 others. The machine's interface was made 100 ms before; it
// asks every millisecond, from the write on.
//
//	new      an endpoint more each time
//	replaced another goes each time: dnsmasq starts anew about once a second
//	again    it gets the address of the one that goes: dnsmasq starts anew each time
func BenchmarkOffer(b *testing.B) {
	const others = 500
	f := newFleet(b)
	f.populate(b, others)
	n := others
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	if err := f.plug(n, 1); err != nil {
		b.Fatal(err)
	}
	// offered writes the endpoint of a machine that was plugged in a moment ago, along with what
	// else is to be written, and tells what that took; then it plugs the next one in.
	offered := func(b *testing.B, address string, with ...string) time.Duration {
		<-tick.C
		c, err := f.client(n)
		if err != nil {
			b.Fatal(err)
		}
		defer c.close()
		key, value := f.endpoint(n, address)
		n++
		began := time.Now()
		f.put(append(with, key, value)...)
		offer, err := c.untilOffered(began.Add(timeout), time.Millisecond)
		took := time.Since(began)
		if err != nil {
			b.Fatal(err)
		}
		if got, err := c.request(offer); err != nil || got.String() != address {
			b.Fatalf("machine %d: got %q, %v", n-1, got, err)
		}
		if err := f.plug(n, 1); err != nil {
			b.Fatal(err)
		}
		return took
	}
	b.Run("new", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			took = append(took, offered(b, address(n)))
		}
		reportLatency(b, took)
	})
	b.Run("replaced", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			took = append(took, offered(b, address(n), endpointKey(n-1), ""))
		}
		reportLatency(b, took)
	})
	b.Run("again", func(b *testing.B) {
		var took []time.Duration
		same := address(n)
		for b.Loop() {
			took = append(took, offered(b, same, endpointKey(n-1), ""))
		}
		reportLatency(b, took)
	})
}

// reportLatency reports durations.
func reportLatency(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	for _, p := range []struct {
		name    string
		percent int
	}{{"p50-ms", 50}, {"p99-ms", 99}, {"max-ms", 100}} {
		at := took[min(len(took)-1, len(took)*p.percent/100)]
		b.ReportMetric(float64(at.Microseconds())/1000, p.name)
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAgents is a thousand agents against one etcd with 20,000 endpoints, all in this process:
// dnsmasq, and what is a host's, are replaced by a record. Beside it, under "watch", is the least
// that etcd could be asked for: connections with one watch each.
func BenchmarkAgents(b *testing.B) {
	const hosts, each = 1000, 20
	r := newRegion(b, hosts, each)
	b.Run("watch", func(b *testing.B) {
		before := heap()
		w, took := r.watchOnly(b)
		memory, used, round := heap()-before, processor(), 0
		defer w.stop()
		var latencies []time.Duration
		for b.Loop() {
			round++
			host := round % hosts
			latencies = append(latencies, r.write(b, host, 0, -round, w.arrived[host]))
		}
		r.report(b, took, memory, processor()-used)
		reportLatency(b, latencies)
	})
	b.Run("agents", func(b *testing.B) {
		before := heap()
		took := r.start()
		defer r.end()
		memory := heap() - before
		plans, asked, used, round := r.plans(), r.metrics(), processor(), 0
		var latencies []time.Duration
		for b.Loop() {
			round++
			latencies = append(latencies, r.change(b, round))
		}
		r.report(b, took, memory, processor()-used)
		b.ReportMetric(float64(r.plans()-plans)/float64(b.N), "plans/change")
		b.ReportMetric(served(r.metrics(), "Range")-served(asked, "Range"), "reads")
		reportLatency(b, latencies)
		b.ReportMetric(r.changeSubnet(b, 1).Seconds()*1000, "subnet-ms")
	})
}

// report reports the cost of hosts for etcd and themselves: to catch up, to idle, and for each
// change.
func (r *region) report(b *testing.B, inStep time.Duration, memory uint64, used time.Duration) {
	m := r.metrics()
	b.ReportMetric(inStep.Seconds(), "in-step-s")
	b.ReportMetric(float64(memory)/float64(r.hosts)/1024, "KB/host")
	b.ReportMetric(m[watchesMetric], "watches")
	b.ReportMetric(m[streamsMetric], "streams")
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-µs/change")
}

// BenchmarkChurn has ten machines a second come and ten go, each with the address of one that has
// just gone, on a host with 100 others that stay: for a minute with -benchtime 600x. A machine asks
// once, so long after its endpoint was written.
func BenchmarkChurn(b *testing.B) {
	const others = 100
	f := newFleet(b)
	f.populate(b, others)
	next := others
	for _, bootsAfter := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond} {
		b.Run(bootsAfter.String(), func(b *testing.B) {
			c := &churn{fleet: f, t: b, others: others, next: next, bootsAfter: bootsAfter}
			c.run(b.N)
			next = c.next
			for _, what := range c.failed {
				b.Log(what)
			}
			b.ReportMetric(float64(len(c.failed)), "failed")
			b.ReportMetric(float64(c.unanswered), "unanswered")
			b.ReportMetric(slices.Max(c.answered).Seconds()*1000, "answer-max-ms")
			reportLatency(b, c.leased)
		})
	}
}

// BenchmarkIdle measures the agent and its instances of dnsmasq on an idle host with 500 endpoints:
// an operation is a second. Probes come every ten seconds, so it takes many: -benchtime 30x.
func BenchmarkIdle(b *testing.B) {
	f := newFleet(b)
	f.populate(b, 500)
	second := time.NewTicker(time.Second)
	defer second.Stop()
	agent, others := f.cmd.Process.Pid, f.instances(b)
	usedAgent, usedOthers := processorOf(b, agent), processorOf(b, others...)
	for b.Loop() {
		<-second.C
	}
	b.ReportMetric(float64((processorOf(b, agent)-usedAgent).Microseconds())/float64(b.N), "agent-µs/s")
	b.ReportMetric(float64((processorOf(b, others...)-usedOthers).Microseconds())/float64(b.N), "dnsmasq-µs/s")
	b.ReportMetric(float64(memoryOf(b, agent))/1024, "agent-MB")
	b.ReportMetric(float64(memoryOf(b, others...))/1024, "dnsmasq-MB")
	b.ReportMetric(0, "ns/op")
}

// instances are the processes of dnsmasq on the host.
func (f *fleet) instances(t testing.TB) (pids []int) {
	t.Helper()
	out := f.output("ip", "netns", "pids", f.host.Name)
	for field := range strings.FieldsSeq(out) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(name)) == "dnsmasq" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// processorOf is the time of processors that processes have used: of each thread that lives, as the
// scheduler counts it.
func processorOf(t testing.TB, pids ...int) (sum time.Duration) {
	t.Helper()
	for _, pid := range pids {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range threads {
			var used int64
			raw, err := os.ReadFile(thread)
			if err == nil {
				_, err = fmt.Sscan(string(raw), &used)
			}
			if err != nil {
				t.Fatal(err)
			}
			sum += time.Duration(used)
		}
	}
	return sum
}

// memoryOf is the memory that processes have of their own and in files, in KB.
func memoryOf(t testing.TB, pids ...int) (sum int) {
	t.Helper()
	for _, pid := range pids {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(raw), "VmRSS:")
		var kb int
		if _, err := fmt.Sscan(rest, &kb); err != nil {
			t.Fatal(err)
		}
		sum += kb
	}
	return sum
}
