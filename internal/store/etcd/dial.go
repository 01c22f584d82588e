package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
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
	"google.golang.org/grpc/credentials"
)

// Access names a cluster and its user. Plain connections are for loopback; elsewhere use TLS.
type Access struct {
	Endpoints []string // host:port or URLs (http, https, unix, unixs)
	CAFile    string   // PEM; with it, or with an https endpoint, connections use TLS
	CertFile  string   // PEM client certificate; its CN may be the etcd user
	KeyFile   string
	TLS       *tls.Config // instead of the three files
	User      string      // etcd user, where certificates do not name it
	Password  string
}

// DialOptions configure a client's connections.
type DialOptions struct {
	LoginTimeout time.Duration // bounds logging in with a password
	MaxSend      int           // bytes of a request; above what servers take, so that the server's limit decides
	// KeepIdle keeps idle connections alive. etcd hangs up on idle clients that probe, unless
	// configured to allow it.
	KeepIdle bool
	Log      *zap.Logger // nil: nothing is logged
}

const (
	// A silent member is abandoned after probeEvery and probeTimeout.
	probeEvery   = 5 * time.Second
	probeTimeout = 3 * time.Second
	// diagnoseTimeout bounds the attempt to reach one endpoint.
	diagnoseTimeout = 2 * time.Second
)

// Dial returns a client of the cluster. Without a password it does not wait for an answer. The
// error is one of etcd's client: see [Kind].
func (a Access) Dial(config *tls.Config, o DialOptions) (*clientv3.Client, error) {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	options := []grpc.DialOption{grpc.WithConnectParams(reconnect())}
	if config != nil && !plain(a.Endpoints) {
		options = append(options, grpc.WithTransportCredentials(followingTLS{credentials.NewTLS(config), a}))
	}
	return clientv3.New(clientv3.Config{
		Endpoints:            a.Endpoints,
		TLS:                  config,
		Username:             a.User,
		Password:             a.Password,
		DialTimeout:          o.LoginTimeout,
		DialKeepAliveTime:    probeEvery,
		DialKeepAliveTimeout: probeTimeout,
		PermitWithoutStream:  o.KeepIdle,
		MaxCallSendMsgSize:   o.MaxSend,
		MaxCallRecvMsgSize:   math.MaxInt32,
		DialOptions:          options,
		Logger:               o.Log,
		Context:              context.Background(),
	})
}

// reconnect returns the pauses between connection attempts. gRPC's default grows to two minutes.
func reconnect() grpc.ConnectParams {
	return grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: 5 * time.Second,
	}
}

// plain reports whether the first endpoint, which decides for etcd's client, is one without TLS.
func plain(endpoints []string) bool {
	return len(endpoints) > 0 && (strings.HasPrefix(endpoints[0], "http://") || strings.HasPrefix(endpoints[0], "unix:"))
}

// followingTLS is TLS with the authorities and certificate that the files have at each handshake.
type followingTLS struct {
	credentials.TransportCredentials
	access Access
}

// ClientHandshake implements [credentials.TransportCredentials].
func (f followingTLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := f.access.TLSConfig()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

// Clone implements [credentials.TransportCredentials].
func (f followingTLS) Clone() credentials.TransportCredentials {
	return followingTLS{f.TransportCredentials.Clone(), f.access}
}

// TLSConfig returns the TLS configuration of connections to the cluster, nil for plain ones.
func (a Access) TLSConfig() (*tls.Config, error) {
	if a.TLS != nil {
		return a.TLS, nil
	}
	secure := a.CAFile != "" || a.CertFile != ""
	for _, e := range a.Endpoints {
		secure = secure || strings.HasPrefix(e, "https://") || strings.HasPrefix(e, "unixs://")
	}
	if !secure {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.CAFile != "" {
		pem, err := os.ReadFile(a.CAFile)
		if err != nil {
			return nil, fmt.Errorf("etcd CA: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("etcd CA %s: no certificate in PEM found", a.CAFile)
		}
	}
	if a.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(a.CertFile, a.KeyFile); err != nil {
			return nil, fmt.Errorf("etcd client certificate: %w", err)
		}
		// Read again for each connection, so that a renewed certificate is used.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(a.CertFile, a.KeyFile)
			return &cert, err
		}
	}
	return config, nil
}

// Diagnose returns why endpoints cannot be reached: etcd's client reports only a timeout.
func Diagnose(endpoints []string, config *tls.Config) error {
	var all []error
	for _, e := range endpoints {
		if err := reach(e, config); err != nil {
			all = append(all, fmt.Errorf("%s: %w", e, suspectClocks(err)))
		}
	}
	return errors.Join(all...)
}

// alertExpired is TLS's alert of a peer by whose clock a certificate is over, or not yet good (RFC
// 8446 §6.2).
const alertExpired tls.AlertError = 45

// suspectClocks adds to an error about the time of a certificate that a wrong clock may be its
// cause.
func suspectClocks(err error) error {
	var invalid x509.CertificateInvalidError
	var remote *net.OpError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("%w: if the clock of this machine or of that server is wrong, set it by NTP, such as chrony; else renew the server's certificate", err)
	case errors.As(err, &remote) && remote.Err.Error() == alertExpired.Error(): // whose type is tls's own
		return fmt.Errorf("%w: by the clock of that server, %s here, this machine's certificate is over or not yet good; if a clock is wrong, set it by NTP, such as chrony",
			err, time.Now().UTC().Format(time.RFC3339))
	}
	return err
}

// reach connects to an endpoint, with a TLS handshake if config is not nil.
func reach(endpoint string, config *tls.Config) error {
	network, address := "tcp", endpoint
	if scheme, rest, ok := strings.Cut(endpoint, "://"); ok {
		address = rest
		if strings.HasPrefix(scheme, "unix") {
			network = "unix"
		}
	}
	conn, err := net.DialTimeout(network, address, diagnoseTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if config == nil {
		return nil
	}
	config = config.Clone()
	if config.ServerName == "" {
		if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
			config.ServerName = path.Base(address) // of a unix socket, as etcd's client has it
		}
	}
	if err := conn.SetDeadline(time.Now().Add(diagnoseTimeout)); err != nil {
		return err
	}
	secure := tls.Client(conn, config)
	if err := secure.Handshake(); err != nil {
		return err
	}
	// A server that rejects the client's certificate reports it only after the handshake.
	if _, err = secure.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}
