package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/internal/hostnet"
	"heddle/internal/policy/nft"
	"heddle/internal/store"
	"heddle/internal/store/follow"
	"heddle/internal/task"
	"heddle/internal/telemetry"
)

// Options of an agent. Host and Store are needed.
type Options struct {
	Host   string // this host's name in the model
	HostID string // by which the virtual topology knows this host; empty: it has no part in one
	Store  store.Store
	// Environment and File are settings given on this host (see Environment and ParseFile). They come before those of the
	// datastore.
	Environment, File map[string]string
	// Namespace is the network namespace of the host. Default this process's. It must stay open while the agent runs.
	Namespace *hostnet.Namespace
	// Snapshots is a directory in which the agent keeps what it last read of the store, to start from while the store
	// cannot be reached; empty: it keeps nothing.
	Snapshots string
	Log       *slog.Logger // default: none
}

// Agent is the policy agent of one host. It is a task: see Run, Ready and String.
type Agent struct {
	opts      Options
	log       *slog.Logger
	journal   *journal // behind log
	ready     chan struct{}
	sameEvery time.Duration          // interval between checks that the store is still the same; 0: the default
	waiting   atomic.Pointer[string] // what for, after the last pass
	metrics   atomic.Pointer[[]telemetry.Value]

	mu    sync.Mutex
	table *nft.Table // while it is open, for its counters
}

// New makes an agent. It does nothing until Run.
func New(o Options) *Agent {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	j := newJournal(logDirectory)
	return &Agent{opts: o, log: j.logger(o.Log), journal: j, ready: make(chan struct{})}
}

// String names the task, with what it waits for.
func (a *Agent) String() string {
	if what := a.waiting.Load(); what != nil && *what != "" {
		return "policy agent (waits: " + *what + ")"
	}
	return "policy agent"
}

// Ready is closed once everything that etcd asked of this host is in force for the first time.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// countersTimeout bounds a read of the kernel's counters.
const countersTimeout = 5 * time.Second

// Metrics are the agent's figures as of its last pass, and the kernel's of refused packets as of now.
func (a *Agent) Metrics() []telemetry.Value {
	v := a.metrics.Load()
	if v == nil {
		return nil
	}
	all := slices.Clone(*v)
	a.mu.Lock() // the table is not closed meanwhile
	defer a.mu.Unlock()
	if a.table == nil {
		return all
	}
	ctx, cancel := context.WithTimeout(context.Background(), countersTimeout)
	defer cancel()
	refused, err := a.table.Refused(ctx)
	if err != nil {
		return all // there is no table yet, or it is being mended
	}
	for _, reason := range slices.Sorted(maps.Keys(refused)) {
		all = append(all, telemetry.Value{Name: "heddle_policy_refused_packets_total", Help: "Packets that the rules have refused since they were made.",
			Kind: telemetry.Counter, Labels: map[string]string{"reason": reason}, Value: float64(refused[reason].Packets)})
	}
	return all
}

// check finds settings of this host with which no agent may work. Those of the datastore only make it wait.
func (o *Options) check() error {
	switch {
	case o.Host == "":
		return errors.New("policy agent: the host has no name")
	case o.Store == nil:
		return errors.New("policy agent: no store")
	}
	_, problems := Resolve(Sources{Environment: o.Environment, File: o.File})
	for _, p := range problems {
		if p.Fatal {
			return fmt.Errorf("policy agent: %w", p)
		}
	}
	return nil
}

// Run works until ctx ends. What is in force stays afterwards, see Cleanup. It must not be called twice.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.opts.check(); err != nil {
		return err
	}
	if a.opts.Namespace == nil {
		ns, err := hostnet.CurrentNamespace()
		if err != nil {
			return err
		}
		defer ns.Close()
		a.opts.Namespace = ns
	}
	net, err := hostnet.NewLinux(a.opts.Namespace)
	if err != nil {
		return err
	}
	defer net.Close()
	defer a.journal.close()
	return a.work(ctx, net)
}

// openRules opens the nftables of a namespace.
func openRules(ns *hostnet.Namespace) (kernel *nft.Kernel, err error) {
	err = ns.Do(func() (err error) {
		kernel, err = nft.Open()
		return err
	})
	return kernel, err
}

func (a *Agent) setTable(t *nft.Table) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.table = t
}

// work runs the parts.
func (a *Agent) work(ctx context.Context, net hostnet.Net) error {
	kernel, err := openRules(a.opts.Namespace)
	if err != nil {
		return err
	}
	defer kernel.Close()
	g, ctx := errgroup.WithContext(ctx)
	f := newFeed(a.opts.Store, a.sameEvery, follow.NewJournal(a.opts.Snapshots, "policy", a.opts.Host), a.log)
	b := newBindings(a.opts.Store, a.opts.HostID, follow.NewJournal(a.opts.Snapshots, "policy-bindings", a.opts.HostID), a.log)
	r := newReporter(a.opts.Store, a.opts.Host, a.log)
	usual, _ := Resolve(Sources{})
	table, err := nft.New(kernel, usual.Rules, a.log)
	if err != nil {
		return err
	}
	a.setTable(table)
	defer a.setTable(nil)
	e := newEngine(a.opts.Host, net, table, r, a.log)
	e.sources.Environment, e.sources.File, e.resync = a.opts.Environment, a.opts.File, f.resync
	e.logTo = a.journal.configure
	foreign := task.NewNotice()
	events, err := net.Watch(ctx)
	if err != nil {
		return err
	}
	if err := e.list(); err != nil {
		return err
	}
	g.Go(func() error { return f.run(ctx) })
	g.Go(func() error { return b.run(ctx) })
	g.Go(func() error { return r.run(ctx) })
	g.Go(func() error {
		return kernel.Watch(ctx, func() {
			foreign.Give()
		})
	})
	g.Go(func() error { return a.loop(ctx, e, sources{f.out, b.out, events, foreign}) })
	return g.Wait()
}

// sources are those who tell the engine something.
type sources struct {
	feed    <-chan news
	bound   <-chan map[string]bool
	events  <-chan hostnet.Event
	foreign <-chan struct{} // somebody has changed nftables, perhaps the engine itself
}

// loop passes what store and kernel tell on to the engine, and has it act on all that has come.
func (a *Agent) loop(ctx context.Context, e *engine, from sources) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case n := <-from.feed:
			e.learn(n)
		case names := <-from.bound:
			e.bind(names)
		case <-from.foreign:
			e.dirty.foreign = true
		case event, ok := <-from.events:
			if !ok {
				return a.watchEnded(ctx)
			}
			if err := e.hear(event); err != nil {
				return err
			}
		}
		if ok, err := drain(e, from); !ok {
			return errors.Join(err, a.watchEnded(ctx))
		}
		next := e.pass(ctx)
		if e.applied && e.refusal == nil && !e.dirty.rules {
			select {
			case <-a.ready:
			default:
				close(a.ready)
			}
		}
		waiting, values := e.waiting, e.metrics()
		a.waiting.Store(&waiting)
		a.metrics.Store(&values)
		timer.Reset(max(0, time.Until(next)))
	}
}

// watchEnded is what the end of the kernel's events means.
func (a *Agent) watchEnded(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	return errors.New("the watch of links, addresses and routes has ended")
}

// most is how many events at most are taken in before a pass: whatever storms, something has to be done.
const most = 10_000

// drain takes in what else has come, so that many events make one pass.
func drain(e *engine, from sources) (ok bool, err error) {
	for range most {
		select {
		case n := <-from.feed:
			e.learn(n)
		case event, ok := <-from.events:
			if !ok {
				return false, nil
			}
			if err := e.hear(event); err != nil {
				return false, err
			}
		default:
			return true, nil
		}
	}
	return true, nil
}

// Cleanup takes away everything that agents of this host have put into the kernel. Traffic is then free.
func Cleanup(ns *hostnet.Namespace) error {
	if ns == nil {
		current, err := hostnet.CurrentNamespace()
		if err != nil {
			return err
		}
		defer current.Close()
		ns = current
	}
	net, err := hostnet.NewLinux(ns)
	if err != nil {
		return err
	}
	defer net.Close()
	kernel, err := openRules(ns)
	if err != nil {
		return err
	}
	defer kernel.Close()
	return errors.Join(cleanNetwork(net), nft.Cleanup(context.Background(), kernel))
}

// Tables returns the names of the nftables tables of agents of this host.
func Tables(ns *hostnet.Namespace) ([]string, error) {
	kernel, err := openRules(ns)
	if err != nil {
		return nil, err
	}
	defer kernel.Close()
	return nft.Tables(context.Background(), kernel)
}

// cleanNetwork removes our routes with the neighbours and parameters of their interfaces, and our tunnel devices.
func cleanNetwork(net hostnet.Net) error {
	routes, err := net.Routes()
	if err != nil {
		return err
	}
	var errs []error
	links := map[string]bool{}
	for _, r := range routes {
		if r.Protocol == RouteProtocol {
			links[r.Link] = true
			errs = append(errs, net.DeleteRouteOf(r))
		}
	}
	all, err := net.Links()
	errs = append(errs, err)
	for _, l := range all {
		links[l.Name] = links[l.Name] || configured(net, l.Name)
	}
	maps.DeleteFunc(links, func(_ string, ours bool) bool { return !ours })
	neighbours, err := net.Neighbours()
	errs = append(errs, err)
	for _, n := range neighbours {
		if links[n.Link] && n.Permanent {
			errs = append(errs, net.DeleteNeighbour(n.Link, n.IP))
		}
	}
	proxies, err := net.Proxies()
	errs = append(errs, err)
	for _, p := range proxies {
		if links[p.Link] {
			errs = append(errs, net.DeleteProxy(p))
		}
	}
	for name := range links {
		errs = append(errs, unconfigure(net, name))
	}
	for _, l := range all {
		if ours(l) {
			errs = append(errs, net.DeleteLink(l.Name))
		}
	}
	return errors.Join(errs...)
}

// configured says whether an interface has the parameters that agents give to those of workloads: it keeps them while its
// endpoint is inactive, or gone, and has no routes then.
func configured(net hostnet.Net, name string) bool {
	local, err := net.Setting("ipv4/conf/" + name + "/route_localnet")
	if err != nil || local != "1" {
		return false
	}
	proxy, err := net.Setting("ipv4/conf/" + name + "/proxy_arp")
	return err == nil && proxy == "1"
}

// unconfigure gives an interface's parameters the values that the kernel gives to new ones.
func unconfigure(net hostnet.Net, name string) error {
	var errs []error
	for _, s := range [][2]string{{"ipv4/conf/", "/rp_filter"}, {"ipv4/conf/", "/route_localnet"}, {"ipv4/conf/", "/proxy_arp"},
		{"ipv4/neigh/", "/proxy_delay"}, {"ipv6/conf/", "/proxy_ndp"}} {
		value, err := net.Setting(s[0] + "default" + s[1])
		if err == nil {
			err = net.Set(hostnet.Setting{Name: s[0] + name + s[1], Value: value})
		}
		if err != nil && !errors.Is(err, hostnet.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
