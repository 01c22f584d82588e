package records

import (
	"context"
	"maps"
	"slices"
	"sync"

	"heddle/internal/store/snapshot"
)

// queues make this process's transactions that touch the same key commit in turn, instead of
// failing at the store and retrying. That is only for speed: the guard key makes them exclusive.
type queues struct {
	mu    sync.Mutex
	byKey map[string]*queue
}

// queue belongs to one key, and exists while a transaction has its turn or waits for it.
type queue struct {
	key   string
	users int           // guarded by queues.mu
	turn  chan struct{} // holds a token while a transaction has the turn
	last  uint64        // of who has the turn: version of the newest commit that went through here
}

func (q *queues) join(key string) *queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.byKey == nil {
		q.byKey = map[string]*queue{}
	}
	if q.byKey[key] == nil {
		q.byKey[key] = &queue{key: key, turn: make(chan struct{}, 1)}
	}
	q.byKey[key].users++
	return q.byKey[key]
}

func (q *queues) release(one *queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(q.byKey, one.key)
	}
}

// enter waits for its turn at all touched keys, always in the same order. It returns a retry if one
// was touched by a commit newer than the snapshot, and keeps its turn.
func (u *update) enter(ctx context.Context, touched map[string]bool, snap *snapshot.Snapshot) error {
	keys := slices.Sorted(maps.Keys(touched))
	if !slices.EqualFunc(u.queue, keys, func(q *queue, key string) bool { return q.key == key }) {
		u.leave()
		for _, key := range keys {
			if err := u.await(ctx, key); err != nil {
				return err
			}
		}
	}
	for _, q := range u.queue {
		if last := snap.RevisionOf(q.last); last > snap.Revision {
			return &retry{at: last}
		}
	}
	return nil
}

func (u *update) await(ctx context.Context, key string) error {
	q := u.db.queues.join(key)
	select {
	case q.turn <- struct{}{}:
		u.queue = append(u.queue, q)
		return nil
	case <-ctx.Done():
		u.db.queues.release(q)
		return ctx.Err()
	}
}

// leave ends its turns.
func (u *update) leave() {
	for _, q := range u.queue {
		<-q.turn
		u.db.queues.release(q)
	}
	u.queue = nil
}
