package nettest

import (
	"net/netip"
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

// TestCompare runs the comparison for a moment on what the kernel offers: the figures mean nothing, but every path must
// carry all kinds of traffic with sound checksums.
func TestCompare(t *testing.T) {
	var paths []Path
	for _, build := range []func(*Lab) (Path, error){DirectPath, BridgePath,
		func(l *Lab) (Path, error) { return VXLANPath(l, false) },
		func(l *Lab) (Path, error) { return VXLANPath(l, true) }} {
		p, err := build(ForTest(t))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	figures, err := Compare(t.Context(), paths, CompareOptions{Rounds: 1, RoundTrips: 200, Stream: 50 * time.Millisecond, Blast: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range figures {
		if f.BadChecksums > 0 || f.RoundTrip <= 0 || f.Datagrams <= 0 || f.Bits <= 0 {
			t.Errorf("%s: %+v", paths[i].Name, f)
		}
	}
}
