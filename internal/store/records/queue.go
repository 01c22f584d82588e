package records

import (
	"context"
	"maps"
	"slices"
	"sync"

	"heddle/internal/store/replica"
)

// queues let the transactions of this process that touch the same key commit one after another, instead of having all
// but one fail at the store and try again. That is for speed only: what makes them exclusive is the guard key.
type queues struct {
	mu    sync.Mutex
	byKey map[string]*queue
}

// queue belongs to one key. It is there while somebody holds it or waits for it.
type queue struct {
	key   string
	users int           // guarded by queues.mu
	turn  chan struct{} // holds a token while somebody has the turn
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

func (q *queues) left(one *queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(q.byKey, one.key)
	}
}

// enter waits for its turn at all the touched keys, always in the same order. It asks for a retry if one of them was
// touched by a commit newer than the snapshot; the turn is kept for the next attempt.
func (u *update) enter(ctx context.Context, touched map[string]bool, snap *replica.Snapshot) error {
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
		u.db.queues.left(q)
		return ctx.Err()
	}
}

// leave gives the turn to the next ones.
func (u *update) leave() {
	for _, q := range u.queue {
		<-q.turn
		u.db.queues.left(q)
	}
	u.queue = nil
}
