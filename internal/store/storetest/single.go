package storetest

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"heddle/internal/store"
)

// Single is an etcd of one member in the test's process, with the limits that Heddle needs, whose data can be taken away.
type Single struct {
	Endpoint string
	dir      string
	etcd     *embed.Etcd
}

// StartSingle starts one. It ends with the test.
func StartSingle(t testing.TB) *Single {
	t.Helper()
	// A directory with a short name: the path of a socket may have 107 bytes.
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	s := &Single{dir: dir, Endpoint: "unix://" + filepath.Join(dir, "s")}
	t.Cleanup(func() {
		s.stop()
		os.RemoveAll(dir)
	})
	s.start(t)
	return s
}

// Wipe starts the etcd empty. The function returned gives it its data back.
func (s *Single) Wipe(t testing.TB) (restore func()) {
	t.Helper()
	data, kept := filepath.Join(s.dir, "data"), filepath.Join(s.dir, "kept")
	s.stop()
	if err := os.Rename(data, kept); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	return func() {
		t.Helper()
		s.stop()
		if err := os.RemoveAll(data); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(kept, data); err != nil {
			t.Fatal(err)
		}
		s.start(t)
	}
}

// Save keeps a copy of the etcd's data. The function returned starts the etcd with that, as after a restore of a snapshot.
func (s *Single) Save(t testing.TB) (restore func()) {
	t.Helper()
	data, saved := filepath.Join(s.dir, "data"), filepath.Join(s.dir, "saved")
	s.stop()
	if err := os.CopyFS(saved, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	return func() {
		t.Helper()
		s.stop()
		if err := errors.Join(os.RemoveAll(data), os.Rename(saved, data)); err != nil {
			t.Fatal(err)
		}
		s.start(t)
	}
}

func (s *Single) start(t testing.TB) {
	t.Helper()
	c := embed.NewConfig()
	c.Dir = filepath.Join(s.dir, "data")
	c.TickMs, c.ElectionMs = 10, 100
	c.UnsafeNoFsync = true
	c.MaxTxnOps, c.MaxRequestBytes = store.MaxTxnOps, store.MaxRequestBytes
	c.ListenPeerUrls = nil
	c.ListenClientUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(s.dir, "s")}}
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	e, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	<-e.Server.ReadyNotify()
	s.etcd = e
}

func (s *Single) stop() {
	if s.etcd != nil {
		s.etcd.Close()
		s.etcd = nil
	}
}
