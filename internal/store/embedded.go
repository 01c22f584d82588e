package store

import (
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
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// Embedded is an etcd server of one member in this process. Commands of this machine reach it through a socket in its
// data directory, which only its owner can enter.
type Embedded struct {
	DataDir string
	// Listen is host:port on loopback for other programs of this machine, without TLS; "" for none. Whoever can
	// connect to it can do everything, so it cannot be had together with Agents.
	Listen string
	// Agents is host:port for the agents of other hosts; "" for none. They need a certificate that this store has
	// signed, and may do what [Etcd.AllowHost] says.
	Agents string
	// Names are the names and addresses by which agents reach Agents, for the server's certificate. Those of this
	// machine, and the address listened on, need not be named.
	Names []string
	// Existing refuses a directory that has no store, where otherwise one is made.
	Existing bool
	// Reserve keeps a reserve on the disk, so that a full one stops writes and nothing else.
	Reserve bool
	// Moved opens a store that was moved into a cluster, too, which is refused otherwise with a [MovedError].
	Moved bool
	// Quota is the size of the database at which writes end, bytes; 0 is 8 GiB, the most that etcd recommends.
	Quota int64
	// Tick is etcd's heartbeat; a start takes about ten of them. 0 is etcd's own default of 100 ms.
	Tick time.Duration
	// NoFsync makes commits that are lost when the machine fails. For tests.
	NoFsync bool
}

const (
	memberName = "heddle"
	// peerURL names the only member to itself. Nobody listens there.
	peerURL = "http://localhost:2380"
	// quotaBytes is the default of Quota.
	quotaBytes = 8 << 30
	// keepHistory is how long etcd keeps old revisions, for watches that were away. Those away longer list again.
	keepHistory = 10 * time.Minute
	// etcd keeps this many entries of its log in memory between snapshots, and after one. There is no follower to catch up.
	logEntries, logCatchUp = 5000, 100
	// longestSocket is what the kernel takes as the path of a socket, bytes (unix(7)).
	longestSocket = 107
	// renewEvery is how often the server's certificate is looked at; it is renewed months before its end.
	renewEvery = 12 * time.Hour
)

// The files of a data directory.
func (o Embedded) etcdDir() string      { return filepath.Join(o.DataDir, "etcd") }
func (o Embedded) memberSocket() string { return filepath.Join(o.DataDir, "member.sock") } // etcd's, behind the front
func (o Embedded) socket() string       { return filepath.Join(o.DataDir, "etcd.sock") }
func (o Embedded) tlsSocket() string    { return filepath.Join(o.DataDir, "etcd-tls.sock") }
func (o Embedded) lockFile() string     { return filepath.Join(o.DataDir, "lock") }
func (o Embedded) tlsDir() string       { return filepath.Join(o.DataDir, "tls") }
func (o Embedded) caCert() string       { return filepath.Join(o.tlsDir(), "ca.crt") }
func (o Embedded) caKey() string        { return filepath.Join(o.tlsDir(), "ca.key") }
func (o Embedded) serverCert() string   { return filepath.Join(o.tlsDir(), "server.crt") }
func (o Embedded) serverKey() string    { return filepath.Join(o.tlsDir(), "server.key") }
func (o Embedded) rootCert() string     { return filepath.Join(o.tlsDir(), "root.crt") }
func (o Embedded) rootKey() string      { return filepath.Join(o.tlsDir(), "root.key") }

// member is the running server.
type member struct {
	etcd  *embed.Etcd
	front *front
	lock  *os.File

	quota   int64
	sized   atomic.Int64 // the database's size when it was last asked for
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
	m := &member{lock: lock}
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
		if authority, err = o.certificates(time.Now()); err != nil {
			return nil, err
		}
	}
	// What a server before left behind would mislead commands of this machine.
	for _, socket := range []string{o.memberSocket(), o.socket(), o.tlsSocket()} {
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
	config.GRPCAdditionalServerOptions = append(config.GRPCAdditionalServerOptions, grpc.ChainUnaryInterceptor(m.enforce), grpc.ChainStreamInterceptor(m.recognize))
	if err := m.start(ctx, config); err != nil {
		return nil, err
	}
	s := m.client(log)
	s.ledger = m.ledger
	if m.disk != nil {
		m.disk.size = m.etcd.Server.Backend().Size
		m.background(m.disk.run)
	}
	s.authority = authority
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

// client is root's, within this process.
func (m *member) client(log *slog.Logger) *Etcd {
	s := newEtcd(v3client.New(m.etcd.Server), asRoot, log)
	s.member, s.embedded = m, true
	return s
}

// serve lets in who is to be served.
func (m *member) serve(ctx context.Context, s *Etcd, o Embedded, log *slog.Logger) error {
	if o.Agents == "" {
		if err := s.disableAuth(ctx); err != nil {
			return explain(ctx, "disable authentication", err)
		}
		return m.listen(o.socket(), o.Listen, false)
	}
	if err := o.rememberAuthority(ctx, s); err != nil {
		return err
	}
	if err := s.enableAuth(ctx); err != nil {
		return explain(ctx, "enable authentication", err)
	}
	if err := m.adoptLeases(ctx, s); err != nil {
		return err
	}
	m.background(func(ctx context.Context) { renew(ctx, o, log) })
	return m.listen(o.tlsSocket(), o.Agents, true)
}

// listen takes connections at a socket of this machine and at an address, which strangers can reach or not.
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

// lock makes the data directory if need be, and takes it for this process.
func (o Embedded) lock() (*os.File, error) {
	// etcd insists on a directory that its owner alone can read.
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

// certificates sees that those of the server and of root are there and will last.
func (o Embedded) certificates(now time.Time) (*Authority, error) {
	a, err := keepAuthority(o.caCert(), o.caKey(), now)
	if err != nil {
		return nil, err
	}
	return a, errors.Join(
		a.keepPair(o.serverCert(), o.serverKey(), serverTemplate(o.names(), now), now),
		a.keepPair(o.rootCert(), o.rootKey(), rootTemplate(now), now))
}

// names are all by which the server may be reached.
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
		names = append(names, addresses()...)
	case host != "":
		names = append(names, host)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// addresses are this machine's, without those that need a zone to be reached.
func addresses() []string {
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

func (o Embedded) quota() int64 {
	if o.Quota == 0 {
		return quotaBytes
	}
	return o.Quota
}

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
	return c
}

// start returns when the server has a leader.
func (m *member) start(ctx context.Context, c *embed.Config) (err error) {
	if m.etcd, err = embed.StartEtcd(c); err != nil {
		return err
	}
	select {
	case <-m.etcd.Server.ReadyNotify():
		return nil
	case err := <-m.etcd.Err():
		return err
	case <-ctx.Done():
		return fmt.Errorf("not ready: %w", ctx.Err())
	}
}

// asRoot has calls within this process count as root's, as if they came with root's certificate.
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

// renew keeps the certificates good until ctx ends. etcd reads them at each handshake.
func renew(ctx context.Context, o Embedded, log *slog.Logger) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if _, err := o.certificates(now); err != nil {
				log.Error("cannot renew the store's certificate", "directory", o.tlsDir(), "err", err)
			}
		}
	}
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
		m.etcd.Close()
	}
	m.lock.Close() // and with it, unlock
}

// Endpoint is where an embedded store serves agents, or this machine's programs, as host:port; "" when it does not.
func (s *Etcd) Endpoint() string {
	if s.member == nil {
		return ""
	}
	return s.member.front.endpoint()
}
