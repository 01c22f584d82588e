package ipam

import (
	"errors"
	"sync"

	"heddle/calico"
	"heddle/calico/client"
)

// object is a value read from etcd. It must not be modified.
type object struct {
	value    any   // nil when there was nothing
	err      error // of what is there but cannot be decoded
	revision int64 // at which it was written; 0 when there was nothing
	known    int64 // the revision at which this was so
}

// The numbers of objects kept. A block takes 10 kB; a handle is needed again for its release.
const (
	maxHandles = 1024
	maxOthers  = 8192
)

// cache remembers what was last seen or written. It may be out of date: what a transaction takes
// from here is a condition of its commit.
type cache struct {
	mu              sync.Mutex
	handles, others map[calico.Key]object
}

func newCache() *cache {
	return &cache{handles: map[calico.Key]object{}, others: map[calico.Key]object{}}
}

func (c *cache) of(key calico.Key) (objects map[calico.Key]object, limit int) {
	if key.Kind() == calico.KindIPAMHandle {
		return c.handles, maxHandles
	}
	return c.others, maxOthers
}

func (c *cache) get(key calico.Key) (object, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	objects, _ := c.of(key)
	o, ok := objects[key]
	return o, ok
}

// put keeps what was so at o.known, unless something newer is known.
func (c *cache) put(key calico.Key, o object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	objects, limit := c.of(key)
	if objects[key].known > o.known {
		return
	}
	if len(objects) >= limit {
		for k := range objects { // any one
			delete(objects, k)
			break
		}
	}
	objects[key] = o
}

// objectOf returns an entry of a snapshot. An inconsistent block counts as undecodable.
func objectOf(e client.Entry, at int64) object {
	o := object{value: e.Object, err: e.Err, revision: e.Revision, known: at}
	if b, ok := o.value.(*calico.Block); ok {
		if err := b.Check(); err != nil {
			o.value, o.err = nil, err
		}
	}
	return o
}

// isConflict reports whether a commit failed because something it rests on has changed.
func isConflict(err error) bool {
	return errors.Is(err, client.ErrConflict) || errors.Is(err, client.ErrExists) || errors.Is(err, client.ErrNotFound)
}
