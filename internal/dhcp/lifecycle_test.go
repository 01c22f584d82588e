package dhcp

import (
	"slices"
	"testing"
	"time"
)

// lifetime drives a lifecycle, with a clock of its own.
type lifetime struct {
	*testing.T
	lifecycle
	now time.Time
}

func newLifetime(t *testing.T, overlap bool) *lifetime {
	l := &lifetime{t, newLifecycle(overlap, 10*time.Second), time.Unix(1_000_000, 0)}
	l.wanted = true
	return l
}

// want compares actions by their verbs.
func (l *lifetime) want(todo []action, verbs ...verb) {
	l.Helper()
	var got []verb
	for _, a := range todo {
		got = append(got, a.verb)
	}
	if !slices.Equal(got, verbs) {
		l.Fatalf("actions %v, want %v: %+v", got, verbs, todo)
	}
}

// pass lets time go by until something is due, and checks how long that took.
func (l *lifetime) pass(d time.Duration, verbs ...verb) []action {
	l.Helper()
	if got := l.due().Sub(l.now); got != d {
		l.Fatalf("due in %v, want %v", got, d)
	}
	l.now = l.due()
	todo := l.tick(l.now)
	l.want(todo, verbs...)
	return todo
}

// serve has an instance started and, with overlap, listen.
func (l *lifetime) serve(p *process) {
	l.Helper()
	l.started(p, l.now)
	l.want(l.listens(p.pid, l.now), beginServe)
	if l.serving != p || l.next != nil || l.stale || l.problem != "" {
		l.Fatalf("%+v", l.lifecycle)
	}
}

// TestLifecycleTakesOver has an instance take over from another, which goes on until then.
func TestLifecycleTakesOver(t *testing.T) {
	t.Parallel()
	l := newLifetime(t, true)
	first, second := &process{pid: 1}, &process{pid: 2}
	if !l.due().IsZero() {
		t.Fatal("something is due at the beginning")
	}
	l.restart(l.now.Add(time.Second))
	l.restart(l.now)
	l.restart(l.now.Add(time.Minute)) // the soonest counts
	l.pass(0, startOne)
	l.serve(first)
	l.restart(l.now)
	l.pass(0, startOne)
	l.started(second, l.now)
	l.restart(l.now) // another change, while it starts
	l.want(l.listens(3, l.now))
	todo := l.listens(2, l.now)
	l.want(todo, beginServe)
	if todo[0].instance != first || l.serving != second {
		t.Fatalf("%+v", todo)
	}
	l.want(l.ended(first, "killed", l.now))
	l.pass(0, startOne)
}

// TestLifecycleNeverListens ends an instance that does not listen in time; the one before serves
// on.
func TestLifecycleNeverListens(t *testing.T) {
	t.Parallel()
	l := newLifetime(t, true)
	first, second := &process{pid: 1}, &process{pid: 2}
	l.restart(l.now)
	l.pass(0, startOne)
	l.serve(first)
	l.probeAt = time.Time{}
	l.restart(l.now)
	l.pass(0, startOne)
	l.started(second, l.now)
	if todo := l.pass(startTimeout, endIt); todo[0].instance != second {
		t.Fatalf("ends %+v", todo[0].instance)
	}
	l.want(l.ended(second, "signal: killed", l.now), logFailure)
	if l.serving != first || l.problem != "signal: killed" {
		t.Fatalf("%+v", l.lifecycle)
	}
	l.pass(0, startOne)
}

// TestLifecycleHangs ends an instance that leaves a probe unanswered until the next.
func TestLifecycleHangs(t *testing.T) {
	t.Parallel()
	for _, overlap := range []bool{true, false} {
		l := newLifetime(t, overlap)
		p := &process{pid: 1}
		l.restart(l.now)
		l.pass(0, startOne)
		l.serve(p)
		l.pass(10*time.Second, probeIt)
		l.answered(1)
		l.pass(10*time.Second, probeIt)
		l.answered(2) // that is another one
		l.pass(10*time.Second, endIt)
		l.want(l.ended(p, "signal: killed", l.now), logFailure)
		l.pass(0, startOne)
	}
}

// TestLifecycleFails starts again at once, then after growing pauses, which begin anew once an
// instance has served for a while.
func TestLifecycleFails(t *testing.T) {
	t.Parallel()
	for _, overlap := range []bool{true, false} {
		l := newLifetime(t, overlap)
		l.restart(l.now)
		l.pass(0, startOne)
		for _, pause := range []time.Duration{0, 10, 20, 40} {
			l.want(l.failed("no memory", l.now), logFailure)
			l.pass(pause*time.Millisecond, startOne)
		}
		p := &process{pid: 1}
		l.problem = "Address already in use"
		l.serve(p)
		l.now = l.now.Add(settled + 1)
		if todo := l.ended(p, "exit status 2", l.now); todo[0].pause != 0 || l.problem != "exit status 2" {
			t.Errorf("%+v, problem %q", todo, l.problem)
		}
	}
}

// TestLifecycleWithoutOverlap has an instance replace another whose end comes later.
func TestLifecycleWithoutOverlap(t *testing.T) {
	t.Parallel()
	l := newLifetime(t, false)
	first, second := &process{pid: 1}, &process{pid: 2}
	l.restart(l.now)
	l.pass(0, startOne)
	l.serve(first)
	l.restart(l.now)
	l.pass(0, startOne)
	l.serve(second)
	l.want(l.ended(first, "signal: killed", l.now))
	if l.serving != second {
		t.Errorf("%+v", l.lifecycle)
	}
	l.want(l.stop(), endIt)
	if !l.due().IsZero() || l.serving != nil {
		t.Errorf("after the stop: %+v", l.lifecycle)
	}
}

// TestLifecycleWaitsForPlan keeps a restart that an agent without a plan cannot do: because an
// adopted instance has died, or since an earlier agent was killed before it.
func TestLifecycleWaitsForPlan(t *testing.T) {
	t.Parallel()
	l := newLifetime(t, true)
	p := &process{pid: 1}
	l.wanted = false
	l.adopted(p, true, l.now)
	l.want(l.ended(p, "ended", l.now), logFailure)
	if !l.due().IsZero() {
		t.Errorf("due at %v without a plan", l.due())
	}
	l.wanted = true
	l.pass(0, startOne)
}
