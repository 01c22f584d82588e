package credentials

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// line queues requests at turns and records how they end.
type line struct {
	t       *testing.T
	turns   *turns
	waiting map[*waiting]string // requests by name
}

// busyLine returns turns whose only place is taken.
func busyLine(t *testing.T) *line {
	t.Helper()
	l := &line{t, newTurns(1), map[*waiting]string{}}
	if err := l.turns.enter(t.Context(), network(here)); err != nil {
		t.Fatal(err)
	}
	return l
}

// queue queues requests of an address and returns how many are accepted.
func (l *line) queue(from string, n int) (accepted int) {
	l.t.Helper()
	for i := range n {
		w, err := l.turns.join(network(netip.MustParseAddr(from)))
		if err == nil && w == nil {
			l.t.Fatalf("%s did not wait", from)
		}
		if err != nil {
			if !errors.Is(err, ErrBusy) {
				l.t.Fatal(err)
			}
			continue
		}
		l.waiting[w] = fmt.Sprint(from, " ", i)
		accepted++
	}
	return accepted
}

// ended returns the names of the requests that have ended since the last call, with their errors.
func (l *line) ended() (names []string) {
	for w, name := range l.waiting {
		select {
		case err := <-w.end:
			delete(l.waiting, w)
			if err != nil {
				name += ": " + err.Error()
			}
			names = append(names, name)
		default:
		}
	}
	return names
}

// TestTurns: however many requests of one client wait, the next of another has its turn after one
// of these; the addresses of an IPv6 /64 are one client.
func TestTurns(t *testing.T) {
	t.Parallel()
	for _, flood := range [][]string{{"192.0.2.66"}, {"2001:db8::1", "2001:db8::2"}} {
		l := busyLine(t)
		for _, from := range flood {
			l.queue(from, maxWaiting)
		}
		if n := l.queue("198.51.100.1", 2); n != 2 || l.turns.queued != maxWaiting {
			t.Errorf("%d of 2 requests of another client wait, %d in all", n, l.turns.queued)
		}
		if got := l.ended(); len(got) != 2 || !strings.HasSuffix(got[0], ErrBusy.Error()) {
			t.Errorf("%q gave way", got)
		}
		var order []string
		for len(l.waiting) > 0 {
			l.turns.leave()
			order = append(order, l.ended()...)
		}
		want := []string{flood[0] + " 0", "198.51.100.1 0", flood[0] + " 1", "198.51.100.1 1", flood[0] + " 2"}
		if fmt.Sprint(order[:5]) != fmt.Sprint(want) {
			t.Errorf("turns of %q, want %q", order[:5], want)
		}
		l.turns.leave()
		if l.turns.free != 1 || l.turns.queued != 0 || len(l.turns.waiting)+len(l.turns.order) != 0 {
			t.Errorf("left: %+v", l.turns)
		}
	}
}

// TestFullQueue: the clients that fill the queue end up with equal shares of it.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	l := busyLine(t)
	for i, from := range []string{"192.0.2.66", "192.0.2.67", "198.51.100.1"} {
		share := maxWaiting / (i + 1)
		if n := l.queue(from, 2*maxWaiting); n < share-1 || n > share {
			t.Errorf("%d requests of %s were queued, want %d", n, from, share)
		}
	}
	if l.turns.queued != maxWaiting {
		t.Errorf("%d wait", l.turns.queued)
	}
	if n := l.queue("198.51.100.2", 1); n != 1 {
		t.Error("a full queue keeps a client out that has no request in it")
	}
}

// TestGivingUp: a request that is given up frees its place in the queue, and its turn if that came
// at the same moment.
func TestGivingUp(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	l := busyLine(t)
	if err := l.turns.enter(gone, network(here)); !errors.Is(err, context.Canceled) || l.turns.queued != 0 {
		t.Errorf("%v; %d wait", err, l.turns.queued)
	}
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	if err := l.turns.enter(late, network(here)); !errors.Is(err, ErrBusy) || l.turns.queued != 0 {
		t.Errorf("after the deadline: %v; %d wait", err, l.turns.queued)
	}
	l.turns.leave()
	for range 100 { // either case of the select
		busy := busyLine(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- busy.turns.enter(ctx, network(here)) }()
		for queued := false; !queued; {
			busy.turns.mu.Lock()
			queued = busy.turns.queued == 1
			busy.turns.mu.Unlock()
		}
		go cancel()
		busy.turns.leave()
		if err := <-ended; err == nil {
			busy.turns.leave()
		}
		if busy.turns.free != 1 {
			t.Fatalf("%d places are free", busy.turns.free)
		}
	}
}
