package flowstate

import (
	"fmt"
	"slices"
	"time"

	"heddle/internal/topology/flow"
)

// ValueSize is the size of what a Keeper keeps for a key, bytes: 1 when another host told it, else 0.
const ValueSize = 1

// Change is one entry to keep, or to forget when Value is nil.
type Change struct {
	Key   [KeySize]byte
	Value []byte
}

// Keeper keeps bytes over a restart of the agent: the kernel's pinned table.
type Keeper interface {
	// Apply puts and deletes in order; deleting what is not there is success.
	Apply([]Change) error
	// Each calls f for every entry, until f returns false.
	Each(f func(key, value []byte) bool) error
}

// keepSet and keepDelete note what the Keeper has to hear; devices whose id cannot be encoded are not kept.
func (t *Table) keepSet(c *conn) {
	value := []byte{0}
	if c.imported {
		value[0] = 1
	}
	t.keepNote(c.key, value)
}

func (t *Table) keepDelete(key flow.ConnKey) { t.keepNote(key, nil) }

func (t *Table) keepNote(key flow.ConnKey, value []byte) {
	if t.opts.Keeper == nil {
		return
	}
	var room [KeySize]byte
	b, err := AppendKey(room[:0], key)
	if err == nil {
		t.keep = append(t.keep, Change{Key: [KeySize]byte(b), Value: value})
	}
}

// Flush tells the Keeper what has changed since the last Flush. Changes that it refuses are lost to it, not to the
// table: after a restart the connection is told or decided anew by its next packet.
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

// Load remembers what the Keeper kept, as used now: when it was last used is not known, and an hour of downtime must not
// end a connection whose packets went on flowing. Entries that cannot be read are forgotten.
func (t *Table) Load(now time.Duration) error {
	if t.opts.Keeper == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var bad []Change
	err := t.opts.Keeper.Each(func(key, value []byte) bool {
		c, err := ParseKey(key)
		switch {
		case err == nil && len(value) == ValueSize && t.conns[c] == nil:
			t.insert(c, value[0] == 1, now)
		case len(key) == KeySize:
			bad = append(bad, Change{Key: [KeySize]byte(key)})
		}
		return true
	})
	// What was just read need not be written; what had no room has to go.
	t.keep = append(slices.DeleteFunc(t.keep, func(c Change) bool { return c.Value != nil }), bad...)
	if err != nil {
		return fmt.Errorf("read back connections: %w", err)
	}
	return nil
}
