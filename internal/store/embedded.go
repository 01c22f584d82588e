package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
)

// Embedded is an etcd server of one member in this process.
type Embedded struct {
	DataDir string
	// Listen is host:port on loopback for other programs of this machine, without TLS; "" for none. Whoever can
	// connect to it can do everything.
	Listen string
	// Tick is etcd's heartbeat; a start takes about ten of them. 0 is etcd's own default of 100 ms.
	Tick time.Duration
	// NoFsync makes commits that are lost when the machine fails. For tests.
	NoFsync bool
}

const (
	memberName = "heddle"
	// peerURL names the only member to itself. Nobody listens there.
	peerURL = "http://localhost:2380"
	// quotaBytes is the size of the database at which etcd stops taking writes; the most that etcd recommends.
	quotaBytes = 8 << 30
	// keepHistory is how long etcd keeps old revisions, for watches that were away. Those away longer list again.
	keepHistory = 10 * time.Minute
	// etcd keeps this many entries of its log in memory between snapshots, and after one. There is no follower to catch up.
	logEntries, logCatchUp = 5000, 100
)

func openEmbedded(ctx context.Context, o Embedded, log *slog.Logger) (*Etcd, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	// etcd insists on a directory that its owner alone can read.
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("store data directory: %w", err)
	}
	config := o.config(log)
	return startEmbedded(ctx, config, log)
}

func (o Embedded) check() error {
	if o.DataDir == "" {
		return errors.New("store: no data directory given")
	}
	if o.Listen == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("store: listen address: %w", err)
	}
	if a, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !a.IsLoopback()) {
		return fmt.Errorf("store: listen address %s: without TLS only loopback is served", o.Listen)
	}
	return nil
}

func (o Embedded) config(log *slog.Logger) *embed.Config {
	c := embed.NewConfig()
	c.Name = memberName
	c.Dir = filepath.Join(o.DataDir, "etcd")
	c.MaxTxnOps = MaxTxnOps
	c.MaxRequestBytes = MaxRequestBytes
	c.QuotaBackendBytes = quotaBytes
	c.AutoCompactionMode = embed.CompactorModePeriodic
	c.AutoCompactionRetention = keepHistory.String()
	c.SnapshotCount = logEntries
	c.SnapshotCatchUpEntries = logCatchUp
	c.UnsafeNoFsync = o.NoFsync
	if o.Tick > 0 {
		c.TickMs = uint(max(1, o.Tick.Milliseconds()))
		c.ElectionMs = 10 * c.TickMs
	}
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(slogCore{log}))

	peer := mustURL(peerURL)
	c.ListenPeerUrls = nil
	c.AdvertisePeerUrls = []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(memberName)
	c.ListenClientUrls = nil
	c.AdvertiseClientUrls = []url.URL{mustURL("http://localhost:2379")}
	if o.Listen != "" {
		c.ListenClientUrls = []url.URL{{Scheme: "http", Host: o.Listen}}
		c.AdvertiseClientUrls = c.ListenClientUrls
	}
	return c
}

// mustURL parses a URL written in this package.
func mustURL(s string) url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return *u
}

// startEmbedded starts the server and returns when it has a leader.
func startEmbedded(ctx context.Context, c *embed.Config, log *slog.Logger) (*Etcd, error) {
	server, err := embed.StartEtcd(c)
	if err != nil {
		return nil, fmt.Errorf("store in %s: %w", c.Dir, err)
	}
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		server.Close()
		return nil, fmt.Errorf("store in %s: %w", c.Dir, err)
	case <-ctx.Done():
		server.Server.HardStop()
		server.Close()
		return nil, fmt.Errorf("store in %s: not ready: %w", c.Dir, ctx.Err())
	}
	s := newEtcd(v3client.New(server.Server), log)
	s.server = server
	return s, nil
}

// Endpoint is the address of the listener of an embedded server, as host:port; "" when there is none.
func (s *Etcd) Endpoint() string {
	if s.server == nil || len(s.server.Clients) == 0 {
		return ""
	}
	return s.server.Clients[0].Addr().String()
}
