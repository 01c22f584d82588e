package bgp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/internal/bgp/plan"
	"heddle/internal/hostnet"
	"heddle/internal/reconcile"
	"heddle/internal/store"
	"heddle/internal/task"
	"heddle/internal/telemetry"
)

// owner marks the speaker's routes in the kernel. No other program uses the metric, so that setting
// a route cannot replace another program's; see route.
func owner() hostnet.Owner { return hostnet.Owner{Protocol: hostnet.ProtocolBGP, Metric: 81} }

// Options of an agent. Host and Store are needed.
type Options struct {
	Host  string // this host's name in etcd
	Store store.Store
	// RouterID is the IPv4 address that names this speaker to peers. Default: the host's IPv4
	// address in etcd, else a hash of its name.
	RouterID netip.Addr
	// Port is the TCP port that the speaker listens on, at the host's addresses in etcd, and that
	// other hosts of the mesh have too. Default 179.
	Port uint16
	// HoldTime is the silence after which a peer counts as gone; whole seconds, 3 at least. Default
	// 90 s.
	HoldTime time.Duration
	// RestartTime is the time for which peers keep this host's routes while its agent is down, and
	// for which a starting agent keeps routes that no peer has announced to it yet. Whole seconds.
	// Default 120 s.
	RestartTime time.Duration
	// Snapshots is a directory with a copy of the store, to start from while the store cannot be
	// reached; "": no copy is kept.
	Snapshots string
	Watchdog  *task.Watchdog // watches the agent's loop; nil: nothing does
	Log       *slog.Logger   // default: none
}

func (o Options) withDefaults() Options {
	o.Port, o.HoldTime, o.RestartTime = cmp.Or(o.Port, standardPort), cmp.Or(o.HoldTime, 90*time.Second), cmp.Or(o.RestartTime, 120*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
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
	rereadEvery = time.Minute // how often the kernel's table is read as a whole, in case events were missed
	retryPause  = time.Second // before what the speaker could not do is tried again
)

// Agent is the BGP speaker of this host.
type Agent struct {
	opts    Options
	log     *slog.Logger
	ready   chan struct{}
	feed    *feed
	speaker *speaker
	status  *status

	// Of Run's loop.
	net                *hostnet.Linux
	routes             *reconcile.Reconciler[string, hostnet.OwnedRoute]
	rib                *rib
	behind             bool // the speaker has not carried out the plan
	retry, restartOver *task.Alarm
	isReady            bool
}

// New makes an agent. It does nothing until Run.
func New(o Options) *Agent {
	o = o.withDefaults()
	return &Agent{opts: o, log: o.Log, ready: make(chan struct{}), rib: newRIB(), retry: task.NewAlarm(), restartOver: task.NewAlarm(),
		feed:    newFeed(plan.Host{Name: o.Host, RouterID: o.RouterID}, o.Store, o.Snapshots, o.Log),
		speaker: newSpeaker(speakerOptions{port: o.Port, holdTime: o.HoldTime, restartTime: o.RestartTime, log: o.Log}),
		status:  &status{log: o.Log}}
}

// String names the task, with what it waits for.
func (a *Agent) String() string {
	const name = "BGP agent"
	if text := a.feed.lack.Of(name); text != name {
		return text
	}
	return a.status.lack.Of(name)
}

// Ready is closed once the speaker runs with the sessions of its first plan and knows its exports.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Metrics returns the agent's figures, for telemetry.
func (a *Agent) Metrics() []telemetry.Value { return a.status.metrics() }

// Run works until ctx ends. Routes stay in the kernel afterwards, and peers keep theirs for the
// restart time; see Cleanup. It must run in the host's network namespace, and not be called twice.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.opts.check(); err != nil {
		return err
	}
	var err error
	if a.net, err = hostnet.Here(); err != nil {
		return err
	}
	defer a.net.Close()
	a.routes = reconcile.New(reconcile.Options[string, hostnet.OwnedRoute]{Name: "routes", Target: target{a.net},
		Equal: hostnet.OwnedRoute.Equal, Log: a.log})
	a.status.follow(a.routes.Status)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.feed.Run(ctx) })
	g.Go(func() error { return a.routes.Run(ctx) })
	g.Go(func() error { return a.loop(ctx) })
	return g.Wait()
}

// loop owns all state: it brings the plan, the kernel and the peers together.
func (a *Agent) loop(ctx context.Context) error {
	events, err := a.net.WatchTable(ctx)
	if err != nil {
		return err
	}
	// The speaker ends without taking routes along: its last events are ignored.
	defer a.speaker.stop(context.WithoutCancel(ctx))
	if err := a.reread(); err != nil {
		return err
	}
	reread := time.Tick(rereadEvery)
	asked, done := a.opts.Watchdog.Ask("BGP")
	defer done()
	for {
		wasBehind := a.behind
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-asked:
			continue
		case p := <-a.feed.plans:
			a.setPlan(ctx, p)
		case <-a.retry.C:
			wasBehind = false
			a.apply(ctx)
		case e, ok := <-events:
			if !ok && ctx.Err() == nil {
				return errors.New("the watch of the kernel's routes has ended")
			}
			err = a.kernelEvents(e, events)
		case <-reread:
			err = a.reread()
		case <-a.speaker.news:
			err = a.takeEvents()
		case <-a.restartOver.C:
			if !a.rib.converged {
				a.log.Warn("peers have not told all their routes in the restart time; what nobody has told is removed",
					"peers", slices.SortedFunc(maps.Keys(a.rib.waiting), netip.Addr.Compare), "after", a.opts.RestartTime)
				a.rib.converge()
			}
		}
		if err != nil && ctx.Err() == nil {
			a.log.Error("cannot follow routes, will read them again", "err", err)
		}
		a.settle()
		if a.behind && !wasBehind {
			a.retry.Set(time.Now().Add(retryPause))
		}
		a.status.count(len(a.rib.learned), len(a.speaker.announced), a.rib.plan)
	}
}

// setPlan puts a plan in force.
func (a *Agent) setPlan(ctx context.Context, p *plan.Plan) {
	var before []plan.Problem
	if a.rib.plan != nil {
		if reflect.DeepEqual(a.rib.plan, p) {
			return
		}
		before = a.rib.plan.Problems
	}
	logProblems(a.log, before, p.Problems)
	a.rib.setPlan(p)
	a.apply(ctx)
}

// apply has the speaker carry out the plan. What fails is tried again.
func (a *Agent) apply(ctx context.Context) {
	a.behind = true
	p := a.rib.plan
	here, missing := a.onThisHost(p.Addresses)
	want := settings{p.ASNumber, p.RouterID, here}
	if a.speaker.server != nil && !reflect.DeepEqual(a.speaker.settings, want) {
		a.log.Info("restarting the speaker", "as", want.asNumber, "routerID", want.routerID, "addresses", want.addresses)
		a.speaker.stop(ctx)
		a.rib.restarted = true
	}
	if a.speaker.server == nil {
		if err := a.start(ctx, want); err != nil {
			a.status.fail("start", err)
			return
		}
	}
	// The speaker knows the host's routes before a session begins, so that a peer receives all of
	// them before the first End-of-RIB; and before a filter excludes what one of them stands for,
	// as a block does for its addresses.
	exports := a.rib.exports(a.speaker.announced)
	err := a.speaker.announce(exports)
	if err == nil {
		err = a.speaker.apply(ctx, p, a.rib.restarted)
	}
	if err == nil {
		err = a.speaker.withdraw(exports)
	}
	if err != nil {
		a.status.fail("apply the plan", err)
		return
	}
	if a.behind = len(missing) > 0; a.behind {
		a.status.fail("listen", fmt.Errorf("no interface of this host has the address %s of its BGP configuration", missing[0]))
	} else {
		a.status.fail("", nil)
	}
	a.status.setSessions(a.speaker.sessions)
	a.rib.keepSessions(a.speaker.sessions)
	if !a.isReady {
		a.isReady = true
		a.log.Info("ready", "as", want.asNumber, "sessions", len(p.Sessions))
		close(a.ready)
	}
}

// onThisHost splits addresses into those that interfaces of this host have, and the others. The
// speaker starts with the former: one that is missing should not keep the other family away.
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
func (a *Agent) start(ctx context.Context, want settings) error {
	if a.rib.life == 0 {
		left, err := a.net.OwnedRoutes(owner())
		if err != nil {
			return err
		}
		a.rib.restarted = len(left) > 0
	}
	if err := a.speaker.start(ctx, want); err != nil {
		return err
	}
	a.rib.begin()
	a.restartOver.Set(time.Now().Add(a.opts.RestartTime))
	a.status.setSessions(nil) // none is up
	return nil
}

// takeEvents takes the peers' events.
func (a *Agent) takeEvents() error {
	n := a.speaker.take()
	var destinations []netip.Prefix
	var hops map[netip.Prefix][]netip.Addr
	if a.speaker.server != nil && len(n.changed) > 0 {
		destinations = slices.Collect(maps.Keys(n.changed))
		var err error
		if hops, err = a.speaker.learned(destinations); err != nil {
			return err
		}
	}
	for peer, s := range n.peers {
		a.status.setPeer(peer, s)
	}
	a.rib.announce(destinations, hops, n.complete)
	return nil
}
