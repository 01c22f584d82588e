package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"heddle/internal/cli"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/task"
	"heddle/internal/telemetry"
	xenapi "heddle/internal/xen/client"
	"heddle/internal/xen/tunnel"
)

// tunnelConfig holds the settings of a tunnel controller, as given by flags, environment and file.
type tunnelConfig struct {
	data                                      string
	etcd                                      etcdConfig
	xapi, user, passwordFile, ca, fingerprint string
	json                                      bool
	ovsdb, ovsdbCert, ovsdbKey, ovsdbCA       string
	name, metrics                             string
	log                                       logConfig
	admin                                     adminConfig
}

func tunnelCommand() *cobra.Command {
	var c tunnelConfig
	cmd := &cobra.Command{
		Use:   "tunnel-controller",
		Short: "Join the networks of a XenAPI pool across its hosts by tunnels",
		Long: `Follows a pool by its XenAPI and makes the tunnels between its hosts' bridges in their Open vSwitch databases: for Heddle's own
pools as for those of XCP-ng and XenServer. Several may run over one store; one of them leads, and when it ends another does.
On one machine give each a --metrics address of its own.
What it has decided it keeps in its store: that of the heddle xapi or heddle serve that has --data open on this machine, the cluster
named by --etcd-endpoints, or else one of its own under --data, which the next controller opens when this one ends. When it
ends, traffic goes on.
Hosts' databases that are reached by ssl: know it by the certificate in --ovsdb-cert; over the store of a Heddle pool it makes
itself one, of the authority of controllers that the pool's hosts trust.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	hostname, _ := os.Hostname() // without one, --name is required
	f := cmd.Flags()
	f.StringVar(&c.data, "data", cli.DefaultDataDir, "`directory` of the embedded store")
	c.etcd.flags(f)
	f.StringVar(&c.xapi, "xapi", "http://127.0.0.1:8080", "`URL` of any host of the pool, or those of several with commas between, of which the first that answers is used")
	f.StringVar(&c.user, "user", "root", "account; its role must be tunnel-controller or pool-admin")
	f.StringVar(&c.passwordFile, "password-file", "", "`file` whose first line is its password")
	f.StringVar(&c.ca, "ca", "", "PEM `file` with the authorities of the pool's certificates; default: those of this machine")
	f.StringVar(&c.fingerprint, "fingerprint", "", "`SHA-256` of a certificate of the pool, which then needs no known authority")
	f.BoolVar(&c.json, "json", false, "speak JSON-RPC instead of XML-RPC")
	f.StringVar(&c.ovsdb, "ovsdb", "", "where hosts' Open vSwitch databases are: `unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT` with {address} or {host} in it (default ssl:{address}:6640)")
	f.StringVar(&c.ovsdbCert, "ovsdb-cert", "", "PEM `file` with the controller's certificate for hosts' databases")
	f.StringVar(&c.ovsdbKey, "ovsdb-key", "", "PEM `file` with its key")
	f.StringVar(&c.ovsdbCA, "ovsdb-ca", "", "PEM `file` with the authorities of the databases' certificates")
	f.StringVar(&c.name, "name", hostname, "`name` of this controller for the others")
	f.StringVar(&c.metrics, "metrics", "127.0.0.1:9693", "`address` of /metrics, /healthz, /readyz and, on loopback, /debug/pprof")
	c.log.flags(f)
	c.admin.flags(f, "tunnel-controller")
	return cmd
}

func (c *tunnelConfig) run(ctx context.Context) error {
	log, err := c.log.logger()
	if err != nil {
		return usageError{err}
	}
	if c.passwordFile == "" {
		return usagef("--password-file: give the file with the password of %s", c.user)
	}
	o := tunnel.Options{Name: c.name, OVSDB: c.ovsdb, Log: log.With("part", "tunnels")}
	if o.XenAPI, err = c.pool(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.data, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	issued, err := c.secure(&o)
	if err != nil {
		return err
	}
	if _, err := tunnel.New(o); err != nil { // what is wrong is said before the store is waited for
		return usageError{err}
	}
	for {
		inherited, err := c.control(ctx, o, issued, log)
		if !inherited || ctx.Err() != nil {
			return err
		}
		log.Info("the controller that had the store open has ended; opening the store", "data", c.data)
	}
}

// control opens the store and runs the controller over it. issued: the store makes its certificate.
// inherited reports that the controller ended that had the store open, so this one has to open it.
func (c *tunnelConfig) control(ctx context.Context, o tunnel.Options, issued bool, log *slog.Logger) (inherited bool, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	st, own, err := openOrConnect(ctx, c.data, log, func() (*backend.Etcd, error) {
		return c.etcd.open(ctx, &backend.Embedded{DataDir: c.data}, nil, log)
	})
	if err != nil || st == nil {
		return false, err
	}
	defer st.Close()
	if len(c.etcd.Endpoints) > 0 {
		switch err := enterStore(ctx, st, c.data, false, log); {
		case errors.Is(err, store.ErrDenied):
			log.Warn("cannot read the schema version of the store, so that a store that was wiped would not be noticed", "err", err)
		case err != nil:
			return false, err
		}
	}
	if issued {
		if err := c.secureBy(ctx, st, &o); err != nil {
			return false, err
		}
	}
	var tasks []task.Task
	switch {
	case len(c.etcd.Endpoints) > 0:
	case own:
		if err := holdStore(c.data); err != nil {
			return false, fmt.Errorf("say that the store is open: %w", err)
		}
	default:
		h, err := newHolderExit(c.data, func() { inherited = true; stop() })
		if err != nil {
			return false, err
		}
		if h != nil {
			defer h.close()
			tasks = append(tasks, h)
		}
	}
	o.Store, o.Watchdog = st, new(task.Watchdog)
	controller, err := tunnel.New(o)
	if err != nil {
		return false, usageError{err}
	}
	metrics := telemetry.NewMetrics(version)
	metrics.Register(controller.Metrics)
	log.Info("starting", "version", version, "pool", c.xapi, "user", c.user, "own store", own)
	tasks = append(tasks, c.admin.newHealth(observed{
		Options: telemetry.Options{Listen: c.metrics, Metrics: metrics, Hung: o.Watchdog.Hung, Log: log}, log: &c.log, settings: startedWith(ctx),
	}, waitingFor(&[]task.Task{controller}))...)
	tasks = append(tasks, newStoreProbe(st, log, metrics), controller)
	err = task.Run(ctx, tasks...)
	return inherited, err
}

// pool returns the client options for the pool.
func (c *tunnelConfig) pool() (o xenapi.Options, err error) {
	o = xenapi.Options{URL: c.xapi, User: c.user, Fingerprint: c.fingerprint, JSON: c.json, Originator: "heddle tunnel-controller"}
	if o.Password, err = readPassword(c.passwordFile); err != nil {
		return o, err
	}
	if c.ca != "" {
		if o.TLS, err = xenapi.Authorities(c.ca); err != nil {
			return o, usagef("--ca: %w", err)
		}
	}
	return o, nil
}

// secure configures TLS to hosts' databases with the given certificates. A database's certificate
// is accepted under any name, since the names of XCP-ng hosts are unknown. issued reports that no
// certificate was given: then secureBy has the store make one.
func (c *tunnelConfig) secure(o *tunnel.Options) (issued bool, err error) {
	if c.ovsdb != "" && !strings.HasPrefix(c.ovsdb, "ssl:") {
		return false, nil
	}
	if (c.ovsdbCert == "") != (c.ovsdbKey == "") || (c.ovsdbCert == "") != (c.ovsdbCA == "") {
		return false, usagef("--ovsdb-cert, --ovsdb-key and --ovsdb-ca go together")
	}
	if c.ovsdbCert == "" {
		if _, err := os.Stat(backend.AuthorityFile(c.data)); errors.Is(err, os.ErrNotExist) && len(c.etcd.Endpoints) == 0 {
			return false, c.noAuthority()
		}
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		return true, nil
	}
	roots, err := xenapi.Authorities(c.ovsdbCA)
	if err != nil {
		return false, usagef("--ovsdb-ca: %w", err)
	}
	if _, err := tls.LoadX509KeyPair(c.ovsdbCert, c.ovsdbKey); err != nil {
		return false, usagef("--ovsdb-cert, --ovsdb-key: %w", err)
	}
	o.TLS = &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // it may have been renewed
			pair, err := tls.LoadX509KeyPair(c.ovsdbCert, c.ovsdbKey)
			return &pair, err
		},
		InsecureSkipVerify: true, // VerifyConnection verifies all but the name
		VerifyConnection:   func(cs tls.ConnectionState) error { return follows(cs.PeerCertificates, roots.RootCAs) },
	}
	return false, nil
}

func (c *tunnelConfig) noAuthority() error {
	return usagef("hosts' databases are reached by ssl, and %s holds no authority: give --ovsdb-cert, --ovsdb-key and --ovsdb-ca, or run over the store of the server that hosts have joined", c.data)
}

// secureBy has the store make the controller's certificate, which the pool's hosts trust.
func (c *tunnelConfig) secureBy(ctx context.Context, st *backend.Etcd, o *tunnel.Options) error {
	hosts, err := st.HostsAuthority(ctx)
	if errors.Is(err, store.ErrNotFound) {
		if hosts, err = os.ReadFile(backend.AuthorityFile(c.data)); errors.Is(err, os.ErrNotExist) {
			return c.noAuthority()
		}
	}
	if err != nil {
		return fmt.Errorf("authority of hosts: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(hosts) {
		return errors.New("authority of hosts: no certificate in PEM found")
	}
	certificate, err := st.NewController(ctx, "tunnel-controller")
	if err != nil {
		return fmt.Errorf("certificate for hosts' databases: %w", err)
	}
	o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, GetClientCertificate: certificate.Certificate}
	o.ServerName = backend.CertificateName
	return nil
}

// follows verifies a server's certificate against authorities, whatever its name.
func follows(chain []*x509.Certificate, roots *x509.CertPool) error {
	if len(chain) == 0 {
		return errors.New("the database presents no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}
