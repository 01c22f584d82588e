package xapi

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestGuesses: who guesses waits longer and longer, and others do not.
func TestGuesses(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	g := newGuesses(func() time.Time { return now })
	guesser, neighbour, other, local := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::ffff:127.0.0.1")
	for range maxWrong - 1 {
		g.wrong(guesser)
		g.wrong(local)
	}
	if got := g.wait(guesser); got != 0 {
		t.Errorf("waits %v too early", got)
	}
	g.wrong(guesser)
	g.wrong(guesser)
	for addr, want := range map[netip.Addr]time.Duration{guesser: 2 * wrongInterval, neighbour: 2 * wrongInterval, other: 0, local: 0, {}: 0} {
		if got := g.wait(addr); got != want {
			t.Errorf("%v waits %v, want %v", addr, got, want)
		}
	}
	now = now.Add(2 * wrongInterval)
	if got := g.wait(guesser); got != 0 {
		t.Errorf("waits %v in the end", got)
	}
	for i := range maxGuessers + 100 {
		g.wrong(netip.MustParseAddr(fmt.Sprintf("10.0.%d.%d", i/256, i%256)))
	}
	if len(g.paid) > maxGuessers {
		t.Errorf("%d remembered", len(g.paid))
	}
	now = now.Add(time.Hour)
	g.wrong(other)
	if got := g.wait(other); got != 0 || len(g.paid) != 1 {
		t.Errorf("%d remembered after an hour", len(g.paid))
	}
}

// TestGuesserLogsIn: with the right password too one has to wait, and is told for how long.
func TestGuesserLogsIn(t *testing.T) {
	t.Parallel()
	s, _ := served(t)
	from := netip.MustParseAddr("192.0.2.1")
	for range maxWrong {
		s.guesses.wrong(from)
	}
	a := s.dispatch(t.Context(), from, "session.login_with_password", []any{RootAccount, "whatever"})
	if a.failure == nil || a.failure.Code != "SESSION_AUTHENTICATION_FAILED" || !strings.Contains(a.failure.Params[1], "try again in 2s") {
		t.Errorf("%v", a.failure)
	}
}
