package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Options say which etcd to use: Embedded or Cluster, exactly one of them.
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
	User      string      // etcd user, where certificates do not tell it
	Password  string
	// Authority signs the certificates of hosts that join; nil: they are made elsewhere.
	Authority *Authority
	// SkipLimits leaves out the check of the cluster's transaction limit: for those who make no large transactions,
	// such as agents.
	SkipLimits bool
	// Quota is the members' --quota-backend-bytes, for a cluster that does not report it, as before etcd 3.6. 0: etcd's
	// default is assumed.
	Quota    int64
	embedded bool // it is an embedded store of this machine
}

// Open starts the embedded server or connects to a cluster, and returns when it answers.
func Open(ctx context.Context, o Options) (*Etcd, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
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
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            o.Endpoints,
		TLS:                  config,
		Username:             o.User,
		Password:             o.Password,
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    5 * time.Second, // a member that vanished silently is left after this and the timeout
		DialKeepAliveTimeout: 3 * time.Second,
		PermitWithoutStream:  true,
		MaxCallSendMsgSize:   2 * MaxRequestBytes,
		MaxCallRecvMsgSize:   math.MaxInt32,
		DialOptions:          []grpc.DialOption{grpc.WithConnectParams(reconnect())},
		Logger:               zap.New(slogCore{log}),
		Context:              context.Background(),
	})
	if err != nil {
		return nil, explain(ctx, "connect to etcd at "+strings.Join(o.Endpoints, ","), err)
	}
	s := newEtcd(client, log)
	s.authority, s.embedded, s.quota = o.Authority, o.embedded, o.Quota
	_, err = s.Revision(ctx)
	if errors.Is(err, ErrUnavailable) {
		err = errors.Join(err, diagnose(o.Endpoints, config))
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

// reconnect are the pauses between attempts to connect. By default they grow to two minutes, which is too long for hosts
// to stay behind after etcd has come back.
func reconnect() grpc.ConnectParams {
	return grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: 5 * time.Second,
	}
}

// diagnose says what stands in the way of connections to the endpoints; etcd's client tells only that time was up.
func diagnose(endpoints []string, config *tls.Config) error {
	var all []error
	for _, e := range endpoints {
		network, address := "tcp", e
		if scheme, rest, ok := strings.Cut(e, "://"); ok {
			address = rest
			if strings.HasPrefix(scheme, "unix") {
				network = "unix"
			}
		}
		c, err := net.DialTimeout(network, address, diagnoseTimeout)
		if err == nil && config != nil {
			err = handshake(c, address, config)
		}
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", e, err))
		}
		if c != nil {
			c.Close()
		}
	}
	return errors.Join(all...)
}

const diagnoseTimeout = 2 * time.Second

func handshake(c net.Conn, address string, config *tls.Config) error {
	config = config.Clone()
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			host = path.Base(address) // of a unix socket, as etcd's client has it
		}
		config.ServerName = host
	}
	if err := c.SetDeadline(time.Now().Add(diagnoseTimeout)); err != nil {
		return err
	}
	t := tls.Client(c, config)
	if err := t.Handshake(); err != nil {
		return err
	}
	// A server that does not like the client's certificate says so only after the handshake.
	_, err := t.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

const (
	// LeastTxnOps is how many operations a cluster must allow in one transaction, and the most that are committed at
	// once: etcd applies transactions one after the other, so that all clients wait while it applies a large one.
	LeastTxnOps = 4096
	// A cluster must allow requests of this many bytes.
	leastRequestBytes = 2 << 20
	// etcd accepts messages of this many bytes more than --max-request-bytes.
	requestOverheadBytes = 512 << 10
)

// checkLimits asks for a transaction as large as Heddle's may get that only reads: each member compares its size with
// its limits on receipt, before anything else. Its condition never holds, so not even the reads are made, and nothing
// passes through the cluster's log. A cluster too busy to answer is left unchecked: a commit that exceeds its limits says
// so, too.
func (s *Etcd) checkLimits(ctx context.Context) error {
	key := "/heddle/limits/" + strings.Repeat("x", (leastRequestBytes+requestOverheadBytes)/LeastTxnOps)
	gets := make([]clientv3.Op, LeastTxnOps)
	for i := range gets {
		gets[i] = clientv3.OpGet(key, clientv3.WithCountOnly())
	}
	never := clientv3.Compare(clientv3.CreateRevision(key), "=", math.MaxInt64)
	err := unlessAuthChanged(func() error {
		_, err := s.client.Txn(s.as(ctx)).If(never).Then(gets...).Commit()
		return err
	})
	if err = explain(ctx, fmt.Sprintf("check of the limits: transaction of %d reads", LeastTxnOps), err); errors.Is(err, ErrUnavailable) {
		s.log.Warn("could not check the cluster's limits on transactions; continuing", "err", err)
		return nil
	}
	return err
}

// TLSConfig is what connections to the cluster use; nil: none is asked for.
func (o Cluster) TLSConfig() (*tls.Config, error) {
	if o.TLS != nil {
		return o.TLS, nil
	}
	secure := o.CAFile != "" || o.CertFile != ""
	for _, e := range o.Endpoints {
		secure = secure || strings.HasPrefix(e, "https://") || strings.HasPrefix(e, "unixs://")
	}
	if !secure {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("etcd CA: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("etcd CA %s: no certificate in PEM found", o.CAFile)
		}
	}
	if o.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile); err != nil {
			return nil, fmt.Errorf("etcd client certificate: %w", err)
		}
		// Read again at each connection, so that a renewed certificate is taken up.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			c, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
			return &c, err
		}
	}
	return config, nil
}
