package netlab

import (
	"testing"
	"time"
)

// TestPing sees how long an address was away.
func TestPing(t *testing.T) {
	t.Parallel()
	l := ForTest(t)
	a, b := l.MustNamespace(t, "a"), l.MustNamespace(t, "b")
	l.MustVeth(t, a, "eth0", b, "eth0")
	a.MustIP(t, "addr add 192.0.2.1/24 dev eth0")
	b.MustIP(t, "addr add 192.0.2.2/24 dev eth0")
	if err := a.Reach(t.Context(), "192.0.2.2"); err != nil {
		t.Fatal(err)
	}
	p, err := a.Ping("192.0.2.2")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	b.MustIP(t, "addr del 192.0.2.2/24 dev eth0")
	if err := Until(t.Context(), "half a second to pass", func() (bool, error) { return time.Since(began) > 500*time.Millisecond, nil }); err != nil {
		t.Fatal(err)
	}
	b.MustIP(t, "addr add 192.0.2.2/24 dev eth0")
	longest, lost, err := p.End()
	if err != nil || longest < 450*time.Millisecond || lost < 5 {
		t.Errorf("longest time without an answer %s, %d lost, %v", longest, lost, err)
	}
}

// FuzzPing: no line of a program disturbs.
func FuzzPing(f *testing.F) {
	f.Add("[1795287730.180069] 64 bytes from 127.0.0.1: icmp_seq=1 ttl=64 time=0.016 ms")
	f.Add("[x] 64 bytes from 127.0.0.1: icmp_seq= ttl=64")
	f.Add("[1795287730.180069] From 10.0.0.1 icmp_seq=7 Destination Host Unreachable")
	f.Fuzz(func(_ *testing.T, line string) {
		p := &Ping{}
		p.answered(line)
		p.answered(line)
	})
}
