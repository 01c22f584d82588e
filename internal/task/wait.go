package task

import (
	"context"
	"math/rand/v2"
	"time"
)

// Pause waits for d, or until ctx ends. It reports whether ctx is still good.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
	return ctx.Err() == nil
}

// Notice wakes one goroutine, however often it was given since that looked last. The zero Notice is not usable: see
// [NewNotice].
type Notice chan struct{}

// NewNotice returns a notice that was not given.
func NewNotice() Notice { return make(Notice, 1) }

// Give leaves the notice, unless there is one. It does not wait.
func (n Notice) Give() {
	select {
	case n <- struct{}{}:
	default:
	}
}

// Backoff is a pause that doubles with each attempt, from Least to Most. Spread makes each pause between half of that and
// one and a half, so that not all hosts try again at the same moment.
type Backoff struct {
	Least, Most time.Duration
	Spread      bool
	next        time.Duration // 0: Least
}

// Next returns the pause before the next attempt.
func (b *Backoff) Next() time.Duration {
	d := max(b.next, b.Least)
	b.next = min(2*d, b.Most)
	if b.Spread {
		return d/2 + rand.N(d)
	}
	return d
}

// Pause waits for the next pause, or until ctx ends. It reports whether ctx is still good.
func (b *Backoff) Pause(ctx context.Context) bool { return Pause(ctx, b.Next()) }

// Reset has the pauses begin with Least again, after a success.
func (b *Backoff) Reset() { b.next = 0 }
