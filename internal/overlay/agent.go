package overlay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"heddle/internal/hostnet"
	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/filterlog"
	"heddle/internal/overlay/natport"
	"heddle/internal/overlay/supportbundle"
	"heddle/internal/overlay/verdicts"
	"heddle/internal/overlay/wireguard"
	"heddle/internal/overlay/workload"
	"heddle/internal/reconcile"
	"heddle/internal/spans"
	"heddle/internal/store"
	"heddle/internal/store/follow"
	"heddle/internal/store/presence"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/task"
	"heddle/internal/telemetry"
	"heddle/internal/topology"
	"heddle/internal/topology/simulate"
)

// Options of an agent. HostID, HostName, TunnelIP, Store and StateDir are needed.
type Options struct {
	HostID   string // a UUID
	HostName string // as bindings name the host; unique
	Key      string // fingerprint of the public key with which this machine joined; "" = it did not
	Version  string // of this program, for the others
	// Roles lists what this host's agents do; default "overlay".
	Roles []string
	// TunnelIP is the IPv4 address of this host for tunnels; an interface of the host must have it.
	TunnelIP netip.Addr
	// TunnelZones are the ids of this host's zones: hosts that share one reach each other. Default
	// topology.DefaultTunnelZone.
	TunnelZones []string
	// Physical names the interface of this host into each physical network that it is connected to.
	Physical map[string]string
	// AvailabilityZone is the name of Neutron's zone that this host is in; "" = the default one.
	AvailabilityZone string
	Store            store.Store
	// Encryption selects the encryption between hosts. Default [NoEncryption]. Without WireGuard in
	// the kernel this program must be startable with [WireguardCommand].
	Encryption Encryption
	// StateDir holds this host's private keys; only the agent's user may read there.
	StateDir string
	// Namespace is that of workloads and underlay. Default this process's. It must stay open while
	// the agent runs.
	Namespace *hostnet.Namespace
	// Datapath names this agent's programs and maps, uniquely on a machine. Default "overlay".
	Datapath string
	BPFFS    string // where the BPF file system is mounted; default /sys/fs/bpf
	MaxFlows int    // in the kernel's cache, of each IP version; default 262144
	// MaxConnections bounds the connections remembered. Default two for each flow.
	MaxConnections int
	// MaxTranslations bounds the connections with a translation by NAT. Default one for each flow.
	MaxTranslations int
	// LeaseTTL is after how long without a word this host counts as gone. Default
	// schema.HostLease.
	LeaseTTL time.Duration
	// Poll is the time for which the agent polls before it sleeps; see datapath.Options.
	Poll time.Duration
	// Snapshots is a directory for the last snapshot, to start from without the store; "" for none.
	Snapshots string
	// CertificateEnd returns the end of the host's certificate, for reports; nil: it has none.
	CertificateEnd func() time.Time `json:"-"`
	Logs           LogOptions       // of decisions that logs ask for
	// Spans records the application of changes; nil: they are not recorded.
	Spans *spans.Tracer `json:"-"`
	// Companion, if set, is built over what this agent reads and reports, and runs with it.
	Companion func(Shared) Companion `json:"-"`
	// Metadata, if set, answers this host's workloads at 169.254.169.254.
	Metadata MetadataServer `json:"-"`
	// FlowLogDir is the directory into which the flow log is written; "": into none.
	FlowLogDir string
	// PostFlows posts the flow log to servers that ask for it; nil: this agent posts none.
	PostFlows PostFlows `json:"-"`
	// Support returns the command that writes a support bundle of this host into a file.
	Support  supportbundle.Command `json:"-"`
	Watchdog *task.Watchdog        `json:"-"` // watches the loops of the agent; nil: nothing does
	Log      *slog.Logger          // default: none
}

// Shared holds the parts of the overlay agent that a Companion uses.
type Shared struct {
	Objects *replica.Replica
	Reports *presence.Presence
	// Deciding is closed once the agent decides the first packets of connections.
	Deciding <-chan struct{}
}

// Companion is a part that shares the overlay agent's copy of the store and its reports.
type Companion interface {
	// Run works until ctx ends, or returns the error that ends the agent.
	Run(ctx context.Context) error
}

// LogOptions say where and how fast the decisions that logs ask for are recorded (services §9.3).
type LogOptions struct {
	Dir   string // default filterlog.DefaultDir
	Rate  int    // records of a log per second; default filterlog.DefaultRate
	Burst int    // of them at once; default filterlog.DefaultBurst
}

// MaxLogRate bounds LogOptions.Rate.
const MaxLogRate = 1_000_000

func (o Options) withDefaults() Options {
	if len(o.Roles) == 0 {
		o.Roles = []string{"overlay"}
	}
	if len(o.TunnelZones) == 0 {
		o.TunnelZones = []string{topology.DefaultTunnelZone}
	}
	o.Datapath = cmp.Or(o.Datapath, "overlay")
	o.MaxFlows = cmp.Or(o.MaxFlows, 262144)
	o.MaxConnections = cmp.Or(o.MaxConnections, 2*o.MaxFlows)
	o.MaxTranslations = cmp.Or(o.MaxTranslations, o.MaxFlows)
	o.Encryption = cmp.Or(o.Encryption, NoEncryption)
	o.LeaseTTL = cmp.Or(o.LeaseTTL, schema.HostLease)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}

func (o Options) check() error {
	switch {
	case o.HostID == "" || o.HostName == "":
		return errors.New("overlay agent: the host has no id or no name")
	case CheckTunnelIP(o.TunnelIP) != nil:
		return fmt.Errorf("overlay agent: tunnel address %q: %w", o.TunnelIP, CheckTunnelIP(o.TunnelIP))
	case min(o.MaxFlows, o.MaxConnections, o.MaxTranslations) < 0:
		return fmt.Errorf("overlay agent: tables for %d flows, %d connections and %d translations: none can be negative", o.MaxFlows, o.MaxConnections, o.MaxTranslations)
	case min(o.Logs.Rate, o.Logs.Burst) < 0 || o.Logs.Rate > MaxLogRate:
		return fmt.Errorf("overlay agent: %d records of a log per second, %d at once: want at most %d, and none negative", o.Logs.Rate, o.Logs.Burst, MaxLogRate)
	case o.Store == nil:
		return errors.New("overlay agent: no store")
	case o.StateDir == "":
		return errors.New("overlay agent: no state directory for the host's keys")
	}
	return nil
}

// CheckTunnelIP refuses addresses by which no other host can reach this one.
func CheckTunnelIP(ip netip.Addr) error {
	switch {
	case !ip.Is4():
		return errors.New("want an IPv4 address of this host")
	case ip.IsLoopback(), ip.IsUnspecified(), ip.IsMulticast():
		return errors.New("other hosts cannot send to it: want an IPv4 address of this host that they reach")
	}
	return nil
}

// Agent is the overlay agent of one host. It is a task: see Run, Ready and String.
type Agent struct {
	opts  Options
	log   *slog.Logger
	ready chan struct{}
	begun time.Time
	clock wallClock

	// Made by Run.
	net         *hostnet.Linux
	dp          *datapath.Datapath
	engine      *engine
	underlay    *underlay
	keys        *hostKeys
	attachments *attachments
	arrivals    *arrivals
	physical    *physical
	replica     *replica.Replica
	presence    *presence.Presence
	feed        *feed
	place       *displacement
	companion   Companion
	metadata    *metadataService  // nil: this host serves none
	deciding    chan struct{}     // closed once packets are handled
	obstacles   *obstacles        // made by New
	filterLogs  *filterlog.Writer // likewise

	mu   sync.Mutex
	open bool // what Run makes is there
}

// New makes an agent. It does nothing until Run.
func New(o Options) *Agent {
	o = o.withDefaults()
	a := &Agent{opts: o, log: o.Log, ready: make(chan struct{}), obstacles: newObstacles()}
	a.filterLogs = filterlog.New(filterlog.Options{Dir: o.Logs.Dir, Host: o.HostName, Rate: o.Logs.Rate, Burst: o.Logs.Burst, Log: o.Log})
	a.place = &displacement{Options: &a.opts, instance: uuid.NewString(), changed: task.NewNotice(), suspend: func() {
		a.obstacles.set(agentDisplaced, true)
		a.presence.Suspend()
	}, resume: func() {
		a.obstacles.set(agentDisplaced, false)
		a.presence.Resume()
		a.feed.registrar.changed.Give()
	}, regained: func() { a.keys.beginSession() }}
	return a
}

// ReopenLogs has the files of decisions that logs ask for opened again: they have been renamed.
func (a *Agent) ReopenLogs() { a.filterLogs.Reopen() }

// Displaced returns why this agent does not have its host's place in the store: another agent has.
// "" = it has.
func (a *Agent) Displaced() string { return a.place.Reason() }

// SetDenied tells the agent whether the store refuses this process. Meanwhile other hosts stand for
// its addresses on LANs, and it leaves these.
func (a *Agent) SetDenied(denied bool) { a.obstacles.set(storeDenied, denied) }

// Unreachable returns why no other host reaches this one by tunnels, or "".
func (a *Agent) Unreachable() string {
	if a.obstacles.first(noTunnelAddress) == "" {
		return ""
	}
	return mendAddress(a.opts.TunnelIP)
}

// String names the task.
func (a *Agent) String() string { return "overlay agent" }

// Ready is closed once all flows are possible: the topology is loaded, the interfaces present are
// attached, the paths to other hosts are looked up, and the store has this host's reports, or
// cannot be reached.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Run works until ctx ends, and must not be called twice. Forwarding goes on; see Cleanup.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.opts.check(); err != nil {
		return err
	}
	a.begun = time.Now()
	err := a.openKernel()
	if err == nil {
		err = a.work(ctx)
	}
	return errors.Join(err, a.close())
}

// openKernel opens what is in the kernel: what an earlier agent left goes on.
func (a *Agent) openKernel() (err error) {
	if a.net, err = hostnet.NewLinux(a.opts.Namespace); err != nil {
		return err
	}
	if a.dp, err = datapath.Open(datapath.Options{Name: a.opts.Datapath, BPFFS: a.opts.BPFFS, Namespace: a.net.Namespace(),
		MaxFlows: a.opts.MaxFlows, Poll: a.opts.Poll, Log: a.log}); err != nil {
		return err
	}
	state, err := a.openState()
	if err != nil {
		return err
	}
	keys, err := openKeys(a.opts.StateDir, a.opts.HostID, a.dp, a.log, a.clock.now)
	if err != nil {
		return err
	}
	if a.opts.Encryption != NoEncryption {
		keys.crypt = openEncryption(a.opts, a.net, a.dp, a.clock.now)
		keys.crypt.ring, keys.crypt.reenter = keys.ring, keys.reenterHosts
	} else if err := wireguard.Remove(wireguardName(a.opts.Datapath), a.net); err != nil {
		return err
	}
	if err := keys.ring.Unsaved(); err != nil {
		a.log.Warn("cannot write the tunnel keys' session; going on by the clock", "err", err)
	}
	a.build(state, keys)
	return nil
}

// keptByOthers returns the prefixes of keys below a host's that other parts than the agent's
// presence keep.
func keptByOthers(host string) (all []string) {
	for _, tail := range []string{schema.NATPortsTail, schema.MemberHealthsTail, schema.MetadataKeyTail, schema.DisplacedAgentsTail, schema.PolicyAnswersTail} {
		all = append(all, schema.StatePrefix+host+tail)
	}
	return all
}

func (a *Agent) build(state kept, keys *hostKeys) {
	o := &a.opts
	a.keys, a.deciding = keys, make(chan struct{})
	a.presence = presence.New(presence.Options{Store: o.Store, Prefix: schema.StatePrefix + o.HostID + "/",
		Except: keptByOthers(o.HostID), TTL: o.LeaseTTL, Log: a.log})
	a.replica = replica.New(o.Store, replica.Options{Journal: follow.NewJournal(o.Snapshots, "overlay", o.HostID), Log: a.log, Watchdog: o.Watchdog}, tables(o.HostID)...)
	keys.hostName = func(id string) string { return schema.HostName(records.Over(a.replica.Snapshot()), id) }
	a.underlay = newUnderlay(a.net, a.dp, o.TunnelIP, a.wayChanged, a.log)
	a.underlay.unreachable = func(is bool) { a.obstacles.set(noTunnelAddress, is) }
	if c := keys.crypt; c != nil {
		c.moved, c.mtu = a.underlay.wake, a.underlay.MTU
		a.underlay.crypt = c
	}
	a.engine = newEngine(a.dp, state, keys, a.underlay, &reporter{a.presence, a.log}, a.log)
	a.engine.filterLogs, a.engine.live = a.filterLogs, &liveFrames{}
	a.engine.flowLog = verdicts.NewLog(o.HostName)
	a.engine.hellos = newHellos(a.engine, o.LeaseTTL)
	a.engine.ports = natport.New(natport.Options{HostID: o.HostID, Store: o.Store, Replica: a.replica, Translations: state.nats,
		Arrived: a.engine.portsArrived, Clock: a.engine.clock, Log: a.log})
	keys.publish = a.publishKeys
	a.attachments = &attachments{net: a.net, engine: a.engine, underlay: a.underlay, obstacles: a.obstacles,
		placed: map[string]placed{}, wanted: map[string]string{}, since: map[string]time.Time{}}
	a.attachments.reconciler = reconcile.New(reconcile.Options[string, attachment]{Name: "attachments", Key: "port", Target: a.attachments,
		Equal: func(x, y attachment) bool { return x == y }, Parallel: 8, Log: a.log})
	a.engine.moves.kick = a.attachments.reconciler.Kick
	a.arrivals = newArrivals(a.net, a.attachments, a.log)
	a.feed = &feed{opts: o, engine: a.engine, attachments: a.attachments, arrivals: a.arrivals, loaded: make(chan struct{}), place: a.place,
		registrar: &registrar{Options: o, replica: a.replica, published: keys.published, place: a.place, changed: task.NewNotice()},
		traces: &traces{engine: a.engine, sim: simulate.NewSimulator(a.engine.net.world), report: a.hostReport,
			workloads: workload.NewHost(a.net, a.log), pending: map[string]bool{},
			support: supportbundle.New(filepath.Join(o.StateDir, "support"), o.Support, a.log)}}
	a.engine.live.publish = a.feed.traces.publish
	a.feed.traces.readers = &flowReaders{engine: a.engine, post: o.PostFlows, publish: a.feed.traces.publish, log: a.log, ends: map[string]context.CancelFunc{}}
	if o.FlowLogDir != "" {
		a.feed.traces.readers.files = verdicts.NewSegments(o.FlowLogDir, a.log)
	}
	a.physical = newPhysical(o.Physical, a.net, a.obstacles, a.log, a.feed.registrar.changed.Give)
	a.feed.registrar.physical = a.physical
	a.replica.OnChange(a.feed.changed)
	if o.Companion != nil {
		a.companion = o.Companion(Shared{Objects: a.replica, Reports: a.presence, Deciding: a.deciding})
	}
	if o.Metadata != nil {
		a.metadata = &metadataService{host: a.net, namespace: metadataNamespace(o.Datapath), server: o.Metadata,
			clients: state.clients, gone: task.NewNotice(), log: a.log}
		a.attachments.wantMetadata()
	}
	a.mu.Lock()
	a.open = true
	a.mu.Unlock()
}

// close lets the kernel's parts go; they go on without.
func (a *Agent) close() error {
	a.mu.Lock()
	a.open = false
	a.mu.Unlock()
	var errs []error
	if a.dp != nil {
		errs = append(errs, a.dp.Close())
	}
	if a.net != nil {
		errs = append(errs, a.net.Close())
	}
	return errors.Join(errs...)
}

// work runs the parts. Until the topology is loaded the flows of an earlier agent go on.
func (a *Agent) work(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.replica.Run(ctx) })
	g.Go(func() error {
		if !await(ctx, a.feed.loaded) {
			return nil
		}
		a.log.Info("topology loaded", "revision", a.replica.Snapshot().Revision, "after", time.Since(a.begun))
		return a.serve(ctx)
	})
	return g.Wait()
}

func (a *Agent) serve(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	a.engine.answers.adoptNeighbours()
	ways, adopted, answering := make(chan struct{}), make(chan struct{}), make(chan struct{})
	a.underlay.checkLocal()
	a.physical.look()
	g.Go(func() error { return a.watchLinks(ctx) })
	g.Go(func() error { return a.engine.net.homes.Run(ctx) })
	if c := a.keys.crypt; c != nil {
		known := make(chan struct{})
		g.Go(func() error { return a.underlay.Run(ctx, func() { close(known) }) })
		g.Go(func() error { return c.Run(ctx, known, func() { close(ways) }) })
	} else {
		g.Go(func() error { return a.underlay.Run(ctx, func() { close(ways) }) })
	}
	g.Go(func() error { return a.attachments.reconciler.Run(ctx) })
	g.Go(func() error { return a.arrivals.Run(ctx) })
	g.Go(func() error {
		a.wayChanged()
		return a.feed.registrar.Run(ctx)
	})
	g.Go(func() error { return a.presence.Run(ctx) })
	g.Go(func() error { return a.place.Run(ctx, a.begun) })
	g.Go(func() error { return a.filterLogs.Run(ctx) })
	g.Go(func() error { return a.feed.traces.workloads.Run(ctx) })
	g.Go(func() error { return a.feed.traces.readers.Run(ctx) })
	g.Go(func() error { return a.engine.flowLog.Run(ctx) })
	if files := a.feed.traces.readers.files; files != nil {
		g.Go(func() error { return files.Run(ctx, a.engine.flowLog) })
	}
	g.Go(func() error { return a.feed.traces.support.Run(ctx) })
	if a.companion != nil {
		g.Go(func() error { return a.companion.Run(ctx) })
	}
	if a.metadata != nil {
		g.Go(func() error { return a.metadata.Run(ctx) })
	}
	g.Go(func() error { return a.engine.ports.Run(ctx) })
	g.Go(func() error { return a.keys.Run(ctx, a.replica.Snapshot) })
	g.Go(func() error {
		// A flow to a port or path that is missing would be removed.
		if !await(ctx, ways, a.attachments.reconciler.Settled()) {
			return nil
		}
		if err := a.dp.Guard(); err != nil { // all hosts and who may send to which port are known
			return err
		}
		g.Go(func() error { return a.engine.answers.Run(ctx, func() { close(answering) }) })
		g.Go(func() error { return a.engine.adverts.Run(ctx) })
		g.Go(func() error { return a.engine.hellos.Run(ctx) })
		if err := a.engine.keepAttachedClients(); err != nil {
			return err
		}
		close(a.deciding)
		deciding, handle := a.opts.Watchdog.Loop("decisions"), a.engine.newHandler().handle
		g.Go(func() error {
			return a.dp.Run(ctx, func(u *datapath.Upcall) {
				deciding.Begin()
				defer deciding.End()
				handle(u)
			})
		})
		g.Go(func() error { return a.engine.newHandler().runWaiting(ctx) })
		u := &upkeep{e: a.engine, verifier: a.engine.newTrial()}
		return u.Run(ctx, func() {
			a.presence.Complete() // what this host serves and has seen is known
			close(adopted)
		})
	})
	g.Go(func() error {
		if !await(ctx, adopted, answering) {
			return nil
		}
		select {
		case <-a.presence.Reported():
		case <-a.presence.Unreachable(): // traffic does not wait for the store, nor does readiness
		case <-ctx.Done():
			return nil
		}
		a.log.Info("ready", "ports", len(a.dp.Ports()), "after", time.Since(a.begun))
		close(a.ready)
		return nil
	})
	return g.Wait()
}

// await waits until all channels are closed. It reports false if ctx ends before.
func await(ctx context.Context, all ...<-chan struct{}) bool {
	for _, c := range all {
		select {
		case <-c:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// wayChanged: a tunnel has come, or the underlay's MTU has changed.
func (a *Agent) wayChanged() {
	a.dp.Bump(datapath.SlotAll)
	st := &topology.HostState{HostID: a.opts.HostID, Name: a.opts.HostName, Version: a.opts.Version, TunnelIP: a.opts.TunnelIP,
		MTU: a.underlay.MTU(), StartedAt: a.begun.UTC().Truncate(time.Second), Roles: a.opts.Roles, Instance: a.place.instance,
		Reads: schema.KnownFormats().Newest(), Writes: schema.KnownFormats().Newest()}
	a.engine.reports.set(schema.HostStates.KeyOf(st), st)
}

// publishKeys puts the public half of this host's keys into the store, to stay there.
func (a *Agent) publishKeys(k *topology.TunnelKeys) {
	if err := a.presence.SetLasting(schema.TunnelKeys.KeyOf(k), k); err != nil {
		a.log.Error("cannot publish tunnel keys", "err", err)
	}
}

// watchLinks has attachments looked at again when their links change, and all of them when an
// obstacle has come or gone.
func (a *Agent) watchLinks(ctx context.Context) error {
	events, err := a.net.Watch(ctx)
	if err != nil {
		return err
	}
	a.attachments.reconciler.Sweep() // what changed before the watch
	a.physical.look()
	for {
		select {
		case e, ok := <-events:
			if !ok && ctx.Err() == nil {
				return errors.New("the watch of links has ended")
			}
			if !ok {
				return nil
			}
			a.linkChanged(e)
		case <-a.obstacles.changed:
			a.lookAtAll()
		}
	}
}

func (a *Agent) linkChanged(e hostnet.Event) {
	switch e.Kind {
	case hostnet.LinkSet, hostnet.LinkGone:
		if a.physical.concerns(e.Link) {
			a.physical.look()
		}
		if a.metadata != nil && e.Kind == hostnet.LinkGone && e.Link.Name == metadataLink {
			a.metadata.gone.Give()
		}
		for _, id := range a.attachments.concerned(e.Link, e.Kind == hostnet.LinkGone) {
			a.attachments.reconciler.Kick(id)
		}
		a.arrivals.linkChanged(e.Link)
	case hostnet.Lost:
		if a.metadata != nil {
			a.metadata.gone.Give()
		}
		a.lookAtAll()
	}
}

func (a *Agent) lookAtAll() {
	a.physical.look()
	a.attachments.reconciler.KickAll()
	a.arrivals.reconciler.KickAll()
}

// Cleanup removes everything that an agent with these options has made in this host's kernel:
// programs, maps, devices. No such agent may run.
func Cleanup(o Options) error {
	o = o.withDefaults()
	n, err := hostnet.NewLinux(o.Namespace)
	if err != nil {
		return err
	}
	defer n.Close()
	return errors.Join(wireguard.Remove(wireguardName(o.Datapath), n), removeMetadata(n, metadataNamespace(o.Datapath)),
		datapath.Cleanup(datapath.Options{Name: o.Datapath, BPFFS: o.BPFFS, Namespace: n.Namespace()}))
}

// monotonic returns the clock by which the kernel dates uses of flows; it goes on over restarts.
func monotonic() func() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // never fails for this clock
	start, at := time.Now(), time.Duration(ts.Nano())
	return func() time.Duration { return at + time.Since(start) } // no system call
}

// Metrics returns the agent's figures; none before Run has opened the datapath.
func (a *Agent) Metrics() []telemetry.Value {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.open {
		return nil
	}
	return a.figures()
}
