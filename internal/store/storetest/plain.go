package storetest

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// PlainEtcd runs an etcd with its default limits and returns its endpoint.
func PlainEtcd(t testing.TB) string {
	t.Helper()
	dir := shortDir(t)
	e := startEtcd(t, dir, func(*embed.Config) {})
	t.Cleanup(e.Close)
	return endpoint(dir)
}

// shortDir returns a directory with a short name, as a socket's path has at most 107 bytes.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// endpoint returns the endpoint of the etcd that startEtcd starts in dir.
func endpoint(dir string) string { return "unix://" + filepath.Join(dir, "s") }

// startEtcd starts an etcd of one member in this process, with its data below dir.
func startEtcd(t testing.TB, dir string, change func(*embed.Config)) *embed.Etcd {
	t.Helper()
	c := embed.NewConfig()
	c.Dir = filepath.Join(dir, "data")
	c.TickMs, c.ElectionMs = 10, 100
	c.UnsafeNoFsync = true
	c.ListenPeerUrls = nil
	c.ListenClientUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(dir, "s")}}
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	change(c)
	e, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	<-e.Server.ReadyNotify()
	return e
}
