package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// copied are the prefixes that Copy copies; the last key of the first one makes a store complete.
func copied() []string { return []string{"/calico/", "/heddle/"} }

// reported are the prefixes of what hosts say, and are asked, while they are there: it is said anew.
func reported() []string { return []string{"/heddle/state/", "/heddle/trace/"} }

// versionKey is written last: a store without it is refused by every server.
const versionKey = "/heddle/schema"

// copyBatch is how many keys go into one transaction: any etcd takes as many.
const copyBatch = 100

// unfinishedKey is in the target while a copy is under way. Its value names the source, which may begin again.
const unfinishedKey = "/heddle/unfinished-copy"

// Copy copies all of Heddle's and Calico's keys from one store into another, and checks that they are the same then. It
// refuses a target that has such keys with a [TargetError], unless they are an earlier copy of this source. It fails,
// leaving the target as it was, when the source changes meanwhile: stop the servers and agents before. What lasts for a
// time, such as tokens, goes along for the time it has left; what hosts report is left out, they report it anew.
//
// That is the way from the embedded store to a cluster. tell, if not nil, is called with the number of keys done.
func Copy(ctx context.Context, from *Etcd, to Store, tell func(done, all int)) error {
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
	if _, err := to.Commit(ctx, nil, []Op{{Key: unfinishedKey, Value: []byte(source)}}); err != nil {
		return fmt.Errorf("copy: target: %w", err)
	}
	if err = copyInto(ctx, from, to, tell); err == nil {
		return nil
	}
	var ops []Op
	for _, p := range copied() {
		ops = append(ops, Op{Key: p, DeletePrefix: true})
	}
	if _, undo := to.Commit(context.WithoutCancel(ctx), nil, ops); undo != nil {
		return errors.Join(err, fmt.Errorf("what was copied could not be deleted again: %w", undo))
	}
	return err
}

// sameContents reports whether both stores hold the same keys.
func sameContents(ctx context.Context, from, to Store) bool {
	kvs, err := lasting(ctx, from)
	return err == nil && compareStores(ctx, kvs, from, to) == nil
}

func copyInto(ctx context.Context, from *Etcd, to Store, tell func(done, all int)) error {
	kvs, err := lasting(ctx, from)
	if err != nil {
		return fmt.Errorf("copy: source: %w", err)
	}
	last := []Op{{Key: unfinishedKey, Delete: true}}
	var ops []Op
	for _, kv := range kvs {
		op := Op{Key: kv.Key, Value: kv.Value}
		if kv.Key == versionKey {
			last = append(last, op)
		} else {
			ops = append(ops, op)
		}
	}
	for done := 0; done < len(ops); done += copyBatch {
		if tell != nil {
			tell(done, len(kvs))
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
	if tell != nil {
		tell(len(kvs), len(kvs))
	}
	return compareStores(ctx, kvs, from, to)
}

// copyLeased copies the keys under leases, under leases that end when theirs do.
func copyLeased(ctx context.Context, from *Etcd, to Store) error {
	leases := map[Lease]Lease{}
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
				if errors.Is(err, ErrLeaseGone) {
					continue // and so is the key, by now
				} else if err != nil {
					return fmt.Errorf("copy: source: %w", err)
				}
				if lease, err = to.Grant(ctx, left); err != nil {
					return fmt.Errorf("copy: target: %w", err)
				}
				leases[kv.Lease] = lease
			}
			if _, err := to.Commit(ctx, nil, []Op{{Key: kv.Key, Value: kv.Value, Lease: lease}}); err != nil {
				return fmt.Errorf("copy: target: %w", err)
			}
		}
	}
	return nil
}

// lasting are the keys that are under no lease, in order.
func lasting(ctx context.Context, s Store) ([]KV, error) {
	var out []KV
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

func compareStores(ctx context.Context, kvs []KV, from, to Store) error {
	again, err := lasting(ctx, from)
	if err != nil {
		return fmt.Errorf("copy: source: %w", err)
	}
	target, err := lasting(ctx, to)
	if err != nil {
		return fmt.Errorf("copy: target: %w", err)
	}
	if len(again) != len(kvs) {
		return fmt.Errorf("copy: the source changed while it was copied: stop its servers and agents first")
	}
	if len(target) != len(kvs) {
		return fmt.Errorf("copy: the target has %d keys, the source %d", len(target), len(kvs))
	}
	for i, kv := range kvs {
		if again[i].Key != kv.Key || again[i].ModRevision != kv.ModRevision {
			return fmt.Errorf("copy: the source changed at %s while it was copied: stop its servers and agents first", again[i].Key)
		}
		if target[i].Key != kv.Key || !bytes.Equal(target[i].Value, kv.Value) {
			return fmt.Errorf("copy: %s differs in the target", kv.Key)
		}
	}
	return nil
}
