package services

import (
	"context"
	"sync"
	"time"
)

const (
	lookEvery = 200 * time.Millisecond
	// longestPause is the time without a sign of this process after which it counts as having been
	// stopped.
	longestPause = time.Second
)

// sight holds since when this process has decided packets without a break. It decides the first
// packet of each check, so that checks that fail while it does not run say nothing about members:
// they would take down all at once, which clients at other hosts still reach (services §5.5).
type sight struct {
	deciding <-chan struct{} // closed once this process decides packets

	mu    sync.Mutex
	begun time.Time // of the time without a break
	last  time.Time // when this process was last seen to run
}

// run looks at the clock until ctx ends.
func (s *sight) run(ctx context.Context) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			s.since()
		}
	}
}

// since returns since when this process has decided packets without a break, false if it does not
// yet.
func (s *sight) since() (begun time.Time, ok bool) {
	select {
	case <-s.deciding:
	default:
		return time.Time{}, false
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.last) > longestPause {
		s.begun = now
	}
	s.last = now
	return s.begun, true
}
