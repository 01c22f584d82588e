package records

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"heddle/internal/store"
	"heddle/internal/store/snapshot"
)

// Fork is a store in memory that begins as a snapshot is. Transactions read what the snapshot has
// and what they have written; nothing reaches the store, and the cost follows what they write. It
// is for one goroutine: with one writer, who reads its newest snapshot, all conditions of commits
// hold.
type Fork struct {
	db      *DB
	keys    *forkedKeys
	base    *snapshot.Snapshot
	current *snapshot.Snapshot
	tables  snapshot.Tables
	written map[string]forkedPlace // of the tables' records, by key
}

// forkedPlace is the place of a record in snapshots.
type forkedPlace struct{ source, id string }

// NewFork returns a fork of a snapshot of tables. Keys of no table are those of under until they
// are written; nil: there are none.
func NewFork(snap *Snap, under store.Store, tables ...snapshot.Table) *Fork {
	f := &Fork{base: snap.snap, current: snap.snap, tables: snapshot.Of(tables...), written: map[string]forkedPlace{}}
	f.keys = &forkedKeys{Memory: store.NewMemory(), fork: f, under: under, keys: map[string]*store.KV{}}
	f.db = NewDB(f.keys, f)
	return f
}

// DB returns the fork for transactions.
func (f *Fork) DB() *DB { return f.db }

// Snap returns what the fork is now.
func (f *Fork) Snap() *Snap { return &Snap{f.current} }

// Snapshot implements [Replica].
func (f *Fork) Snapshot() *snapshot.Snapshot { return f.current }

// At implements [Replica].
func (f *Fork) At(ctx context.Context, _ int64) (*snapshot.Snapshot, error) {
	return f.current, ctx.Err()
}

// Fresh implements [Replica].
func (f *Fork) Fresh(ctx context.Context) (*snapshot.Snapshot, error) { return f.current, ctx.Err() }

// ChangedRecord is a record that two snapshots have otherwise.
type ChangedRecord struct {
	Key           string
	Before, After []byte // JSON; nil: it does not exist
}

// Changes returns the records that differ from those of the snapshot that the fork began with, in
// order of their keys.
func (f *Fork) Changes() (all []ChangedRecord, err error) {
	for _, key := range slices.Sorted(maps.Keys(f.written)) {
		p := f.written[key]
		if all, err = appendChange(all, key, f.base, f.current, p.source, p.id); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Written returns the keys of no table that have been written, in order.
func (f *Fork) Written() (all []store.Event) {
	for _, key := range slices.Sorted(maps.Keys(f.keys.keys)) {
		if kv := f.keys.keys[key]; kv != nil {
			all = append(all, store.Event{KV: *kv})
		} else {
			all = append(all, store.Event{KV: store.KV{Key: key}, Deleted: true})
		}
	}
	return all
}

// Compare returns the records of tables that differ between two snapshots, in order of their keys.
func Compare(before, after *Snap, tables ...snapshot.Table) (all []ChangedRecord, err error) {
	for _, t := range tables {
		s := t.Source()
		ids := map[string]bool{}
		for _, one := range []*snapshot.Snapshot{before.snap, after.snap} {
			for e := range one.All(s.Name) {
				ids[e.ID] = true
			}
		}
		for id := range ids {
			if all, err = appendChange(all, s.RecordKey(id), before.snap, after.snap, s.Name, id); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(all, func(a, b ChangedRecord) int { return cmp.Compare(a.Key, b.Key) })
	return all, nil
}

// appendChange appends a record if two snapshots have it otherwise.
func appendChange(all []ChangedRecord, key string, before, after *snapshot.Snapshot, source, id string) ([]ChangedRecord, error) {
	if before.Get(source, id) == after.Get(source, id) {
		return all, nil
	}
	old, err := valueOf(before, source, id)
	if err != nil {
		return nil, err
	}
	now, err := valueOf(after, source, id)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(old, now) {
		all = append(all, ChangedRecord{key, old, now})
	}
	return all, nil
}

// valueOf returns the value of a record of a snapshot; nil if there is none.
func valueOf(s *snapshot.Snapshot, source, id string) ([]byte, error) {
	e := s.Get(source, id)
	if e == nil {
		return nil, nil
	}
	if stored := s.Stored(source, id); stored != nil {
		return stored, nil
	}
	value, err := json.Marshal(e.Record)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", source, id, err)
	}
	return value, nil
}

// commit applies operations as one revision.
func (f *Fork) commit(ops []store.Op) (int64, error) {
	rev := f.current.Revision + 1
	var events []store.Event
	for _, o := range ops {
		if o.DeletePrefix {
			return 0, fmt.Errorf("fork: deletion of all keys under %s is not supported", o.Key)
		}
		kv := store.KV{Key: o.Key, Value: o.Value, CreateRevision: rev, ModRevision: rev}
		source, id, ok := f.tables.Find(o.Key)
		if !ok {
			f.keys.write(kv, o.Delete)
			continue
		}
		if e := f.current.Get(source, id); e != nil {
			kv.CreateRevision = e.Create
		}
		f.written[o.Key] = forkedPlace{source, id}
		events = append(events, store.Event{KV: kv, Deleted: o.Delete})
	}
	update, invalid := f.tables.Apply(f.current, events, rev)
	if len(invalid) > 0 {
		return 0, fmt.Errorf("fork: %s: %w", invalid[0].Key, invalid[0].Err)
	}
	f.current = update.Next
	return rev, nil
}

// forkedKeys is the store of a fork. Leases and watches are those of a store in memory that stays
// empty.
type forkedKeys struct {
	*store.Memory
	fork  *Fork
	under store.Store
	keys  map[string]*store.KV // written, of no table; nil: deleted
}

func (k *forkedKeys) write(kv store.KV, deleted bool) {
	if deleted {
		k.keys[kv.Key] = nil
		return
	}
	if old := k.keys[kv.Key]; old != nil {
		kv.CreateRevision = old.CreateRevision
	}
	k.keys[kv.Key] = &kv
}

// Get implements [store.Store]. Records of the tables are in snapshots alone.
func (k *forkedKeys) Get(ctx context.Context, key string) (store.KV, error) {
	kv, written := k.keys[key]
	switch {
	case written && kv != nil:
		return *kv, nil
	case !written && k.under != nil:
		return k.under.Get(ctx, key)
	}
	return store.KV{}, fmt.Errorf("%s: %w", key, store.ErrNotFound)
}

// List implements [store.Store].
func (k *forkedKeys) List(ctx context.Context, prefix string) ([]store.KV, int64, error) {
	return nil, 0, cmp.Or(ctx.Err(), fmt.Errorf("fork: keys under %s cannot be listed", prefix))
}

// Revision implements [store.Store].
func (k *forkedKeys) Revision(ctx context.Context) (int64, error) {
	return k.fork.current.Revision, ctx.Err()
}

// Identity implements [store.Store].
func (k *forkedKeys) Identity(ctx context.Context) (store.Identity, error) {
	return store.Identity{Revision: k.fork.current.Revision}, ctx.Err()
}

// GetAt implements [store.Store].
func (k *forkedKeys) GetAt(ctx context.Context, key string, _ int64) (store.KV, error) {
	return k.Get(ctx, key)
}

// Commit implements [store.Store].
func (k *forkedKeys) Commit(ctx context.Context, _ []store.Cond, ops []store.Op) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return k.fork.commit(ops)
}
