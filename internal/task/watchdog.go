package task

import (
	"sync"
	"sync/atomic"
)

// Watchdog finds loops that hang, in a deadlock or a call that never returns. A nil Watchdog
// watches nothing.
type Watchdog struct {
	mu    sync.Mutex
	loops []*Loop
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

// Hung names the loops that have been at one piece of work since the last call of Hung.
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
	return names
}
