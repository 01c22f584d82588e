package flowstate

import (
	"fmt"
	"slices"
	"time"
)

// Change is one record to keep, or to keep no longer.
type Change[R any] struct {
	Record R
	Delete bool
	// Imported marks a record received from another host; the mark is kept with the record.
	Imported bool
}

// Keeper keeps records over a restart of the agent: a pinned table of the kernel. Records that it
// cannot encode, as those of a device whose id is no UUID, it ignores.
type Keeper[R any] interface {
	// Apply puts and deletes in order. Missing records are no error. It must not keep changes.
	Apply(changes []Change[R]) error
	// Each calls f for every record, until f returns false, and removes what it cannot read.
	Each(f func(r R, imported bool) bool) error
}

func (t *table[K, R]) keepSet(c *entry[R]) {
	t.keepNote(Change[R]{Record: c.record, Imported: c.in.imported})
}

func (t *table[K, R]) keepDelete(r R) { t.keepNote(Change[R]{Record: r, Delete: true}) }

func (t *table[K, R]) keepNote(c Change[R]) {
	if t.keeper != nil {
		t.keep = append(t.keep, c)
		t.changed.Give()
	}
}

// Changed receives when there is something for Flush to do.
func (t *table[K, R]) Changed() <-chan struct{} { return t.changed }

// Flush gives the Keeper what has changed since the last Flush. Refused changes are lost to the
// Keeper alone: after a restart such a record is received or decided again.
func (t *table[K, R]) Flush() error {
	t.flushing.Lock() // changes are applied in order
	defer t.flushing.Unlock()
	t.mu.Lock()
	changes := t.keep
	t.keep = nil
	t.mu.Unlock()
	if len(changes) == 0 {
		return nil
	}
	if err := t.keeper.Apply(changes); err != nil {
		return fmt.Errorf("keep %d changes of connections: %w", len(changes), err)
	}
	return nil
}

// Load reads what the Keeper kept, as used now: uses during an hour of downtime are unknown, and
// must not end a connection.
func (t *table[K, R]) Load(now time.Duration) error {
	if t.keeper == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.keeper.Each(func(r R, imported bool) bool {
		a, b := t.keys(r)
		if t.entries.get(a) != nil || t.entries.get(b) != nil {
			t.keepDelete(r) // a killed agent left a record and the one that replaced it
			return true
		}
		kind := &t.own
		if imported {
			kind = &t.imported
		}
		t.insert(r, kind, "", now)
		return true
	})
	// What was just read need not be written; what had no room has to go.
	t.keep = slices.DeleteFunc(t.keep, func(c Change[R]) bool { return !c.Delete })
	if err != nil {
		return fmt.Errorf("read back connections: %w", err)
	}
	return nil
}
