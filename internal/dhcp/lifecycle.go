package dhcp

import (
	"time"

	"heddle/internal/task"
)

const (
	// startTimeout bounds the time from the start of an instance until it listens.
	startTimeout = 10 * time.Second
	// settled is the time of service after which the next failure counts as the first.
	settled = 30 * time.Second
	// The bounds of the pauses after further failures. They begin short, as an instance cannot
	// start when an interface is deleted at that moment.
	leastBackoff, mostBackoff = 10 * time.Millisecond, 10 * time.Second
)

// lifecycle decides when instances of one dnsmasq are started, probed and ended. It is pure: each
// method takes an event, and the time where it matters, and returns what to do. The [runner] does
// it, and calls tick when [lifecycle.due] has come.
//
//	serving   answers
//	next      has been started and takes over once it listens; until then serving goes on
//
// Without overlap there is no next: an instance serves from its start, after the end of the one
// before.
type lifecycle struct {
	overlap    bool
	probeEvery time.Duration

	wanted                      bool // an instance should run, and it is known how
	stale                       bool // the newest instance lacks changes until it is started again
	serving, next               *process
	restartAt, startBy, probeAt time.Time // zero: not set
	unanswered                  bool      // the last probe
	began                       time.Time // when an instance last began to serve
	failures                    int       // in a row
	backoff                     task.Backoff
	problem                     string // why nothing serves as it should; "": it does, or is about to
}

// verb names the kinds of an action.
type verb int

const (
	startOne   verb = iota + 1 // start an instance; its outcome is the event started or failed
	beginServe                 // the serving instance has begun to serve, in place of instance or nil
	probeIt                    // probe the serving instance
	endIt                      // end instance, for reason
	logFailure                 // log reason, and the pause before the next attempt
)

// action is one thing to do.
type action struct {
	verb     verb
	instance *process
	reason   string
	pause    time.Duration
}

func newLifecycle(overlap bool, probeEvery time.Duration) lifecycle {
	return lifecycle{overlap: overlap, probeEvery: probeEvery, backoff: task.Backoff{Least: leastBackoff, Most: mostBackoff}}
}

// due returns when tick has something to do, the zero Time for never.
func (l *lifecycle) due() (first time.Time) {
	if l.wanted {
		first = l.restartAt
	}
	for _, at := range []time.Time{l.startBy, l.probeAt} {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// tick does what is due.
func (l *lifecycle) tick(now time.Time) (todo []action) {
	due := func(at *time.Time) bool {
		if at.IsZero() || now.Before(*at) {
			return false
		}
		*at = time.Time{}
		return true
	}
	if l.wanted && due(&l.restartAt) {
		todo = append(todo, action{verb: startOne})
	}
	if due(&l.startBy) && l.next != nil {
		todo = append(todo, action{verb: endIt, instance: l.next, reason: "does not begin to listen"})
	}
	if due(&l.probeAt) && l.serving != nil {
		l.probeAt = now.Add(l.probeEvery)
		if l.unanswered && l.next == nil {
			return append(todo, action{verb: endIt, instance: l.serving, reason: "hangs"})
		}
		l.unanswered = true
		todo = append(todo, action{verb: probeIt})
	}
	return todo
}

// restart has a new instance started at a moment, or sooner where it was to be sooner.
func (l *lifecycle) restart(at time.Time) {
	l.stale = true
	if l.next == nil && (l.restartAt.IsZero() || at.Before(l.restartAt)) {
		l.restartAt = at
	}
}

// stop ends all instances.
func (l *lifecycle) stop() (todo []action) {
	for _, p := range []*process{l.serving, l.next} {
		if p != nil {
			todo = append(todo, action{verb: endIt, instance: p})
		}
	}
	*l = newLifecycle(l.overlap, l.probeEvery)
	return todo
}

// adopted takes an instance that an earlier agent has started. One of another state directory
// cannot be probed.
func (l *lifecycle) adopted(p *process, canProbe bool, now time.Time) {
	if l.serving = p; canProbe {
		l.serves(now)
	}
}

// started takes an instance that has been started.
func (l *lifecycle) started(p *process, now time.Time) {
	l.stale = false
	if l.overlap {
		l.next, l.startBy = p, now.Add(startTimeout)
		return
	}
	l.serving = p
	l.serves(now)
}

func (l *lifecycle) serves(now time.Time) {
	l.began, l.unanswered, l.probeAt = now, false, now.Add(l.probeEvery)
}

// listens handles the report of an instance that it listens.
func (l *lifecycle) listens(pid int, now time.Time) []action {
	switch {
	case l.next != nil && l.next.pid == pid:
		before := l.serving
		l.serving, l.next, l.startBy = l.next, nil, time.Time{}
		if before != nil { // which did not fail
			l.failures = 0
			l.backoff.Reset()
		}
		l.serves(now)
		if l.problem = ""; l.stale {
			l.restart(now)
		}
		return []action{{verb: beginServe, instance: before}}
	case !l.overlap && l.serving != nil && l.serving.pid == pid:
		l.problem = ""
		return []action{{verb: beginServe}}
	}
	return nil
}

// answered takes the answer of an instance to a probe.
func (l *lifecycle) answered(pid int) {
	if l.serving != nil && l.serving.pid == pid {
		l.unanswered = false
	}
}

// ended takes the end of an instance. One that was neither serving nor next had been replaced.
func (l *lifecycle) ended(p *process, why string, now time.Time) []action {
	switch p {
	case l.next:
		l.next, l.startBy = nil, time.Time{}
		return l.failed(why, now)
	case l.serving:
		l.serving, l.probeAt = nil, time.Time{}
		if l.next == nil { // else that one takes over in any case
			return l.failed(why, now)
		}
	}
	return nil
}

// failed tries again: the first time at once, then after ever longer pauses.
func (l *lifecycle) failed(why string, now time.Time) []action {
	if !l.began.IsZero() && now.Sub(l.began) > settled {
		l.failures = 0
		l.backoff.Reset()
	}
	pause := time.Duration(0)
	if l.failures++; l.failures > 1 {
		pause = l.backoff.Next()
	}
	if l.problem == "" { // else the last line of its log, which is more precise
		l.problem = why
	}
	l.restart(now.Add(pause))
	return []action{{verb: logFailure, reason: why, pause: pause}}
}
