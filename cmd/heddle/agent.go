package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"heddle/internal/api"
	"heddle/internal/api/hosts"
	"heddle/internal/bgp"
	"heddle/internal/dhcp"
	"heddle/internal/metadata"
	"heddle/internal/overlay"
	"heddle/internal/overlay/filterlog"
	"heddle/internal/overlay/hostkey"
	"heddle/internal/policy"
	"heddle/internal/services"
	"heddle/internal/spans"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/schema"
	"heddle/internal/task"
	"heddle/internal/telemetry"
)

// agentConfig holds the settings of a host's agents, as given by flags, environment and file.
type agentConfig struct {
	overlay, cleanup bool
	overlayAsked     bool // --overlay was given
	named            bool // --name was given
	configFile       string
	name, state      string
	joining          joinConfig
	serverData       string
	etcd             etcdConfig
	tunnelIP         string
	encrypt          string
	encryption       overlay.Encryption // parsed from encrypt
	key              string             // fingerprint of the public key of a host that has joined
	zone             string             // Neutron's availability zone
	physical         []string           // NETWORK=INTERFACE
	interfaces       map[string]string  // parsed from physical
	metrics          string
	maxFlows         int
	records          overlay.LogOptions // of what security groups decide
	flowLog          string             // directory of the flow log's files; "": none
	containers       containersConfig
	metadata         metadataConfig
	policy           policyConfig
	bgp              bgpConfig
	dhcp             dhcpConfig
	xen              xenConfig
	log              logConfig
	spans            spansConfig
	admin            adminConfig
}

func agentCommand() *cobra.Command {
	var c agentConfig
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run this host's agents",
		Long: `Makes this host part of the virtual network. The first time, join with a token from the server:
  on the server   heddle host token
  on the host     heddle agent --join-file FILE --tunnel-ip ADDRESS
While the server is away, or refuses the token, the agent tries again; the file may be replaced meanwhile. After that the certificate in the state directory does,
and the agent follows servers that move. On the server's own machine --server-data DIR needs no token.
With --policy it is a routed host: Calico's endpoints and policy are in force on it. --bgp announces its routes to other hosts, and
--dhcp gives workloads their addresses. With --xen it is a host of a XenAPI pool, with Open vSwitch.
When the agent stops, traffic goes on; --cleanup removes what it made in the kernel.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.overlayAsked, c.named, c.configFile = cmd.Flags().Changed("overlay"), cmd.Flags().Changed("name"), cmd.Flag("config").Value.String()
			if c.cleanup {
				if cmd.Flags().Changed("state") && !hadAgent(c.state) {
					return usagef("--state %s: no agent has had this state directory: name that of this host's agents, or leave --state out to try every role", c.state)
				}
				return c.cleanUp(cmd.OutOrStdout())
			}
			return c.run(cmd.Context())
		},
	}
	hostname, _ := os.Hostname() // without one, --name is required
	f := cmd.Flags()
	f.BoolVar(&c.overlay, "overlay", true, "run the overlay agent (default true, but false beside another role without --tunnel-ip)")
	f.BoolVar(&c.cleanup, "cleanup", false, "remove and print all that agents with this --state made in this host's kernel, then exit; refused while an agent runs")
	f.StringVar(&c.name, "name", hostname, "`name` of this host, as binding:host_id has it")
	f.StringVar(&c.state, "state", "/var/lib/heddle-agent", "`directory` of this host's id, key and certificate")
	f.StringVar(&c.joining.token, "join", "", "one-time `token` by which this host joins; better given by file, where no process list shows it")
	f.StringVar(&c.joining.file, "join-file", "", "`file` with that token, removed once this host has joined")
	f.BoolVar(&c.joining.plain, "join-plain-http", false, "let the token travel over plain HTTP to another machine")
	f.StringVar(&c.serverData, "server-data", "", "data `directory` of a heddle serve on this machine, instead of joining")
	c.etcd.flags(f)
	f.StringVar(&c.tunnelIP, "tunnel-ip", "", "IPv4 `address` of this host by which other hosts send tunnelled packets")
	f.StringVar(&c.encrypt, "encrypt", "off", "encrypt tunnelled packets by WireGuard: `off`, on (with hosts that encrypt as well), or require (no tunnels with others)")
	f.StringSliceVar(&c.physical, "physical", nil, "`NETWORK=INTERFACE` by which this host is connected to a physical network, for flat, VLAN and external networks; repeatable")
	f.StringVar(&c.zone, "zone", schema.DefaultZone, "`name` of the availability zone that this host is in")
	f.StringVar(&c.metrics, "metrics", "127.0.0.1:9699", "`address` of /metrics, /healthz, /readyz and, on loopback, /debug/pprof")
	f.IntVar(&c.maxFlows, "max-flows", 0, "flows that the kernel's cache holds, of each IP version (default 262144)")
	f.StringVar(&c.records.Dir, "log-dir", filterlog.DefaultDir, "`directory` of the files that Neutron's logs of security groups ask for; opened again on SIGHUP")
	f.IntVar(&c.records.Rate, "log-rate", filterlog.DefaultRate, "records per second of one of these logs; others are counted")
	f.IntVar(&c.records.Burst, "log-burst", filterlog.DefaultBurst, "records of one of these logs at once")
	f.StringVar(&c.flowLog, "flow-log", "", "`directory` into which the flow log is written as lines of JSON, up to 7 days or 1 GB; by default it is in memory alone")
	c.containers.flags(f)
	c.metadata.flags(f)
	c.policy.flags(f)
	c.bgp.flags(f)
	c.dhcp.flags(f)
	c.xen.flags(f)
	c.log.flags(f)
	c.spans.flags(f)
	c.admin.flags(f, "agent")
	return cmd
}

// run checks the configuration, builds the parts and runs them.
func (c *agentConfig) run(ctx context.Context) error {
	log, err := c.log.logger()
	if err != nil {
		return usageError{err}
	}
	environment, file, err := c.policy.settings()
	if err != nil {
		return err
	}
	if name := policy.Hostname(environment, file); name != "" && !c.named {
		c.name = name
	}
	if c.name == "" {
		return usagef("--name: this machine has no host name; give one")
	}
	c.chooseRoles()
	if len(c.roles()) == 0 {
		return usagef("nothing to run: --overlay is off, and no other role is on")
	}
	tunnelIP, err := tunnelAddress(c.tunnelIP, c.configFile)
	if c.overlay && err != nil {
		return err
	}
	if c.maxFlows < 0 {
		return usagef("--max-flows %d: want a number of flows from 1, or 0 for the default", c.maxFlows)
	}
	if c.records.Rate < 1 || c.records.Rate > overlay.MaxLogRate || c.records.Burst < 1 {
		return usagef("--log-rate %d, --log-burst %d: want a rate from 1 to %d and a burst from 1", c.records.Rate, c.records.Burst, overlay.MaxLogRate)
	}
	if c.encryption, err = overlay.ParseEncryption(c.encrypt); err != nil {
		return usagef("--encrypt %w", err)
	}
	if c.interfaces, err = overlay.ParsePhysical(c.physical); err != nil {
		return usagef("--physical %w", err)
	}
	if len(c.interfaces) > 0 && !c.overlay {
		return usagef("--physical: the overlay agent carries physical networks, and --overlay is off")
	}
	if !schema.IsZoneName(c.zone) {
		return usagef("--zone %q: want a name of printable characters, at most %d bytes", c.zone, schema.MaxZoneName)
	}
	if err := errors.Join(c.containers.check(), c.metadata.check(), c.bgp.check(), c.dhcp.check(c.name, c.state), c.xen.check(c.name, c.state, c.joining != (joinConfig{}))); err != nil {
		return err
	}
	if err := c.spans.check(); err != nil {
		return err
	}
	if err := checkCapabilities("heddle-agent", c.roles()...); err != nil {
		return err
	}
	if c.dhcp.on {
		if err := dhcp.Alone(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(c.state, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	announced, err := c.announce(log)
	if err != nil {
		return err
	}
	defer announced()
	if err := c.joinOnce(ctx, log); err != nil {
		return err
	}
	id, open, err := c.access(log)
	if err != nil {
		return err
	}
	ctx, startOver := context.WithCancelCause(ctx)
	defer startOver(nil)
	opening := newOpener(open, log)
	defer opening.store.Close()
	a := &agents{config: c, id: id, tunnelIP: tunnelIP, store: opening.store, log: log, metrics: telemetry.NewMetrics(version),
		felix: felix{environment, file}, startOver: func() { startOver(errStartOver) }}
	if a.spans, err = c.spans.open("agent", c.name, a.metrics, log); err != nil {
		return err
	}
	if a.spans != nil {
		a.following = append(a.following, a.spans)
	}
	opening.then = a.enter
	if err := a.build(); err != nil {
		return err
	}
	running := newGroup(a.built...)
	dir := c.state
	if _, err := hosts.Load(poolState(c.state)); err == nil && c.xen.on {
		dir = poolState(c.state)
	}
	a.metrics.Register(c.hostCertificates(dir).metrics)
	var tasks []task.Task
	if _, err := hosts.Load(dir); err == nil {
		renewal := hosts.NewRenewal(dir, log.With("part", "certificate"))
		locator := hosts.NewLocator(dir, opening.store, opening.setEndpoints, renewal.Look, log.With("part", "addresses"))
		tasks = append(tasks, renewal, locator)
		a.problems = append(a.problems, renewal.Refused, locator.Untrusted)
	}
	if c.serverData != "" {
		tasks = append(tasks, newLoop("members", func(ctx context.Context) error { return followMembers(ctx, c.serverData, opening.setEndpoints) }))
	}
	probe := newStoreProbe(opening.store, log, a.metrics)
	probe.explain, probe.denied = c.explainDenied, a.setDenied
	a.problems = append(a.problems, probe.Denied)
	tasks = append(c.admin.newHealth(observed{
		Options: telemetry.Options{Listen: c.metrics, Metrics: a.metrics, Hung: a.watchdog.Hung, Log: log}, log: &c.log, settings: startedWith(ctx),
		readFiles: c.policy.readFile, starting: felixValues(file),
	}, waitingFor(&[]task.Task{running}, a.problems...)), tasks...)
	tasks = append(append(tasks, a.following...), opening, probe, running)
	log.Info("starting", "version", version, "host", c.name, "id", id, "roles", c.roles(), "tunnel", tunnelIP)
	err = task.Run(ctx, tasks...)
	if err == nil && errors.Is(context.Cause(ctx), errStartOver) {
		_ = opening.store.Close() // deferred calls do not run
		return startAgain()
	}
	return withRights(c.explainDenied(err))
}

// tunnelAddress returns the tunnel address that is given as text. file is the file of settings, or
// "".
func tunnelAddress(text, file string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, usagef("%s: agent.tunnel-ip is missing: write it there, below agent:, as the IPv4 address of this host by which other hosts reach it, "+
			"such as tunnel-ip: 192.0.2.11; or give it with --tunnel-ip", cmp.Or(file, defaultConfig))
	}
	address, _ := netip.ParseAddr(text) // the zero Addr is refused
	if err := overlay.CheckTunnelIP(address); err != nil {
		return netip.Addr{}, usagef("--tunnel-ip %q: %w", text, err)
	}
	return address, nil
}

// membersEvery is the interval between looks at the members of the server's cluster.
const membersEvery = 5 * time.Second

// followMembers sets the store's addresses when the cluster of the server on this machine gets
// other members, until ctx ends.
func followMembers(ctx context.Context, dataDir string, set func([]string)) error {
	for known := backend.LocalEndpoints(dataDir); task.Pause(ctx, membersEvery); {
		if now := backend.LocalEndpoints(dataDir); !slices.Equal(now, known) {
			set(now)
			known = now
		}
	}
	return nil
}

// explainDenied adds to an error with which the store refuses a host that has joined what to do.
func (c *agentConfig) explainDenied(err error) error {
	if c.key == "" || !errors.Is(err, store.ErrDenied) {
		return err
	}
	return fmt.Errorf("%w: the host was removed or cut off, or has joined again since from another machine, see `heddle host list`: to let it join again, stop the agent, remove host.json from its state directory, "+
		"and start it with a token of `heddle host token %s`", err, c.name)
}

// errStartOver ends the agents, for others in their place that open the store another way.
var errStartOver = errors.New("start over")

// startAgain replaces this process by the same program with the same arguments.
func startAgain() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	return fmt.Errorf("start %s again: %w", program, syscall.Exec(program, os.Args, os.Environ()))
}

// chooseRoles turns the overlay off if another role is on, unless a flag asks for the overlay.
func (c *agentConfig) chooseRoles() {
	if !c.overlayAsked && c.tunnelIP == "" && len(c.others()) > 0 {
		c.overlay = false
	}
}

// role is a kind of agent, which a host may run or not.
type role struct {
	name  string
	on    bool
	build func(*agents) (agent, error)
	// clean removes what such an agent made in the kernel. names are the names of datapaths.
	clean func(names []string, record agentRecord) error
}

// agent is an agent of any role.
type agent interface {
	task.Task
	Metrics() []telemetry.Value
}

// allRoles returns all roles there are, the overlay first.
func (c *agentConfig) allRoles() []role {
	return []role{
		{"overlay", c.overlay, c.overlayAgent, c.cleanOverlay},
		{"policy", c.policy.on, c.policy.agent, func([]string, agentRecord) error { return policy.Cleanup(nil) }},
		{"bgp", c.bgp.on, c.bgp.agent, func([]string, agentRecord) error { return bgp.Cleanup() }},
		{"dhcp", c.dhcp.on, c.dhcp.agent, func([]string, agentRecord) error { return c.dhcp.cleanUp(c.name, c.state) }},
		{"xen", c.xen.on, c.xen.agent, func(_ []string, record agentRecord) error { return c.xen.cleanUp(record.OVSDB) }},
	}
}

// roles returns the names of this host's roles.
func (c *agentConfig) roles() []string { return namesOn(c.allRoles()) }

// others returns the names of this host's roles except the overlay.
func (c *agentConfig) others() []string { return namesOn(c.allRoles()[1:]) }

func namesOn(roles []role) (names []string) {
	for _, r := range roles {
		if r.on {
			names = append(names, r.name)
		}
	}
	return names
}

// joinOnce exchanges a join token for credentials, unless this host has joined: a service file may
// keep its token. The token's file is removed only after that.
func (c *agentConfig) joinOnce(ctx context.Context, log *slog.Logger) error {
	if c.joining.token != "" && c.joining.file != "" {
		return usagef("--join and --join-file: give one of them")
	}
	if _, err := hosts.Load(c.state); err == nil {
		if token, _ := c.joining.read(c.name); token != "" {
			log.Info("this host has joined before; the token is not used (to join again, remove host.json from the state directory)", "state", c.state)
		}
		return nil
	} else if errors.Is(err, hosts.ErrNotJoined) && !c.joining.wanted(c.serverData != "" || len(c.etcd.Endpoints) > 0) {
		return nil
	} else if !errors.Is(err, hosts.ErrNotJoined) {
		return err
	}
	var giveUp func(error) bool
	if c.joining.file == "" {
		giveUp = hosts.Refused // the token on a command line stays the same
	}
	joined, err := hosts.JoinRetrying(ctx, func() (string, error) { return c.joining.read(c.name) }, hosts.JoinOptions{
		Name: c.name, StateDir: c.state, Secrets: []string{hostkey.FileName, metadataKeyFile}, AllowPlain: c.joining.plain,
	}, giveUp, log)
	if err != nil {
		return err
	}
	log.Info("joined", "host", joined.Name, "id", joined.HostID, "servers", joined.Servers)
	if c.joining.file == "" {
		return nil
	}
	if err := os.Remove(c.joining.file); err != nil && !errors.Is(err, os.ErrNotExist) {
		log.Warn("cannot remove the file of the used join token", "err", err)
	}
	return nil
}

// access returns this host's id and a function that opens the store: the one that flags name, or
// the one that the host has joined.
func (c *agentConfig) access(log *slog.Logger) (id string, open func(context.Context) (*backend.Etcd, error), err error) {
	logStore := log.With("part", "store")
	if joined, err := hosts.Load(poolState(c.state)); err == nil && c.xen.on {
		c.serverData = "" // the host has left the pool of that store
		return c.joinedStore(joined, logStore)
	}
	switch {
	case c.serverData != "":
		id, err = c.ownID()
		return id, func(ctx context.Context) (*backend.Etcd, error) {
			st, err := backend.OpenLocal(ctx, c.serverData, logStore)
			if moved := new(backend.MovedError); errors.As(err, &moved) {
				err = usagef("--server-data: %w; in place of --server-data give this agent the server's --etcd-endpoints and the settings that go with them; or let it join, by --join-file, a file with the token that `heddle host token %s` prints", err, c.name)
			}
			return st, err
		}, err
	case len(c.etcd.Endpoints) > 0:
		if id, err = c.ownID(); err != nil {
			return "", nil, err
		}
		cluster, err := c.etcd.cluster()
		if err != nil {
			return "", nil, err
		}
		return id, clusterOpener(cluster, logStore), nil
	}
	joined, err := hosts.Load(c.state)
	if errors.Is(err, hosts.ErrNotJoined) {
		return "", nil, usagef("%s: this host has not joined: run `heddle host token` on the server and give the file with its token with --join-file", c.state)
	} else if err != nil {
		return "", nil, err
	}
	return c.joinedStore(joined, logStore)
}

// joinedStore is access for a host that has joined.
func (c *agentConfig) joinedStore(joined hosts.Credentials, logStore *slog.Logger) (id string, open func(context.Context) (*backend.Etcd, error), err error) {
	if joined.Name != c.name {
		return "", nil, usagef("--name %s: this host joined as %s; give that name, or join again with another --state", c.name, joined.Name)
	}
	if c.key, err = joined.Check(); err != nil {
		return "", nil, err
	}
	dir := filepath.Dir(joined.CertFile)
	return joined.HostID, func(ctx context.Context) (*backend.Etcd, error) {
		now, err := hosts.Load(dir) // the store may have moved since the last attempt
		if err != nil {
			return nil, err
		}
		cluster := &backend.Cluster{Endpoints: now.Endpoints, CAFile: now.CAFile, CertFile: now.CertFile, KeyFile: now.KeyFile}
		return clusterOpener(cluster, logStore)(ctx)
	}, nil
}

// clusterOpener returns a function that opens a cluster for agents: without a check of its limits.
func clusterOpener(cluster *backend.Cluster, log *slog.Logger) func(context.Context) (*backend.Etcd, error) {
	cluster.SkipLimits = true
	return func(ctx context.Context) (*backend.Etcd, error) {
		return backend.Open(ctx, backend.Options{Cluster: cluster, Log: log})
	}
}

// hostIDName is the name of the file of a host's id that has not joined.
const hostIDName = "host-id"

// ownID returns the id of a host that has not joined. It is made once and kept in the state
// directory.
func (c *agentConfig) ownID() (string, error) {
	file := filepath.Join(c.state, hostIDName)
	raw, err := os.ReadFile(file)
	if err == nil {
		id := strings.TrimSpace(string(raw))
		if _, err := uuid.Parse(id); err != nil {
			return "", fmt.Errorf("%s: %q is not a UUID: remove the file to have a new one made", file, id)
		}
		return id, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	id := uuid.NewString()
	return id, api.WriteFile(file, []byte(id+"\n"))
}

// agents builds the agents of this host and holds what they share.
type agents struct {
	config   *agentConfig
	id       string
	tunnelIP netip.Addr
	store    store.Store
	log      *slog.Logger
	metrics  *telemetry.Metrics
	spans    *spans.Tracer // nil: nothing is recorded
	felix    felix
	// startOver ends all agents of this process and starts the program again.
	startOver func()

	built     []task.Task
	overlay   *overlay.Agent  // nil: the role is off
	proxy     *metadata.Proxy // of workloads' requests for metadata; nil: none is needed so far
	following []task.Task     // other tasks
	problems  []func() string // of agents that are ready, for health
	watchdog  task.Watchdog
}

// build builds the agents of the roles that are on.
func (t *agents) build() error {
	for _, r := range t.config.allRoles() {
		if !r.on {
			continue
		}
		a, err := r.build(t)
		if err != nil {
			return err
		}
		t.metrics.Register(a.Metrics)
		t.built = append(t.built, a)
	}
	return nil
}

// setDenied tells the agents whether the store refuses this process.
func (t *agents) setDenied(denied bool) {
	if t.overlay != nil {
		t.overlay.SetDenied(denied)
	}
}

// enter checks that the store is one of Heddle's, and registers this host in it.
func (t *agents) enter(ctx context.Context, st *backend.Etcd) error {
	if err := t.config.enter(ctx, st, t.log); err != nil {
		return err
	}
	if t.config.serverData == "" || t.config.overlay {
		return nil
	}
	err := registerHost(ctx, st, t.id, t.config.name)
	if errors.Is(err, errOtherHost) {
		t.log.Warn("cannot register this host; `heddle host list` shows the other, `heddle host remove` removes it", "err", err)
		return nil
	}
	return err
}

// enter checks that these agents can work with the store. Without the overlay and a pool it may be
// another system's etcd, which needs no schema of Heddle.
func (c *agentConfig) enter(ctx context.Context, st *backend.Etcd, log *slog.Logger) error {
	if c.inHeddle() {
		return enterStore(ctx, st, c.state, hasJoined(c.state), log)
	}
	return schema.KnownFormats().Check(ctx, st)
}

// inHeddle reports whether the store is one of Heddle's for certain.
func (c *agentConfig) inHeddle() bool {
	return c.overlay || c.xen.on || hasJoined(c.state) || c.serverData != ""
}

// hasJoined reports whether the host with this state directory has joined.
func hasJoined(state string) bool {
	_, err := hosts.Load(state)
	return err == nil
}

// snapshots returns the directory of the journals of what the agents read from the store.
func (c *agentConfig) snapshots() string { return filepath.Join(c.state, "snapshots") }

// overlayAgent builds the overlay agent.
func (c *agentConfig) overlayAgent(t *agents) (agent, error) {
	proxy, err := t.metadataProxy()
	if err != nil {
		return nil, err
	}
	a := overlay.New(overlay.Options{
		HostID: t.id, HostName: c.name, Key: c.key, Version: version, TunnelIP: t.tunnelIP, Physical: c.interfaces, AvailabilityZone: c.zone, Store: t.store, Encryption: c.encryption,
		StateDir: c.state, Datapath: c.name, MaxFlows: c.maxFlows, Log: t.log.With("part", "overlay"), Roles: c.roles(), Snapshots: c.snapshots(), Logs: c.records,
		Companion: c.serviceContainers(t), Metadata: proxy, PostFlows: flowPoster{c.joining.plain}.post, FlowLogDir: c.flowLog, Support: supportBundles(c), Watchdog: &t.watchdog, CertificateEnd: c.certificateEnd, Spans: t.spans,
	})
	t.overlay = a
	t.following = append(t.following, onHangup(a.ReopenLogs))
	t.problems = append(t.problems, a.Displaced, a.Unreachable)
	return a, nil
}

func (c *agentConfig) cleanOverlay(names []string, _ agentRecord) error {
	errs := []error{services.Cleanup(nil, c.servicesDir())}
	for _, name := range names {
		errs = append(errs, overlay.Cleanup(overlay.Options{Datapath: name}))
	}
	return errors.Join(errs...)
}
