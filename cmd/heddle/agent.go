package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"heddle/internal/api"
	"heddle/internal/api/hosts"
	"heddle/internal/dhcp"
	"heddle/internal/overlay"
	"heddle/internal/policy"
	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/task"
	"heddle/internal/telemetry"
)

// agentConfig holds the settings of a host's agents, as given by flags, environment and file.
type agentConfig struct {
	overlay, cleanup bool
	overlayAsked     bool // --overlay was given
	named            bool // --name was given
	name, state      string
	join, joinFile   string
	joinPlain        bool
	serverData       string
	etcd             etcdConfig
	tunnelIP         string
	encrypt          string
	encryption       overlay.Encryption // what encrypt says
	metrics          string
	maxFlows         int
	policy           policyConfig
	bgp              bgpConfig
	dhcp             dhcpConfig
	xen              xenConfig
	log              logConfig
}

func agentCommand() *cobra.Command {
	var c agentConfig
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run this host's agents",
		Long: `Makes this host part of the virtual network. The first time, join with a token from the server:
  on the server   heddle host token
  on the host     heddle agent --join-file FILE --tunnel-ip ADDRESS
While the server is away the agent waits for it, as long as the token is good. After that the certificate in the state directory does. On the server's own machine --server-data DIR needs no token.
With --policy it is a routed host: Calico's endpoints and policy are in force on it. --bgp tells other hosts its routes, and
--dhcp gives workloads their addresses. With --xen it is a host of a XenAPI pool, with Open vSwitch.
When the agent stops, traffic goes on; --cleanup takes away what it made in the kernel.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.overlayAsked, c.named = cmd.Flags().Changed("overlay"), cmd.Flags().Changed("name")
			if c.cleanup {
				return c.cleanUp(cmd.OutOrStdout())
			}
			return c.run(cmd.Context())
		},
	}
	hostname, err := os.Hostname()
	if err != nil {
		hostname = ""
	}
	f := cmd.Flags()
	f.BoolVar(&c.overlay, "overlay", true, "run the overlay agent (default true, but false beside another role without --tunnel-ip)")
	f.BoolVar(&c.cleanup, "cleanup", false, "take away all that agents made in this host's kernel, say what it was, and end; refused while an agent runs")
	f.StringVar(&c.name, "name", hostname, "`name` of this host, as binding:host_id has it")
	f.StringVar(&c.state, "state", "/var/lib/heddle-agent", "`directory` of this host's id, key and certificate")
	f.StringVar(&c.join, "join", "", "one-time `token` by which this host joins; better given by file, where no process list shows it")
	f.StringVar(&c.joinFile, "join-file", "", "`file` with that token, removed once this host has joined")
	f.BoolVar(&c.joinPlain, "join-plain-http", false, "let the token travel over plain HTTP to another machine")
	f.StringVar(&c.serverData, "server-data", "", "data `directory` of a heddle serve on this machine, instead of joining")
	c.etcd.flags(f)
	f.StringVar(&c.tunnelIP, "tunnel-ip", "", "IPv4 `address` of this host by which other hosts send tunnelled packets")
	f.StringVar(&c.encrypt, "encrypt", "off", "encrypt tunnelled packets by WireGuard: `off`, on (with hosts that encrypt as well), or require (no tunnels with others)")
	f.StringVar(&c.metrics, "metrics", "127.0.0.1:9699", "`address` of /metrics, /healthz, /readyz and, on loopback, /debug/pprof")
	f.IntVar(&c.maxFlows, "max-flows", 0, "flows that the kernel's cache holds, of each IP version (default 262144)")
	c.policy.flags(f)
	c.bgp.flags(f)
	c.dhcp.flags(f)
	c.xen.flags(f)
	c.log.flags(f)
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
	tunnelIP, err := netip.ParseAddr(c.tunnelIP)
	if c.overlay && (err != nil || !tunnelIP.Is4()) {
		return usagef("--tunnel-ip %q: want an IPv4 address of this host", c.tunnelIP)
	}
	if c.encryption, err = overlay.ParseEncryption(c.encrypt); err != nil {
		return usagef("--encrypt %w", err)
	}
	if err := errors.Join(c.bgp.check(), c.dhcp.check(c.name, c.state), c.xen.check(c.name, c.state, c.join != "" || c.joinFile != "")); err != nil {
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
	running, err := c.announce(log)
	if err != nil {
		return err
	}
	defer running.Close()
	if err := c.joinOnce(ctx, log); err != nil {
		return err
	}
	id, open, err := c.access(log)
	if err != nil {
		return err
	}
	metrics := telemetry.NewMetrics(version)
	waiting := &waitingList{}
	health := telemetry.NewServer(telemetry.Options{Listen: c.metrics, Metrics: metrics, Waiting: waiting.names})
	ctx, startOver := context.WithCancelCause(ctx)
	defer startOver(nil)
	tasks := []task.Task{health}
	dir := c.state
	if _, err := hosts.Load(poolState(c.state)); err == nil && c.xen.on {
		dir = poolState(c.state)
	}
	if _, err := hosts.Load(dir); err == nil {
		tasks = append(tasks, hosts.NewRenewal(dir, log.With("part", "certificate")))
	}
	main := &agentTask{config: c, id: id, tunnelIP: tunnelIP, open: open, log: log, metrics: metrics, ready: make(chan struct{}),
		felix: felix{environment, file}, startOver: func() { startOver(errStartOver) }}
	waiting.tasks = []task.Task{main}
	log.Info("starting", "version", version, "host", c.name, "id", id, "roles", c.roles(), "tunnel", tunnelIP)
	err = task.Run(ctx, append(tasks, main)...)
	if err == nil && errors.Is(context.Cause(ctx), errStartOver) {
		return startAgain()
	}
	return withRights(err)
}

// errStartOver ends the agents so that others begin in their place: what they reach the store with has changed.
var errStartOver = errors.New("start over")

// startAgain puts this program, called the same way, in the place of this process.
func startAgain() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	return fmt.Errorf("start %s again: %w", program, syscall.Exec(program, os.Args, os.Environ()))
}

// chooseRoles switches the overlay off beside another role, unless something says that this host has it.
func (c *agentConfig) chooseRoles() {
	if !c.overlayAsked && c.tunnelIP == "" && len(c.others()) > 0 {
		c.overlay = false
	}
}

// roles are the agents that this host runs.
func (c *agentConfig) roles() []string {
	if !c.overlay {
		return c.others()
	}
	return append([]string{"overlay"}, c.others()...)
}

// others are the roles beside the overlay.
func (c *agentConfig) others() []string {
	var all []string
	if c.policy.on {
		all = append(all, "policy")
	}
	if c.bgp.on {
		all = append(all, "bgp")
	}
	if c.dhcp.on {
		all = append(all, "dhcp")
	}
	if c.xen.on {
		all = append(all, "xen")
	}
	return all
}

// waitingList lets the readiness page be built before the tasks it tells of.
type waitingList struct{ tasks []task.Task }

func (w *waitingList) names() []string { return task.Waiting(w.tasks) }

// joinOnce turns a join token into credentials, unless this host has joined: a service file may keep its token. The file
// with the token goes only when the credentials are there.
func (c *agentConfig) joinOnce(ctx context.Context, log *slog.Logger) error {
	token, err := c.joinToken()
	if err != nil {
		return err
	}
	if _, err := hosts.Load(c.state); err == nil {
		if token != "" {
			log.Info("this host has joined before; the token is not used (to join again, remove host.json from the state directory)", "state", c.state)
		}
		return nil
	} else if token == "" && errors.Is(err, hosts.ErrNotJoined) {
		return nil
	} else if !errors.Is(err, hosts.ErrNotJoined) {
		return err
	}
	joined, err := hosts.JoinRetrying(ctx, token, hosts.JoinOptions{Name: c.name, StateDir: c.state, AllowPlain: c.joinPlain}, log)
	if err != nil {
		return err
	}
	log.Info("joined", "host", joined.Name, "id", joined.HostID, "servers", joined.Servers)
	if c.joinFile == "" {
		return nil
	}
	if err := os.Remove(c.joinFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		log.Warn("cannot remove the file of the used join token", "err", err)
	}
	return nil
}

// joinToken is the token given, "" if there is none: the file goes once this host has joined.
func (c *agentConfig) joinToken() (string, error) {
	if c.joinFile == "" {
		return c.join, nil
	}
	if c.join != "" {
		return "", usagef("--join and --join-file: give one of them")
	}
	raw, err := os.ReadFile(c.joinFile)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", usagef("--join-file: %w", err)
	}
	token := strings.TrimSpace(string(raw))
	if token == "" {
		return "", usagef("--join-file %s: the file is empty: put a token of `heddle host token` into it", c.joinFile)
	}
	return token, nil
}

// access finds this host's id and the way to the store: what is given on the command line, else what joining gave.
func (c *agentConfig) access(log *slog.Logger) (id string, open func(context.Context) (*store.Etcd, error), err error) {
	logStore := log.With("part", "store")
	if joined, err := hosts.Load(poolState(c.state)); err == nil && c.xen.on {
		c.serverData = "" // the host has left the pool of that store
		return c.asJoined(joined, logStore)
	}
	switch {
	case c.serverData != "":
		id, err = c.ownID()
		return id, func(ctx context.Context) (*store.Etcd, error) { return store.OpenRunning(ctx, c.serverData, logStore) }, err
	case len(c.etcd.endpoints) > 0:
		if id, err = c.ownID(); err != nil {
			return "", nil, err
		}
		cluster, err := c.etcd.cluster()
		if err != nil {
			return "", nil, err
		}
		cluster.SkipLimits = true
		return id, func(ctx context.Context) (*store.Etcd, error) {
			return store.Open(ctx, store.Options{Cluster: cluster, Log: logStore})
		}, nil
	}
	joined, err := hosts.Load(c.state)
	if errors.Is(err, hosts.ErrNotJoined) {
		return "", nil, usagef("%s: this host has not joined: run `heddle host token` on the server and give the file with its token with --join-file", c.state)
	} else if err != nil {
		return "", nil, err
	}
	return c.asJoined(joined, logStore)
}

// asJoined is the way to the store of a host that has joined.
func (c *agentConfig) asJoined(joined hosts.Credentials, logStore *slog.Logger) (id string, open func(context.Context) (*store.Etcd, error), err error) {
	if joined.Name != c.name {
		return "", nil, usagef("--name %s: this host joined as %s; give that name, or join again with another --state", c.name, joined.Name)
	}
	cluster := &store.Cluster{Endpoints: joined.Endpoints, CAFile: joined.CAFile, CertFile: joined.CertFile, KeyFile: joined.KeyFile, SkipLimits: true}
	return joined.HostID, func(ctx context.Context) (*store.Etcd, error) {
		return store.Open(ctx, store.Options{Cluster: cluster, Log: logStore})
	}, nil
}

// ownID is the id of a host that has not joined: made once, kept in the state directory.
func (c *agentConfig) ownID() (string, error) {
	file := filepath.Join(c.state, "host-id")
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

// agentTask runs the agents over a store that is opened beside.
type agentTask struct {
	config   *agentConfig
	id       string
	tunnelIP netip.Addr
	open     func(context.Context) (*store.Etcd, error)
	log      *slog.Logger
	metrics  *telemetry.Metrics
	ready    chan struct{}
	felix    felix
	// startOver ends all agents of this process, for others in their place.
	startOver func()
	parts     atomic.Pointer[abreast] // once the store is open
	following []task.Task             // tasks beside the agents, over the same store
}

// String names the agents that are not ready, with what they wait for if they tell; else it is "agent".
func (t *agentTask) String() string {
	if parts := t.parts.Load(); parts != nil {
		if waiting := task.Waiting(parts.tasks); len(waiting) > 0 {
			return strings.Join(waiting, ", ")
		}
	}
	return "agent"
}

func (t *agentTask) Ready() <-chan struct{} { return t.ready }

// Run works until ctx ends. While the store is away at the start, agents work with what they kept of it on disk.
func (t *agentTask) Run(ctx context.Context) error {
	opening := newOpener(t.open, t.log)
	opening.then = t.enter
	defer opening.store.Close()
	agents, err := t.agents(opening.store)
	if err != nil {
		return err
	}
	parts := newAbreast(agents...)
	t.parts.Store(parts)
	return task.Run(ctx, append(t.following, opening, newLookout(opening.store, t.log, t.metrics), readyThen{parts, t.ready})...)
}

// enter checks that the store is one of Heddle's, and has it know this host.
func (t *agentTask) enter(ctx context.Context, st *store.Etcd) error {
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

// enter checks that the store is one that these agents can work with. The roles of a routed host may do so over the etcd of
// another system, in which what Heddle keeps is not what counts.
func (c *agentConfig) enter(ctx context.Context, st *store.Etcd, log *slog.Logger) error {
	_, err := hosts.Load(c.state)
	joined := err == nil
	if c.overlay || c.xen.on || joined || c.serverData != "" {
		return enterStore(ctx, st, c.state, joined, log)
	}
	return schema.Check(ctx, st)
}

// snapshots is the directory in which the agents keep what they read of the store.
func (c *agentConfig) snapshots() string { return filepath.Join(c.state, "snapshots") }

// agents builds the agents of the chosen roles.
func (t *agentTask) agents(st store.Store) ([]task.Task, error) {
	var all []task.Task
	if t.config.overlay {
		a := overlay.New(overlay.Options{
			HostID: t.id, HostName: t.config.name, Version: version, TunnelIP: t.tunnelIP, Store: st, Encryption: t.config.encryption,
			StateDir: t.config.state, Datapath: t.config.name, MaxFlows: t.config.maxFlows, Log: t.log.With("part", "overlay"), Roles: t.config.roles(),
			Snapshots: t.config.snapshots(),
		})
		t.metrics.Register(a.Metrics)
		all = append(all, a)
	}
	if t.config.policy.on {
		all = append(all, t.config.policy.agent(t, st))
	}
	if t.config.bgp.on {
		all = append(all, t.config.bgp.agent(t, st))
	}
	if t.config.dhcp.on {
		all = append(all, t.config.dhcp.agent(t, st))
	}
	if t.config.xen.on {
		a, err := t.config.xen.agent(t, st)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// readyThen closes a channel when its task is ready.
type readyThen struct {
	task.Task
	then chan struct{}
}

func (r readyThen) Run(ctx context.Context) error {
	go func() {
		select {
		case <-r.Task.Ready():
			close(r.then)
		case <-ctx.Done():
		}
	}()
	return r.Task.Run(ctx)
}
