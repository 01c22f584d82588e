// Package store is Heddle's access to etcd v3: as a client of a cluster, over an etcd embedded in this process, and the
// same in memory for the offline commands. One transaction is one commit; readers and writers agree on revisions.
// It knows keys and bytes only: typed records are in records, local copies in replica.
package store

import (
	"context"
	"errors"
	"time"

	"heddle/internal/store/etcd"
)

// Keys and changes are those of package etcd.
type (
	KV       = etcd.KV
	Lease    = etcd.Lease
	Event    = etcd.Event
	Change   = etcd.Change
	Identity = etcd.Identity
)

// Cond is a condition of a transaction. Exactly one of the forms:
//
//	Key set, Prefix "":  the key's ModRevision equals Mod (0: the key does not exist)
//	Key set, Create > 0: the key still exists with this CreateRevision, whatever its contents
//	Prefix set:          no key under the prefix was put after revision Mod (deletions are not seen)
type Cond struct {
	Key    string
	Mod    int64
	Create int64
	Prefix string
}

// Op puts Value under Key, or deletes Key when Delete is set. DeletePrefix deletes all keys under Key. In one commit a
// key may be put only once, and not also be deleted.
type Op struct {
	Key          string
	Value        []byte
	Lease        Lease
	Delete       bool
	DeletePrefix bool
}

// The errors of every store; see package etcd for what they mean.
var (
	ErrConflict       = etcd.ErrConflict
	ErrCompacted      = etcd.ErrCompacted
	ErrNotFound       = etcd.ErrNotFound
	ErrTooLarge       = etcd.ErrTooLarge
	ErrFull           = etcd.ErrFull
	ErrLeaseGone      = etcd.ErrLeaseGone
	ErrUnavailable    = etcd.ErrUnavailable
	ErrOutcomeUnknown = etcd.ErrOutcomeUnknown
	ErrReplaced       = etcd.ErrReplaced
	ErrDenied         = etcd.ErrDenied
	// ErrInUse: another process has the data directory.
	ErrInUse = errors.New("store: in use by another process")
)

// Store is the contract shared by etcd and the memory store; one test body proves both.
type Store interface {
	// Get returns the key, or ErrNotFound. It is linearizable.
	Get(ctx context.Context, key string) (KV, error)
	// List returns all keys under prefix in key order at one revision, and that revision. It is linearizable.
	List(ctx context.Context, prefix string) ([]KV, int64, error)
	// Revision returns the current revision; it is linearizable.
	Revision(ctx context.Context) (int64, error)
	// Identity returns which store answers; it is linearizable.
	Identity(ctx context.Context) (Identity, error)
	// GetAt returns the key as it was at a revision: ErrNotFound if it was not there then, ErrCompacted if that is no
	// longer known.
	GetAt(ctx context.Context, key string, rev int64) (KV, error)
	// Commit applies ops all or not at all, if every condition holds; else ErrConflict. It returns the revision of the
	// commit, or with ErrConflict the revision at which the conditions were tested.
	Commit(ctx context.Context, conds []Cond, ops []Op) (int64, error)
	// Watch delivers changes under the prefixes after revision from, until ctx ends (the channel is then closed) or the
	// place is lost (a final call of the returned error function gives ErrCompacted or the cause). A lost connection is
	// re-established by the watch itself without loss.
	Watch(ctx context.Context, from int64, prefixes ...string) (changes <-chan Change, err func() error)
	// Nudge makes every watch of this store that is behind revision rev tell its progress soon, although no event under
	// its prefixes may lead there. It does not wait.
	Nudge(rev int64)
	// Grant makes a lease that ends ttl after its last renewal; etcd rounds ttl up to whole seconds.
	Grant(ctx context.Context, ttl time.Duration) (Lease, error)
	// KeepAlive renews the lease until ctx ends (nil), or returns ErrLeaseGone when the lease has ended. While the store
	// is away it keeps trying.
	KeepAlive(ctx context.Context, l Lease) error
	// Revoke ends the lease at once.
	Revoke(ctx context.Context, l Lease) error
	Close() error
}
