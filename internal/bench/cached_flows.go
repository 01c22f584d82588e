package bench

import (
	"context"
	"errors"
	"fmt"

	"heddle/internal/netlab"
)

// traffic compares cached flows between workloads of real agents with the kernel's own paths.
func (b *bench) traffic(ctx context.Context) error {
	return b.withPaths(ctx, func(p *paths) error {
		o := netlab.CompareOptions{Slices: b.slices, Slice: b.slice(), Progress: func(kind string) { b.logf("%s", kind) }}
		f, err := netlab.Compare(ctx, []netlab.Path{p.direct, p.bridge, p.one, p.vxlan, p.two, p.routed}, o)
		if err != nil {
			return err
		}
		b.sameHost(f[0], f[1], f[5], f[2])
		b.betweenHosts("", f[3], f[4])
		if err := errors.Join(p.h1.NS.Segment(wire), p.h2.NS.Segment(wire)); err != nil {
			return err
		}
		b.logf("from here on hosts send frames of 1500 bytes")
		g, err := netlab.Compare(ctx, []netlab.Path{p.segmented, p.two}, o)
		if err != nil {
			return err
		}
		b.betweenHosts(", 1500-byte frames", g[0], g[1])
		bad, resent := f[2].BadChecksums+f[4].BadChecksums+g[1].BadChecksums, f[2].Retransmitted+f[4].Retransmitted+g[1].Retransmitted
		b.add(measure{Name: "bad TCP and UDP checksums on Heddle's paths", Got: float64(bad), Goal: atMost(0),
			Beside: fmt.Sprintf("TCP segments sent again: Heddle %d, kernel %d", resent, f[1].Retransmitted+f[3].Retransmitted+f[5].Retransmitted+g[0].Retransmitted)})
		return nil
	})
}

func (b *bench) sameHost(direct, bridge, routed, ours netlab.Figures) {
	b.add(compareRoundTrips("one host: round trip p50 / direct veth", ours, direct, atMost(1.06)))
	b.add(compareDatagrams("one host: UDP packets/s / direct veth", ours, direct, atLeast(0.88)))
	b.add(compareStream("one host: TCP / Linux bridge", ours, bridge, atLeast(1)))
	b.add(compareRoundTrips("one host: round trip p50 / routed + nftables", ours, routed, atMost(0.88)))
	b.add(compareDatagrams("one host: UDP packets/s / routed + nftables", ours, routed, atLeast(1)))
	b.add(compareStream("one host: TCP / routed + nftables", ours, routed, atLeast(1)))
	b.add(compareRoundTrips("  for comparison: Linux bridge, round trip / direct veth", bridge, direct, nil))
	b.add(compareRoundTrips("  for comparison: routed + nftables, round trip / direct veth", routed, direct, nil))
}

func (b *bench) betweenHosts(how string, kernel, ours netlab.Figures) {
	b.add(compareRoundTrips("two hosts"+how+": round trip p50 / bridge + vxlan", ours, kernel, atMost(0.85)))
	b.add(compareDatagrams("two hosts"+how+": UDP packets/s / bridge + vxlan", ours, kernel, atLeast(1.4)))
	b.add(compareStream("two hosts"+how+": TCP / bridge + vxlan", ours, kernel, atLeast(1)))
}

// ratio returns the figure that compares two paths slice by slice.
func ratio(name string, ours, other []float64, g *goal, beside string) measure {
	s := netlab.Ratios(ours, other)
	return measure{Name: name, Got: s.Median, Unit: "×", Goal: g, Beside: beside, Range: &quartiles{Low: s.Low, High: s.High, Slices: s.Count}}
}

func compareRoundTrips(name string, ours, other netlab.Figures, g *goal) measure {
	return ratio(name, ours.RoundTrips, other.RoundTrips, g,
		fmt.Sprintf("%.1f / %.1f µs", 1e6*netlab.Median(ours.RoundTrips), 1e6*netlab.Median(other.RoundTrips)))
}

func compareDatagrams(name string, ours, other netlab.Figures, g *goal) measure {
	return ratio(name, ours.Datagrams, other.Datagrams, g,
		fmt.Sprintf("%.0fk / %.0fk packets/s", netlab.Median(ours.Datagrams)/1e3, netlab.Median(other.Datagrams)/1e3))
}

func compareStream(name string, ours, other netlab.Figures, g *goal) measure {
	return ratio(name, ours.Bits, other.Bits, g,
		fmt.Sprintf("%.1f / %.1f Gbit/s", netlab.Median(ours.Bits)/1e9, netlab.Median(other.Bits)/1e9))
}
