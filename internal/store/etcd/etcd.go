// Package etcd holds what all clients of etcd share: how to connect, what errors mean, watches that deliver whole
// revisions, and the types for keys and changes. It starts no server, so that packages for other programs may use it;
// package store builds on it.
package etcd

import (
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// KV is one key with the revisions at which it was created and last changed. Value must not be modified.
type KV struct {
	Key            string
	Value          []byte
	CreateRevision int64
	ModRevision    int64
	Lease          Lease
}

// FromProto returns a key as etcd's client has it.
func FromProto(kv *mvccpb.KeyValue) KV {
	return KV{Key: string(kv.Key), Value: kv.Value, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Lease: Lease(kv.Lease)}
}

// Lease is the id of a lease; 0 is none. Keys put under a lease vanish when it ends.
type Lease int64

// Event is one change of one key; KV.Value is nil when it was deleted.
type Event struct {
	KV
	Deleted bool
}

// Change is all events of one or more whole revisions, by revision and key. Revision is the last of them. A Change
// without events only reports progress. Reconnected reports that the connection was lost and made again: what answers
// now may be another cluster, see [Identity].
type Change struct {
	Revision    int64
	Events      []Event
	Reconnected bool
}

// Identity is which cluster answers, and how far it is. Cluster and Term are 0 for a store in memory.
type Identity struct {
	Cluster  uint64 // changes when a cluster is made anew; not always when it is restored from a snapshot
	Term     uint64 // of the leader; it only grows, but begins anew in a cluster that was restored
	Revision int64
}

// Continues reports whether a cluster that is i now may still have the history that it had when it was known.
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
	// ErrFull: the store is so full that it accepts only what frees space, or keeps operators able to. Nothing was written.
	ErrFull = errors.New("store: full")
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
	// ErrDenied: the store knows who asks and does not allow it.
	ErrDenied = errors.New("store: permission denied")
)
