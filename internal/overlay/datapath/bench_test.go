package datapath

import (
	"errors"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// BenchmarkHit runs the workload program on frames whose flow is cached, in rounds with an empty
// program, and reports what a hit costs above that one: no traffic, no redirect carried out.
// Tunnelled frames change with each run, so the cost of their headers shows only in traffic
// (netlab).
func BenchmarkHit(b *testing.B) {
	l := newLab(b, PortOptions{MTU: 1500})
	empty := emptyProgram(b)
	tags := l.Tags(SlotOf("a"), SlotOf("b"))
	for _, c := range []struct {
		name   string
		frame  []byte
		cached Flow
	}{
		{"tcp", ipv4(packet.IPv4{Proto: protoTCP}, tcpBytes), Flow{Out: Output{Port: l.out}, Tags: tags}},
		{"tcp-6-tags", ipv4(packet.IPv4{Proto: protoTCP}, tcpBytes), Flow{Out: Output{Port: l.out}, Tags: l.Tags(1, 2, 3, 4, 5, 6)}},
		{"udp-drop", udp4(nil), Flow{Tags: tags}},
		{"udp6", udp6(nil), Flow{Out: Output{Port: l.out}, Tags: tags}},
		{"udp6-hop-by-hop", extended([]uint8{0}, 17, udpBytes, hopByHop), Flow{Out: Output{Port: l.out}, Tags: tags}},
	} {
		b.Run(c.name, func(b *testing.B) {
			c.cached.Key = l.keyOf(c.frame)
			l.install(c.cached)
			cost := func(p *ebpf.Program) time.Duration {
				_, d, err := p.Benchmark(c.frame, 20000, nil)
				if err != nil {
					b.Fatal(err)
				}
				return d
			}
			hit, none := time.Hour, time.Hour
			for b.Loop() { // the least of all rounds: what others use the core for only adds
				hit, none = min(hit, cost(l.programs.FromWorkload)), min(none, cost(empty))
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(hit), "ns/hit")
			b.ReportMetric(float64(hit-none), "ns-over-empty")
		})
	}
}

// BenchmarkInstall measures the kernel's part of a miss: one flow, and many at once.
func BenchmarkInstall(b *testing.B) {
	l := newLab(b, PortOptions{})
	l.opts.MaxFlows = 4096
	frame := udp4(nil)
	flow := Flow{Key: l.keyOf(frame), Out: Output{Port: l.out}, Tags: l.Tags(1, 2)}
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			flow.SrcPort++
			flow.SrcPort &= 0x7ff
			if err := l.Install([]Flow{flow}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("64", func(b *testing.B) {
		flows := make([]Flow, 64)
		for b.Loop() {
			for i := range flows {
				flow.SrcPort++
				flow.SrcPort &= 0x7ff
				flows[i] = flow
			}
			if err := l.Install(flows); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkUnderlay runs the underlay's program on a tunnelled frame that it drops at its last
// check, in rounds with and without the checks of who sent it, and reports what they cost. A frame
// that is delivered changes with each run.
func BenchmarkUnderlay(b *testing.B) {
	l := newLab(b, PortOptions{})
	l.AllowSender(l.out, farIP, false)
	unknown, foreign := outerFrame(77, udp4(nil)), outerFrame(testKey, udp4(nil))
	cost := func(guarded uint16, frame []byte) time.Duration {
		if err := l.configure(func(c *bpfConfig) { c.Guarded = guarded }); err != nil {
			b.Fatal(err)
		}
		_, d, err := l.programs.FromUnderlay.Benchmark(frame, 20000, nil)
		if err != nil {
			b.Fatal(err)
		}
		return d
	}
	without, with, all := time.Hour, time.Hour, time.Hour
	for b.Loop() {
		without, with, all = min(without, cost(0, unknown)), min(with, cost(1, unknown)), min(all, cost(1, foreign))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(without), "ns-unchecked")
	b.ReportMetric(float64(with), "ns-with-secret")
	b.ReportMetric(float64(all), "ns-with-secret-port-and-network")
}

// BenchmarkNATHit is BenchmarkHit for frames that leave with other addresses and ports. Two flows
// undo what the other does, since each run gets the frame as the last one left it; so no TTL is
// lowered.
func BenchmarkNATHit(b *testing.B) {
	l := newLab(b, PortOptions{MTU: 1500})
	for _, c := range []struct {
		name     string
		frame    []byte
		undo     func(Key) *flow.Rewrite // of what leaves
		notesEnd bool
	}{
		{"tcp-as-it-came", tcp4(nil), nil, false},
		{"tcp-routed", tcp4(nil), routed, false},
		{"tcp", tcp4(nil), translated, false},
		{"tcp-noting-its-end", tcp4(nil), translated, true},
		{"udp", udp4(nil), translated, false},
		{"echo", echo4(), translated, false},
		{"tcp6", tcp6(nil), translated, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			key := l.keyOf(c.frame)
			f := Flow{Key: key, Out: Output{Port: l.out}, Tags: l.Tags(1, 2), NotesEnd: c.notesEnd}
			if c.undo != nil {
				f.Rewrite = c.undo(key)
				f.Rewrite.Hops = 0
				back := key.rewritten(f.Rewrite)
				l.install(Flow{Key: back, Out: f.Out, Tags: f.Tags, Rewrite: key.headers(0), NotesEnd: c.notesEnd})
			}
			l.install(f)
			cost := func(p *ebpf.Program) time.Duration {
				_, d, err := p.Benchmark(c.frame, 20000, nil)
				if err != nil {
					b.Fatal(err)
				}
				return d
			}
			empty := emptyProgram(b)
			hit, none := time.Hour, time.Hour
			for b.Loop() {
				hit, none = min(hit, cost(l.programs.FromWorkload)), min(none, cost(empty))
			}
			if s, _, err := l.Lookup(key); err != nil || s.Packets < 10000 {
				b.Fatalf("the flow has %d packets, %v: the runs missed it", s.Packets, err)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(hit), "ns/hit")
			b.ReportMetric(float64(hit-none), "ns-over-empty")
		})
	}
}

// emptyProgram returns a program that does nothing.
func emptyProgram(b *testing.B) *ebpf.Program {
	b.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Close() })
	return p
}

// BenchmarkLimits compares, in rounds, hits of a flow that rewrites, without limits and with two,
// and the program on the interface of a limited port, which others do not have.
func BenchmarkLimits(b *testing.B) {
	l := limitedLab(b, PortLimits{Egress: topology.Limit{Rate: 1 << 50, Packets: 1 << 40}, Marks: true})
	frame := tcp4(nil)
	flow := func(limits ...Limit) Flow {
		f := Flow{Key: l.keyOf(frame), Out: Output{Port: l.out}, Tags: l.Tags(1, 2), Limits: limits}
		f.Rewrite = f.Key.headers(0)
		return f
	}
	numbers := []Limit{0, 0}
	for i := range numbers {
		var err error
		if numbers[i], err = l.SetLimit([]string{"a", "b"}[i], topology.Limit{Rate: 1 << 50}, 0); err != nil {
			b.Fatal(err)
		}
	}
	cost := func(p *ebpf.Program) time.Duration {
		_, d, err := p.Benchmark(frame, 20000, nil)
		if err != nil {
			b.Fatal(err)
		}
		return d
	}
	empty, without, with, port := time.Hour, time.Hour, time.Hour, time.Hour
	program := emptyProgram(b)
	for b.Loop() {
		empty = min(empty, cost(program))
		l.install(flow())
		without = min(without, cost(l.programs.FromWorkload))
		l.install(flow(numbers...))
		with = min(with, cost(l.programs.FromWorkload))
		port = min(port, cost(l.programs.LimitFromWorkload))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(without-empty), "ns-without")
	b.ReportMetric(float64(with-empty), "ns-with-two")
	b.ReportMetric(float64(port-empty), "ns-of-a-limited-port")
}

// BenchmarkCarryOver opens a datapath whose 262,144 flows another version left.
func BenchmarkCarryOver(b *testing.B) {
	opts := testOptions(b)
	opts.MaxFlows = 262144
	d := openWith(b, opts)
	l := labOf(b, d, PortOptions{})
	key := l.keyOf(udp4(nil))
	flows := make([]Flow, 4096)
	for i := range uint16(64) {
		key.DstPort = i
		for n := range flows {
			key.SrcPort = uint16(n)
			flows[n] = Flow{Key: key, Out: Output{Port: l.out}}
		}
		if err := l.Install(flows); err != nil {
			b.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		b.StopTimer()
		if _, err := Reshape(opts); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		d, err := Open(opts)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		n := 0
		if err := errors.Join(d.Dump(func(FlowState) bool { n++; return true }), d.Close()); err != nil || n != 64*len(flows) {
			b.Fatalf("%d flows: %v", n, err)
		}
		b.StartTimer()
	}
}
