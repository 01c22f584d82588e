package task

import (
	"context"
	"testing"
	"time"
)

func TestPause(t *testing.T) {
	t.Parallel()
	if !Pause(t.Context(), time.Millisecond) {
		t.Error("a pause to its end says that the context ended")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if Pause(ctx, time.Hour) {
		t.Error("a pause that was cut short says that the context is good")
	}
}

func TestAlarm(t *testing.T) {
	t.Parallel()
	a := NewAlarm()
	a.Set(time.Now().Add(time.Hour))
	a.Set(time.Now())
	<-a.C
	a.Set(time.Now())
	a.Set(time.Time{})
	select {
	case <-a.C:
		t.Error("an alarm that is not set goes off")
	case <-time.After(time.Millisecond):
	}
}

func TestNotice(t *testing.T) {
	t.Parallel()
	n := NewNotice()
	n.Give()
	n.Give()
	<-n
	select {
	case <-n:
		t.Error("given twice, seen twice")
	default:
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := Backoff{Least: time.Second, Most: 5 * time.Second}
	for _, want := range []time.Duration{1, 2, 4, 5, 5} {
		if got := b.Next(); got != want*time.Second {
			t.Errorf("pause of %v, want %v", got, want*time.Second)
		}
	}
	b.Reset()
	if got := b.Next(); got != time.Second {
		t.Errorf("after a reset %v", got)
	}
	b.Spread = true // the next is around 2 s
	if got := b.Next(); got < time.Second || got >= 3*time.Second {
		t.Errorf("spread to %v", got)
	}
	var zero Backoff
	for _, want := range []time.Duration{100, 200, 400} {
		if got := zero.Next(); got != want*time.Millisecond {
			t.Errorf("without limits a pause of %v, want %v", got, want*time.Millisecond)
		}
	}
}
