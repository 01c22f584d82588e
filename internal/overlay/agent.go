package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"heddle/internal/hostnet"
	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/flowstate"
	"heddle/internal/overlay/wireguard"
	"heddle/internal/reconcile"
	"heddle/internal/store"
	"heddle/internal/store/follow"
	"heddle/internal/store/presence"
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
	Version  string // of this program, told to the others
	// Roles are what this host's agents do; default "overlay".
	Roles []string
	// TunnelIP is the IPv4 address by which other hosts reach this one; an interface of this host must have it.
	TunnelIP netip.Addr
	// TunnelZones are the ids of the zones that this host is in: hosts that share one reach each other. Default the one
	// that all hosts are in, topology.DefaultTunnelZone.
	TunnelZones []string
	Store       store.Store
	// Encryption says what is encrypted between this host and others. Default [NoEncryption]. Where the kernel has no
	// WireGuard it takes that this program can be started with [WireguardCommand].
	Encryption Encryption
	// StateDir is where this host's private keys are kept; nobody else may read there.
	StateDir string
	// Namespace is the network namespace of the host: workloads and underlay. Default this process's. It must stay open
	// while the agent runs.
	Namespace *hostnet.Namespace
	// Datapath names this agent's programs and maps in the kernel; two agents on one machine need two names. Default
	// "overlay".
	Datapath string
	BPFFS    string // where the BPF file system is mounted; default /sys/fs/bpf
	MaxFlows int    // in the kernel's cache, of each IP version; default 262144
	// MaxConnections bounds the connections remembered. Default two for each flow.
	MaxConnections int
	// LeaseTTL is after how long without a word this host counts as gone. Default 15 s.
	LeaseTTL time.Duration
	// Poll is how long the agent looks for more missed packets before it sleeps; see datapath.Options.
	Poll time.Duration
	// Snapshots is a directory in which the agent keeps what it last read of the store, to start from while the store
	// cannot be reached; empty: it keeps nothing.
	Snapshots string
	Log       *slog.Logger // default: none
}

func (o Options) withDefaults() Options {
	if len(o.Roles) == 0 {
		o.Roles = []string{"overlay"}
	}
	if len(o.TunnelZones) == 0 {
		o.TunnelZones = []string{topology.DefaultTunnelZone}
	}
	if o.Datapath == "" {
		o.Datapath = "overlay"
	}
	if o.MaxFlows == 0 {
		o.MaxFlows = 262144
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = 2 * o.MaxFlows
	}
	if o.Encryption == "" {
		o.Encryption = NoEncryption
	}
	if o.LeaseTTL == 0 {
		o.LeaseTTL = 15 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) check() error {
	switch {
	case o.HostID == "" || o.HostName == "":
		return errors.New("overlay agent: the host has no id or no name")
	case !o.TunnelIP.Is4():
		return fmt.Errorf("overlay agent: tunnel address %q is not IPv4: give the address of an interface of this host", o.TunnelIP)
	case o.Store == nil:
		return errors.New("overlay agent: no store")
	case o.StateDir == "":
		return errors.New("overlay agent: no state directory for the host's keys")
	}
	return nil
}

// Agent is the overlay agent of one host. It is a task: see Run, Ready and String.
type Agent struct {
	opts   Options
	log    *slog.Logger
	ready  chan struct{}
	loaded chan struct{} // closed when the first snapshot is applied
	begun  time.Time

	registering task.Notice     // tells register to look again
	wrong       map[string]bool // with the hosts' records: what the log has been told of

	// Made by Run.
	net         *hostnet.Linux
	dp          *datapath.Datapath
	engine      *engine
	underlay    *underlay
	replica     *replica.Replica
	presence    *presence.Presence
	attachments *attachments
	attaching   *reconcile.Reconciler[string, attachment]
	tracer      *simulate.Simulator
	keys        *hostKeys
	clock       wallClock

	mu   sync.Mutex
	open bool // what Run makes is there
}

// New makes an agent. It does nothing until Run.
func New(o Options) *Agent {
	o = o.withDefaults()
	return &Agent{opts: o, log: o.Log, ready: make(chan struct{}), loaded: make(chan struct{}), registering: task.NewNotice()}
}

// String names the task.
func (a *Agent) String() string { return "overlay agent" }

// Ready is closed once all flows are possible: the topology is known, the interfaces that are there are attached, the
// ways to other hosts are looked up, and this host is known to be alive, unless the store that should know it is away.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Run works until ctx ends. Forwarding goes on afterwards, see Cleanup. It must not be called twice.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.opts.check(); err != nil {
		return err
	}
	a.begun = time.Now()
	if a.opts.Namespace == nil {
		ns, err := hostnet.CurrentNamespace()
		if err != nil {
			return err
		}
		defer ns.Close()
		a.opts.Namespace = ns
	}
	if err := a.openKernel(); err != nil {
		return errors.Join(err, a.close())
	}
	err := a.work(ctx)
	return errors.Join(err, a.close())
}

// openKernel opens what is in the kernel: what an earlier agent left goes on.
func (a *Agent) openKernel() (err error) {
	if a.net, err = hostnet.NewLinux(a.opts.Namespace); err != nil {
		return err
	}
	if a.dp, err = datapath.Open(datapath.Options{Name: a.opts.Datapath, BPFFS: a.opts.BPFFS, Namespace: a.opts.Namespace,
		MaxFlows: a.opts.MaxFlows, Poll: a.opts.Poll, Log: a.log}); err != nil {
		return err
	}
	conns, err := a.openConnections()
	if err != nil {
		return err
	}
	keys, err := openKeys(a.opts.StateDir, a.opts.HostID, a.dp, a.log, a.clock.now)
	if err != nil {
		return err
	}
	if a.opts.Encryption != NoEncryption {
		keys.crypt = openEncryption(a.opts, a.net, a.dp, a.clock.now)
		keys.crypt.ring, keys.crypt.again = keys.ring, keys.enterAgain
	} else if err := wireguard.Remove(wireguardName(a.opts.Datapath), a.net); err != nil {
		return err
	}
	if err := keys.ring.Unsaved(); err != nil {
		a.log.Warn("cannot write the tunnel keys' session; going on by the clock", "err", err)
	}
	a.build(conns, keys)
	return nil
}

// build makes the parts. They start in work.
func (a *Agent) build(conns *flowstate.Table, keys *hostKeys) {
	a.keys = keys
	clock, answers := monotonic(), newAnswers(a.dp, a.log)
	world := simulate.NewWorld(simulate.Options{NeighbourChanged: answers.neighbourChanged})
	e := &engine{host: a.opts.HostID, dp: a.dp, conns: conns, log: a.log, clock: clock, topology: world,
		ports: map[datapath.Port]*localPort{}, portByID: map[string]*localPort{}, bySlot: map[datapath.Slot][]string{},
		flows: newFlowIndex(uint64(clock())), seen: newSightings(), tell: a, answers: answers, keys: keys}
	answers.e = e
	e.heard = e.clock()
	a.engine = e
	a.underlay = newUnderlay(a.net, a.dp, a.opts.TunnelIP, a.wayChanged, a.log)
	e.under = a.underlay
	if c := keys.crypt; c != nil {
		c.moved, c.mtu = a.underlay.wake, a.underlay.MTU
		a.underlay.crypt = c
	}
	a.tracer = simulate.NewSimulator(world)
	a.presence = presence.New(presence.Options{Store: a.opts.Store, Prefix: schema.StatePrefix + a.opts.HostID + "/", TTL: a.opts.LeaseTTL, Log: a.log})
	keys.publish = a.publishKeys
	a.attachments = &attachments{host: a.opts.HostID, net: a.net, dp: a.dp, engine: e, presence: a.presence, underlay: a.underlay,
		placed: map[string]placed{}, wanted: map[string][]string{}, since: map[string]time.Time{}}
	a.attaching = reconcile.New(reconcile.Options[string, attachment]{Name: "attachments", Target: a.attachments,
		Equal: func(x, y attachment) bool { return x == y }, Parallel: 8, Log: a.log})
	a.replica = replica.New(a.opts.Store, replica.Options{Journal: follow.NewJournal(a.opts.Snapshots, "overlay", a.opts.HostID), Log: a.log}, tables(a.opts.HostID)...)
	a.replica.OnChange(a.changed)
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

// work runs the parts. Packets are decided once the topology is known; with the store away from the start that may take
// a while, in which the flows of an earlier agent go on.
func (a *Agent) work(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.replica.Run(ctx) })
	g.Go(func() error {
		select {
		case <-a.loaded:
		case <-ctx.Done():
			return nil
		}
		a.log.Info("topology loaded", "revision", a.replica.Snapshot().Revision, "after", time.Since(a.begun))
		return a.serve(ctx)
	})
	return g.Wait()
}

// serve runs what needs the topology.
func (a *Agent) serve(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	a.engine.answers.adoptNeighbours()
	ways, adopted, answering := make(chan struct{}), make(chan struct{}), make(chan struct{})
	g.Go(func() error { return a.watchLinks(ctx) })
	if c := a.keys.crypt; c != nil {
		known := make(chan struct{})
		g.Go(func() error { return a.underlay.Run(ctx, func() { close(known) }) })
		g.Go(func() error { return c.Run(ctx, known, func() { close(ways) }) })
	} else {
		g.Go(func() error { return a.underlay.Run(ctx, func() { close(ways) }) })
	}
	g.Go(func() error { return a.attaching.Run(ctx) })
	g.Go(func() error { return a.register(ctx) })
	g.Go(func() error { return a.presence.Run(ctx) })
	g.Go(func() error { return a.keys.Run(ctx, a.replica.Snapshot) })
	g.Go(func() error {
		// Flows are adopted when ports and ways are there: a flow to one that is not would be taken away.
		if !a.settled(ctx, ways) {
			return nil
		}
		if err := a.dp.Guard(); err != nil { // all hosts and who may send to which port are known
			return err
		}
		g.Go(func() error { return a.engine.answers.Run(ctx, func() { close(answering) }) })
		g.Go(func() error { return a.dp.Run(ctx, a.engine.newHandler().handle) })
		u := &upkeep{e: a.engine, again: a.engine.newDecider()}
		return u.Run(ctx, func() {
			a.presence.Complete() // what this host serves and has seen is known
			close(adopted)
		})
	})
	g.Go(func() error {
		for _, c := range []<-chan struct{}{adopted, answering} {
			select {
			case <-c:
			case <-ctx.Done():
				return nil
			}
		}
		select {
		case <-a.presence.Told():
		case <-a.presence.Unreachable(): // traffic does not wait for the store, so readiness does not either
		case <-ctx.Done():
			return nil
		}
		a.log.Info("ready", "ports", len(a.dp.Ports()), "after", time.Since(a.begun))
		close(a.ready)
		return nil
	})
	return g.Wait()
}

// settled waits until the ways to other hosts were looked up and the interfaces that are there are attached.
func (a *Agent) settled(ctx context.Context, ways <-chan struct{}) bool {
	select {
	case <-ways:
	case <-ctx.Done():
		return false
	}
	select {
	case <-a.attaching.Settled():
	case <-ctx.Done():
		return false
	}
	return true
}

// register keeps this host and its tunnel addresses in the store, and says that it is alive.
func (a *Agent) register(ctx context.Context) error {
	a.wayChanged()
	wait, failing := task.Backoff{Least: time.Second, Most: 30 * time.Second}, false
	for ctx.Err() == nil {
		if !a.keys.published(a.replica.Snapshot()) {
			// The other hosts must know this one's keys before they send to it.
			select {
			case <-ctx.Done():
			case <-a.registering:
			}
			continue
		}
		err := a.registerHost(ctx)
		switch {
		case err == nil:
			failing = false
			wait.Reset()
			select {
			case <-ctx.Done():
			case <-a.registering:
			}
		case ctx.Err() == nil:
			if !failing {
				a.log.Warn("cannot register this host, will try again", "err", err)
			}
			failing = true
			wait.Pause(ctx)
		}
	}
	return nil
}

// tunnels are the addresses of this host in its zones.
func (a *Agent) tunnels() []topology.HostTunnel {
	var all []topology.HostTunnel
	for _, z := range a.opts.TunnelZones {
		all = append(all, topology.HostTunnel{ZoneID: z, IP: a.opts.TunnelIP})
	}
	return all
}

// wayChanged: a tunnel has come, or the underlay's MTU has changed.
func (a *Agent) wayChanged() {
	a.dp.Bump(datapath.SlotAll)
	st := &topology.HostState{HostID: a.opts.HostID, Name: a.opts.HostName, Version: a.opts.Version, TunnelIP: a.opts.TunnelIP,
		MTU: a.underlay.MTU(), StartedAt: a.begun.UTC().Truncate(time.Second), Roles: a.opts.Roles}
	if err := a.presence.SetRecord(schema.HostStates.KeyOf(st), st); err != nil {
		a.log.Error("cannot report this host", "err", err)
	}
}

// publishKeys puts the public half of this host's keys into the store, to stay there.
func (a *Agent) publishKeys(k *topology.TunnelKeys) {
	if err := a.presence.SetLasting(schema.TunnelKeys.KeyOf(k), k); err != nil {
		a.log.Error("cannot publish tunnel keys", "err", err)
	}
}

// watchLinks has attachments looked at again when their links change.
func (a *Agent) watchLinks(ctx context.Context) error {
	events, err := a.net.Watch(ctx)
	if err != nil {
		return err
	}
	a.attaching.Sweep() // what changed before the watch
	for e := range events {
		switch e.Kind {
		case hostnet.LinkSet, hostnet.LinkGone:
			for _, id := range a.attachments.concerned(e.Link, e.Kind == hostnet.LinkGone) {
				a.attaching.Kick(id)
			}
		case hostnet.Lost:
			a.attaching.KickAll()
		}
	}
	if ctx.Err() == nil {
		return errors.New("the watch of links has ended")
	}
	return nil
}

// Seen and Unseen tell what this host has seen, under its lease.
func (a *Agent) Seen(s *sighting) {
	var err error
	if s.mac != nil {
		err = a.presence.SetRecord(schema.LearnedMACs.KeyOf(s.mac), s.mac)
	} else {
		err = a.presence.SetRecord(schema.LearnedNeighbours.KeyOf(s.ip), s.ip)
	}
	if err != nil {
		a.log.Error("cannot tell a learned address", "err", err)
	}
}

// Unseen takes it back.
func (a *Agent) Unseen(s *sighting) {
	if s.mac != nil {
		a.presence.Delete(schema.LearnedMACs.KeyOf(s.mac))
	} else {
		a.presence.Delete(schema.LearnedNeighbours.KeyOf(s.ip))
	}
}

// Cleanup takes away all that an agent with these options has made in this host's kernel: programs, maps, devices. No
// such agent may run.
func Cleanup(o Options) error {
	o = o.withDefaults()
	return errors.Join(removeWireguard(o), datapath.Cleanup(datapath.Options{Name: o.Datapath, BPFFS: o.BPFFS, Namespace: o.Namespace}))
}

func removeWireguard(o Options) error {
	ns := o.Namespace
	if ns == nil {
		own, err := hostnet.CurrentNamespace()
		if err != nil {
			return err
		}
		defer own.Close()
		ns = own
	}
	n, err := hostnet.NewLinux(ns)
	if err != nil {
		return err
	}
	defer n.Close()
	return wireguard.Remove(wireguardName(o.Datapath), n)
}

// monotonic is the machine's clock by which the kernel tells when flows were used; it goes on over restarts.
func monotonic() func() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // never fails for this clock
	start, at := time.Now(), time.Duration(ts.Nano())
	return func() time.Duration { return at + time.Since(start) } // the same clock, without a system call
}

// Metrics are the agent's figures now, for telemetry. Before Run has opened the datapath there are none.
func (a *Agent) Metrics() []telemetry.Value {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.open {
		return nil
	}
	return a.figures()
}
