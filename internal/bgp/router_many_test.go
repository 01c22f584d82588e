//go:build !race

package bgp

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"heddle/internal/topology/routerbgp"
)

// manyStatic returns BIRD's static routes to n destinations, /32 from 198.18.0.0 on.
func manyStatic(n int) string {
	var text strings.Builder
	text.WriteString("protocol static { ipv4;\n")
	a := netip.MustParseAddr("198.18.0.0")
	for range n {
		fmt.Fprintf(&text, "route %s/32 blackhole;\n", a)
		a = a.Next()
	}
	text.WriteString("}\n")
	return text.String()
}

// TestRouterManyRoutes: 10,000 destinations of a neighbour are used. Of 200,000 as many are, and
// the others counted; when some of those in use go, others follow. With more the session is ended.
// Under the race detector this would take minutes: scripts/test runs it without.
func TestRouterManyRoutes(t *testing.T) {
	l := newWire(t)
	r := l.router("r")
	b := l.bird("b", "")
	b.configure(routerPeerOf(r, 65001, "") + manyStatic(routerbgp.MaxPrefixes))
	r.neighbour(b.ip, 65001)
	r.apply()
	r.awaitState(b.ip, routerbgp.StateEstablished)
	begin := time.Now()
	l.until("all routes", func() bool { return r.count() == routerbgp.MaxPrefixes })
	t.Logf("%d routes %s after the session", r.count(), time.Since(begin).Round(time.Millisecond))
	if p := r.peer(b.ip); p.Refused.Sum() != 0 {
		t.Errorf("refused %+v of %d routes", p.Refused, p.Received)
	}

	const many = 200_000
	b.configure(routerPeerOf(r, 65001, "") + manyStatic(many))
	begin = time.Now()
	l.until("the count of all", func() bool {
		p := r.peer(b.ip)
		return p.Received == many && p.Refused == routerbgp.Refused{Limit: many - routerbgp.MaxPrefixes}
	})
	t.Logf("%d routes counted after %s, with %d KB of memory", many, time.Since(begin).Round(time.Millisecond), r.memory())
	if n := r.count(); n != routerbgp.MaxPrefixes {
		t.Errorf("%d routes are used; want %d", n, routerbgp.MaxPrefixes)
	}
	if p := r.peer(b.ip); p.State != routerbgp.StateEstablished {
		t.Errorf("the session is %s", p.State)
	}

	// The first half of those in use goes.
	b.configure(routerPeerOf(r, 65001, "") + strings.Replace(manyStatic(many), "protocol static { ipv4;\n", "protocol static { ipv4 { import where net !~ [198.18.0.0/20+]; };\n", 1))
	l.until("others to follow", func() bool {
		return r.peer(b.ip).Received == many-4096 && r.count() == routerbgp.MaxPrefixes && r.peer(b.ip).Refused.Limit == many-4096-routerbgp.MaxPrefixes
	})
	if learned := r.learned(); strings.Contains(learned, "198.18.0.7/32") {
		t.Error("a route that was withdrawn is in use")
	}

	b.configure(routerPeerOf(r, 65001, "") + manyStatic(maxReceived+1000))
	r.awaitError(b.ip, "more than 250000 destinations")
	l.until("the routes to go", func() bool { return r.count() == 0 })
}

// memory returns the memory of the speaker, KB.
func (r *testRouter) memory() (kb int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		r.lab.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if after, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			_, _ = fmt.Sscan(after, &kb)
		}
	}
	return kb
}
