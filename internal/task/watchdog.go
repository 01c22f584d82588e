package task

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Watchdog finds loops that hang, in a deadlock or a call that never returns. A nil Watchdog
// watches nothing.
type Watchdog struct {
	mu     sync.Mutex
	loops  []*Loop
	queues []*queue
}

// queue is the way by which a Watchdog asks a loop for a sign of life.
type queue struct {
	name  string
	asked Notice
}

// Ask watches a loop that selects among many channels, until done is called. The loop is to take
// the notice asked along with its other work; it hangs if it has not between two calls of Hung.
func (w *Watchdog) Ask(name string) (asked Notice, done func()) {
	q := &queue{name, NewNotice()}
	if w == nil {
		return q.asked, func() {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queues = append(w.queues, q)
	return q.asked, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.queues = slices.DeleteFunc(w.queues, func(other *queue) bool { return other == q })
	}
}

// Loop is a loop that a Watchdog watches. It says when it begins and ends a piece of work; to wait
// for more is none.
type Loop struct {
	name  string
	turns atomic.Uint64 // pieces of work begun and ended: odd during one
	seen  uint64        // turns when Hung looked last; the Watchdog's
}

// Loop returns a loop to watch from now on.
func (w *Watchdog) Loop(name string) *Loop {
	l := &Loop{name: name}
	if w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.loops = append(w.loops, l)
	}
	return l
}

// Begin notes that the loop begins a piece of work.
func (l *Loop) Begin() { l.turns.Add(1) }

// End notes that the loop has ended it.
func (l *Loop) End() { l.turns.Add(1) }

// Hung names the loops that have been at one piece of work since the last call of Hung, or have not
// given the sign of life that it asked for.
func (w *Watchdog) Hung() (names []string) {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.loops {
		turns := l.turns.Load()
		if turns%2 == 1 && turns == l.seen {
			names = append(names, l.name)
		}
		l.seen = turns
	}
	for _, q := range w.queues {
		if len(q.asked) > 0 {
			names = append(names, q.name)
		}
		q.asked.Give()
	}
	return names
}
