package overlay

import (
	"net/netip"
	"testing"
	"time"

	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// advert is an advertisement of one prefix.
func advert(prefix string) simulate.Advertisement {
	return simulate.Advertisement{Router: packet.MAC{2, 1}, RouterAdvert: packet.RouterAdvert{Lifetime: 1800, MTU: 1450,
		Prefixes: []packet.AdvertPrefix{{Prefix: netip.MustParsePrefix(prefix), Autonomous: true, Valid: 86400, Preferred: 14400}}}}
}

// TestAdvertSchedule: a change is advertised at once and some more times soon, but not in a hurry;
// then the network is advertised in long intervals, at random within bounds.
func TestAdvertSchedule(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var s advertSchedule
	draw := 0.0
	random := func() float64 { return draw }
	take := func(want int) {
		t.Helper()
		now = s.next
		if frames := s.take(now, random); len(frames) != want {
			t.Fatalf("%d frames, want %d", len(frames), want)
		}
	}
	expect := func(when string, want time.Duration) {
		t.Helper()
		if got := s.next.Sub(now); got != want {
			t.Errorf("%s: next in %v, want %v", when, got, want)
		}
	}
	a, b := advert("2001:db8:1::/64"), advert("2001:db8:2::/64")
	s.change(a, true, now)
	expect("new", 0)
	take(1)
	expect("after the first", advertisePause)
	draw = 1
	take(1)
	expect("after the second", earlyEvery)
	take(1)
	expect("after the third", advertiseMax)
	draw = 0
	take(1)
	expect("after the fourth", advertiseMin)

	now = now.Add(time.Minute)
	was := s.next
	s.change(a, true, now)
	if s.next != was {
		t.Errorf("what has not changed is advertised at %v instead of %v", s.next, was)
	}
	s.change(b, true, now)
	expect("changed", 0)
	take(2) // the old prefix ends
	now = now.Add(time.Second)
	s.change(a, true, now)
	expect("changed soon again", advertisePause-time.Second)
	take(2)

	now = now.Add(time.Minute)
	s.change(simulate.Advertisement{}, false, now)
	expect("gone", 0)
	take(1)
	if !s.next.IsZero() {
		t.Errorf("nothing is advertised at %v", s.next)
	}
}
