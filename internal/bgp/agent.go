package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/internal/bgp/plan"
	"heddle/internal/hostnet"
	"heddle/internal/reconcile"
	"heddle/internal/store"
)

// owner marks the speaker's routes in the kernel. The metric is not that of any other program's routes, so that setting a
// route cannot take the place of somebody else's; see route for who wins.
func owner() hostnet.Owner { return hostnet.Owner{Protocol: hostnet.ProtocolBGP, Metric: 81} }

// Options of an agent. Host and Store are needed.
type Options struct {
	Host  string // the name under which etcd knows this host
	Store store.Store
	// RouterID is an IPv4 address by which peers tell this speaker from others. Default the host's IPv4 address in etcd,
	// without one a hash of its name.
	RouterID netip.Addr
	// Port is the TCP port that the speaker listens on, at the host's addresses in etcd; other hosts of the mesh are
	// reached at the same. Default 179.
	Port uint16
	// HoldTime is after how long without a word a peer counts as gone; whole seconds, 3 at least. Default 90 s.
	HoldTime time.Duration
	// RestartTime is for how long peers keep what they heard from this host while its agent is away, and for how long an
	// agent that starts keeps routes that no peer has told it yet. Whole seconds. Default 120 s.
	RestartTime time.Duration
	// Snapshots is a directory in which the agent keeps what it last read of the store, to start from while the store
	// cannot be reached; empty: it keeps nothing.
	Snapshots string
	Log       *slog.Logger // default: none
}

func (o Options) withDefaults() Options {
	if o.Port == 0 {
		o.Port = standardPort
	}
	if o.HoldTime == 0 {
		o.HoldTime = 90 * time.Second
	}
	if o.RestartTime == 0 {
		o.RestartTime = 120 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) check() error {
	switch {
	case o.Host == "":
		return errors.New("BGP agent: the host has no name")
	case o.Store == nil:
		return errors.New("BGP agent: no store")
	case o.RouterID.IsValid() && (!o.RouterID.Is4() || o.RouterID.IsUnspecified()):
		return fmt.Errorf("BGP agent: router ID %s: want an IPv4 address", o.RouterID)
	case o.HoldTime < 3*time.Second || o.HoldTime > 65535*time.Second:
		return fmt.Errorf("BGP agent: hold time %s: want 3 s to 65535 s", o.HoldTime)
	case o.RestartTime < time.Second || o.RestartTime > 4095*time.Second:
		return fmt.Errorf("BGP agent: restart time %s: want 1 s to 4095 s", o.RestartTime)
	}
	return nil
}

const (
	// rereadEvery is how often the kernel's table is read anew, should its events not have told all.
	rereadEvery = time.Minute
	// startAgain is the pause before a speaker that could not start, or not do what it should, is told again.
	startAgain = time.Second
	// batch bounds how many events of the kernel are handled at once.
	batch = 1024
)

// Agent is the BGP speaker of this host.
type Agent struct {
	opts    Options
	log     *slog.Logger
	ready   chan struct{}
	feed    *feed
	speaker *speaker

	// Of Run's loop.
	net         *hostnet.Linux
	table       *mainTable
	routes      *reconcile.Reconciler[string, hostnet.OwnedRoute]
	plan        *plan.Plan            // nil before the first
	blocks      map[netip.Prefix]bool // of the plan
	behind      bool                  // the speaker has not done all that the plan says
	restarted   bool                  // what an earlier life announced may still be forwarded
	learned     map[netip.Prefix]heard
	life        int                         // of the speaker
	hops        map[netip.Addr]hostnet.Path // ways to next hops; the zero Path: none
	unreachable map[netip.Addr]bool         // next hops to which no way leads
	waiting     map[netip.Addr]bool         // peers that have yet to tell all, in this life
	converged   bool
	isReady     bool

	mu     sync.Mutex
	status status
}

// heard is what a life of the speaker has learned of a destination.
type heard struct {
	life int
	hops []netip.Addr
}

// New makes an agent. It does nothing until Run.
func New(o Options) *Agent {
	o = o.withDefaults()
	a := &Agent{opts: o, log: o.Log, ready: make(chan struct{}), table: newMainTable(), learned: map[netip.Prefix]heard{},
		hops: map[netip.Addr]hostnet.Path{}, unreachable: map[netip.Addr]bool{}, waiting: map[netip.Addr]bool{}}
	a.feed = newFeed(plan.Host{Name: o.Host, RouterID: o.RouterID}, o.Store, o.Snapshots, o.Log)
	a.speaker = newSpeaker(speakerOptions{port: o.Port, holdTime: o.HoldTime, restartTime: o.RestartTime, log: o.Log})
	return a
}

// String names the task, with what it waits for.
func (a *Agent) String() string {
	if what := *a.feed.waits.Load(); what != "" {
		return "BGP agent (waits for " + what + ")"
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status.failure != "" {
		return "BGP agent (cannot " + a.status.failure + ")"
	}
	return "BGP agent"
}

// Ready is closed once the speaker runs with the sessions of its first plan and knows what it exports.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Run works until ctx ends. Routes stay in the kernel afterwards, and peers keep theirs for the restart time; see Cleanup.
// It must run in the host's network namespace, and not be called twice.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.opts.check(); err != nil {
		return err
	}
	ns, err := hostnet.CurrentNamespace()
	if err != nil {
		return err
	}
	defer ns.Close()
	if a.net, err = hostnet.NewLinux(ns); err != nil {
		return err
	}
	defer a.net.Close()
	a.mu.Lock()
	a.routes = reconcile.New(reconcile.Options[string, hostnet.OwnedRoute]{Name: "routes", Target: target{a.net},
		Equal: hostnet.OwnedRoute.Equal, Log: a.log})
	a.mu.Unlock()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.feed.Run(ctx) })
	g.Go(func() error { return a.routes.Run(ctx) })
	g.Go(func() error { return a.loop(ctx) })
	return g.Wait()
}

// loop owns all state: it brings what etcd, the kernel and the peers tell together.
func (a *Agent) loop(ctx context.Context) error {
	events, err := a.net.WatchTable(ctx)
	if err != nil {
		return err
	}
	// The speaker ends without taking routes along: what it would tell on its way is not heard.
	defer a.speaker.stop(context.WithoutCancel(ctx))
	changed := map[netip.Prefix]bool{}
	if err := a.reread(changed); err != nil {
		return err
	}
	reread := time.NewTicker(rereadEvery)
	defer reread.Stop()
	again, restartOver := stopped(), stopped()
	defer again.Stop()
	defer restartOver.Stop()
	retrying := false
	for {
		life := a.life
		var err error
		select {
		case <-ctx.Done():
			return nil
		case p := <-a.feed.plans:
			a.setPlan(ctx, p, changed)
		case <-again.C:
			retrying = false
			a.apply(ctx, changed)
		case e, ok := <-events:
			if !ok && ctx.Err() == nil {
				return errors.New("the watch of the kernel's routes has ended")
			}
			err = a.kernelEvents(e, events, changed)
		case <-reread.C:
			err = a.reread(changed)
		case <-a.speaker.news:
			err = a.hear(changed)
		case <-restartOver.C:
			a.giveUpWaiting(changed)
		}
		if err != nil && ctx.Err() == nil {
			a.log.Error("cannot follow routes, will read them anew", "err", err)
		}
		a.settle(changed)
		if a.life != life {
			restartOver.Reset(a.opts.RestartTime)
		}
		if a.behind && !retrying {
			retrying = true
			again.Reset(startAgain)
		}
		a.report()
	}
}

func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// setPlan makes a plan the one in force.
func (a *Agent) setPlan(ctx context.Context, p *plan.Plan, changed map[netip.Prefix]bool) {
	if a.plan != nil && reflect.DeepEqual(a.plan, p) {
		return
	}
	var before []plan.Problem
	if a.plan != nil {
		before = a.plan.Problems
	}
	for b := range a.blocks {
		changed[b] = true
	}
	a.blocks = map[netip.Prefix]bool{}
	for _, b := range p.Blackholes {
		a.blocks[b], changed[b] = true, true
	}
	logProblems(a.log, before, p.Problems)
	if a.plan == nil || !reflect.DeepEqual(a.plan.Tunnels, p.Tunnels) {
		for dst := range a.learned {
			changed[dst] = true
		}
	}
	a.plan = p
	a.apply(ctx, changed)
}

// apply has the speaker do what the plan says. What fails is tried again.
func (a *Agent) apply(ctx context.Context, changed map[netip.Prefix]bool) {
	a.behind = true
	here, missing := a.onThisHost(a.plan.Addresses)
	want := settings{a.plan.ASNumber, a.plan.RouterID, here}
	if a.speaker.server != nil && !a.speaker.settings.equal(want) {
		a.log.Info("the speaker starts anew", "as", want.asNumber, "routerID", want.routerID, "addresses", want.addresses)
		a.speaker.stop(ctx)
		a.restarted = true
	}
	if a.speaker.server == nil {
		if !a.start(ctx, want) {
			return
		}
	}
	// What the host has is known to the speaker before a session begins, so that a peer hears all of it before the end of
	// the first telling; and before a filter takes out what it stands for, as a block does for its addresses.
	exports := a.exports()
	err := a.speaker.announce(exports)
	if err == nil {
		err = a.speaker.apply(ctx, a.plan, a.restarted)
	}
	if err == nil {
		err = a.speaker.withdraw(exports)
	}
	if err != nil {
		a.fail("apply the plan", err)
		return
	}
	if a.behind = len(missing) > 0; a.behind {
		a.fail("listen", fmt.Errorf("no interface of this host has the address %s of its BGP configuration", missing[0]))
	} else {
		a.fail("", nil)
	}
	a.reportSessions()
	a.expect(changed)
	if !a.isReady {
		a.isReady = true
		a.log.Info("ready", "as", want.asNumber, "sessions", len(a.plan.Sessions))
		close(a.ready)
	}
}

// onThisHost sorts out the addresses that interfaces of this host have. The speaker starts with these: one that is missing
// shall not keep the other family away.
func (a *Agent) onThisHost(all []netip.Addr) (here, missing []netip.Addr) {
	for _, address := range all {
		if _, err := a.net.LinkWith(address); err != nil {
			missing = append(missing, address)
		} else {
			here = append(here, address)
		}
	}
	return here, missing
}

// start starts the speaker in a new life.
func (a *Agent) start(ctx context.Context, want settings) bool {
	if a.life == 0 {
		left, err := a.net.OwnedRoutes(owner())
		if err != nil {
			a.fail("start", err)
			return false
		}
		a.restarted = len(left) > 0
	}
	if err := a.speaker.start(ctx, want); err != nil {
		a.fail("start", err)
		return false
	}
	a.life++
	a.reportNewLife()
	a.converged = false
	a.waiting = map[netip.Addr]bool{}
	for _, s := range a.plan.Sessions {
		a.waiting[s.Peer] = true
	}
	return true
}

// giveUpWaiting ends the restart although not all peers have told what they know.
func (a *Agent) giveUpWaiting(changed map[netip.Prefix]bool) {
	if a.converged {
		return
	}
	peers := slices.SortedFunc(maps.Keys(a.waiting), netip.Addr.Compare)
	a.log.Warn("peers have not told all their routes in the restart time; what nobody has told is removed",
		"peers", peers, "after", a.opts.RestartTime)
	a.converge(changed)
}

// fail notes that the speaker could not do something, once.
func (a *Agent) fail(what string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := ""
	if err != nil {
		text = what + ": " + err.Error()
	}
	if text != "" && text != a.status.failure {
		a.log.Error("cannot do what the plan says, will try again", "err", err)
	} else if text == "" && a.status.failure != "" {
		a.log.Info("recovered", "from", a.status.failure)
	}
	a.status.failure = text
}

// expect forgets to wait for peers with which there is no session any more.
func (a *Agent) expect(changed map[netip.Prefix]bool) {
	for peer := range a.waiting {
		if _, there := a.speaker.sessions[peer]; !there {
			delete(a.waiting, peer)
		}
	}
	a.convergeIfTold(changed)
}

// convergeIfTold ends the restart when every peer has told all it knows.
func (a *Agent) convergeIfTold(changed map[netip.Prefix]bool) {
	if len(a.waiting) == 0 {
		a.converge(changed)
	}
}

// converge ends the restart: what no peer has told in this life is gone, in the kernel too.
func (a *Agent) converge(changed map[netip.Prefix]bool) {
	if a.converged || a.life == 0 {
		return
	}
	a.converged = true
	a.restarted = false
	for dst, h := range a.learned {
		if h.life != a.life {
			delete(a.learned, dst)
			changed[dst] = true
		}
	}
	a.settle(changed) // before what nobody wants is swept
	a.routes.Complete()
}

// hear takes in what peers have told.
func (a *Agent) hear(changed map[netip.Prefix]bool) error {
	n := a.speaker.take()
	if err := a.hearRoutes(n, changed); err != nil {
		return err
	}
	for peer, s := range n.peers {
		a.notePeer(peer, s)
	}
	for peer := range n.told {
		delete(a.waiting, peer)
	}
	a.convergeIfTold(changed)
	return nil
}

func (a *Agent) hearRoutes(n notes, changed map[netip.Prefix]bool) error {
	if len(n.changed) == 0 || a.speaker.server == nil {
		return nil
	}
	all := make([]netip.Prefix, 0, len(n.changed))
	for dst := range n.changed {
		all = append(all, dst)
	}
	found, err := a.speaker.learned(all)
	if err != nil {
		return err
	}
	for _, dst := range all {
		if hops := found[dst]; len(hops) > 0 && routable(dst) {
			a.learned[dst] = heard{a.life, hops}
		} else {
			delete(a.learned, dst)
		}
		changed[dst] = true
	}
	return nil
}

// routable says whether a route to a destination can mean anything on this host. Peers' mistakes in this must not reach
// the kernel.
func routable(dst netip.Prefix) bool {
	a := dst.Addr()
	return !a.IsMulticast() && !a.IsLoopback() && !a.IsLinkLocalUnicast()
}
