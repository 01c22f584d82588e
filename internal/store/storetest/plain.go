package storetest

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// PlainEtcd runs an etcd with the limits it comes with, as a program other than Heddle would, and returns its endpoint.
func PlainEtcd(t testing.TB) string {
	t.Helper()
	// A directory with a short name: the path of a socket may have 107 bytes.
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "etcd.sock")
	c := embed.NewConfig()
	c.Dir = filepath.Join(dir, "data")
	c.TickMs, c.ElectionMs = 10, 100
	c.UnsafeNoFsync = true
	c.ListenPeerUrls = nil
	c.ListenClientUrls = []url.URL{{Scheme: "unix", Path: socket}}
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	e, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	return "unix://" + socket
}
