package presence

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"heddle/internal/store"
	"heddle/internal/task"
)

const (
	// batch bounds the keys written in one commit.
	batch = 512
	// timeout bounds one call of the store.
	timeout = 5 * time.Second
)

// Keys keeps keys of the store at the values set here. Set, Delete and the like only mark; Flush
// writes in batches what is due and differs. The methods may be called from any goroutine, Flush
// from one.
type Keys struct {
	store    store.Store
	changed  task.Notice
	prefixes []string
	except   []string // begin keys that no sweep reads

	mu       sync.Mutex
	desired  map[string][]byte
	lasting  map[string]bool      // keys that outlive the lease
	due      map[string]time.Time // keys to write, each from this time on
	stored   map[string]store.Op  // what the store holds, as far as known
	spread   time.Duration        // the longest delay so far
	round    time.Time            // when keys are written next: all that are due by then go together
	complete bool                 // all keys are set
	swept    bool                 // stored is complete below the prefixes
}

// unknown stands in Keys.stored for any value or none: it equals no operation.
var unknown = store.Op{Lease: -1}

// NewKeys returns Keys that give changed for each change. Once all are set, see Complete, other
// keys below the prefixes are deleted.
func NewKeys(st store.Store, changed task.Notice, prefixes ...string) *Keys {
	return &Keys{store: st, changed: changed, prefixes: prefixes, desired: map[string][]byte{}, lasting: map[string]bool{},
		due: map[string]time.Time{}, stored: map[string]store.Op{}}
}

// Set has the key written after a delay, unless the change is undone before. Further changes do not
// prolong the delay.
func (k *Keys) Set(key string, value []byte, delay time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old, exists := k.desired[key]; !exists || !bytes.Equal(old, value) {
		k.desired[key] = value
		k.mark(key, delay)
	}
}

// Delete has the key deleted after a delay.
func (k *Keys) Delete(key string, delay time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, exists := k.desired[key]; exists {
		delete(k.desired, key)
		k.mark(key, delay)
	}
}

func (k *Keys) mark(key string, delay time.Duration) {
	if _, marked := k.due[key]; !marked {
		k.due[key] = time.Now().Add(delay)
	}
	k.spread = max(k.spread, delay)
	k.changed.Give()
}

// Rewrite has the key written although the store should hold it already.
func (k *Keys) Rewrite(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, exists := k.desired[key]; exists {
		k.stored[key] = unknown
		k.mark(key, 0)
	}
}

// RewriteAll has all keys written again.
func (k *Keys) RewriteAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.stored {
		k.stored[key] = unknown
	}
	for key := range k.desired {
		k.due[key] = time.Time{}
	}
	k.changed.Give()
}

// Recheck has the keys in the store compared, and those written or deleted that differ.
func (k *Keys) Recheck() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.swept = false
	k.changed.Give()
}

// Complete marks that all keys are set.
func (k *Keys) Complete() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.complete = true
	k.changed.Give()
}

// isSwept reports whether the store was compared since all keys were set.
func (k *Keys) isSwept() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.complete && k.swept
}

// Flush writes what is due under a lease (0: none), and returns when more is due; the zero time:
// nothing is. After an error, the rest stays due.
func (k *Keys) Flush(ctx context.Context, lease store.Lease) (next time.Time, err error) {
	if err := k.sweep(ctx, lease); err != nil {
		return time.Time{}, err
	}
	for {
		ops, next := k.take(lease)
		if len(ops) == 0 {
			return next, nil
		}
		err := k.commit(ctx, ops)
		k.finish(ops, err)
		if err != nil {
			return time.Time{}, err
		}
	}
}

func (k *Keys) commit(ctx context.Context, ops []store.Op) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := k.store.Commit(ctx, nil, ops)
	return err
}

// take returns what to write now, and when the next round is. A round begins up to a tenth of the
// delay after the first key is due, so that changes are written together and hosts are not.
func (k *Keys) take(lease store.Lease) (ops []store.Op, next time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	begun := !now.Before(k.round)
	for key, due := range k.due {
		if !begun || due.After(now) || len(ops) == batch {
			if next.IsZero() || due.Before(next) {
				next = due
			}
			continue
		}
		delete(k.due, key)
		if op := k.desiredOp(key, lease); !k.holds(op) {
			ops = append(ops, op)
		}
	}
	if len(ops) > 0 || next.IsZero() {
		slices.SortFunc(ops, func(a, b store.Op) int { return strings.Compare(a.Key, b.Key) })
		return ops, next
	}
	if begun {
		k.round = next.Add(rand.N(k.spread/10 + 1))
	}
	return nil, k.round
}

// desiredOp returns the operation after which the store holds what it should.
func (k *Keys) desiredOp(key string, lease store.Lease) store.Op {
	value, exists := k.desired[key]
	switch {
	case !exists:
		return store.Op{Key: key, Delete: true}
	case k.lasting[key]:
		lease = 0
	}
	return store.Op{Key: key, Value: value, Lease: lease}
}

// holds reports whether the store is known to hold what an operation would leave.
func (k *Keys) holds(op store.Op) bool {
	stored, exists := k.stored[op.Key]
	if op.Delete {
		return !exists && k.swept && k.isCovered(op.Key)
	}
	return exists && stored.Lease == op.Lease && bytes.Equal(stored.Value, op.Value)
}

// isCovered reports whether a sweep reads the key.
func (k *Keys) isCovered(key string) bool {
	below := func(p string) bool { return strings.HasPrefix(key, p) }
	return !slices.ContainsFunc(k.except, below) && slices.ContainsFunc(k.prefixes, below)
}

func (k *Keys) finish(ops []store.Op, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, op := range ops {
		switch {
		case err == nil && op.Delete:
			delete(k.stored, op.Key)
			continue
		case err == nil:
			k.stored[op.Key] = op
			continue
		}
		k.stored[op.Key] = unknown // it may have been written all the same
		if _, marked := k.due[op.Key]; !marked {
			k.due[op.Key] = time.Time{}
		}
	}
}

// sweep reads the keys below the prefixes, if all keys are set and that was not done yet.
func (k *Keys) sweep(ctx context.Context, lease store.Lease) error {
	k.mu.Lock()
	due := k.complete && !k.swept
	k.mu.Unlock()
	if !due {
		return nil
	}
	var found []store.KV
	for _, prefix := range k.prefixes {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		kvs, _, err := k.store.List(ctx, prefix)
		cancel()
		if err != nil {
			return err
		}
		found = append(found, kvs...)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.stored {
		if k.isCovered(key) {
			delete(k.stored, key)
		}
	}
	for _, kv := range found {
		if !k.isCovered(kv.Key) {
			continue
		}
		k.stored[kv.Key] = store.Op{Key: kv.Key, Value: kv.Value, Lease: kv.Lease}
		if _, desired := k.desired[kv.Key]; !desired {
			k.due[kv.Key] = time.Time{}
		}
	}
	for key := range k.desired {
		if _, marked := k.due[key]; !marked && !k.holds(k.desiredOp(key, lease)) {
			k.due[key] = time.Time{}
		}
	}
	k.swept = true
	return nil
}
