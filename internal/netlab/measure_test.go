package netlab

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// direct is one veth pair between two namespaces.
func direct(t TB) Path {
	l := ForTest(t)
	a, b := l.MustNamespace(t, "a"), l.MustNamespace(t, "b")
	l.MustVeth(t, a, "eth0", b, "eth0")
	a.MustIP(t, "addr add 192.0.2.1/24 dev eth0")
	b.MustIP(t, "addr add 192.0.2.2/24 dev eth0")
	return Path{Name: "direct", Client: a, Server: b, Address: netip.MustParseAddr("192.0.2.2")}
}

func TestMeasures(t *testing.T) {
	p := direct(t)
	rr, err := p.RoundTrips(2000)
	if err != nil || rr.Count != 2000 || rr.P50 <= 0 {
		t.Errorf("round trips: %+v, %v", rr, err)
	}
	connects, rate, err := p.Connects(200)
	if err != nil || connects.Count != 200 || rate <= 0 {
		t.Errorf("connects: %+v, %v", connects, err)
	}
	bits, err := p.Stream(50 * time.Millisecond)
	if err != nil || bits <= 0 {
		t.Errorf("stream: %g, %v", bits, err)
	}
	blast, err := p.Blast(18, 50*time.Millisecond)
	if err != nil || blast.Received == 0 || blast.Received > blast.Sent {
		t.Errorf("blast: %+v, %v", blast, err)
	}
	t.Logf("round trip p50 %v, connect p50 %v, %.0f/s, %.1f Gbit/s, %.0f packets/s", rr.P50, connects.P50, rate, bits/1e9, blast.PerSecond)
}

// TestCompare runs the comparison for a moment on what the kernel offers: the figures mean nothing,
// but every path must carry all kinds of traffic with sound checksums.
func TestCompare(t *testing.T) {
	var paths []Path
	for _, build := range []func(*Lab) (Path, error){DirectPath, BridgePath, RoutedPath,
		func(l *Lab) (Path, error) { return VXLANPath(l, false) },
		func(l *Lab) (Path, error) { return VXLANPath(l, true) }} {
		p, err := build(ForTest(t))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	figures, err := Compare(t.Context(), paths, CompareOptions{Slices: 2, Slice: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range figures {
		if f.BadChecksums > 0 || len(f.RoundTrips) != 2 || len(f.Datagrams) != 2 || len(f.Bits) != 2 || Median(f.RoundTrips) <= 0 || Median(f.Datagrams) <= 0 || Median(f.Bits) <= 0 {
			t.Errorf("%s: %+v", paths[i].Name, f)
		}
	}
	for _, p := range paths {
		if latency, rate, err := p.ConnectsFor(20 * time.Millisecond); err != nil || latency.Count == 0 || rate <= 0 {
			t.Errorf("%s: connects: %+v, %g a second, %v", p.Name, latency, rate, err)
		}
	}
}

// TestRoutedPathFilters: the ruleset beside which Heddle is measured does its work.
func TestRoutedPathFilters(t *testing.T) {
	p, err := RoutedPath(ForTest(t))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := p.Client.Output(t.Context(), "ping", "-n", "-c1", "-W1", p.Address.String()); err == nil {
		t.Errorf("an ICMP echo passed, which no rule accepts:\n%s", out)
	}
	if _, err := p.RoundTrips(10); err != nil {
		t.Error(err)
	}
}

// TestAlternate checks that slices alternate between paths, every other time in reverse.
func TestAlternate(t *testing.T) {
	var order string
	got, err := Alternate(t.Context(), []Path{{Name: "a"}, {Name: "b"}, {Name: "c"}}, 3, func(p Path) (float64, error) {
		order += p.Name
		return float64(len(order)), nil
	})
	if want := "abccbaabc"; err != nil || order != want {
		t.Errorf("measured in the order %s, want %s; %v", order, want, err)
	}
	if want := [][]float64{{1, 6, 7}, {2, 5, 8}, {3, 4, 9}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("slices of each path: %v, want %v", got, want)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := Alternate(ended, []Path{{}}, 1, func(Path) (float64, error) { return 0, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Spread
	}{
		{nil, Spread{}},
		{[]float64{3}, Spread{3, 3, 3, 1}},
		{[]float64{4, 1, 3, 2}, Spread{2.5, 1.75, 3.25, 4}},
		{[]float64{5, 1, 4, 2, 3}, Spread{3, 2, 4, 5}},
		{[]float64{1, 1, 1, 1, 100}, Spread{1, 1, 1, 5}}, // one slice that something disturbed moves nothing
	} {
		if got := SpreadOf(c.values); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.values, got, c.want)
		}
	}
	// Both paths become ten times slower half way: the ratio of neighbours stays.
	got := Ratios([]float64{2, 2, 20, 20}, []float64{1, 1, 10, 10})
	if want := (Spread{2, 2, 2, 4}); got != want || got.Relative() != 0 {
		t.Errorf("ratios: %+v, want %+v", got, want)
	}
	if got := (Spread{Median: 2, Low: 1.5, High: 2.5}).Relative(); got != 0.5 {
		t.Errorf("relative width %g, want 0.5", got)
	}
}
