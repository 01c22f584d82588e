package xapi

import (
	"maps"
	"net/netip"
	"sync"
	"time"
)

// How many wrong passwords from one address are borne: so many at once, then one an interval.
const (
	maxWrong      = 60
	wrongInterval = 2 * time.Second
	maxGuessers   = 10_000 // addresses remembered: who guesses cannot fill the memory
)

// guesses slows down whoever guesses passwords, by address. Nobody is held up for what others guess elsewhere, nor who is
// on this machine, where all clients behind a proxy seem to be.
type guesses struct {
	now func() time.Time

	mu   sync.Mutex
	paid map[netip.Prefix]time.Time // when an address's wrong passwords are paid off, at one an interval
}

func newGuesses(now func() time.Time) *guesses {
	return &guesses{now: now, paid: map[netip.Prefix]time.Time{}}
}

// wait is how long an address has to wait before its next try; 0: it need not.
func (g *guesses) wait(from netip.Addr) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	paid, now := g.paid[guesser(from)], g.now()
	if !paid.After(now) {
		return 0
	}
	return max(0, paid.Sub(now)-(maxWrong-1)*wrongInterval)
}

// wrong charges an address for a wrong password.
func (g *guesses) wrong(from netip.Addr) {
	if !from.IsValid() || from.Unmap().IsLoopback() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now, who := g.now(), guesser(from)
	if _, known := g.paid[who]; !known && len(g.paid) >= maxGuessers {
		maps.DeleteFunc(g.paid, func(_ netip.Prefix, at time.Time) bool { return !at.After(now) })
		if len(g.paid) >= maxGuessers {
			return
		}
	}
	paid := g.paid[who]
	if paid.Before(now) {
		paid = now
	}
	g.paid[who] = paid.Add(wrongInterval)
}

// guesser is who an address stands for: of IPv6 a network, since one machine has as many addresses there as it likes.
func guesser(from netip.Addr) netip.Prefix {
	from = from.Unmap()
	bits := from.BitLen()
	if from.Is6() {
		bits = 64
	}
	p, _ := from.Prefix(bits) // never fails: the length is the family's
	return p
}
