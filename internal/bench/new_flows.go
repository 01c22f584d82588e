package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"heddle/internal/netlab"
)

// flows measures the cost of new flows, and the effect of a scan on other flows.
func (b *bench) flows(ctx context.Context) error {
	return b.withPaths(ctx, func(p *paths) error {
		scan, err := p.scanPath(ctx, p.group)
		if err != nil {
			return err
		}
		if err := b.connects(ctx, p); err != nil {
			return err
		}
		if err := b.firstPackets(p); err != nil {
			return err
		}
		if err := b.setups(ctx, p.stand, scan); err != nil {
			return err
		}
		return b.underScan(ctx, p, scan)
	})
}

// scanPath returns a path on the first host for a scan.
func (s *stand) scanPath(ctx context.Context, group string) (p netlab.Path, err error) {
	from, err := s.workload(ctx, "x1", s.h1, group)
	if err != nil {
		return p, err
	}
	to, err := s.workload(ctx, "x2", s.h1, group)
	if err != nil {
		return p, err
	}
	if p, err = path("Heddle, scan", from, to); err != nil {
		return p, err
	}
	return p, warm(ctx, p)
}

// connects compares new TCP connections.
func (b *bench) connects(ctx context.Context, of *paths) error {
	b.logf("new connections")
	compared := []netlab.Path{of.direct, of.routed, of.one, of.two}
	p50 := make([][]time.Duration, len(compared))
	rates, err := netlab.Alternate(ctx, compared, b.slices, func(p netlab.Path) (float64, error) {
		latency, rate, err := p.ConnectsFor(b.slice())
		i := slices.Index(compared, p)
		p50[i] = append(p50[i], latency.P50)
		return rate, err
	})
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name       string
		ours, than int
		goal       *goal
	}{
		{"one host: new connections/s / direct veth", 2, 0, atLeast(0.55)},
		{"one host: new connections/s / routed + nftables", 2, 1, nil},
		{"two hosts: new connections/s / direct veth", 3, 0, nil},
		{"  for comparison: routed + nftables, new connections/s / direct veth", 1, 0, nil},
	} {
		b.add(ratio(c.name, rates[c.ours], rates[c.than], c.goal, fmt.Sprintf("%.0f / %.0f a second, p50 %.0f / %.0f µs",
			netlab.Median(rates[c.ours]), netlab.Median(rates[c.than]), micros(netlab.Median(p50[c.ours])), micros(netlab.Median(p50[c.than])))))
	}
	return nil
}

// firstPackets measures the extra round-trip time of a flow's first packet.
func (b *bench) firstPackets(of *paths) error {
	var added, second [3][]time.Duration
	var p99 []time.Duration
	for round := range b.rounds {
		for i, p := range []netlab.Path{of.direct, of.one, of.two} {
			b.logf("round %d: first packets: %s", round+1, p.Name)
			got, err := p.FirstPackets(b.pick(2000, 50))
			if err != nil {
				return err
			}
			added[i], second[i] = append(added[i], got.Added.P50), append(second[i], got.Second.P50)
			if i == 1 {
				p99 = append(p99, got.Added.P99)
			}
		}
	}
	for i, name := range []string{"one host", "two hosts"} {
		beside := fmt.Sprintf("cached %.0f µs; direct veth adds %.0f µs", micros(netlab.Median(second[i+1])), micros(netlab.Median(added[0])))
		if i == 0 {
			beside = fmt.Sprintf("p99 %.0f µs; ", micros(netlab.Median(p99))) + beside
		}
		b.add(measure{Name: name + ": first packet, there and back, waits longer, p50", Got: micros(netlab.Median(added[i+1])), Unit: "µs", Goal: atMost(100), Beside: beside})
	}
	return nil
}

// setups scans one workload as fast as it can and counts the flows that the agent sets up.
func (b *bench) setups(ctx context.Context, s *stand, scan netlab.Path) error {
	var perCore, perSecond, share []float64
	for round := range b.rounds {
		b.logf("round %d: flow set-ups", round+1)
		before, err := s.setUp(ctx)
		if err != nil {
			return err
		}
		limited, stop := context.WithTimeout(ctx, time.Duration(b.pick(1500, 200))*time.Millisecond)
		sent, err := scan.Scan(limited, 0)
		stop()
		if err != nil {
			return err
		}
		after, err := s.setUp(ctx)
		if err != nil {
			return err
		}
		flows := after.flows - before.flows
		perCore = append(perCore, flows/(after.cpu-before.cpu).Seconds())
		perSecond = append(perSecond, flows/after.at.Sub(before.at).Seconds())
		share = append(share, flows/float64(sent))
	}
	b.add(measure{Name: "flow set-ups per second of the agent's processor time", Got: netlab.Median(perCore), Unit: "/s", Goal: atLeast(50_000),
		Beside: fmt.Sprintf("%.0f a second by the clock beside the sender; %.0f%% of what was sent", netlab.Median(perSecond), 100*netlab.Median(share))})
	return nil
}

// effort is an agent's work up to a moment.
type effort struct {
	flows float64
	cpu   time.Duration
	at    time.Time
}

func (s *stand) setUp(ctx context.Context) (e effort, err error) {
	if e.flows, err = metric(ctx, s.h1.NS, "heddle_overlay_decisions_total", `verdict="forward"`); err != nil {
		return e, err
	}
	e.at = time.Now()
	e.cpu, err = cpuTime(s.h1.Agent.PID())
	return e, err
}

// underScan measures the cached and new flows of other workloads during a scan.
func (b *bench) underScan(ctx context.Context, p *paths, scan netlab.Path) error {
	quiet, err := b.neighbour(ctx, p.direct, p.one)
	if err != nil {
		return err
	}
	scanCtx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := scan.Scan(scanCtx, 0)
		ended <- err
	}()
	b.logf("again, beside a scan")
	loud, err := b.neighbour(ctx, p.direct, p.one)
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	b.add(ratio("cached flow beside a scan: round trip p50 / direct veth", loud.cached, loud.direct, atMost(1.06),
		fmt.Sprintf("%.1f / %.1f µs, both beside the scan; without it %.1f / %.1f", 1e6*netlab.Median(loud.cached), 1e6*netlab.Median(loud.direct),
			1e6*netlab.Median(quiet.cached), 1e6*netlab.Median(quiet.direct))))
	b.add(measure{Name: "new flow beside a scan: first packet waits longer, p50", Got: micros(loud.first.Added.P50), Unit: "µs",
		Beside: fmt.Sprintf("without the scan %.0f µs; p99 %.1f, without %.1f ms", micros(quiet.first.Added.P50), millis(loud.first.Added.P99), millis(quiet.first.Added.P99))})
	b.add(measure{Name: "new flows beside a scan that got no answer within 1 s", Got: float64(loud.first.Lost), Goal: atMost(0),
		Beside: fmt.Sprintf("of %d", loud.first.Lost+loud.first.First.Count)})
	return nil
}

// neighbourFigures are figures of one path during other traffic.
type neighbourFigures struct {
	direct, cached []float64 // round trips in seconds, the median of each slice
	first          netlab.FirstPackets
}

// neighbour measures round trips over a direct veth and over Heddle, and then first packets.
func (b *bench) neighbour(ctx context.Context, direct, one netlab.Path) (f neighbourFigures, err error) {
	b.logf("round trips")
	trips, err := netlab.Alternate(ctx, []netlab.Path{direct, one}, b.slices, func(p netlab.Path) (float64, error) {
		rr, err := p.RoundTripsFor(b.slice())
		return rr.P50.Seconds(), err
	})
	if err != nil {
		return f, err
	}
	f.direct, f.cached = trips[0], trips[1]
	f.first, err = one.FirstPackets(b.pick(2000, 50))
	return f, err
}
