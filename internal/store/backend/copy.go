package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/store"
)

// copied returns the prefixes that Copy copies.
func copied() []string { return []string{"/calico/", "/heddle/"} }

// reported returns the prefixes of what hosts and servers report, and will report again.
func reported() []string { return []string{"/heddle/state/", "/heddle/servers/", "/heddle/trace/"} }

// versionKey is written last: servers reject a store without it.
const versionKey = "/heddle/schema"

// copyBatch is the number of keys in one transaction: few enough for any etcd.
const copyBatch = 100

// unfinishedKey is in the target during a copy. Its value names the source, which may start over.
const unfinishedKey = "/heddle/unfinished-copy"

// Copy copies all of Heddle's and Calico's keys from one store into another, such as the embedded
// one into a cluster, and compares the two. It rejects a target that has such keys with a
// [TargetError], unless they are an earlier copy of this source. If the source changes meanwhile it
// fails and leaves the target empty: stop servers and agents first. Keys under leases, such as
// tokens, keep the time they have left; hosts' reports are left out.
//
// progress, if not nil, is called with the number of keys done.
func Copy(ctx context.Context, from *Etcd, to store.Store, progress func(done, all int)) error {
	id, err := from.Identity(ctx)
	if err != nil {
		return fmt.Errorf("copy: source: %w", err)
	}
	found, err := contents(ctx, to)
	if err != nil {
		return fmt.Errorf("copy: target: %w", err)
	}
	source := strconv.FormatUint(id.Cluster, 16)
	switch {
	case found.empty(), found.unfinished == source:
	case found.unfinished == "" && sameContents(ctx, from, to):
		return nil // an earlier copy, whose outcome was not recorded
	default:
		return fmt.Errorf("copy: %w", &found.TargetError)
	}
	if _, err := to.Commit(ctx, nil, []store.Op{{Key: unfinishedKey, Value: []byte(source)}}); err != nil {
		return fmt.Errorf("copy: target: %w", err)
	}
	if err = copyInto(ctx, from, to, progress); err == nil {
		return nil
	}
	var ops []store.Op
	for _, p := range copied() {
		ops = append(ops, store.Op{Key: p, DeletePrefix: true})
	}
	if _, undo := to.Commit(context.WithoutCancel(ctx), nil, ops); undo != nil {
		return errors.Join(err, fmt.Errorf("what was copied could not be deleted again: %w", undo))
	}
	return err
}

// sameContents reports whether both stores hold the same keys.
func sameContents(ctx context.Context, from, to store.Store) bool {
	kvs, err := unleased(ctx, from)
	return err == nil && compareStores(ctx, kvs, from, to) == nil
}

func copyInto(ctx context.Context, from *Etcd, to store.Store, progress func(done, all int)) error {
	kvs, err := unleased(ctx, from)
	if err != nil {
		return fmt.Errorf("copy: source: %w", err)
	}
	last := []store.Op{{Key: unfinishedKey, Delete: true}}
	var ops []store.Op
	for _, kv := range kvs {
		op := store.Op{Key: kv.Key, Value: kv.Value}
		if kv.Key == versionKey {
			last = append(last, op)
		} else {
			ops = append(ops, op)
		}
	}
	for done := 0; done < len(ops); done += copyBatch {
		if progress != nil {
			progress(done, len(kvs))
		}
		if _, err := to.Commit(ctx, nil, ops[done:min(done+copyBatch, len(ops))]); err != nil {
			return fmt.Errorf("copy: target: %w", err)
		}
	}
	if err := copyLeased(ctx, from, to); err != nil {
		return err
	}
	if _, err := to.Commit(ctx, nil, last); err != nil {
		return fmt.Errorf("copy: target: %w", err)
	}
	if progress != nil {
		progress(len(kvs), len(kvs))
	}
	return compareStores(ctx, kvs, from, to)
}

// copyLeased copies the keys under leases, under leases that end when theirs do.
func copyLeased(ctx context.Context, from *Etcd, to store.Store) error {
	leases := map[store.Lease]store.Lease{}
	for _, p := range copied() {
		kvs, _, err := from.List(ctx, p)
		if err != nil {
			return fmt.Errorf("copy: source: %w", err)
		}
		for _, kv := range kvs {
			if kv.Lease == 0 || slices.ContainsFunc(reported(), func(p string) bool { return strings.HasPrefix(kv.Key, p) }) {
				continue
			}
			lease, ok := leases[kv.Lease]
			if !ok {
				left, err := from.TimeLeft(ctx, kv.Lease)
				if errors.Is(err, store.ErrLeaseGone) {
					continue // and so is the key, by now
				} else if err != nil {
					return fmt.Errorf("copy: source: %w", err)
				}
				if lease, err = to.Grant(ctx, left); err != nil {
					return fmt.Errorf("copy: target: %w", err)
				}
				leases[kv.Lease] = lease
			}
			if _, err := to.Commit(ctx, nil, []store.Op{{Key: kv.Key, Value: kv.Value, Lease: lease}}); err != nil {
				return fmt.Errorf("copy: target: %w", err)
			}
		}
	}
	return nil
}

// unleased returns the keys under no lease, in order.
func unleased(ctx context.Context, s store.Store) ([]store.KV, error) {
	var out []store.KV
	for _, p := range copied() {
		kvs, _, err := s.List(ctx, p)
		if err != nil {
			return nil, err
		}
		for _, kv := range kvs {
			if kv.Lease == 0 {
				out = append(out, kv)
			}
		}
	}
	return out, nil
}

func compareStores(ctx context.Context, kvs []store.KV, from, to store.Store) error {
	source, err := unleased(ctx, from)
	if err != nil {
		return fmt.Errorf("copy: source: %w", err)
	}
	target, err := unleased(ctx, to)
	if err != nil {
		return fmt.Errorf("copy: target: %w", err)
	}
	if len(source) != len(kvs) {
		return fmt.Errorf("copy: the source changed while it was copied: stop its servers and agents first")
	}
	if len(target) != len(kvs) {
		return fmt.Errorf("copy: the target has %d keys, the source %d", len(target), len(kvs))
	}
	for i, kv := range kvs {
		if source[i].Key != kv.Key || source[i].ModRevision != kv.ModRevision {
			return fmt.Errorf("copy: the source changed at %s while it was copied: stop its servers and agents first", source[i].Key)
		}
		if target[i].Key != kv.Key || !bytes.Equal(target[i].Value, kv.Value) {
			return fmt.Errorf("copy: %s differs in the target", kv.Key)
		}
	}
	return nil
}
