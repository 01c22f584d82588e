package storetest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"

	"heddle/internal/store/backend"
)

// Single is an etcd of one member in the test's process, whose data can be taken away.
type Single struct {
	Endpoint string
	dir      string
	etcd     *embed.Etcd
}

// StartSingle starts one. It ends with the test.
func StartSingle(t testing.TB) *Single {
	t.Helper()
	dir := shortDir(t)
	s := &Single{dir: dir, Endpoint: endpoint(dir)}
	t.Cleanup(s.stop)
	s.start(t)
	return s
}

// Wipe starts the etcd empty. The function returned restores its data.
func (s *Single) Wipe(t testing.TB) (restore func()) {
	t.Helper()
	s.stop()
	if err := os.Rename(s.data(), s.kept()); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	return func() { s.restore(t) }
}

// Save copies the etcd's data. The function returned starts the etcd with the copy, as after a
// restore of a snapshot.
func (s *Single) Save(t testing.TB) (restore func()) {
	t.Helper()
	s.stop()
	if err := os.CopyFS(s.kept(), os.DirFS(s.data())); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	return func() { s.restore(t) }
}

func (s *Single) data() string { return filepath.Join(s.dir, "data") }
func (s *Single) kept() string { return filepath.Join(s.dir, "kept") }

// restore starts the etcd with the data that was kept.
func (s *Single) restore(t testing.TB) {
	t.Helper()
	s.stop()
	if err := errors.Join(os.RemoveAll(s.data()), os.Rename(s.kept(), s.data())); err != nil {
		t.Fatal(err)
	}
	s.start(t)
}

func (s *Single) start(t testing.TB) {
	t.Helper()
	s.etcd = startEtcd(t, s.dir, func(c *embed.Config) { c.MaxTxnOps, c.MaxRequestBytes = backend.MaxTxnOps, backend.MaxRequestBytes })
}

func (s *Single) stop() {
	if s.etcd != nil {
		s.etcd.Close()
		s.etcd = nil
	}
}
