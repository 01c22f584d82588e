package control

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// marks are names of what may have to be changed, each with what was seen of it last. Who follows the store adds them
// without waiting, and a task takes them.
type marks[V any] struct {
	wake chan struct{} // holds a token after some were added

	mu   sync.Mutex
	seen map[string]V
}

// Pauses between attempts after one that failed.
const leastPause, mostPause = 100 * time.Millisecond, 30 * time.Second

func newMarks[V any]() *marks[V] {
	return &marks[V]{wake: make(chan struct{}, 1), seen: map[string]V{}}
}

func (m *marks[V]) add(name string, seen V) { m.addAll(map[string]V{name: seen}) }

func (m *marks[V]) addAll(seen map[string]V) {
	m.mu.Lock()
	maps.Copy(m.seen, seen)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default: // awake already
	}
}

// keep puts back what was taken, for the next pass, unless it was seen again meanwhile.
func (m *marks[V]) keep(name string, seen V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, again := m.seen[name]; !again {
		m.seen[name] = seen
	}
}

// take empties the marks and returns what they were.
func (m *marks[V]) take() map[string]V {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.seen
	m.seen = map[string]V{}
	return all
}

// follow runs pass after marks were added, until ctx ends. After an error, which it logs as what, it runs it again after a
// pause that grows.
func (m *marks[V]) follow(ctx context.Context, log *slog.Logger, what string, pass func(context.Context) error) {
	pause := leastPause
	var again <-chan time.Time // after a failure
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-again:
		}
		err := pass(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			log.Warn(what, "err", err, "retry", pause)
			again = time.After(pause)
			pause = min(2*pause, mostPause)
		default:
			again, pause = nil, leastPause
		}
	}
}
