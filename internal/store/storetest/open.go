package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/backend"
)

// Open starts a store of one member in this process over the data in dir, with quick elections and
// without fsync. It is closed when the test ends.
func Open(t testing.TB, dir string) *backend.Etcd {
	t.Helper()
	st, err := backend.Open(t.Context(), backend.Options{Embedded: &backend.Embedded{DataDir: dir, Tick: 10 * time.Millisecond, NoFsync: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// Put writes keys with values, in pairs, in one transaction; a value of "" deletes its key.
func Put(t testing.TB, st *backend.Etcd, pairs ...string) {
	t.Helper()
	var ops []store.Op
	for i := 0; i < len(pairs); i += 2 {
		ops = append(ops, store.Op{Key: pairs[i], Value: []byte(pairs[i+1]), Delete: pairs[i+1] == ""})
	}
	if err := Write(t.Context(), st, ops...); err != nil {
		t.Fatal(err)
	}
}

// Write commits ops without a condition, up to ten times while the outcome is unknown, since a busy
// disk can delay etcd for many seconds.
func Write(ctx context.Context, st store.Store, ops ...store.Op) error {
	for attempt := 1; ; attempt++ {
		_, err := st.Commit(ctx, nil, ops)
		if !errors.Is(err, store.ErrUnavailable) || attempt == 10 {
			return err
		}
	}
}
