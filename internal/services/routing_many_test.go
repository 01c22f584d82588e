package services

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"heddle/internal/topology/routerbgp"
)

// TestRoutingManyRoutes: 10,000 destinations of a peer are reported, and so is the withdrawal of
// one of them. It logs how long that takes.
func TestRoutingManyRoutes(t *testing.T) {
	l := newLab(t, 1)
	at, ns := l.machine(l.hosts[0])
	r := l.speakingRouter()
	session, _, _ := strings.Cut(fmt.Sprintf(birdSession, ""), "protocol static")
	routes := func(from netip.Addr, n int) string {
		text := strings.Builder{}
		text.WriteString(session + "protocol static { ipv4;\n")
		for range n {
			fmt.Fprintf(&text, "route %s/32 blackhole;\n", from)
			from = from.Next()
		}
		text.WriteString("}\n")
		return text.String()
	}
	first := netip.MustParseAddr("198.18.0.0")
	b := l.bird(ns, routes(first, 0))
	id := r.peer(at, 65001, "")
	r.waitUp(id)

	b.write(routes(first, routerbgp.MaxPrefixes))
	begun := time.Now()
	b.ask("configure")
	l.wait("all routes", func() bool { return len(r.learned()) == routerbgp.MaxPrefixes })
	t.Logf("%d routes after %s", routerbgp.MaxPrefixes, time.Since(begun).Round(time.Millisecond))

	b.write(routes(first.Next(), routerbgp.MaxPrefixes-1))
	begun = time.Now()
	b.ask("configure")
	l.wait("one to go", func() bool { return len(r.learned()) == routerbgp.MaxPrefixes-1 })
	t.Logf("one withdrawn after %s", time.Since(begun).Round(time.Millisecond))
	if _, there := r.learned()[netip.PrefixFrom(first, 32)]; there {
		t.Error("another route was withdrawn")
	}
}
