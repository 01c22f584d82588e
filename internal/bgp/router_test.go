package bgp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"heddle/internal/topology/routerbgp"
)

func sortedLines(lines []string) string {
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// routerPeerOf returns BIRD's side of a session with a router.
func routerPeerOf(r *testRouter, as int, more string) string {
	return fmt.Sprintf("protocol bgp heddle { local $ME as %d; neighbor %s as 64512; %s graceful restart; %s ipv4 { import all; export where source ~ [RTS_STATIC]; }; }\n", as, r.ip, quick, more)
}

// static returns static routes for BIRD to announce.
func static(destinations ...string) string {
	return "protocol static { ipv4; route " + strings.Join(destinations, " blackhole; route ") + " blackhole; }\n"
}

// TestRouterSession: over eBGP the router's networks and no others reach a neighbour, with the
// router as next hop, and the neighbour's come back but for those that the router refuses. A change
// of the plan touches nothing else.
func TestRouterSession(t *testing.T) {
	l := newWire(t)
	r := l.router("r")
	b := l.bird("b", "")
	b.configure(routerPeerOf(r, 65001, "") + static("0.0.0.0/0", "198.51.100.0/24", "10.0.0.0/24", "10.0.0.64/26", "10.0.0.0/16", "169.254.7.0/24"))
	r.neighbour(b.ip, 65001)
	r.apply()
	r.awaitState(b.ip, routerbgp.StateEstablished)
	l.await("the tenant's prefix", b.routes, []string{"10.0.0.0/24 "}, nil)
	if line := b.since("10.0.0.0/24"); !strings.Contains(line, "via "+r.ip.String()) || !strings.Contains(line, "AS64512") {
		t.Errorf("BIRD has %q; want a route by %s", line, r.ip)
	}
	via := fmt.Sprintf("[%s]", b.ip)
	r.awaitLearned([]string{"0.0.0.0/0" + via, "198.51.100.0/24" + via, "10.0.0.0/16" + via}, []string{"10.0.0.0/24", "10.0.0.64/26", "169."})
	l.until("the counts of the session", func() bool {
		p := r.peer(b.ip)
		return p.Received == 6 && p.Refused == (routerbgp.Refused{Tenant: 2, Invalid: 1}) && p.Advertised == 1
	})

	// A network more, and one less: BIRD's session and its other route stay.
	since := b.since("10.0.0.0/24")
	r.plan.Networks = append(r.plan.Networks, netip.MustParsePrefix("10.9.0.0/16"))
	r.apply()
	l.await("another prefix", b.routes, []string{"10.9.0.0/16 "}, nil)
	b.wantStayed("10.0.0.0/24", since)
	r.plan.Networks = r.plan.Networks[:1]
	r.apply()
	l.await("its withdrawal", b.routes, []string{"10.0.0.0/24 "}, []string{"10.9.0.0/16"})
	b.wantStayed("10.0.0.0/24", since)

	// A subnet of the router's own excludes what was learned inside it, without a new session.
	up := r.peer(b.ip).Since
	r.plan.Links = append(r.plan.Links, routerbgp.Link{Subnet: netip.MustParsePrefix("198.51.100.0/24"), Tenant: true})
	r.apply()
	r.awaitLearned([]string{"0.0.0.0/0" + via}, []string{"198.51.100.0/24"})
	r.plan.Links = r.plan.Links[:2]
	r.apply()
	r.awaitLearned([]string{"198.51.100.0/24" + via}, nil)
	if now := r.peer(b.ip).Since; !now.Equal(up) {
		t.Errorf("the session is up since %s; want %s", now, up)
	}

	// What BIRD withdraws goes.
	b.configure(routerPeerOf(r, 65001, "") + static("0.0.0.0/0"))
	r.awaitLearned([]string{"0.0.0.0/0" + via}, []string{"198.51.100.0/24", "10.0.0.0/16"})

	// The speaker's end withdraws at once.
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	l.await("the withdrawal of all", b.routes, nil, []string{"10.0.0.0/24"})
}

// TestRouterPeers: iBGP, TTL security, and MD5 passwords that are right, wrong, missing and not
// expected. The state of a session says what is wrong with its password, and a new password
// restarts that session alone.
func TestRouterPeers(t *testing.T) {
	l := newWire(t)
	r := l.router("r")
	inner, secure, signed := l.bird("inner", ""), l.bird("secure", ""), l.bird("signed", "")
	inner.configure(routerPeerOf(r, 64512, "") + static("198.51.100.0/25"))
	secure.configure(routerPeerOf(r, 65002, "ttl security;") + static("198.51.100.128/25"))
	signed.configure(routerPeerOf(r, 65003, `password "right";`) + static("203.0.113.0/24"))
	r.neighbour(inner.ip, 64512)
	r.neighbour(secure.ip, 65002)
	r.neighbour(signed.ip, 65003).Password = "right"
	r.apply()
	for _, b := range []*bird{inner, secure, signed} {
		r.awaitState(b.ip, routerbgp.StateEstablished)
		l.await("the tenant's prefix", b.routes, []string{"10.0.0.0/24 "}, nil)
		if line := b.since("10.0.0.0/24"); !strings.Contains(line, "via "+r.ip.String()) {
			t.Errorf("%s has %q; want a route by %s", b.name, line, r.ip)
		}
	}
	r.awaitLearned([]string{"198.51.100.0/25[" + inner.ip.String(), "198.51.100.128/25[" + secure.ip.String(), "203.0.113.0/24[" + signed.ip.String()}, nil)
	if routes := secure.routes(); strings.Contains(routes, "198.51.100.0/25") {
		t.Errorf("the router passes on what it has learned:\n%s", routes)
	}

	up := [2]time.Time{r.peer(inner.ip).Since, r.peer(secure.ip).Since}
	r.plan.Neighbours[2].Password = "wrong"
	r.apply()
	r.awaitError(signed.ip, "another MD5 password")
	r.plan.Neighbours[2].Password = ""
	r.apply()
	r.awaitError(signed.ip, "set its MD5 password here too")
	r.plan.Neighbours[2].Password = "right"
	r.apply()
	r.awaitState(signed.ip, routerbgp.StateEstablished)
	if p := r.peer(signed.ip); p.LastError != "" {
		t.Errorf("the session is up, with the error %q", p.LastError)
	}
	signed.configure(routerPeerOf(r, 65003, "") + static("203.0.113.0/24"))
	r.awaitError(signed.ip, "does not sign")
	if now := [2]time.Time{r.peer(inner.ip).Since, r.peer(secure.ip).Since}; now != up {
		t.Errorf("the other sessions are up since %v; want %v", now, up)
	}

	// A neighbour in another AS than is said, and one that is not there.
	r.plan.Neighbours[1].ASNumber = 65099
	gone := netip.MustParseAddr("192.0.2.99")
	r.neighbour(gone, 65004)
	r.apply()
	r.awaitError(secure.ip, "AS")
	r.awaitError(gone, "cannot connect")
}

// TestRouterIdentifiers: a neighbour in another AS may have the router's BGP identifier (RFC 6286).
// One in the same AS may not, and the state of its session says so, whichever end finds it out.
func TestRouterIdentifiers(t *testing.T) {
	l := newWire(t)
	r := l.router("r")
	same := "router id " + r.ip.String() + ";"
	inner, outer := l.bird("inner", ""), l.bird("outer", "")
	inner.configure(routerPeerOf(r, 64512, same))
	outer.configure(routerPeerOf(r, 65001, same))
	r.neighbour(inner.ip, 64512)
	r.neighbour(outer.ip, 65001)
	r.apply()
	r.awaitState(outer.ip, routerbgp.StateEstablished)
	r.awaitError(inner.ip, "the same BGP identifier")
	inner.configure(routerPeerOf(r, 64512, ""))
	r.awaitState(inner.ip, routerbgp.StateEstablished)
}

// TestRouterSessionRemoved: a neighbour whose session is removed withdraws at once what it has
// learned, whether its segments are signed or not and whichever end has opened the connection. The
// other sessions go on, even if the BGP identifier is the address of the removed one. Neither is an
// error, nor is the end of the speaker.
func TestRouterSessionRemoved(t *testing.T) {
	l := newWire(t)
	r := l.router("r")
	second := netip.MustParseAddr("192.0.2.200")
	r.ns.MustIP(t, "addr add "+second.String()+"/24 dev eth0")
	const long = "hold time 240;"
	kept, plain, opening, opened := l.bird("kept", ""), l.bird("plain", ""), l.bird("opening", ""), l.bird("opened", "")
	kept.configure(strings.ReplaceAll(routerPeerOf(r, 65001, long), r.ip.String(), second.String()))
	plain.configure(routerPeerOf(r, 65002, long))
	opening.configure(routerPeerOf(r, 65003, long+`password "one";`))
	opened.configure(routerPeerOf(r, 65004, long+`password "two"; passive;`))
	r.neighbour(kept.ip, 65001).Local = second
	r.neighbour(plain.ip, 65002)
	r.neighbour(opening.ip, 65003).Password = "one"
	r.plan.Neighbours[2].ConnectRetry = 3600
	r.neighbour(opened.ip, 65004).Password = "two"
	for i := range r.plan.Neighbours {
		r.plan.Neighbours[i].HoldTime, r.plan.Neighbours[i].KeepAlive = 240, 80
	}
	r.apply()
	for _, b := range []*bird{kept, plain, opening, opened} {
		r.awaitState(b.ip, routerbgp.StateEstablished)
		l.await("the tenant's prefix", b.routes, []string{"10.0.0.0/24 "}, nil)
	}
	since := kept.since("10.0.0.0/24")
	r.plan.Neighbours = r.plan.Neighbours[:1]
	r.apply()
	for _, b := range []*bird{plain, opening, opened} {
		l.await("the withdrawal of all by "+b.name, b.routes, nil, []string{"10.0.0.0/24"})
	}
	kept.wantStayed("10.0.0.0/24", since)

	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("the speaker has ended with %v", err)
	}
	r.cmd = nil
	if strings.Contains(r.log.String(), "level=ERROR") {
		t.Error("the speaker has logged an error; want none")
	}
}

// TestRouterECMP: equally good routes of two neighbours are used both.
func TestRouterECMP(t *testing.T) {
	l := newWire(t)
	r := l.router("r")
	one, two := l.bird("one", ""), l.bird("two", "")
	one.configure(routerPeerOf(r, 65001, "") + static("0.0.0.0/0", "198.51.100.0/24"))
	two.configure(routerPeerOf(r, 65002, "") + static("0.0.0.0/0"))
	r.neighbour(one.ip, 65001)
	r.neighbour(two.ip, 65002)
	r.apply()
	both := fmt.Sprintf("0.0.0.0/0[%s %s]", one.ip, two.ip)
	r.awaitLearned([]string{both, "198.51.100.0/24[" + one.ip.String() + "]"}, nil)
	r.plan.Neighbours = r.plan.Neighbours[:1]
	r.apply()
	r.awaitLearned([]string{fmt.Sprintf("0.0.0.0/0[%s]", one.ip)}, nil)
}

// TestRouterRestarts: routes of a neighbour that ends without a word stay in use for its restart
// time. A speaker that is killed leaves its own at the neighbour, and the next one continues; one
// without an agent goes on, tells the next all there is, and ends after the time in its plan.
func TestRouterRestarts(t *testing.T) {
	l := newWire(t)
	r := l.router("r")
	b := l.bird("b", "")
	b.configure(routerPeerOf(r, 65001, "graceful restart time 4;") + static("198.51.100.0/24"))
	r.neighbour(b.ip, 65001)
	r.apply()
	via := []string{"198.51.100.0/24[" + b.ip.String()}
	r.awaitLearned(via, nil)
	l.await("the tenant's prefix", b.routes, []string{"10.0.0.0/24 "}, nil)
	since := b.since("10.0.0.0/24")

	t.Log("another agent")
	r.conn.Close()
	r.connect()
	r.awaitLearned(via, nil)
	r.awaitState(b.ip, routerbgp.StateEstablished)
	r.apply()
	b.wantStayed("10.0.0.0/24", since)

	t.Log("another speaker")
	r.kill()
	l.until("BIRD to notice", func() bool { return !strings.Contains(b.ask("show protocols heddle"), "Established") })
	if line := b.since("10.0.0.0/24"); line == "" {
		t.Error("BIRD has dropped the route of a speaker that was killed")
	}
	r.start()
	r.connect()
	r.plan.Restarting = true
	r.apply()
	r.awaitState(b.ip, routerbgp.StateEstablished)
	l.until("the speaker to be settled", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.last.Settled })
	r.awaitLearned(via, nil)
	if line := b.since("10.0.0.0/24"); line == "" {
		t.Error("BIRD has dropped the route of a speaker that was started again")
	}

	t.Log("the neighbour is killed")
	b.kill()
	l.until("the session to be down", func() bool { return r.peer(b.ip).State != routerbgp.StateEstablished })
	r.awaitLearned(via, nil)
	r.awaitLearned(nil, via)

	t.Log("no agent")
	r.plan.LingerSeconds = 1
	r.apply()
	l.until("the plan to be taken", func() bool { return strings.Contains(r.log.String(), "session added") })
	r.conn.Close()
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("the speaker without an agent has ended with %v", err)
	}
	r.cmd = nil
}

// TestRouterAgentSilent: a speaker ends when the agent that is connected says nothing, as when it
// is stopped, and not while it shows that it works.
func TestRouterAgentSilent(t *testing.T) {
	r := newWire(t).router("r")
	r.plan.LingerSeconds = 8
	r.apply()
	heard := func() int { r.mu.Lock(); defer r.mu.Unlock(); return r.empty }
	before := heard()
	r.lab.until("reports to an agent that works", func() bool { return heard() > before+3 })
	r.mute.Store(true)
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("the speaker of a silent agent has ended with %v", err)
	}
	r.cmd = nil
	if log := r.log.String(); !strings.Contains(log, "the agent is silent") {
		t.Errorf("the log of the speaker does not say why it has ended:\n%s", log)
	}
}

// TestRouterReportsWithoutChanges: a speaker reports also when nothing changes, unless its loop is
// blocked.
func TestRouterReportsWithoutChanges(t *testing.T) {
	r := newWire(t).router("r")
	r.lab.until("reports without changes", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.empty > 1 })

	w := newLoopWatch()
	if w.begin(); w.blocked() {
		t.Error("a loop that begins a round counts as blocked")
	}
	if w.round.Add(-int64(maxRound)); !w.blocked() {
		t.Errorf("a loop that has begun its round %s ago does not count as blocked", maxRound)
	}
}
