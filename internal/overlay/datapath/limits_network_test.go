package datapath_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/overlay/datapath"
	"heddle/internal/topology"
)

// limited attaches the workload again with limits.
func (w *workload) limited(t *testing.T, limits datapath.PortLimits) {
	t.Helper()
	tap := "tap" + strings.TrimPrefix(w.name, "port-")
	if _, err := w.host.AttachPort(w.name, tap, datapath.PortOptions{TunnelKey: w.key, MTU: 1450, Limits: limits}); err != nil {
		t.Fatal(err)
	}
}

// sample is a count of what had passed a limit, and its tokens, at a time.
type sample struct {
	at     time.Time
	passed float64 // bits, or packets
	tokens time.Duration
}

// sampleOf reads all at one time: on a busy machine that takes several attempts.
func sampleOf(t *testing.T, h *host, limit string, passed func() float64) (s sample) {
	t.Helper()
	err := netlab.Until(t.Context(), "a moment's peace", func() (bool, error) {
		s.at = time.Now()
		s.tokens, s.passed = h.Tokens(limit), passed()
		return time.Since(s.at) < 10*time.Millisecond, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// arrived counts the packets that have come in at a workload, and their bytes from the IP header
// on.
func arrived(t *testing.T, w *workload) (packets, size float64) {
	t.Helper()
	var text []byte
	err := w.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/dev")
		return err
	})
	for line := range strings.Lines(string(text)) {
		var b, p float64
		if rest, is := strings.CutPrefix(strings.TrimSpace(line), "eth0:"); is {
			if _, err := fmt.Sscan(rest, &b, &p); err != nil {
				t.Fatal(err)
			}
			return p, b - p*14
		}
	}
	t.Fatalf("no counters of eth0: %v\n%s", err, text)
	return 0, 0
}

// offer sends datagrams of so many bytes at a rate until ctx ends. When it has not had its turn it
// catches up.
func offer(ctx context.Context, from *workload, to netip.Addr, size int, perSecond float64) error {
	var c net.Conn
	if err := from.Do(func() (err error) { c, err = net.Dial("udp", netip.AddrPortFrom(to, 9).String()); return err }); err != nil {
		return err
	}
	defer c.Close()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	start, sent, b := time.Now(), 0., make([]byte, size)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for ; sent < time.Since(start).Seconds()*perSecond; sent++ {
			_, _ = c.Write(b) // no socket listens there
		}
	}
}

// checkRate waits until a limit is in force, and for so many seconds' worth to pass, and compares
// that with what the clock and the bucket say. It is never more than most; it is least or more in
// one of several attempts: a sender that does not get its turn for as long as the bucket takes to
// fill loses some of its rate.
func checkRate(t *testing.T, h *host, limit string, perSecond, seconds float64, passed func() float64, least, most float64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	until := func(what string, cond func() bool) {
		t.Helper()
		if err := netlab.Until(ctx, what, func() (bool, error) { return cond(), nil }); err != nil {
			t.Fatalf("%v; limits: %+v", err, h.Limits())
		}
	}
	until("the limit to bite", func() bool {
		for _, l := range h.Limits() {
			if l.Name == limit && l.Dropped > 0 {
				return true
			}
		}
		return false
	})
	for attempt := 0; ; attempt++ {
		first := sampleOf(t, h, limit, passed)
		until("traffic to pass", func() bool { return passed()-first.passed >= seconds*perSecond })
		last := sampleOf(t, h, limit, passed)
		took := last.at.Sub(first.at) + first.tokens - last.tokens
		ratio := (last.passed - first.passed) / (took.Seconds() * perSecond)
		if ratio >= least && ratio <= most {
			return
		}
		what := fmt.Sprintf("%.3f of the rate passed in %v, with tokens for %v before and %v after: want %.2f to %.2f",
			ratio, last.at.Sub(first.at), first.tokens, last.tokens, least, most)
		if ratio > most || attempt == 5 {
			t.Error(what)
			return
		}
		t.Log(what)
	}
}

// TestLimitedDatagrams: twice the rate is offered, and the rate passes, in both directions. A short
// burst bounds what passes even on a busy machine; with a long one none of the rate is lost.
func TestLimitedDatagrams(t *testing.T) {
	t.Parallel()
	const rate = 10e6
	for _, c := range []struct {
		name    string
		limit   topology.Limit
		ingress bool
		least   float64
	}{
		{"egress, short burst", topology.Limit{Rate: rate, Burst: rate / 100}, false, 0},
		{"ingress, short burst", topology.Limit{Rate: rate, Burst: rate / 100}, true, 0},
		{"egress", topology.Limit{Rate: rate, Burst: rate * 2}, false, 0.95},
		{"ingress", topology.Limit{Rate: rate, Burst: rate * 2}, true, 0.95},
		{"packets", topology.Limit{Packets: 1000, PacketBurst: 2000}, false, 0.95},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, 1)
			a, b := n.workload(n.hosts[0], 1), n.workload(n.hosts[0], 2)
			egress, _ := datapath.PortLimitName(a.name)
			_, ingress := datapath.PortLimitName(b.name)
			limit, size, offered, rate := egress, 1000, 2*rate/8/1028, rate
			passed := func() float64 { _, size := arrived(t, b); return size * 8 }
			if c.limit.Packets != 0 {
				size, offered, rate = 100, 2000, 1000
				passed = func() float64 { packets, _ := arrived(t, b); return packets }
			}
			if c.ingress {
				limit = ingress
				b.limited(t, datapath.PortLimits{Ingress: c.limit})
			} else {
				a.limited(t, datapath.PortLimits{Egress: c.limit})
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- offer(ctx, a, b.v4, size, offered) }()
			checkRate(t, n.hosts[0], limit, rate, 3, passed, c.least, 1.05)
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// stream sends what it can by TCP until the test ends, and returns how to count what is received.
func stream(t *testing.T, from, to *workload, address netip.Addr) (received *atomic.Int64) {
	t.Helper()
	var l net.Listener
	if err := to.Do(func() (err error) { l, err = net.Listen("tcp", netip.AddrPortFrom(address, 0).String()); return err }); err != nil {
		t.Fatal(err)
	}
	var out net.Conn
	if err := from.Do(func() (err error) { out, err = net.Dial("tcp", l.Addr().String()); return err }); err != nil {
		t.Fatal(err)
	}
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); out.Close(); l.Close() })
	received = &atomic.Int64{}
	go func() {
		for b := make([]byte, 1<<17); ; {
			if _, err := out.Write(b); err != nil {
				return
			}
		}
	}()
	go func() {
		for b := make([]byte, 1<<18); ; {
			k, err := in.Read(b)
			received.Add(int64(k))
			if err != nil {
				return
			}
		}
	}()
	return received
}

// TestLimitedStreams: with the default burst TCP gets the rate, in both directions, on one host and
// across two. What counts is what comes to the receiver, each segment with its headers. Next to
// nothing of that comes twice.
func TestLimitedStreams(t *testing.T) {
	t.Parallel()
	const rate = 20e6
	for _, c := range []struct {
		name    string
		hosts   int
		v6      bool
		ingress bool
	}{{"egress", 1, false, false}, {"ingress", 1, true, true}, {"egress, two hosts", 2, true, false}, {"ingress, two hosts", 2, false, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, c.hosts)
			if c.hosts == 2 {
				n.underlay()
			}
			a, b := n.workload(n.hosts[0], 1), n.workload(n.hosts[c.hosts-1], 2)
			limit, at := "", n.hosts[0]
			if c.ingress {
				_, limit = datapath.PortLimitName(b.name)
				at = n.hosts[c.hosts-1]
				b.limited(t, datapath.PortLimits{Ingress: topology.Limit{Rate: rate}})
			} else {
				limit, _ = datapath.PortLimitName(a.name)
				a.limited(t, datapath.PortLimits{Egress: topology.Limit{Rate: rate}})
			}
			address, headers := b.v4, 52. // with TCP's time stamps
			if c.v6 {
				address, headers = b.v6, 72
			}
			received := stream(t, a, b, address)
			payload := func() float64 { packets, size := arrived(t, b); return size - packets*headers }
			checkRate(t, at, limit, rate, 6, func() float64 { return payload() * 8 * 1450 / (1450 - headers) }, 0.95, 1.05)
			all := payload()
			if err := netlab.Until(t.Context(), "what came to be read", func() (bool, error) { return float64(received.Load()) > 0.97*all, nil }); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLimitsComeAndGo: limits change while traffic passes, hold while no agent runs and after the
// next one has started, let others alone, and leave nothing behind.
func TestLimitsComeAndGo(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	h := n.hosts[0]
	a, b, other := n.workload(h, 1), n.workload(h, 2), n.workload(h, 3)
	egress, _ := datapath.PortLimitName(a.name)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- offer(ctx, a, b.v4, 1000, 2000) }() // 16 Mbit/s
	passed := func() float64 { _, size := arrived(t, b); return size * 8 }
	for _, rate := range []uint64{1e6, 4e6} {
		a.limited(t, datapath.PortLimits{Egress: topology.Limit{Rate: rate, Burst: rate / 50}, Ingress: topology.Limit{Rate: rate}, Marks: true, DSCP: 46})
		checkRate(t, h, egress, float64(rate), 2, passed, 0, 1.05)
	}
	drops := counters(t, h).Drops["over its limit of rate"]
	h.stop()
	start, before := time.Now(), passed()
	if err := netlab.Until(t.Context(), "traffic without an agent", func() (bool, error) { return passed()-before > 4e6, nil }); err != nil {
		t.Fatal(err)
	}
	if most := 4e6 * (time.Since(start).Seconds() + 1./50) * 1.05; passed()-before > most+20000 {
		t.Errorf("without an agent %.0f bits passed: want at most %.0f", passed()-before, most)
	}
	h.open()
	for _, p := range h.Ports() {
		if want := (datapath.PortLimits{Egress: topology.Limit{Rate: 4e6, Burst: 80000}, Ingress: topology.Limit{Rate: 4e6}, Marks: true, DSCP: 46}); p.Name == a.name && p.Limits != want {
			t.Errorf("the next agent finds %+v: want %+v", p.Limits, want)
		} else if p.Name != a.name && p.Limits != (datapath.PortLimits{}) {
			t.Errorf("the next agent finds limits %+v of %s", p.Limits, p.Name)
		}
	}
	checkRate(t, h, egress, 4e6, 2, passed, 0, 1.05)
	if now := counters(t, h).Drops["over its limit of rate"]; now <= drops {
		t.Errorf("%d drops, before the restart %d: want more", now, drops)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	drops = counters(t, h).Drops["over its limit of rate"]
	checkTraffic(t, other, b)
	if now := counters(t, h).Drops["over its limit of rate"]; now != drops {
		t.Errorf("%d frames of others were over a limit", now-drops)
	}

	left := func(what string) {
		t.Helper()
		links, err := filepath.Glob(filepath.Join("/sys/fs/bpf/heddle", h.opts.Name, "links", "limit-*"))
		if n := h.LimitedEntries(); err != nil || len(links)+len(h.Limits())+n > 0 {
			t.Errorf("%s: programs %v, limits %+v and %d entries are left, %v", what, links, h.Limits(), n, err)
		}
	}
	a.limited(t, datapath.PortLimits{})
	left("without limits")
	checkTraffic(t, a, b)
	a.limited(t, datapath.PortLimits{Ingress: topology.Limit{Packets: 9}, Marks: true})
	n.detach(a)
	left("detached")
}

// TestLimitsFollowInterface: a limited port goes to the interface of another, which is not limited
// there any more, and leaves no program at its own.
func TestLimitsFollowInterface(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	h := n.hosts[0]
	a, b := n.workload(h, 1), n.workload(h, 2)
	limits := datapath.PortLimits{Egress: topology.Limit{Packets: 9}, Ingress: topology.Limit{Packets: 9}}
	a.limited(t, limits)
	b.limited(t, limits)
	tap := "tap" + strings.TrimPrefix(b.name, "port-")
	link, err := h.net.Link(tap)
	if err != nil {
		t.Fatal(err)
	}
	n.detach(b)
	if _, err := h.AttachPort(a.name, tap, datapath.PortOptions{TunnelKey: a.key, MTU: 1450, Limits: limits}); err != nil {
		t.Fatal(err)
	}
	programs, err := filepath.Glob(filepath.Join("/sys/fs/bpf/heddle", h.opts.Name, "links", "limit-*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range programs {
		programs[i] = filepath.Base(programs[i])
	}
	want := []string{fmt.Sprint("limit-egress-", link.Index), fmt.Sprint("limit-ingress-", link.Index)}
	if !slices.Equal(programs, want) || h.LimitedEntries() != 1 || len(h.Limits()) != 2 {
		t.Errorf("programs %v, %d entries, limits %+v: want %v, 1 and 2", programs, h.LimitedEntries(), h.Limits(), want)
	}
}
