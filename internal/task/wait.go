package task

import (
	"cmp"
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

// Alarm is a timer for one moment at a time. The zero Alarm is not usable: see [NewAlarm].
type Alarm struct {
	C     <-chan time.Time
	timer *time.Timer
}

// NewAlarm returns an alarm that is not set.
func NewAlarm() *Alarm {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &Alarm{t.C, t}
}

// Set makes the alarm go off at a moment in place of the one it was set to; the zero Time: never.
func (a *Alarm) Set(at time.Time) {
	if at.IsZero() {
		a.timer.Stop()
		return
	}
	a.timer.Reset(time.Until(at))
}

// Notice wakes one goroutine, however often it was given since that goroutine last looked. The zero
// Notice is not usable: see [NewNotice].
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

// Backoff is a pause that doubles with each attempt, from Least to Most. Spread makes each pause
// between half of that and one and a half, so that hosts do not all try again at the same moment.
// Without Least and Most it is from a tenth of a second to half a minute.
type Backoff struct {
	Least, Most time.Duration
	Spread      bool
	next        time.Duration // 0: Least
}

// Next returns the pause before the next attempt.
func (b *Backoff) Next() time.Duration {
	d := max(b.next, cmp.Or(b.Least, time.Second/10))
	b.next = min(2*d, cmp.Or(b.Most, time.Minute/2))
	if b.Spread {
		return d/2 + rand.N(d)
	}
	return d
}

// Pause waits for the next pause, or until ctx ends. It reports whether ctx is still good.
func (b *Backoff) Pause(ctx context.Context) bool { return Pause(ctx, b.Next()) }

// Reset has the pauses begin with Least again, after a success.
func (b *Backoff) Reset() { b.next = 0 }
