package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

// withProgram measures rows that need a program, which a Debian package has. Where the program is
// missing, the rows say what to install.
func (b *bench) withProgram(name, packaged string, rows []measure, measured func() error) error {
	if _, err := exec.LookPath(name); err == nil {
		return measured()
	}
	for _, m := range rows {
		m.Install = packaged
		b.add(m)
	}
	return nil
}

// balanced compares the paths through VIPs with a veth pair, nftables' DNAT by numgen, and haproxy
// in TCP mode (services §14, rows 1 to 4). Compared paths are measured one right after the other.
func (b *bench) balanced(ctx context.Context, x *balancing) error {
	v1, err1 := x.path1(ctx)
	v2, err2 := x.path2(ctx)
	if err := errors.Join(err1, err2, connected(ctx, v1, v2)); err != nil {
		return err
	}
	x.v1 = v1
	if err := b.besideVeth(ctx, v1, v2); err != nil {
		return err
	}
	toDNAT := []measure{
		{Name: "VIP, v1: round trip p50 / routed + nftables DNAT", Unit: "×", Goal: atMost(0.90)},
		{Name: "VIP, v2: round trip p50 / routed + nftables DNAT", Unit: "×", Goal: atMost(0.90)},
		{Name: "VIP, v1: TCP / routed + nftables DNAT", Unit: "×", Goal: atLeast(1)},
		{Name: "VIP, v2: TCP / routed + nftables DNAT", Unit: "×", Goal: atLeast(1)},
		{Name: "VIP, v1: new connections / routed + nftables DNAT", Unit: "×", Goal: atLeast(0.65)},
	}
	if err := b.withProgram("nft", "nftables", toDNAT, func() error { return b.besideDNAT(ctx, v1, v2, toDNAT) }); err != nil {
		return err
	}
	toProxy := measure{Name: "VIP, v1: new connections / haproxy in TCP mode", Unit: "×", Goal: atLeast(2)}
	return b.withProgram("haproxy", "haproxy", []measure{toProxy}, func() error { return b.besideProxy(ctx, v1, toProxy) })
}

// besideVeth compares round trips with those over a veth pair.
func (b *bench) besideVeth(ctx context.Context, v1, v2 netlab.Path) error {
	l := netlab.New(prefix + "-b0")
	defer l.Close() // what is left goes with the next run's start
	direct, err := netlab.DirectPath(l)
	if err != nil {
		return err
	}
	b.logf("round trips through VIPs, beside a veth pair")
	trips, err := b.roundTrips(ctx, v1, direct, v2)
	if err != nil {
		return err
	}
	b.add(comparedTrips(measure{Name: "VIP, v1: round trip p50 / direct veth", Goal: atMost(1.10)}, trips[0], trips[1]))
	b.add(comparedTrips(measure{Name: "VIP, v2: round trip p50 / direct veth", Goal: atMost(1.15)}, trips[2], trips[1]))
	return nil
}

// besideDNAT compares round trips, streams and new connections with those through a host that
// balances by nftables.
func (b *bench) besideDNAT(ctx context.Context, v1, v2 netlab.Path, rows []measure) error {
	l := netlab.New(prefix + "-b1")
	defer l.Close()
	dnat, err := netlab.BalancedPath(l)
	if err != nil {
		return err
	}
	if err := connected(ctx, dnat); err != nil {
		return err
	}
	b.logf("round trips through VIPs, beside nftables")
	trips, err := b.roundTrips(ctx, v1, dnat, v2)
	if err != nil {
		return err
	}
	b.add(comparedTrips(rows[0], trips[0], trips[1]))
	b.add(comparedTrips(rows[1], trips[2], trips[1]))
	b.logf("streams through VIPs, beside nftables")
	bits, err := b.interleaved(ctx, []netlab.Path{v1, dnat, v2}, func(p netlab.Path, d time.Duration) (float64, error) { return p.Stream(d) })
	if err != nil {
		return err
	}
	b.add(comparedStreams(rows[2], bits[0], bits[1]))
	b.add(comparedStreams(rows[3], bits[2], bits[1]))
	b.logf("new connections through VIPs, beside nftables")
	rates, err := b.connectionRates(ctx, v1, dnat)
	if err != nil {
		return err
	}
	b.add(comparedConnections(rows[4], rates[0], rates[1]))
	return nil
}

// besideProxy compares new connections with those through haproxy.
func (b *bench) besideProxy(ctx context.Context, v1 netlab.Path, row measure) error {
	l := netlab.New(prefix + "-b2")
	defer l.Close()
	proxied, stop, err := netlab.ProxiedPath(l)
	if err != nil {
		return err
	}
	defer stop()
	if err := connected(ctx, proxied); err != nil {
		return err
	}
	b.logf("new connections through VIPs, beside haproxy")
	rates, err := b.connectionRates(ctx, v1, proxied)
	if err != nil {
		return err
	}
	b.add(comparedConnections(row, rates[0], rates[1]))
	return nil
}

// connected waits until a connection has come about by each path.
func connected(ctx context.Context, paths ...netlab.Path) error {
	ctx, cancel := context.WithTimeout(ctx, lab.StartTimeout)
	defer cancel()
	for _, p := range paths {
		if err := netlab.Until(ctx, "connections by "+p.Name, func() (bool, error) {
			_, _, err := p.Connects(1)
			return err == nil, nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// roundTrips returns the median round trip of each slice of the paths, in seconds.
func (b *bench) roundTrips(ctx context.Context, paths ...netlab.Path) ([][]float64, error) {
	return netlab.Alternate(ctx, paths, b.slices, func(p netlab.Path) (float64, error) {
		trips, err := p.RoundTripsFor(b.slice())
		return trips.P50.Seconds(), err
	})
}

// connectionRates returns the new connections a second of each slice of the paths.
func (b *bench) connectionRates(ctx context.Context, paths ...netlab.Path) ([][]float64, error) {
	return b.interleaved(ctx, paths, func(p netlab.Path, d time.Duration) (float64, error) {
		_, rate, err := p.ConnectsFor(d)
		return rate, err
	})
}

// interleaved measures rates in slices whose pieces alternate between the paths, and returns those
// of whole slices. Other load that comes or goes within a slice so falls on all paths alike, while
// the rate of a piece alone is that of the moment.
func (b *bench) interleaved(ctx context.Context, paths []netlab.Path, rate func(netlab.Path, time.Duration) (float64, error)) ([][]float64, error) {
	const pieces = 5
	all, err := netlab.Alternate(ctx, paths, b.slices*pieces, func(p netlab.Path) (float64, error) { return rate(p, b.slice()/pieces) })
	if err != nil {
		return nil, err
	}
	for i, rates := range all {
		for slice := range b.slices {
			var sum float64
			for _, r := range rates[slice*pieces : (slice+1)*pieces] {
				sum += r
			}
			rates[slice] = sum / pieces
		}
		all[i] = rates[:b.slices]
	}
	return all, nil
}

// comparedTrips fills in the row that compares round trips in seconds.
func comparedTrips(row measure, ours, other []float64) measure {
	return ratio(row.Name, ours, other, row.Goal, fmt.Sprintf("%.1f / %.1f µs", 1e6*netlab.Median(ours), 1e6*netlab.Median(other)))
}

// comparedStreams fills in the row that compares bits a second.
func comparedStreams(row measure, ours, other []float64) measure {
	return ratio(row.Name, ours, other, row.Goal, fmt.Sprintf("%.1f / %.1f Gbit/s", netlab.Median(ours)/1e9, netlab.Median(other)/1e9))
}

// comparedConnections fills in the row that compares connections a second.
func comparedConnections(row measure, ours, other []float64) measure {
	return ratio(row.Name, ours, other, row.Goal, fmt.Sprintf("%.0f / %.0f a second", netlab.Median(ours), netlab.Median(other)))
}
