package flowstate

import (
	"fmt"
	"slices"
	"time"

	"heddle/internal/topology/flow"
)

// Change is one key to keep, or to keep no longer.
type Change struct {
	Key    [KeySize]byte
	Delete bool
	// Imported marks a key received from another host; the mark is kept with the key.
	Imported bool
}

// Keeper keeps keys over a restart of the agent: the kernel's pinned table.
type Keeper interface {
	// Apply puts and deletes in order. Missing keys are no error. It must not keep changes.
	Apply(changes []Change) error
	// Each calls f for every entry, until f returns false.
	Each(f func(key []byte, imported bool) bool) error
}

// keepSet and keepDelete note changes for the Keeper, unless a device's id cannot be encoded.
func (t *Table) keepSet(c *conn) { t.keepNote(c.key, Change{Imported: c.in.imported}) }

func (t *Table) keepDelete(key flow.ConnKey) { t.keepNote(key, Change{Delete: true}) }

func (t *Table) keepNote(key flow.ConnKey, c Change) {
	if t.opts.Keeper == nil {
		return
	}
	if _, err := AppendKey(c.Key[:0], key); err == nil {
		t.keep = append(t.keep, c)
		t.changed.Give()
	}
}

// Changed receives when there is something for Flush to do.
func (t *Table) Changed() <-chan struct{} { return t.changed }

// Flush gives the Keeper what has changed since the last Flush. Refused changes are lost to the
// Keeper alone: after a restart such a connection is received or decided again. It must not run
// twice at once.
func (t *Table) Flush() error {
	t.mu.Lock()
	changes := t.keep
	t.keep = nil
	t.mu.Unlock()
	if len(changes) == 0 {
		return nil
	}
	if err := t.opts.Keeper.Apply(changes); err != nil {
		return fmt.Errorf("keep %d changes of connections: %w", len(changes), err)
	}
	return nil
}

// Load reads what the Keeper kept, as used now: uses during an hour of downtime are unknown, and
// must not end a connection. Entries that cannot be read are removed.
func (t *Table) Load(now time.Duration) error {
	if t.opts.Keeper == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var bad []Change
	err := t.opts.Keeper.Each(func(key []byte, imported bool) bool {
		c, err := ParseKey(key)
		switch {
		case err == nil && t.conns[c] == nil:
			kind := &t.own
			if imported {
				kind = &t.imported
			}
			t.insert(c, kind, "", now)
		case len(key) == KeySize:
			bad = append(bad, Change{Key: [KeySize]byte(key), Delete: true})
		}
		return true
	})
	// What was just read need not be written; what had no room has to go.
	t.keep = append(slices.DeleteFunc(t.keep, func(c Change) bool { return !c.Delete }), bad...)
	if err != nil {
		return fmt.Errorf("read back connections: %w", err)
	}
	return nil
}
