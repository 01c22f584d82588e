// Package store defines how Heddle reads, writes and watches its state: keys and values in which
// one transaction is one commit with a revision. Package backend implements it over etcd, [Memory]
// within one process. Typed records are in package records, local copies in package replica.
package store

import (
	"context"
	"errors"
	"time"
)

// KV is a key with the revisions at which it was created and last changed. Do not modify Value.
type KV struct {
	Key            string
	Value          []byte
	CreateRevision int64
	ModRevision    int64
	Lease          Lease
}

// Lease is the id of a lease; 0 is none. Keys put under a lease are deleted when it ends.
type Lease int64

// Event is one change of one key; KV.Value is nil when it was deleted.
type Event struct {
	KV
	Deleted bool
}

// Change is all events of one or more whole revisions, by revision and key. Revision is the last of
// them. A Change without events only reports progress. Reconnected reports that the connection was
// lost and made again, perhaps to another cluster: see [Identity].
type Change struct {
	Revision    int64
	Events      []Event
	Reconnected bool
}

// Identity identifies a cluster and its progress. Cluster and Term are 0 in memory.
type Identity struct {
	Cluster  uint64 // differs between clusters, but not always after a restore of a snapshot
	Term     uint64 // of the leader; it grows, and restarts when a cluster is restored
	Revision int64
}

// Continues reports whether the cluster may still have the history of the known one.
func (i Identity) Continues(known Identity) bool {
	return i.Cluster == known.Cluster && i.Term >= known.Term && i.Revision >= known.Revision
}

// Cond is a condition of a transaction in one of these forms. Deletions do not count for a prefix.
//
//	Key set, Prefix "":  the key's ModRevision equals Mod (0: the key does not exist)
//	Key set, Create > 0: the key still exists with this CreateRevision, whatever its contents
//	Prefix set:          no key under the prefix was put after revision Mod
type Cond struct {
	Key    string
	Mod    int64
	Create int64
	Prefix string
}

// Op puts Value under Key, or deletes Key if Delete is set. DeletePrefix deletes all keys under
// Key. A commit may put a key only once, and not also delete it.
type Op struct {
	Key          string
	Value        []byte
	Lease        Lease
	Delete       bool
	DeletePrefix bool
}

var (
	// ErrConflict: a condition of a transaction did not hold. Nothing was written.
	ErrConflict = errors.New("store: something read has changed")
	// ErrCompacted: the revision is no longer kept; list again.
	ErrCompacted = errors.New("store: revision compacted")
	// ErrNotFound: no such key.
	ErrNotFound = errors.New("store: not found")
	// ErrTooLarge: the transaction exceeds etcd's limits; the text has the setting to change.
	ErrTooLarge = errors.New("store: transaction too large")
	// ErrFull: the store accepts only deletions and log-ins. Nothing was written.
	ErrFull = errors.New("store: full")
	// ErrLeaseGone: the lease has ended; what was put under it is gone.
	ErrLeaseGone = errors.New("store: lease gone")
	// ErrUnavailable: etcd cannot be reached or has no leader. A Commit has written nothing, unless
	// the error is ErrOutcomeUnknown too.
	ErrUnavailable = errors.New("store: unavailable")
	// ErrOutcomeUnknown: etcd received a Commit and did not answer in time.
	ErrOutcomeUnknown = errors.New("store: outcome unknown")
	// ErrReplaced: the store that answers lacks the schema version, which it had before: it was
	// wiped, or is another. It is always ErrUnavailable too.
	ErrReplaced = errors.New("store: wiped, or replaced by another")
	// ErrDenied: the client is authenticated, but not allowed.
	ErrDenied = errors.New("store: permission denied")
)

// LeastTxnOps is the number of operations that a cluster must allow in one transaction, and the
// maximum of a commit: all clients wait while etcd applies a large one.
const LeastTxnOps = 4096

// SchemaKey holds the format of the store's records. Every store of Heddle has it.
const SchemaKey = "/heddle/schema"

type reserveKey struct{}

// WithReserve marks a call that may use a full store's reserve: a deletion or log-in.
func WithReserve(ctx context.Context) context.Context {
	return context.WithValue(ctx, reserveKey{}, true)
}

// UsesReserve reports whether WithReserve marked ctx.
func UsesReserve(ctx context.Context) bool { return ctx.Value(reserveKey{}) != nil }

type lastReserveKey struct{}

// WithLastReserve marks a call that is accepted as long as the disk has any space: a few bytes,
// such as those by which a server reports that its disk is full.
func WithLastReserve(ctx context.Context) context.Context {
	return context.WithValue(WithReserve(ctx), lastReserveKey{}, true)
}

// UsesLastReserve reports whether WithLastReserve marked ctx.
func UsesLastReserve(ctx context.Context) bool { return ctx.Value(lastReserveKey{}) != nil }

type noteKey struct{}

// WithNote makes the transactions of package records under ctx put what note returns as well: a
// record of why they were made, which thereby has their revision. note is called at
// each attempt to commit.
func WithNote(ctx context.Context, note func() (Op, error)) context.Context {
	return context.WithValue(ctx, noteKey{}, note)
}

// Note returns what WithNote has given to ctx, or nil.
func Note(ctx context.Context) func() (Op, error) {
	note, _ := ctx.Value(noteKey{}).(func() (Op, error))
	return note
}

// Store is the contract of etcd and memory stores; one test body proves both.
type Store interface {
	// Get returns the key, or ErrNotFound. It is linearizable.
	Get(ctx context.Context, key string) (KV, error)
	// List returns all keys under prefix in order, and their common revision. It is linearizable.
	List(ctx context.Context, prefix string) ([]KV, int64, error)
	// Revision returns the current revision; it is linearizable.
	Revision(ctx context.Context) (int64, error)
	// Identity returns the store's identity; it is linearizable.
	Identity(ctx context.Context) (Identity, error)
	// GetAt returns the key as it was at a revision. ErrNotFound: it did not exist then;
	// ErrCompacted: unknown.
	GetAt(ctx context.Context, key string, rev int64) (KV, error)
	// Commit applies all ops if every condition holds; else it returns ErrConflict. It returns the
	// revision of the commit, or the one at which conditions failed.
	Commit(ctx context.Context, conds []Cond, ops []Op) (int64, error)
	// Watch delivers changes under the prefixes after revision from, until ctx ends (the channel is
	// then closed) or history is lost (the error function then returns ErrCompacted or the cause).
	// It reconnects by itself without loss.
	Watch(ctx context.Context, from int64, prefixes ...string) (changes <-chan Change, err func() error)
	// Nudge makes every watch that is behind revision rev report progress soon, although no event
	// may lead there. It does not wait.
	Nudge(rev int64)
	// Grant makes a lease that ends ttl, in whole seconds, after its last renewal.
	Grant(ctx context.Context, ttl time.Duration) (Lease, error)
	// KeepAlive renews the lease until ctx ends (nil), or returns ErrLeaseGone once it has ended.
	// While the store is away it retries.
	KeepAlive(ctx context.Context, l Lease) error
	// Revoke ends the lease at once.
	Revoke(ctx context.Context, l Lease) error
	Close() error
}
