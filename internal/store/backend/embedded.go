package backend

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"heddle/internal/task"
)

// ErrInUse: another process has the data directory.
var ErrInUse = errors.New("store: in use by another process")

// Embedded is an etcd server of one member in this process. Commands of this machine connect to a
// socket in its data directory, which only its owner can enter.
type Embedded struct {
	DataDir string
	// Listen is a loopback host:port for other programs of this machine, without TLS; "" for none.
	// Its clients may do everything, so it excludes Agents.
	Listen string
	// Agents is host:port for agents of other hosts; "" for none. They need a certificate signed by
	// this store, and have the rights of [Etcd.AllowHost].
	Agents string
	// Peer makes the store a member of a cluster of such stores; nil: it is alone. It needs Agents.
	Peer *Peer
	// Alone opens a member of a cluster as the only one: see [ResetCluster].
	Alone bool
	// Names are more names and addresses for the server's certificate, besides this machine's and
	// the one listened on.
	Names []string
	// Existing rejects a directory without a store, instead of making one.
	Existing bool
	// Reserve keeps a reserve on the disk, so that a full disk stops nothing but writes.
	Reserve bool
	// Moved opens a store that was moved into a cluster, too, instead of failing with [MovedError].
	Moved bool
	// Quota is the size of the database in bytes at which writes end; 0 is 8 GiB, etcd's maximum.
	Quota int64
	// Tick is etcd's heartbeat; a start takes about ten of them. 0 is etcd's own default of 100 ms.
	Tick time.Duration
	// NoFsync makes commits that a machine's crash may lose. For tests.
	NoFsync bool
}

const (
	memberName = "heddle"
	// peerURL is the only member's own, where nothing listens.
	peerURL = "http://localhost:2380"
	// quotaBytes is the default of Quota.
	quotaBytes = 8 << 30
	// keepHistory is the time for which etcd keeps old revisions for watches that were
	// disconnected.
	keepHistory = 10 * time.Minute
	// etcd keeps this many log entries in memory between snapshots, and after one: it has no
	// follower.
	logEntries, logCatchUp = 5000, 100 // catching up is for members of a cluster: see Peer
	// longestSocket is the kernel's limit on a socket's path in bytes (unix(7)).
	longestSocket = 107
	// leastBetweenProbes is the shortest interval of clients' keepalive probes; gRPC disconnects
	// clients that probe more often. Theirs is at least twice as long.
	leastBetweenProbes = 5 * time.Second
	// renewEvery is the interval between checks of the server's certificate, renewed months early.
	renewEvery = 12 * time.Hour
)

// StoreDir returns the directory of the embedded store within a server's data directory.
func StoreDir(dataDir string) string { return Embedded{DataDir: dataDir}.etcdDir() }

// The files of a data directory.
func (o Embedded) etcdDir() string       { return filepath.Join(o.DataDir, "etcd") }
func (o Embedded) memberSocket() string  { return filepath.Join(o.DataDir, "member.sock") } // etcd's, behind the front
func (o Embedded) metricsSocket() string { return filepath.Join(o.DataDir, "metrics.sock") }
func (o Embedded) socket() string        { return filepath.Join(o.DataDir, "etcd.sock") }
func (o Embedded) tlsSocket() string     { return filepath.Join(o.DataDir, "etcd-tls.sock") }
func (o Embedded) lockFile() string      { return filepath.Join(o.DataDir, "lock") }
func (o Embedded) tlsDir() string        { return filepath.Join(o.DataDir, "tls") }
func (o Embedded) caCert() string        { return filepath.Join(o.tlsDir(), "ca.crt") }
func (o Embedded) caKey() string         { return filepath.Join(o.tlsDir(), "ca.key") }
func (o Embedded) serverCert() string    { return filepath.Join(o.tlsDir(), "server.crt") }
func (o Embedded) serverKey() string     { return filepath.Join(o.tlsDir(), "server.key") }
func (o Embedded) rootCert() string      { return filepath.Join(o.tlsDir(), "root.crt") }
func (o Embedded) rootKey() string       { return filepath.Join(o.tlsDir(), "root.key") }

// member is the running server.
type member struct {
	etcd  *embed.Etcd
	front *front
	lock  *os.File

	options  Embedded
	log      *slog.Logger
	known    []Member // of the cluster, as recorded last
	learners learners
	removed  string // the store's directory, if it was removed from its cluster

	certificates sync.Mutex // held while their files and the authority's are written
	peersTrust   []string   // see PeersTrust

	quota   int64
	sized   atomic.Int64 // the database's size when it was last read
	unsized atomic.Int64 // bytes accepted since: etcd writes them every tenth of a second
	ledger  *ledger
	disk    *disk                // nil without a reserve
	stops   []context.CancelFunc // of what runs in the background
	running sync.WaitGroup
}

func openEmbedded(ctx context.Context, o Embedded, log *slog.Logger) (*Etcd, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	lock, err := o.lock()
	if err != nil {
		return nil, err
	}
	m := &member{lock: lock, options: o, log: log}
	if err := errors.Join(o.checkAlone(), o.checkMember()); err != nil {
		m.close()
		return nil, err
	}
	s, err := m.open(ctx, o, log)
	if err != nil {
		m.close()
		if moved := new(MovedError); errors.As(err, &moved) {
			return nil, err // it names the directory
		}
		return nil, fmt.Errorf("store in %s: %w", o.DataDir, err)
	}
	return s, nil
}

func (m *member) open(ctx context.Context, o Embedded, log *slog.Logger) (*Etcd, error) {
	var authority *Authority
	if o.Agents != "" {
		var err error
		if authority, err = o.openCertificates(time.Now()); err != nil {
			return nil, err
		}
		if o.Peer != nil {
			m.peersTrust = authority.TrustedFingerprints()
		}
	}
	// Sockets of an earlier server would mislead commands of this machine.
	for _, socket := range []string{o.memberSocket(), o.metricsSocket(), o.socket(), o.tlsSocket()} {
		if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	if o.Reserve {
		m.disk = newDisk(o, log)
		if err := m.disk.prepare(); err != nil {
			return nil, err
		}
	}
	m.quota, m.ledger = o.quota(), newLedger(hostLimits(o.quota()))
	config := o.config(log)
	m.front = newFront(o.memberSocket(), limitConnections(openFiles()), log)
	if o.Agents != "" {
		config.GRPCAdditionalServerOptions = append(config.GRPCAdditionalServerOptions, grpc.Creds(o.followingTLS()))
	}
	config.GRPCAdditionalServerOptions = append(config.GRPCAdditionalServerOptions, grpc.ChainUnaryInterceptor(m.enforce), grpc.ChainStreamInterceptor(m.recognize))
	if o.beginsToJoin() {
		if err := o.recordJoin(); err != nil {
			return nil, err
		}
	}
	if err := m.start(ctx, config); err != nil {
		return nil, err
	}
	s := m.client(log)
	s.ledger = m.ledger
	if o.Peer != nil {
		if err := m.join(ctx, s); err != nil {
			s.client.Close()
			return nil, err
		}
	}
	if m.disk != nil {
		m.disk.size = m.etcd.Server.Backend().Size
		m.background(m.disk.run)
	}
	s.authority.Store(authority)
	if !o.Moved {
		if err := o.checkMoved(ctx, s); err != nil {
			s.client.Close()
			return nil, err
		}
	}
	if err := m.serve(ctx, s, o, log); err != nil {
		s.client.Close()
		return nil, err
	}
	return s, nil
}

// client returns a client within this process, as root.
func (m *member) client(log *slog.Logger) *Etcd {
	s := newEtcd(v3client.New(m.etcd.Server), asRoot, log)
	s.member, s.embedded = m, true
	return s
}

// serve sets up authentication and starts to listen.
func (m *member) serve(ctx context.Context, s *Etcd, o Embedded, log *slog.Logger) error {
	if o.Agents == "" {
		if err := s.disableAuth(ctx); err != nil {
			return explain(ctx, "disable authentication", err)
		}
		return m.listen(o.socket(), o.Listen, false)
	}
	if err := m.syncAuthority(ctx, s); err != nil {
		return err
	}
	if err := s.enableAuth(ctx); err != nil {
		return explain(ctx, "enable authentication", err)
	}
	if err := m.adoptLeases(ctx, s); err != nil {
		return err
	}
	m.background(func(ctx context.Context) { m.followAuthority(ctx, s) })
	m.background(func(ctx context.Context) { m.renew(ctx) })
	return m.listen(o.tlsSocket(), o.Agents, true)
}

// listen accepts connections at a local socket and at an address, which strangers may reach.
func (m *member) listen(socket, address string, strangers bool) error {
	if err := m.front.listen("unix", socket, false); err != nil || address == "" {
		return err
	}
	return m.front.listen("tcp", address, strangers)
}

func (o Embedded) check() error {
	if o.DataDir == "" {
		return errors.New("store: no data directory given")
	}
	if o.Existing {
		if _, err := os.Stat(o.etcdDir()); err != nil {
			return fmt.Errorf("%s holds no store: name the data directory of heddle serve (%w)", o.DataDir, err)
		}
	}
	if err := o.checkPeer(); err != nil {
		return err
	}
	if over := len(o.tlsSocket()) - longestSocket; over > 0 {
		return fmt.Errorf("store data directory %s: its path is %d bytes too long for a socket", o.DataDir, over)
	}
	if o.Listen == "" {
		return nil
	}
	if o.Agents != "" {
		return errors.New("store: a listener without TLS cannot be had while agents of other hosts are served")
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

// lock makes the data directory if need be, and locks it for this process.
func (o Embedded) lock() (*os.File, error) {
	// etcd requires a directory that only its owner can read.
	if err := os.MkdirAll(o.tlsDir(), 0o700); err != nil {
		return nil, fmt.Errorf("store data directory: %w", err)
	}
	f, err := os.OpenFile(o.lockFile(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("store data directory %s: %w", o.DataDir, ErrInUse)
	}
	return f, nil
}

// openCertificates makes the authority if there is none, and renews the certificates if they are
// due.
func (o Embedded) openCertificates(now time.Time) (*Authority, error) {
	if err := o.makeAuthority(now); err != nil {
		return nil, err
	}
	return o.keepCertificates(now)
}

// keepCertificates renews the certificates of the server and of root if they are due or signed by
// an authority that does not sign any more.
func (o Embedded) keepCertificates(now time.Time) (*Authority, error) {
	a, err := o.readAuthority()
	if err != nil {
		return nil, err
	}
	var peer error
	if o.Peer != nil {
		peer = a.keepPair(o.peerCert(), o.peerKey(), peerTemplate(o.Peer.Listen, now), now)
	}
	return a, errors.Join(peer,
		a.keepPair(o.serverCert(), o.serverKey(), serverTemplate(o.names(), now), now),
		a.keepPair(o.rootCert(), o.rootKey(), rootTemplate(now), now))
}

// names returns the names and addresses of the server.
func (o Embedded) names() []string {
	// etcd's clients expect a server on a socket to be named as the socket is.
	names := append([]string{"localhost", "127.0.0.1", "::1", filepath.Base(o.tlsSocket())}, o.Names...)
	if h, err := os.Hostname(); err == nil {
		names = append(names, h)
	}
	host, _, _ := net.SplitHostPort(o.Agents)
	ip, err := netip.ParseAddr(host)
	switch {
	case o.Agents != "" && (host == "" || err == nil && ip.IsUnspecified()):
		names = append(names, MachineAddresses()...)
	case host != "":
		names = append(names, host)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// MachineAddresses returns this machine's addresses without link-local ones.
func MachineAddresses() []string {
	var out []string
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			out = append(out, n.IP.String())
		}
	}
	return out
}

func (o Embedded) quota() int64 { return cmp.Or(o.Quota, quotaBytes) }

func (o Embedded) config(log *slog.Logger) *embed.Config {
	c := embed.NewConfig()
	c.Name = memberName
	c.Dir = o.etcdDir()
	c.MaxTxnOps = MaxTxnOps
	c.MaxRequestBytes = MaxRequestBytes
	c.QuotaBackendBytes = o.quota() + etcdSlack
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

	c.ListenPeerUrls = nil
	c.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "localhost:2380"}}
	c.InitialCluster = memberName + "=" + peerURL
	c.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "localhost:2379"}}
	scheme := "unix"
	if o.Agents != "" {
		scheme = "unixs"
		c.ClientTLSInfo.CertFile = o.serverCert()
		c.ClientTLSInfo.KeyFile = o.serverKey()
		c.ClientTLSInfo.TrustedCAFile = o.caCert()
	}
	c.ClientTLSInfo.ClientCertAuth = true // has etcd believe asRoot, too
	c.ListenClientUrls = []url.URL{{Scheme: scheme, Path: o.memberSocket()}}
	if o.Agents != "" {
		// etcd's HTTP pages show the command line and metrics: root has them on a socket of their
		// own, and hosts reach gRPC alone. Local programs have all of etcd, its JSON API too.
		c.ListenClientHttpUrls = []url.URL{{Scheme: "unix", Path: o.metricsSocket()}}
		c.EnableGRPCGateway = false
	}
	c.ForceNewCluster = o.Alone
	if o.Peer != nil {
		o.configurePeer(c)
	}
	c.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
		MinTime:             leastBetweenProbes,
		PermitWithoutStream: true, // agents probe idle connections, too
	})}
	return c
}

// start returns when the server has a leader.
func (m *member) start(ctx context.Context, c *embed.Config) (err error) {
	if m.etcd, err = embed.StartEtcd(c); err != nil {
		return err
	}
	return m.awaitReady(ctx)
}

// asRoot gives calls within this process root's certificate.
func asRoot(ctx context.Context) context.Context {
	root := [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: rootUser}}}}
	info := credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: root}}
	return peer.NewContext(metadata.NewIncomingContext(ctx, metadata.MD{}), &peer.Peer{AuthInfo: info})
}

// background runs f until the member is closed.
func (m *member) background(f func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	m.stops = append(m.stops, cancel)
	m.running.Go(func() { f(ctx) })
}

// renew keeps the certificates valid until ctx ends. etcd reads them at each handshake.
func (m *member) renew(ctx context.Context) {
	for task.Pause(ctx, renewEvery) {
		m.certificates.Lock()
		_, err := m.options.keepCertificates(time.Now())
		m.certificates.Unlock()
		if err != nil {
			m.log.Error("cannot renew the store's certificate", "directory", m.options.tlsDir(), "err", err)
		}
	}
}

// followingTLS returns the server's side of TLS with certificates and authorities as their files
// have them at each handshake. etcd itself would read the authorities once.
func (o Embedded) followingTLS() credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, err := tls.LoadX509KeyPair(o.serverCert(), o.serverKey())
		if err != nil {
			return nil, err
		}
		trusted, err := os.ReadFile(o.caCert())
		if err != nil {
			return nil, err
		}
		clients := x509.NewCertPool()
		clients.AppendCertsFromPEM(trusted)
		return &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
		}, nil
	}})
}

func (m *member) close() {
	for _, stop := range m.stops {
		stop()
	}
	m.running.Wait()
	if m.front != nil {
		m.front.close()
	}
	if m.etcd != nil {
		if m.options.Peer != nil {
			m.recordMembers(m.knownMembers())
		}
		select {
		case <-m.etcd.Server.ReadyNotify():
		default: // Close would wait for that
			m.etcd.Server.HardStop()
		}
		m.etcd.Close()
	}
	if m.removed != "" {
		m.putAside()
	}
	m.lock.Close() // and with it, unlock
}

// Endpoint returns the host:port at which an embedded store serves agents or programs, or "".
func (s *Etcd) Endpoint() string {
	if s.member == nil {
		return ""
	}
	return s.member.front.endpoint()
}
