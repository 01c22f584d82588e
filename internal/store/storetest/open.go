package storetest

import (
	"testing"
	"time"

	"heddle/internal/store"
)

// Open starts a store of one member in this process over the data in dir. It elects sooner than one in service and does
// not wait for the disk. It is closed when the test ends.
func Open(t testing.TB, dir string) *store.Etcd {
	t.Helper()
	st, err := store.Open(t.Context(), store.Options{Embedded: &store.Embedded{DataDir: dir, Tick: 10 * time.Millisecond, NoFsync: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// Put writes keys with values, in pairs, in one transaction; a value of "" deletes its key.
func Put(t testing.TB, st *store.Etcd, pairs ...string) {
	t.Helper()
	var ops []store.Op
	for i := 0; i < len(pairs); i += 2 {
		ops = append(ops, store.Op{Key: pairs[i], Value: []byte(pairs[i+1]), Delete: pairs[i+1] == ""})
	}
	if _, err := st.Commit(t.Context(), nil, ops); err != nil {
		t.Fatal(err)
	}
}
