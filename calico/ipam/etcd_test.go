package ipam_test

import (
	"net"
	"net/url"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// plainEtcd runs an etcd with the limits it comes with, and returns its endpoint.
func plainEtcd(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	c := embed.NewConfig()
	c.Dir = t.TempDir()
	c.TickMs, c.ElectionMs = 10, 100
	c.UnsafeNoFsync = true
	c.ListenPeerUrls = nil
	c.ListenClientUrls = []url.URL{{Scheme: "http", Host: address}}
	c.AdvertiseClientUrls = c.ListenClientUrls
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	e, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	return address
}
