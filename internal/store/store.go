// Package store is Heddle's access to etcd v3: as a client of a cluster, over an etcd embedded in this process, and the
// same in memory for the offline commands. One transaction is one commit; readers and writers agree on revisions.
// It knows keys and bytes only: typed records are in records, local copies in replica.
package store

import (
	"context"
	"errors"
	"time"
)

// KV is one key with the revisions at which it was created and last changed. Value must not be modified.
type KV struct {
	Key            string
	Value          []byte
	CreateRevision int64
	ModRevision    int64
	Lease          Lease
}

// Lease is the id of a lease; 0 is none. Keys put under a lease vanish when it ends.
type Lease int64

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

// Event is one change of one key; KV.Value is nil when it was deleted.
type Event struct {
	KV
	Deleted bool
}

// Change is all events of one or more whole revisions, by revision and key. Revision is the last of them. A Change without events
// only tells progress. Reconnected tells that the connection to the store was lost and made again: what answers now may
// be another store, see [Identity].
type Change struct {
	Revision    int64
	Events      []Event
	Reconnected bool
}

// Identity is which store answers, and how far it is. Cluster and Term are 0 for a store in memory.
type Identity struct {
	Cluster  uint64 // changes when a cluster is made anew; not always when it is restored from a snapshot
	Term     uint64 // of the leader; it only grows, but begins anew in a cluster that was restored
	Revision int64
}

// Continues reports whether a store that is i now may still have the history that it had when it was known.
func (i Identity) Continues(known Identity) bool {
	return i.Cluster == known.Cluster && i.Term >= known.Term && i.Revision >= known.Revision
}

var (
	// ErrConflict: a condition of a transaction did not hold. Nothing was written.
	ErrConflict = errors.New("store: something read has changed")
	// ErrCompacted: the revision asked for is no longer kept; list again.
	ErrCompacted = errors.New("store: revision compacted")
	// ErrNotFound: no such key.
	ErrNotFound = errors.New("store: not found")
	// ErrTooLarge: the transaction exceeds etcd's limit on operations or bytes; the wrapped text says what to set.
	ErrTooLarge = errors.New("store: transaction too large")
	// ErrLeaseGone: the lease has ended; what was put under it is gone.
	ErrLeaseGone = errors.New("store: lease gone")
	// ErrUnavailable: etcd cannot be reached or has no leader. A Commit has written nothing, unless the error is
	// ErrOutcomeUnknown too.
	ErrUnavailable = errors.New("store: unavailable")
	// ErrOutcomeUnknown: etcd took a Commit and did not say in time what became of it.
	ErrOutcomeUnknown = errors.New("store: outcome unknown")
	// ErrReplaced: the store that answers has no schema version, which the one that was used had: it was wiped, or is
	// another. It is always ErrUnavailable too.
	ErrReplaced = errors.New("store: wiped, or replaced by another")
	// ErrInUse: another process has the data directory.
	ErrInUse = errors.New("store: in use by another process")
	// ErrDenied: the store knows who asks and does not allow it.
	ErrDenied = errors.New("store: permission denied")
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
