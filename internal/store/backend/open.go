// Package backend is the store over etcd v3: a server embedded in this process, or an existing
// cluster. Besides reads, transactions and watches it has what operators need: rights of hosts and
// programs, limits, certificates, reserves of space, backups, and moves between servers.
package backend

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"heddle/internal/store"
	"heddle/internal/store/etcd"
)

// Options name the etcd to use: either Embedded or Cluster.
type Options struct {
	Embedded *Embedded
	Cluster  *Cluster
	Log      *slog.Logger // nil: nothing is logged
}

// Cluster is an existing etcd cluster. Plain connections are for loopback; elsewhere use TLS.
type Cluster struct {
	Endpoints []string // host:port or URLs
	CAFile    string   // PEM; with it, or with an https endpoint, connections use TLS
	CertFile  string   // PEM client certificate; its CN may be the etcd user
	KeyFile   string
	TLS       *tls.Config // instead of the three files
	User      string      // etcd user, where certificates do not name it
	Password  string
	// Authority signs the certificates of hosts that join; nil if they are made elsewhere.
	Authority *Authority
	// SkipLimits skips the check of the cluster's limits, for clients without large transactions.
	SkipLimits bool
	// Quota is the members' --quota-backend-bytes, for a cluster that does not report it, as before
	// etcd 3.6. 0: etcd's default.
	Quota    int64
	embedded bool // it is an embedded store of this machine
}

// Open starts the embedded server or connects to a cluster, and returns when it answers.
func Open(ctx context.Context, o Options) (*Etcd, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	switch {
	case o.Embedded != nil && o.Cluster == nil:
		return openEmbedded(ctx, *o.Embedded, o.Log)
	case o.Cluster != nil && o.Embedded == nil:
		return openCluster(ctx, *o.Cluster, o.Log)
	}
	return nil, errors.New("store: give either an embedded store or a cluster")
}

func openCluster(ctx context.Context, o Cluster, log *slog.Logger) (*Etcd, error) {
	if len(o.Endpoints) == 0 {
		return nil, errors.New("store: no etcd endpoints given")
	}
	config, err := o.TLSConfig()
	if err != nil {
		return nil, err
	}
	client, err := o.access().Dial(config, etcd.DialOptions{
		LoginTimeout: loginTimeout, MaxSend: 2 * MaxRequestBytes, KeepIdle: true, Log: zap.New(slogCore{log}),
	})
	if err != nil {
		return nil, explain(ctx, "connect to etcd at "+strings.Join(o.Endpoints, ","), err)
	}
	s := newEtcd(client, nil, log)
	s.embedded, s.quota = o.embedded, o.Quota
	s.authority.Store(o.Authority)
	s.diagnose = func() error { return etcd.Diagnose(client.Endpoints(), config) }
	_, err = s.Revision(ctx)
	if errors.Is(err, store.ErrUnavailable) {
		err = errors.Join(err, s.Diagnose())
	}
	if err == nil && !o.SkipLimits {
		err = s.checkLimits(ctx)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("etcd at %s: %w", strings.Join(o.Endpoints, ","), err)
	}
	return s, nil
}

const (
	// loginTimeout bounds logging in to a cluster with a password.
	loginTimeout = 5 * time.Second
	// A cluster must allow requests of this many bytes.
	leastRequestBytes = 2 << 20
	// etcd accepts messages of this many bytes more than --max-request-bytes.
	requestOverheadBytes = 512 << 10
)

// checkLimits sends a read-only transaction of the maximum size: each member compares its size with
// its limits on receipt. Its condition never holds, so not even the reads are made. If the cluster
// is too busy to answer, it is left unchecked.
func (s *Etcd) checkLimits(ctx context.Context) error {
	key := "/heddle/limits/" + strings.Repeat("x", (leastRequestBytes+requestOverheadBytes)/store.LeastTxnOps)
	gets := make([]clientv3.Op, store.LeastTxnOps)
	for i := range gets {
		gets[i] = clientv3.OpGet(key, clientv3.WithCountOnly())
	}
	never := clientv3.Compare(clientv3.CreateRevision(key), "=", math.MaxInt64)
	err := etcd.UnlessAuthChanged(func() error {
		_, err := s.client.Txn(s.as(ctx)).If(never).Then(gets...).Commit()
		return err
	})
	if err = explain(ctx, fmt.Sprintf("check of the limits: transaction of %d reads", store.LeastTxnOps), err); errors.Is(err, store.ErrUnavailable) {
		s.log.Warn("could not check the cluster's limits on transactions; continuing", "err", err)
		return nil
	}
	return err
}

// TLSConfig returns the TLS configuration of connections to the cluster, nil for plain ones.
func (o Cluster) TLSConfig() (*tls.Config, error) { return o.access().TLSConfig() }

func (o Cluster) access() etcd.Access {
	return etcd.Access{Endpoints: o.Endpoints, CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, TLS: o.TLS, User: o.User, Password: o.Password}
}
