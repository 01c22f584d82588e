package dhcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/calico"
	"heddle/internal/dhcp/plan"
	"heddle/internal/hostnet"
	"heddle/internal/store"
	"heddle/internal/store/follow"
	"heddle/internal/store/replica"
	"heddle/internal/task"
)

// Options of an agent. Host, Store and Plan.Dir are needed.
type Options struct {
	Host  string // this host's name in etcd
	Store store.Store
	// Plan holds the operator's settings. Defaults: Device is DeviceName, InterfacePrefixes "tap",
	// LeaseSeconds a day.
	Plan       plan.Options
	Program    string        // default dnsmasq, from PATH
	ProbeEvery time.Duration // the interval of probes, and the time to answer one. Default 10 s.
	// Snapshots is a directory with a copy of the store, to start from while the store cannot be
	// reached; "": no copy is kept.
	Snapshots string
	Watchdog  *task.Watchdog // watches the agent's loop; nil: nothing does
	Log       *slog.Logger   // default: none
}

func (o Options) withDefaults() Options {
	if len(o.Plan.InterfacePrefixes) == 0 {
		o.Plan.InterfacePrefixes = []string{"tap"}
	}
	o.Plan.Device, o.Plan.LeaseSeconds = cmp.Or(o.Plan.Device, DeviceName), cmp.Or(o.Plan.LeaseSeconds, 86400)
	o.Program, o.ProbeEvery = cmp.Or(o.Program, "dnsmasq"), cmp.Or(o.ProbeEvery, 10*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Plan.Advertise = false // the agent does: see advertiser
	o.Plan.LogDHCP = o.Log.Enabled(context.Background(), slog.LevelDebug)
	return o
}

// Check reports options that no agent can run with. It ignores Store.
func (o Options) Check() error {
	o = o.withDefaults()
	if o.Host == "" {
		return errors.New("DHCP agent: the host has no name")
	}
	if err := o.Plan.Check(); err != nil {
		return fmt.Errorf("DHCP agent: %w", err)
	}
	return nil
}

// ErrSecond is returned by Run while another DHCP agent runs on this host.
var ErrSecond = errors.New("another DHCP agent runs on this host")

const (
	retryPause = time.Second      // before what has failed is tried again
	checkEvery = 30 * time.Second // how often the device is read back
)

// Agent is the DHCP agent of this host.
type Agent struct {
	opts     Options
	log      *slog.Logger
	ready    chan struct{}
	feed     *feed
	server   *server
	resolver *resolver

	// Of Run's loop.
	device  *device
	router  *advertiser
	retry   *task.Alarm
	plan    *plan.Plan // in force; nil before the first
	isReady bool
	noIPv6  string // why this host has none; "": it has

	lack task.Lack

	mu     sync.Mutex
	status status
}

// New makes an agent. It does nothing until Run.
func New(o Options) *Agent {
	o = o.withDefaults()
	feed := newFeed(o.Host, o.Store, replica.Options{Journal: follow.NewJournal(o.Snapshots, "dhcp", o.Host), Log: o.Log})
	return &Agent{opts: o, log: o.Log, ready: make(chan struct{}), feed: feed, server: newServer(o), resolver: newResolver(o), retry: task.NewAlarm()}
}

// String names the task, with what it lacks.
func (a *Agent) String() string { return a.lack.Of("DHCP agent") }

// Ready is closed once dnsmasq serves the first plan.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Run works until ctx ends. dnsmasq goes on afterwards; see Cleanup. It must run in the host's
// network namespace, and not be called twice.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.opts.Check(); err != nil {
		return err
	}
	if _, err := exec.LookPath(a.opts.Program); err != nil {
		return fmt.Errorf("DHCP agent: %w (Debian has it in dnsmasq-base)", err)
	}
	if err := a.chooseUser(); err != nil {
		return fmt.Errorf("DHCP agent: %w", err)
	}
	kernel, release, err := takeHost()
	if err != nil {
		return err
	}
	defer release()
	a.device = &device{net: kernel, name: a.opts.Plan.Device, log: a.log}
	if a.router, err = newAdvertiser(kernel, a.log); err != nil {
		return err
	}
	defer a.server.close()
	defer a.resolver.close()
	if err := a.server.open(); err != nil {
		return err
	}
	if err := a.resolver.open(); err != nil {
		return err
	}
	if a.opts.Plan.ConfigFile, err = copyConfig(a.opts.Plan.Dir, a.opts.Plan.ConfigFile); err != nil {
		return fmt.Errorf("DHCP agent: %w", err)
	}
	a.lack.Set("waits for the store")
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.feed.Run(ctx) })
	g.Go(func() error { return a.router.Run(ctx) })
	g.Go(func() error { return a.server.reader.run(ctx, a.server.lines) })
	g.Go(func() error { return a.resolver.reader.run(ctx, a.resolver.lines) })
	g.Go(func() error { return a.loop(ctx) })
	return g.Wait()
}

// takeHost opens this host's network, and keeps a second agent out until it is released.
func takeHost() (kernel *hostnet.Linux, release func(), err error) {
	alone, err := hostnet.Alone("dhcp-agent")
	if err != nil {
		return nil, nil, fmt.Errorf("%w (%v)", ErrSecond, err)
	}
	if kernel, err = hostnet.Here(); err != nil {
		return nil, nil, errors.Join(err, alone.Close())
	}
	return kernel, func() {
		kernel.Close()
		alone.Close()
	}, nil
}

// Alone returns ErrSecond while a DHCP agent runs on this host, for checks before the agent's Run.
func Alone() error {
	_, release, err := takeHost()
	if err == nil {
		release()
	}
	return err
}

// loop owns all state.
func (a *Agent) loop(ctx context.Context) error {
	s, r := a.server, a.resolver
	check := time.Tick(checkEvery)
	asked, done := a.opts.Watchdog.Ask("DHCP")
	defer done()
	for {
		s.arm()
		r.arm()
		select {
		case <-ctx.Done():
			return nil
		case <-asked:
			continue
		case <-a.feed.changed:
			a.replan()
		case <-a.retry.C:
			a.replan()
		case <-check:
			switch {
			case a.checkIPv6():
				a.replan()
			case a.plan != nil:
				a.device.known = false
				a.applyAll()
			}
		case l := <-s.lines:
			s.handleLine(l)
		case e := <-s.ends:
			s.handleExit(e)
		case <-s.alarm.C:
			s.tick()
		case l := <-r.lines:
			r.handleLine(l)
		case e := <-r.ends:
			r.handleExit(e)
		case <-r.alarm.C:
			r.tick()
		}
		a.report()
	}
}

// replan makes a plan of the current state, and carries it out.
func (a *Agent) replan() {
	a.checkIPv6()
	p, waits := a.feed.plan(a.opts.Plan)
	if p == nil {
		a.lack.Set("waits for " + waits)
		return
	}
	a.logComplaints(p)
	a.plan = p
	a.server.plan, a.server.interfaces = p, interfacesOf(p)
	a.resolver.plan, a.resolver.interfaces = p, a.server.interfaces
	a.applyAll()
	a.router.apply(p.Ports)
}

// checkIPv6 finds whether this host has IPv6, and reports whether that has changed.
func (a *Agent) checkIPv6() (changed bool) {
	lack := lackOfIPv6(a.opts.Plan.Device)
	switch {
	case lack == a.noIPv6:
		return false
	case lack == "":
		a.log.Info("the host has IPv6 again: IPv6 addresses are served")
	case a.noIPv6 == "":
		a.log.Warn("the host has no IPv6: IPv6 addresses are not served, IPv4 is", "why", lack)
	}
	a.noIPv6, a.opts.Plan.NoIPv6 = lack, lack != ""
	return true
}

// applyAll carries out the plan. What fails is tried again.
func (a *Agent) applyAll() {
	steps := []func() error{func() error { return a.device.apply(a.plan.Gateways) }, a.server.apply, a.resolver.apply}
	if len(a.plan.Gateways) == 0 { // dnsmasq ends before its device goes
		slices.Reverse(steps)
	}
	if err := errors.Join(steps[0](), steps[1](), steps[2]()); err != nil {
		a.log.Error("cannot do what the endpoints ask for, will try again", "err", err)
		a.retry.Set(time.Now().Add(retryPause))
	}
}

// report publishes the agent's state, and becomes ready with the first plan that is served.
func (a *Agent) report() {
	a.mu.Lock()
	a.status.serving, a.status.starts = a.server.serving != nil, a.server.starts
	a.status.answering = a.resolver.ready()
	if a.plan != nil {
		a.status.served, a.status.waiting, a.status.problems = len(a.plan.Ports), len(a.plan.Waiting), len(a.plan.Problems)
	}
	a.mu.Unlock()
	switch {
	case a.plan == nil:
		return
	case a.server.ready():
		a.lack.Set("")
		if a.resolver.problem != "" {
			a.lack.Set("DNS: " + a.resolver.problem)
		}
		if !a.isReady {
			a.isReady = true
			a.log.Info("ready", "endpoints", len(a.plan.Ports), "waiting", len(a.plan.Waiting))
			close(a.ready)
		}
	case a.server.problem != "":
		a.lack.Set("dnsmasq: " + a.server.problem)
	}
}

// logComplaints logs how a plan differs from the one before in which endpoints wait and what cannot
// be honoured.
func (a *Agent) logComplaints(p *plan.Plan) {
	before, now := complaints(a.plan), complaints(p)
	for what := range now {
		if !before[what] {
			a.log.Warn(what.text, "key", what.key, "reason", what.reason)
		}
	}
	for what := range before {
		if !now[what] {
			a.log.Info("over: "+what.text, "key", what.key, "reason", what.reason)
		}
	}
}

// complaint is one shortfall of a plan, and its reason.
type complaint struct{ text, key, reason string }

func complaints(p *plan.Plan) map[complaint]bool {
	all := map[complaint]bool{}
	add := func(text string, key calico.Key, reason string) {
		path, _ := key.Path()
		all[complaint{text, path, reason}] = true
	}
	if p == nil {
		return all
	}
	for _, w := range p.Waiting {
		add("endpoint is not served", w.Key, w.Reason)
	}
	for _, w := range p.Problems {
		add("cannot be honoured", w.Key, w.Reason)
	}
	return all
}

// Cleanup ends both dnsmasq and deletes the gateway device.
func Cleanup(o Options) error {
	o = o.withDefaults()
	kernel, release, err := takeHost()
	if err != nil {
		return err
	}
	defer release()
	err = errors.Join(endStrays(leaseArgument, o.Plan.Device), endStrays(namesArgument, o.Plan.Device))
	return errors.Join(err, kernel.DeleteLink(o.Plan.Device))
}
