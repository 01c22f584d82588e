package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/btree"
)

// errTwice is etcd's rule, so that a transaction that works offline works on etcd.
var errTwice = errors.New("store: key written twice in one transaction")

// keptRevisions bounds the history: a watch that falls further behind gets ErrCompacted.
const keptRevisions = 10_000

// Memory is a Store in this process's memory, for offline commands and tests.
type Memory struct {
	mu       sync.Mutex
	keys     btree.Map[string, KV]
	rev      int64
	compact  int64         // the newest revision that is no longer kept
	history  []Change      // revisions compact+1 … rev, one each
	changed  chan struct{} // closed and replaced at each commit
	leases   map[Lease]*memoryLease
	leaseSeq Lease
	closed   bool
}

type memoryLease struct {
	ttl   time.Duration
	timer *time.Timer
	keys  map[string]bool
}

// NewMemory returns an empty store. Like etcd's, its first revision is 1.
func NewMemory() *Memory {
	return &Memory{rev: 1, compact: 1, changed: make(chan struct{}), leases: map[Lease]*memoryLease{}}
}

// Get implements [Store].
func (m *Memory) Get(ctx context.Context, key string) (KV, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx); err != nil {
		return KV{}, err
	}
	kv, ok := m.keys.Get(key)
	if !ok {
		return KV{}, fmt.Errorf("%s: %w", key, ErrNotFound)
	}
	return kv, nil
}

// List implements [Store].
func (m *Memory) List(ctx context.Context, prefix string) ([]KV, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx); err != nil {
		return nil, 0, err
	}
	return m.under(prefix), m.rev, nil
}

// Revision implements [Store].
func (m *Memory) Revision(ctx context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rev, m.usable(ctx)
}

// GetAt implements [Store]. It has no history of a key that has changed.
func (m *Memory) GetAt(ctx context.Context, key string, rev int64) (KV, error) {
	kv, err := m.Get(ctx, key)
	now, _ := m.Revision(ctx)
	if err == nil && kv.ModRevision > rev || errors.Is(err, ErrNotFound) && rev < now {
		return KV{}, fmt.Errorf("%s at revision %d: %w", key, rev, ErrCompacted)
	}
	return kv, err
}

// Identity implements [Store].
func (m *Memory) Identity(ctx context.Context) (Identity, error) {
	rev, err := m.Revision(ctx)
	return Identity{Revision: rev}, err
}

// Commit implements [Store].
func (m *Memory) Commit(ctx context.Context, conds []Cond, ops []Op) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx); err != nil {
		return 0, err
	}
	if err := checkOps(ops); err != nil {
		return 0, err
	}
	for _, o := range ops {
		if o.Lease != 0 && m.leases[o.Lease] == nil {
			return 0, ErrLeaseGone
		}
	}
	for _, c := range conds {
		if !m.holds(c) {
			return m.rev, ErrConflict
		}
	}
	m.apply(ops)
	return m.rev, nil
}

// checkOps rejects what etcd rejects: a key put twice, or put and deleted.
func checkOps(ops []Op) error {
	puts := make(map[string]bool, len(ops))
	for _, o := range ops {
		if o.Delete || o.DeletePrefix {
			continue
		}
		if puts[o.Key] {
			return fmt.Errorf("%s: %w", o.Key, errTwice)
		}
		puts[o.Key] = true
	}
	for _, o := range ops {
		if o.Delete && puts[o.Key] {
			return fmt.Errorf("%s: %w", o.Key, errTwice)
		}
		if !o.DeletePrefix {
			continue
		}
		for k := range puts {
			if strings.HasPrefix(k, o.Key) {
				return fmt.Errorf("%s: %w", k, errTwice)
			}
		}
	}
	return nil
}

func (m *Memory) holds(c Cond) bool {
	switch kv, _ := m.keys.Get(c.Key); {
	case c.Prefix != "":
		for _, kv := range m.under(c.Prefix) {
			if kv.ModRevision > c.Mod {
				return false
			}
		}
		return true
	case c.Create > 0:
		return kv.CreateRevision == c.Create
	default:
		return kv.ModRevision == c.Mod
	}
}

// apply runs ops as one revision. Like etcd it makes no revision without an effect.
func (m *Memory) apply(ops []Op) {
	rev := m.rev + 1
	var events []Event
	for _, o := range ops {
		switch {
		case o.DeletePrefix:
			for _, kv := range m.under(o.Key) {
				events = append(events, m.remove(kv.Key, rev))
			}
		case o.Delete:
			if _, ok := m.keys.Get(o.Key); ok {
				events = append(events, m.remove(o.Key, rev))
			}
		default:
			events = append(events, m.put(o, rev))
		}
	}
	if len(events) > 0 {
		slices.SortFunc(events, func(a, b Event) int { return strings.Compare(a.Key, b.Key) })
		m.publish(Change{Revision: rev, Events: events})
	}
}

func (m *Memory) put(o Op, rev int64) Event {
	old, _ := m.keys.Get(o.Key)
	kv := KV{Key: o.Key, Value: append([]byte{}, o.Value...), CreateRevision: old.CreateRevision, ModRevision: rev, Lease: o.Lease}
	if kv.CreateRevision == 0 {
		kv.CreateRevision = rev
	}
	m.unlease(old)
	if l := m.leases[o.Lease]; l != nil {
		l.keys[o.Key] = true
	}
	m.keys.Set(o.Key, kv)
	return Event{KV: kv}
}

func (m *Memory) remove(key string, rev int64) Event {
	old, _ := m.keys.Delete(key)
	m.unlease(old)
	return Event{KV: KV{Key: key, ModRevision: rev}, Deleted: true}
}

func (m *Memory) unlease(kv KV) {
	if l := m.leases[kv.Lease]; l != nil {
		delete(l.keys, kv.Key)
	}
}

func (m *Memory) publish(c Change) {
	m.rev = c.Revision
	m.history = append(m.history, c)
	if len(m.history) >= 2*keptRevisions {
		m.forget(m.rev - keptRevisions)
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

// Compact drops the history up to revision rev: a watch that needs it gets ErrCompacted.
func (m *Memory) Compact(rev int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(min(rev, m.rev))
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Memory) forget(rev int64) {
	if rev <= m.compact {
		return
	}
	m.history = append([]Change(nil), m.history[rev-m.compact:]...)
	m.compact = rev
}

func (m *Memory) under(prefix string) []KV {
	var kvs []KV
	m.keys.Ascend(prefix, func(k string, kv KV) bool {
		if !strings.HasPrefix(k, prefix) {
			return false
		}
		kvs = append(kvs, kv)
		return true
	})
	return kvs
}

// Watch implements [Store].
func (m *Memory) Watch(ctx context.Context, from int64, prefixes ...string) (<-chan Change, func() error) {
	changes := make(chan Change)
	from = max(from, 1) // nothing happened in revision 1
	var failed error    // written before changes is closed, read after
	go func() {
		defer close(changes)
		failed = m.follow(ctx, from, prefixes, changes)
	}()
	return changes, func() error { return failed }
}

func (m *Memory) follow(ctx context.Context, from int64, prefixes []string, out chan<- Change) error {
	for {
		c, changed, err := m.after(from, prefixes)
		if err != nil {
			return err
		}
		if c.Revision > from {
			select {
			case out <- c:
				from = c.Revision
				continue
			case <-ctx.Done():
				return nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// after returns everything after revision from, and a channel closed at the next change.
func (m *Memory) after(from int64, prefixes []string) (Change, <-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return Change{}, nil, fmt.Errorf("%w: closed", ErrUnavailable)
	}
	if from < m.compact {
		return Change{}, nil, ErrCompacted
	}
	all := Change{Revision: m.rev}
	for i := from - m.compact; i < int64(len(m.history)); i++ {
		for _, e := range m.history[i].Events {
			if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(e.Key, p) }) {
				all.Events = append(all.Events, e)
			}
		}
	}
	return all, m.changed, nil
}

// Nudge does nothing: watches of a Memory report each revision at once.
func (m *Memory) Nudge(int64) {}

// Grant implements [Store].
func (m *Memory) Grant(ctx context.Context, ttl time.Duration) (Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx); err != nil {
		return 0, err
	}
	m.leaseSeq++
	id := m.leaseSeq
	m.leases[id] = &memoryLease{ttl: ttl, keys: map[string]bool{}, timer: time.AfterFunc(ttl, func() { m.end(id) })}
	return id, nil
}

// KeepAlive implements [Store].
func (m *Memory) KeepAlive(ctx context.Context, l Lease) error {
	for {
		ttl, err := m.renew(l)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(ttl / 3):
		}
	}
}

func (m *Memory) renew(id Lease) (time.Duration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.leases[id]
	if l == nil || !l.timer.Reset(l.ttl) {
		return 0, ErrLeaseGone
	}
	return l.ttl, nil
}

// Revoke implements [Store].
func (m *Memory) Revoke(ctx context.Context, l Lease) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !m.end(l) {
		return ErrLeaseGone
	}
	return nil
}

// end deletes the lease with its keys, and reports whether it existed.
func (m *Memory) end(id Lease) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.leases[id]
	if l == nil || m.closed {
		return false
	}
	l.timer.Stop()
	delete(m.leases, id)
	var ops []Op
	for k := range l.keys {
		ops = append(ops, Op{Key: k, Delete: true})
	}
	m.apply(ops)
	return true
}

func (m *Memory) usable(ctx context.Context) error {
	if m.closed {
		return fmt.Errorf("%w: closed", ErrUnavailable)
	}
	return ctx.Err()
}

// Close ends watches and leases; the contents are gone.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	for _, l := range m.leases {
		l.timer.Stop()
	}
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}
