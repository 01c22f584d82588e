package dhcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/internal/dhcp/plan"
	"heddle/internal/hostnet"
	"heddle/internal/store"
	"heddle/internal/store/follow"
	"heddle/internal/store/replica"
	"heddle/internal/task"
)

// Options of an agent. Host, Store and Plan.Dir are needed.
type Options struct {
	Host  string // the name under which etcd knows this host
	Store store.Store
	// Plan is what the operator has decided. Default of its Device is DeviceName, of its InterfacePrefixes "tap", of its
	// LeaseSeconds a day.
	Plan       plan.Options
	Program    string        // default dnsmasq, from PATH
	ProbeEvery time.Duration // how often dnsmasq is asked for a sign of life, and how long it has for it. Default 10 s.
	// Snapshots is a directory in which the agent keeps what it last read of the store, to start from while the store
	// cannot be reached; empty: it keeps nothing.
	Snapshots string
	Log       *slog.Logger // default: none
}

func (o Options) withDefaults() Options {
	if o.Plan.Device == "" {
		o.Plan.Device = DeviceName
	}
	if len(o.Plan.InterfacePrefixes) == 0 {
		o.Plan.InterfacePrefixes = []string{"tap"}
	}
	if o.Plan.LeaseSeconds == 0 {
		o.Plan.LeaseSeconds = 86400
	}
	if o.Program == "" {
		o.Program = "dnsmasq"
	}
	if o.ProbeEvery == 0 {
		o.ProbeEvery = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Plan.Advertise = false // the agent does: see advertiser
	o.Plan.LogDHCP = o.Log.Enabled(context.Background(), slog.LevelDebug)
	return o
}

// Check refuses options that no agent can run with. Store is not looked at.
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
	// againAfter is the pause before what has failed is tried again.
	againAfter = time.Second
	// lookEvery is how often the device is looked after, should somebody have changed it.
	lookEvery = 30 * time.Second
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
	return &Agent{opts: o, log: o.Log, ready: make(chan struct{}), feed: feed, server: newServer(o), resolver: newResolver(o)}
}

// String names the task, with what it waits for.
func (a *Agent) String() string { return a.lack.Of("DHCP agent") }

// Ready is closed once dnsmasq serves the first plan.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Run works until ctx ends. dnsmasq goes on afterwards; see Cleanup. It must run in the host's network namespace, and not
// be called twice.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.opts.Check(); err != nil {
		return err
	}
	if _, err := exec.LookPath(a.opts.Program); err != nil {
		return fmt.Errorf("DHCP agent: %w (Debian has it in dnsmasq-base)", err)
	}
	if err := a.dropTo(); err != nil {
		return fmt.Errorf("DHCP agent: %w", err)
	}
	kernel, release, err := takeHost()
	if err != nil {
		return err
	}
	defer release()
	a.device = &device{net: kernel, name: a.opts.Plan.Device, log: a.log}
	if a.router, err = newAdvertiser(a.log); err != nil {
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
	a.lack.Set("waits for the store")
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.feed.Run(ctx) })
	g.Go(func() error { return a.router.Run(ctx, kernel) })
	g.Go(func() error { return a.server.reader.run(ctx, a.server.lines) })
	g.Go(func() error { return a.resolver.reader.run(ctx, a.resolver.lines) })
	g.Go(func() error { return a.loop(ctx) })
	return g.Wait()
}

// lock keeps a second agent from this host.
func lock() (io.Closer, error) {
	l, err := hostnet.Alone("dhcp-agent")
	if err != nil {
		return nil, fmt.Errorf("%w (%v)", ErrSecond, err)
	}
	return l, nil
}

// takeHost opens this host's network, and keeps a second agent out until it is released.
func takeHost() (kernel *hostnet.Linux, release func(), err error) {
	alone, err := lock()
	if err != nil {
		return nil, nil, err
	}
	if kernel, err = hostnet.Here(); err != nil {
		return nil, nil, errors.Join(err, alone.Close())
	}
	return kernel, func() {
		kernel.Close()
		alone.Close()
	}, nil
}

// Alone returns ErrSecond while a DHCP agent runs on this host: for what a process would trip over before its agent's Run.
func Alone() error {
	l, err := lock()
	if err != nil {
		return err
	}
	return l.Close()
}

// loop owns all state.
func (a *Agent) loop(ctx context.Context) error {
	s, r := a.server, a.resolver
	again, look := stopped(), time.NewTicker(lookEvery)
	defer again.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.feed.changed:
			a.replan(again)
		case <-again.C:
			a.replan(again)
		case <-look.C:
			switch {
			case a.lookForIPv6():
				a.replan(again)
			case a.plan != nil:
				a.device.known = false
				a.applyAll(again)
			}
		case l := <-s.lines:
			s.hear(l)
		case e := <-s.ends:
			s.ended(e)
		case <-s.restartDue.C:
			s.restart()
		case <-s.startDue.C:
			s.slow()
		case <-s.probeDue.C:
			s.look()
		case l := <-r.lines:
			r.hear(l)
		case e := <-r.ends:
			r.ended(e)
		case <-r.startDue.C:
			r.start()
		case <-r.probeDue.C:
			r.look()
		}
		a.report()
	}
}

// replan makes a plan of what there is now, and has it done.
func (a *Agent) replan(again *time.Timer) {
	a.lookForIPv6()
	p, waits := a.feed.plan(a.opts.Plan)
	if p == nil {
		a.lack.Set("waits for " + waits)
		return
	}
	a.tell(p)
	a.plan = p
	interfaces := interfacesOf(p)
	a.server.interfaces, a.resolver.interfaces = interfaces, interfaces
	a.applyAll(again)
	a.router.apply(p.Ports)
}

// lookForIPv6 finds whether this host has IPv6, and says when that has changed.
func (a *Agent) lookForIPv6() (changed bool) {
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

// applyAll has the plan done. What fails is tried again.
func (a *Agent) applyAll(again *time.Timer) {
	steps := []func() error{
		func() error { return a.device.apply(a.plan.Gateways) },
		func() error { return a.server.apply(a.plan) },
		func() error { return a.resolver.apply(a.plan) },
	}
	if len(a.plan.Gateways) == 0 { // dnsmasq ends before its device goes
		slices.Reverse(steps)
	}
	if err := errors.Join(steps[0](), steps[1](), steps[2]()); err != nil {
		a.log.Error("cannot do what the endpoints ask for, will try again", "err", err)
		again.Reset(againAfter)
	}
}

// report says what is lacking, and when nothing is for the first time.
func (a *Agent) report() {
	a.mu.Lock()
	a.status.serving, a.status.started = a.server.serving != nil, a.server.started
	a.status.answering = a.resolver.running != nil && a.resolver.problem == ""
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

// tell says what of a plan is new: which endpoints wait and what cannot be honoured, and what of that is over.
func (a *Agent) tell(p *plan.Plan) {
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

// complaint is one thing that a plan does not do, and why.
type complaint struct{ text, key, reason string }

func complaints(p *plan.Plan) map[complaint]bool {
	all := map[complaint]bool{}
	if p == nil {
		return all
	}
	for _, w := range p.Waiting {
		path, _ := w.Key.Path()
		all[complaint{"endpoint is not served", path, w.Reason}] = true
	}
	for _, w := range p.Problems {
		path, _ := w.Key.Path()
		all[complaint{"cannot be honoured", path, w.Reason}] = true
	}
	return all
}

// Cleanup ends both dnsmasq and takes away the gateway device.
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
