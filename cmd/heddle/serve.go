package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"heddle/internal/api"
	"heddle/internal/api/authority"
	"heddle/internal/api/console"
	"heddle/internal/api/hosts"
	"heddle/internal/api/identity"
	"heddle/internal/api/neutronv2"
	"heddle/internal/api/servers"
	"heddle/internal/cli"
	"heddle/internal/control"
	"heddle/internal/history"
	"heddle/internal/sealing"
	"heddle/internal/services"
	"heddle/internal/spans"
	"heddle/internal/store/backend"
	"heddle/internal/store/journal"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/task"
	"heddle/internal/telemetry"
	"heddle/internal/vtep"
)

// serveConfig holds the settings of a server, as given by flags, environment and file.
type serveConfig struct {
	data    string
	etcd    etcdConfig
	cluster clusterConfig

	neutron                     string // listen address; "" = no Neutron API
	loadBalancer                loadBalancerConfig
	identity, operator, metrics string // listen addresses
	agents                      string // of the embedded store for agents of other hosts; "" = none
	etcdListen                  string // of the embedded store for programs of this machine; "" = its socket only
	storeQuotaMiB               int64
	publicHost                  string
	tlsCert, tlsKey, tlsCA      string
	allowPlain, behindProxy     bool

	certificateLife         time.Duration // of hosts
	hostsCACert, hostsCAKey string        // with a cluster: the authority of its clients
	adminPassword           string
	keystone                keystoneConfig

	underlayMTU int
	dnsDomain   string
	dnsUpdate   dnsUpdateConfig
	nova        novaConfig
	physnets    []string
	vnis        string
	log         logConfig
	spans       spansConfig
	admin       adminConfig
}

// keystoneConfig names an existing Keystone and Heddle's service user there.
type keystoneConfig struct {
	url, user, passwordFile, project, ca string
}

// open returns Keystone's client.
func (c *keystoneConfig) open() (*identity.Keystone, error) {
	password, err := os.ReadFile(c.passwordFile)
	if err != nil {
		return nil, usagef("--keystone-password-file: %w", err)
	}
	o := identity.KeystoneOptions{URL: c.url, Username: c.user, Password: strings.TrimSpace(string(password)), ProjectName: c.project}
	if c.ca != "" {
		pem, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, usagef("--keystone-ca: %w", err)
		}
		o.RootCAs = x509.NewCertPool()
		if !o.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--keystone-ca %s: no certificate in PEM found", c.ca)
		}
	}
	k, err := identity.NewKeystone(o)
	if err != nil {
		return nil, usageError{err}
	}
	return k, nil
}

func serveCommand() *cobra.Command {
	var c serveConfig
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the control plane: Neutron, identity and the operators' API over the store",
		Long: `Runs the APIs over an etcd embedded in this process (its data under --data), or over the cluster named by --etcd-endpoints.
The first start makes the user admin with a random password, and writes clouds.yaml and openrc into the data directory.
Any number of servers may run over one cluster. With --cluster the embedded stores of several servers are one themselves: the first makes it, and each
other one joins by a token that heddle cluster token prints.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.data, "data", cli.DefaultDataDir, "`directory` of the embedded store, its keys, clouds.yaml and openrc")
	c.etcd.flags(f)
	c.cluster.flags(f)
	f.StringVar(&c.neutron, "neutron-listen", "127.0.0.1:9696", "`address` of the Neutron API")
	c.loadBalancer.flags(f)
	f.StringVar(&c.identity, "identity-listen", "127.0.0.1:5000", "`address` of the identity API")
	f.StringVar(&c.operator, "operator-listen", "127.0.0.1:9698", "`address` of the operators' API: hosts, traces, backup")
	f.StringVar(&c.agents, "agents-listen", "", "`address` at which the embedded store serves agents of other hosts, with TLS and a certificate for each host, such as 192.0.2.1:2379;\nthe operators' API then has a certificate of the same authority, unless --tls-cert is given")
	f.StringVar(&c.etcdListen, "etcd-listen", "", "loopback `address` at which programs of this machine use the embedded store as plain etcd, such as 127.0.0.1:2379:\nwhoever can connect there can do everything")
	c.quotaFlag(f)
	f.Int64Var(&c.etcd.quotaMiB, "etcd-quota", 0, cli.EtcdQuotaUsage)
	f.StringVar(&c.hostsCACert, "hosts-ca-cert", "", "with --etcd-endpoints: PEM `file` of the authority whose client certificates the cluster accepts; hosts that join get one")
	f.StringVar(&c.hostsCAKey, "hosts-ca-key", "", "PEM `file` with its key")
	f.DurationVar(&c.certificateLife, "host-certificate-life", hosts.DefaultCertificateLife, "how long the certificate of a host is good; its agent renews it at half of that")
	f.StringVar(&c.metrics, "metrics", "127.0.0.1:9697", "`address` of /metrics, /healthz, /readyz and, on loopback, /debug/pprof")
	f.StringVar(&c.publicHost, "public-host", "", "`name` by which clients reach this server; default: the listen address, or how each client came")
	f.StringVar(&c.tlsCert, "tls-cert", "", "PEM `file` with the certificate of the APIs and the chain to its authority")
	f.StringVar(&c.tlsKey, "tls-key", "", "PEM `file` with its key")
	f.StringVar(&c.tlsCA, "tls-ca", "", "PEM `file` with its authority, where clients lack it; written into clouds.yaml and openrc")
	f.BoolVar(&c.allowPlain, "allow-plain-http", false, "serve plain HTTP on other than loopback addresses too: tokens and passwords can then be read on the way")
	f.BoolVar(&c.behindProxy, "behind-proxy", false, "believe the X-Forwarded headers of a proxy in front")
	f.StringVar(&c.adminPassword, "admin-password", "", "password of the user admin, set at the start; best given as "+environmentName("admin-password"))
	f.StringVar(&c.keystone.url, "keystone-url", "", "`URL` of an existing Keystone to use instead of the built-in identity service")
	f.StringVar(&c.keystone.user, "keystone-user", "", "service user that may validate tokens there")
	f.StringVar(&c.keystone.passwordFile, "keystone-password-file", "", "`file` with its password")
	f.StringVar(&c.keystone.project, "keystone-project", "service", "project of that user")
	f.StringVar(&c.keystone.ca, "keystone-ca", "", "PEM `file` with the authority of its certificate; default: those of this machine")
	f.IntVar(&c.underlayMTU, "underlay-mtu", 1500, "largest packet that travels between hosts, in `bytes`; networks get 50 less")
	f.StringVar(&c.dnsDomain, "dns-domain", "openstacklocal", "`domain` of the names of ports' addresses (dns_assignment), which machines get by DHCP")
	c.dnsUpdate.flags(f)
	c.nova.flags(f)
	f.StringArrayVar(&c.physnets, "physical-network", nil, "`NAME[:flat][:MIN-MAX…]` a provider network, whether it may carry a flat one, and VLAN ids to choose from; repeatable")
	f.StringVar(&c.vnis, "vni-range", "1-16777215", "`MIN-MAX` segmentation ids to choose from for networks of type vxlan")
	c.log.flags(f)
	c.spans.flags(f)
	c.admin.flags(f, "serve")
	return cmd
}

// run builds the parts in start order and runs them.
func (c *serveConfig) run(ctx context.Context) error {
	log, err := c.log.logger()
	if err != nil {
		return usageError{err}
	}
	physnets, err1 := parsePhysicalNetworks(c.physnets)
	vnis, err2 := parseIDRange(c.vnis, 1<<24-1)
	if err2 != nil {
		err2 = fmt.Errorf("--vni-range %q: %w", c.vnis, err2)
	}
	if err := cmp.Or(err1, err2); err != nil {
		return usageError{err}
	}
	if err := cmp.Or(c.checkTLS(), c.checkQuota(), c.spans.check(), c.dnsUpdate.check(), c.nova.check()); err != nil {
		return err
	}
	if c.certificateLife <= 0 {
		return usagef("--host-certificate-life %v: want a time above 0", c.certificateLife)
	}
	if err := os.MkdirAll(c.data, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	st, err := c.openStore(ctx, log)
	if err != nil || st == nil {
		return err
	}
	defer st.Close()
	s, err := c.newServer(ctx, st, log)
	if err != nil {
		return err
	}
	if err := s.addNeutron(ctx, physnets, vnis); err != nil {
		return err
	}
	if s.inherited, err = api.Inherit(); err != nil {
		return err
	}
	if err := s.addAPIs(); err != nil {
		return err
	}
	if left := s.inherited.Left(); len(left) > 0 {
		return usagef("the service manager listens on %s, where no API is served: give heddle.socket and heddle.yaml the same addresses, by /etc/systemd/system/heddle.socket.d/addresses.conf: "+
			"below [Socket] an empty ListenStream=, and then one for each API; docs/guides/operating.md has it", strings.Join(left, ", "))
	}
	s.tasks = append(s.tasks, newMembership(st, c.cluster.name, "serve", s.describe, log), newLoop("embedded store", st.Serve))
	log.Info("starting", "version", version, "data", c.data, "neutron", c.neutron, "identity", c.identity, "operator", c.operator)
	return task.Run(ctx, s.tasks...)
}

// newServer returns a server with the parts that every server has.
func (c *serveConfig) newServer(ctx context.Context, st *backend.Etcd, log *slog.Logger) (*server, error) {
	if err := c.enter(ctx, st, log); err != nil {
		return nil, err
	}
	s := &server{config: c, log: log, store: st, metrics: telemetry.NewMetrics(version), watchdog: new(task.Watchdog)}
	if err := s.addSpans(); err != nil {
		return nil, err
	}
	s.replica = replica.New(st, replica.Options{Log: log.With("part", "replica"), Watch: schema.Root, Watchdog: s.watchdog}, slices.Concat(schema.All(), hosts.Tables(), servers.Tables())...)
	s.db = records.NewDB(st, s.replica)
	s.tasks = append(s.tasks, c.admin.newHealth(observed{
		Options: telemetry.Options{Listen: c.metrics, Metrics: s.metrics, Hung: s.watchdog.Hung, Log: log},
		log:     &c.log, settings: startedWith(ctx),
	}, s.waiting)...)
	s.journal = history.NewJournal(c.data, st, log.With("part", "journal"))
	s.tasks = append(s.tasks, newStoreProbe(st, log, s.metrics), s.replica, s.journal, history.NewJanitor(st, log.With("part", "audit")))
	age, aging := newReplicaAge(s.replica.Fresh)
	s.tasks = append(s.tasks, aging)
	s.metrics.Register(func() []telemetry.Value { return slices.Concat(s.figures(), age.metrics(time.Now())) })
	s.metrics.Register(c.serverCertificates().metrics)
	s.addSpace()
	return s, nil
}

// addSpans adds the task that sends spans, if there is a receiver.
func (s *server) addSpans() (err error) {
	if s.spans, err = s.config.spans.open("serve", s.config.cluster.name, s.metrics, s.log); s.spans != nil {
		s.tasks = append(s.tasks, s.spans)
	}
	return err
}

// enter checks that the store is one of Heddle's. An empty data directory becomes a new cloud; an
// empty cluster that this machine has used before does not.
func (c *serveConfig) enter(ctx context.Context, st *backend.Etcd, log *slog.Logger) error {
	if len(c.etcd.Endpoints) > 0 {
		return enterStore(ctx, st, c.data, false, log)
	}
	return schema.KnownFormats().Check(ctx, st)
}

// checkTLS rejects half a certificate.
func (c *serveConfig) checkTLS() error {
	if (c.tlsCert == "") != (c.tlsKey == "") {
		return usagef("--tls-cert and --tls-key go together")
	}
	if c.tlsCA == "" {
		return nil
	}
	if c.tlsCert == "" {
		return usagef("--tls-ca goes with --tls-cert")
	}
	if _, err := os.Stat(c.tlsCA); err != nil {
		return usagef("--tls-ca: %w", err)
	}
	return nil
}

// server holds the parts of `heddle serve` while they are put together.
type server struct {
	config   *serveConfig
	log      *slog.Logger
	store    *backend.Etcd
	metrics  *telemetry.Metrics
	spans    *spans.Tracer // nil: nothing is recorded
	watchdog *task.Watchdog
	replica  *replica.Replica
	db       *records.DB
	journal  *journal.Journal
	control  *control.Service
	// draft makes Neutron's API over another store.
	draft    func(db *records.DB, tokens api.Validator) (http.Handler, error)
	secrets  *sealing.ServerKey // nil: its file is missing
	statuses *control.Statuses
	tokens   console.Accounts
	// identityURL is returned to clients without a valid token.
	identityURL string
	hosts       hosts.Options  // by which hosts join
	inherited   *api.Inherited // sockets of the APIs, of the service manager
	tasks       []task.Task
}

// addNeutron adds the parts of Neutron's resources; addAPIs adds their API.
func (s *server) addNeutron(ctx context.Context, physnets map[string]control.PhysicalNetwork, vnis control.IDRange) (err error) {
	c := s.config
	if s.secrets, err = s.secretsKey(ctx); err != nil {
		return fmt.Errorf("key of machines' metadata: %w", err)
	}
	s.statuses = control.NewStatuses(s.store, s.log.With("part", "statuses"))
	o := control.Options{
		UnderlayMTU: c.underlayMTU, PhysicalNetworks: physnets, VXLANs: vnis, DNSDomain: c.dnsDomain, Statuses: s.statuses, SecretsKey: s.secrets,
	}
	if s.control, err = control.New(s.db, o); err != nil {
		return usageError{err}
	}
	s.draft = func(db *records.DB, tokens api.Validator) (http.Handler, error) {
		ops, err := control.New(db, o)
		if err != nil {
			return nil, err
		}
		return s.neutronAPI(ops, tokens), nil
	}
	s.tasks = append(s.tasks, newStep("Calico data", func(ctx context.Context) error { return openCalico(ctx, s.store) }), s.statuses,
		control.NewBindings(s.control, s.replica, s.log.With("part", "bindings")), control.NewMoves(s.control, s.replica, s.log.With("part", "moves")),
		control.NewArrivals(s.control, s.replica, s.log.With("part", "arrivals")),
		control.NewKeys(s.control, s.replica, s.log.With("part", "calico keys")),
		control.NewInstances(s.control, s.replica, s.log.With("part", "instances")),
		control.NewDomains(s.control, s.replica, s.log.With("part", "domains")),
		control.NewNetworkSharing(s.control, s.replica, s.log.With("part", "network sharing")),
		s.newScheduler(), s.newGateways(),
		control.NewPending(s.control, s.replica, s.log.With("part", "pending work")),
		records.NewGuardSweeper(s.db, s.log.With("part", "guards")))
	s.addNova()
	return s.addDNSUpdates()
}

// newScheduler returns the task that chooses the hosts of service containers.
func (s *server) newScheduler() task.Task {
	scheduler := services.NewScheduler(services.SchedulerOptions{DB: s.db, Store: s.store, Objects: s.replica, Log: s.log.With("part", "scheduler")})
	s.metrics.Register(scheduler.Metrics)
	return scheduler
}

// newGateways returns the task that drives the switches of gateway devices.
func (s *server) newGateways() task.Task {
	name, _ := os.Hostname() // without one the agents list lacks it
	return vtep.New(vtep.Options{Store: s.store, Objects: s.replica, Server: name, Log: s.log.With("part", "gateways")})
}

// addAPIs adds the APIs: identity, Neutron if it is served, and the operators'.
func (s *server) addAPIs() error {
	if err := s.addIdentity(); err != nil {
		return err
	}
	if s.control != nil {
		if err := errors.Join(s.addNeutronAPI(), s.addLoadBalancerAPI()); err != nil {
			return err
		}
	}
	return s.addOperator()
}

// storeTimeout bounds the store's answer time in readiness checks.
const storeTimeout = time.Second

// waiting returns the parts that are not ready, or why the store does not answer.
func (s *server) waiting() []string {
	names := task.Waiting(s.tasks)
	if len(names) > 0 {
		return names
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if _, err := s.replica.Lag(ctx); err != nil {
		return []string{"the store: " + err.Error()}
	}
	return nil
}

// figures returns the server's metrics except those of requests.
func (s *server) figures() []telemetry.Value {
	snap := s.replica.Snapshot()
	r := records.Over(snap)
	objects := func(kind string, n int) telemetry.Value {
		return telemetry.Gauge.Of("heddle_objects", "Objects in the store.", n).With("kind", kind)
	}
	f := []telemetry.Value{
		telemetry.Gauge.Of("heddle_replica_revision", "Revision of the store that this server has.", int(snap.Revision)),
		telemetry.Flag("heddle_replica_following", "1 while the store's changes are being followed.", s.replica.Following()),
		objects("network", schema.Networks.Count(r)),
		objects("subnet", schema.Subnets.Count(r)),
		objects("port", schema.Ports.Count(r)),
		objects("security_group", schema.SecurityGroups.Count(r)),
		objects("host", schema.Hosts.Count(r)),
		objects("host_alive", schema.AliveHosts(r)),
		objects("port_active", schema.PortStates.Count(r)),
	}
	for name, hosts := range schema.Carriers(r) {
		f = append(f, telemetry.Gauge.Of("heddle_physical_network_carriers", "Live hosts that carry a physical network, of those that networks are on.", hosts).With("network", name))
	}
	return f
}

// addIdentity adds the built-in identity service, or the client of an existing Keystone.
func (s *server) addIdentity() (err error) {
	c := s.config
	if c.keystone.url != "" {
		s.identityURL = c.keystone.url
		s.tokens, err = c.keystone.open()
		return err
	}
	own := c.endpoint("identity", "keystone", c.identity, "/v3")
	if own.URL != "" {
		s.identityURL = own.URL
	}
	service := identity.New(identity.Options{
		Store:    s.store,
		URL:      own.URL,
		Services: c.services(),
		Log:      s.log.With("part", "identity"),
	})
	s.tokens = service
	s.metrics.Register(service.Metrics)
	ca, err := c.clientCA()
	if err != nil {
		return err
	}
	first := identity.BootstrapOptions{Password: c.adminPassword, Dir: c.data, URL: c.localURL(c.identity) + "/v3", CAFile: ca}
	s.tasks = append(s.tasks, service, newStep("first administrator", func(ctx context.Context) error { return service.Bootstrap(ctx, first) }))
	_, err = s.addServer(api.Options{Name: "identity", Listen: c.identity, Handler: withTimeout(service.Handler()), CertFile: c.tlsCert, KeyFile: c.tlsKey, Audited: true})
	return err
}

// requestTimeout bounds an API request. Without its store a server answers 503 after it.
const requestTimeout = 10 * time.Second

// withTimeout cancels requests that take too long, which the API answers as if the store was away.
func withTimeout(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

func (s *server) addNeutronAPI() error {
	c := s.config
	_, err := s.addServer(api.Options{
		Name: "neutron", Listen: c.neutron, Handler: s.neutronAPI(s.control, s.tokens), CertFile: c.tlsCert, KeyFile: c.tlsKey, MaxBody: neutronv2.MaxBody, Refuse: neutronv2.Refuse, Audited: true,
	})
	return err
}

// neutronAPI returns Neutron's API over some operations.
func (s *server) neutronAPI(ops *control.Service, tokens api.Validator) http.Handler {
	return neutronv2.New(neutronv2.Options{
		Operations: ops, Tokens: tokens, IdentityURL: s.identityURL, DNSDomain: s.config.dnsDomain, Timeout: requestTimeout, Log: s.log.With("part", "neutron"),
	})
}

// addOperator adds the operators' API, by which hosts join.
func (s *server) addOperator() error {
	c := s.config
	var srv *api.Server
	open, guarded := http.NewServeMux(), http.NewServeMux()
	status := console.Options{
		DB: s.db, Formats: schema.KnownFormats(), Log: s.log.With("part", "console"), StoreMembers: s.storeMembers, Certificates: s.certificates, Journal: s.journal,
		Neutron: s.draft, Events: console.NewEvents(), Calico: replica.New(s.store, replica.Options{Log: s.log.With("part", "calico objects")}, schema.CalicoObjects()),
	}
	s.tasks = append(s.tasks, status.Calico)
	if s.statuses != nil {
		status.PolicyAgentAlive = s.statuses.AgentAlive
	}
	if c.cluster.on {
		status.Cluster = s.clusterMembers
	}
	s.replica.OnChange(status.Events.Add)
	status.Flows = &console.FlowStreams{Reach: func() (urls []string, pin string) {
		scheme := "http://"
		if pin = srv.Fingerprint(); pin != "" {
			scheme = "https://"
		}
		return c.reachableURLs(scheme, c.operator), pin
	}}
	status.Flows.Register(open)
	console.Register(guarded, status)
	o := hosts.Options{
		DB: s.db, Admission: s.store, StorePort: portOf(c.agents), Endpoints: c.etcd.urls(), CertificateLife: c.certificateLife,
		Pin: func() string { return srv.Fingerprint() }, Log: s.log.With("part", "hosts"),
	}
	if host, _, err := net.SplitHostPort(c.agents); err == nil && host != "" && !net.ParseIP(host).IsUnspecified() {
		o.Endpoints = c.reachableURLs("https://", c.agents) // whatever address the API was reached by
	}
	if e := c.operatorEndpoint(); e.URL != "" {
		o.Servers = []string{e.URL}
	}
	var err error
	if s.store.Authority() != nil {
		if o.CA, err = c.storeCA(s.store.Authority); err != nil {
			return err
		}
		o.HostsCA = func() []byte { return s.store.Authority().PEM() }
		o.Signer = s.store.Authority
	}
	s.hosts = o
	if o.CA != nil {
		s.tasks = append(s.tasks, hosts.NewUpkeep(o))
	}
	s.metrics.Register(hosts.Register(open, guarded, o))
	s.metrics.Register(servers.Register(open, guarded, s.clusterOptions()))
	s.addAuthority(guarded)
	console.RegisterPage(open, s.tokens)
	open.Handle("/", console.WithSession(api.RequireToken(s.tokens, s.identityURL, api.Routes(guarded, api.NoRoute))))
	cert, key := c.operatorCertificate()
	limited := withTimeout(open)
	all := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if console.BoundsItself(r) {
			open.ServeHTTP(w, r)
		} else {
			limited.ServeHTTP(w, r)
		}
	})
	srv, err = s.addServer(api.Options{Name: "operator", Listen: c.operator, Handler: all, CertFile: cert, KeyFile: key, Audited: true})
	return err
}

// addAuthority adds the API and the task that exchange the embedded store's authority.
func (s *server) addAuthority(guarded *http.ServeMux) {
	o := authority.Options{DB: s.db, Log: s.log.With("part", "authority")}
	if s.store.Authority() != nil {
		o.Store, o.Given = s.store, len(s.config.etcd.Endpoints) > 0
	}
	if o.Store != nil && !o.Given {
		s.tasks = append(s.tasks, authority.NewKeeper(o))
	}
	authority.Register(guarded, o)
}

// addServer adds the server of an API. o lacks what all of them share.
func (s *server) addServer(o api.Options) (*api.Server, error) {
	c := s.config
	o.Handler, o.Log, o.Observe, o.Spans = withReserve(o.Handler), s.log.With("part", o.Name), s.metrics.Request, s.spans
	o.AllowPlain, o.Proxy, o.Inherited = c.allowPlain, c.behindProxy, s.inherited
	srv, err := api.NewServer(o)
	if err != nil {
		return nil, usagef("--%s-listen: %w", o.Name, err)
	}
	c.admin.apis = append(c.admin.apis, srv)
	s.tasks = append(s.tasks, srv)
	return srv, nil
}

// quotaFlag adds --store-quota.
func (c *serveConfig) quotaFlag(f *pflag.FlagSet) {
	f.Int64Var(&c.storeQuotaMiB, "store-quota", cli.DefaultStoreQuotaMiB, "size of the embedded store's database at which it is full, in `MiB`; the last eighth is kept for deletions and log-ins")
}

func (c *serveConfig) checkQuota() error {
	if c.storeQuotaMiB < 64 {
		return usagef("--store-quota %d: want at least 64 MiB", c.storeQuotaMiB)
	}
	return nil
}

// openStore opens the cluster or the embedded store. It returns nil if ctx ended first.
func (c *serveConfig) openStore(ctx context.Context, log *slog.Logger) (*backend.Etcd, error) {
	embedded := &backend.Embedded{DataDir: c.data, Agents: c.agents, Listen: c.etcdListen, Quota: c.storeQuotaMiB << 20, Reserve: true}
	if operator, _, err := net.SplitHostPort(c.operator); err == nil {
		embedded.Names = listenHosts(operator)
	}
	if c.publicHost != "" {
		embedded.Names = append(embedded.Names, c.publicHost)
	}
	if c.agents != "" && len(c.etcd.Endpoints) > 0 {
		return nil, usagef("--agents-listen is for the embedded store: agents reach a cluster by its own endpoints")
	}
	if c.etcdListen != "" && (c.agents != "" || len(c.etcd.Endpoints) > 0) {
		return nil, usagef("--etcd-listen is for an embedded store without --agents-listen: programs reach a cluster by its own endpoints, and a store that other hosts use by TLS")
	}
	hostsAuthority, err := c.hostsAuthority()
	if err != nil {
		return nil, err
	}
	if embedded.Peer, err = c.peer(ctx, log); ctx.Err() != nil {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	st, err := c.etcd.open(ctx, embedded, hostsAuthority, log)
	if err != nil || st == nil {
		return nil, err
	}
	return st, c.joinedCluster(log)
}

// storeCA returns the authorities (PEM) by which joining hosts verify the store's servers: the
// cluster's own, which may differ from the hosts'.
func (c *serveConfig) storeCA(hosts func() *backend.Authority) (func() []byte, error) {
	if c.etcd.CAFile == "" {
		return func() []byte { return hosts().PEM() }, nil
	}
	pem, err := os.ReadFile(c.etcd.CAFile)
	if err != nil {
		return nil, usagef("--etcd-ca: %w", err)
	}
	return func() []byte { return pem }, nil
}

// hostsAuthority returns the authority for the certificates of hosts that join over a cluster, or
// nil.
func (c *serveConfig) hostsAuthority() (*backend.Authority, error) {
	if c.hostsCACert == "" && c.hostsCAKey == "" {
		return nil, nil
	}
	if len(c.etcd.Endpoints) == 0 {
		return nil, usagef("--hosts-ca-cert is for a cluster: the embedded store has an authority of its own")
	}
	a, err := backend.LoadAuthority(c.hostsCACert, c.hostsCAKey)
	if err != nil {
		return nil, usagef("--hosts-ca-cert, --hosts-ca-key: %w", err)
	}
	return a, nil
}

// operatorCertificate returns the certificate of the operators' API: the one given, or that of the
// embedded store if it serves other hosts.
func (c *serveConfig) operatorCertificate() (cert, key string) {
	if c.tlsCert != "" || c.agents == "" {
		return c.tlsCert, c.tlsKey
	}
	return backend.ServerCertificate(c.data)
}

// services returns the entries of the catalog.
func (c *serveConfig) services() []identity.Endpoint {
	if c.neutron == "" {
		return []identity.Endpoint{c.operatorEndpoint()}
	}
	all := []identity.Endpoint{c.endpoint("network", "neutron", c.neutron, "")}
	if address := c.loadBalancer.address(c.neutron); address != "" {
		all = append(all, c.endpoint("load-balancer", "octavia", address, ""))
	}
	return append(all, c.operatorEndpoint())
}

// operatorEndpoint returns the operators' API as the catalog and join tokens have it.
func (c *serveConfig) operatorEndpoint() identity.Endpoint {
	e := c.endpoint("heddle", "heddle", c.operator, "")
	e.TLS = c.agents != ""
	if e.TLS && strings.HasPrefix(e.URL, "http://") {
		e.URL = "https://" + strings.TrimPrefix(e.URL, "http://")
	}
	return e
}

// portOf returns the port of host:port, or 0.
func portOf(address string) int {
	_, port, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(port)
	return n
}

// endpoint returns a service as the catalog has it: at the public name or listen address, or else
// at its port on the host that the client connected to.
func (c *serveConfig) endpoint(typ, name, listen, path string) identity.Endpoint {
	e := identity.Endpoint{Type: typ, Name: name, Path: path}
	host, port := c.reachable(listen)
	if host == "" {
		e.Port, _ = strconv.Atoi(port)
		return e
	}
	e.URL = c.scheme() + "://" + net.JoinHostPort(host, port) + path
	return e
}

// reachable returns the public name or host of a listen address, "" if it has none, and the port,
// "" if the address is invalid.
func (c *serveConfig) reachable(listen string) (host, port string) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", ""
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = ""
	}
	return cmp.Or(c.publicHost, host), port
}

func (c *serveConfig) scheme() string {
	if c.tlsCert != "" {
		return "https"
	}
	return "http"
}

// clientCA returns the file of the authority that clients need to reach the APIs, or "".
func (c *serveConfig) clientCA() (string, error) {
	file := c.tlsCA
	if c.tlsCert == "" && c.agents != "" {
		file = backend.AuthorityFile(c.data)
	}
	if file == "" {
		return "", nil
	}
	return filepath.Abs(file)
}

// localURL returns the URL of an API for programs on this machine.
func (c *serveConfig) localURL(listen string) string {
	host, port := c.reachable(listen)
	if port == "" {
		return ""
	}
	return c.scheme() + "://" + net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)
}

// parseIDRange reads MIN-MAX, which lies within 1 and most.
func parseIDRange(text string, most int) (control.IDRange, error) {
	low, high, _ := strings.Cut(text, "-")
	first, err1 := strconv.Atoi(low)
	last, err2 := strconv.Atoi(high)
	if errors.Join(err1, err2) != nil || first < 1 || last > most || first > last {
		return control.IDRange{}, fmt.Errorf("want MIN-MAX within 1-%d", most)
	}
	return control.IDRange{Min: first, Max: last}, nil
}

// parsePhysicalNetworks reads NAME[:flat][:MIN-MAX…].
func parsePhysicalNetworks(specs []string) (map[string]control.PhysicalNetwork, error) {
	networks := map[string]control.PhysicalNetwork{}
	for _, spec := range specs {
		parts := strings.Split(spec, ":")
		if parts[0] == "" {
			return nil, fmt.Errorf("--physical-network %q: it has no name", spec)
		}
		var n control.PhysicalNetwork
		for _, p := range parts[1:] {
			if p == "flat" {
				n.Flat = true
				continue
			}
			r, err := parseIDRange(p, 4094)
			if err != nil {
				return nil, fmt.Errorf("--physical-network %q: %q is neither flat nor a range of VLAN ids like 100-199", spec, p)
			}
			n.VLANs = append(n.VLANs, r)
		}
		networks[parts[0]] = n
	}
	return networks, nil
}
