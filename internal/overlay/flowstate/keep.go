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
	// Imported says that another host told it; it is kept with the key.
	Imported bool
}

// Keeper keeps keys over a restart of the agent: the kernel's pinned table.
type Keeper interface {
	// Apply puts and deletes in order; deleting what is not there is success. It keeps nothing of changes.
	Apply(changes []Change) error
	// Each calls f for every entry, until f returns false.
	Each(f func(key []byte, imported bool) bool) error
}

// keepSet and keepDelete note what the Keeper has to hear; devices whose id cannot be encoded are not kept.
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

// Flush tells the Keeper what has changed since the last Flush. Changes that it refuses are lost to it, not to the
// table: after a restart the connection is told or decided anew by its next packet. It must not run twice at once.
func (t *Table) Flush() error {
	t.mu.Lock()
	changes := t.keep
	t.keep, t.spare = t.spare[:0], nil
	t.mu.Unlock()
	if len(changes) == 0 {
		t.giveSpare(changes)
		return nil
	}
	err := t.opts.Keeper.Apply(changes)
	n := len(changes)
	t.giveSpare(changes)
	if err != nil {
		return fmt.Errorf("keep %d changes of connections: %w", n, err)
	}
	return nil
}

// giveSpare keeps the room of a list for the one after the next, unless it is a rare large one.
func (t *Table) giveSpare(changes []Change) {
	if cap(changes) > 1<<14 {
		return
	}
	t.mu.Lock()
	t.spare = changes[:0]
	t.mu.Unlock()
}

// Load remembers what the Keeper kept, as used now: when it was last used is not known, and an hour of downtime must not
// end a connection whose packets went on flowing. Entries that cannot be read are forgotten.
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
				kind = &t.told
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
