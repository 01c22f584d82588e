package control

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"heddle/internal/task"
)

// marks is a set of names that a task has to look at, each with the value last seen of it.
// Followers of the store add names without waiting; the task takes them.
type marks[V any] struct {
	wake task.Notice // given after names were added

	mu   sync.Mutex
	seen map[string]V
}

const leastPause, mostPause = 100 * time.Millisecond, 30 * time.Second

// newBackoff returns the pauses after failed attempts.
func newBackoff() task.Backoff { return task.Backoff{Least: leastPause, Most: mostPause} }

func newMarks[V any]() *marks[V] { return &marks[V]{wake: task.NewNotice(), seen: map[string]V{}} }

func (m *marks[V]) add(name string, seen V) { m.addAll(map[string]V{name: seen}) }

func (m *marks[V]) addAll(seen map[string]V) {
	m.mu.Lock()
	maps.Copy(m.seen, seen)
	m.mu.Unlock()
	m.wake.Give()
}

// keep puts a name back for the next pass, unless it was added again since it was taken.
func (m *marks[V]) keep(name string, seen V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, again := m.seen[name]; !again {
		m.seen[name] = seen
	}
}

// take returns all names and empties the set.
func (m *marks[V]) take() map[string]V {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.seen
	m.seen = map[string]V{}
	return all
}

// follow runs pass after names were added, until ctx ends. It logs an error with message, and runs
// pass again after a pause that grows with each failure.
func (m *marks[V]) follow(ctx context.Context, log *slog.Logger, message string, pass func(context.Context) error) {
	backoff := newBackoff()
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-retry:
		}
		err := pass(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			pause := backoff.Next()
			log.Warn(message, "err", err, "retry", pause)
			retry = time.After(pause)
		default:
			retry = nil
			backoff.Reset()
		}
	}
}
