package netlab

import "testing"

func TestFirstPackets(t *testing.T) {
	got, err := direct(t).FirstPackets(50)
	if err != nil || got.Lost > 0 || got.First.Count != 50 || got.First.P50 <= 0 || got.Second.P50 <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestScanReachesOnePortAfterTheOther(t *testing.T) {
	p := direct(t)
	before, err := p.Server.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sent, err := p.Scan(t.Context(), 70000) // more than there are ports
	if err != nil || sent < 70000 || sent >= 70000+batch {
		t.Fatalf("%d sent, %v", sent, err)
	}
	after, err := p.Server.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := after["UdpNoPorts"] - before["UdpNoPorts"]; got != sent {
		t.Errorf("%d of %d datagrams came to a port that nobody listens at", got, sent)
	}
}
