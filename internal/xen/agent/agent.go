package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/internal/hostnet"
	"heddle/internal/ovsdb"
	"heddle/internal/store"
	"heddle/internal/store/follow"
	"heddle/internal/store/presence"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/xen/objects"
	"heddle/internal/xen/ovs"
)

// DefaultOVSDB is the address of the database of Open vSwitch's own service.
const DefaultOVSDB = "unix:/var/run/openvswitch/db.sock"

// Options of an agent. HostID, HostName and Store are needed.
type Options struct {
	HostID   string // a UUID: the uuid of the host in the pool
	HostName string // its name_label until another is set
	Version  string // of this program
	// Address is the one by which the pool knows the host. Default that of the interface with the
	// default route, else the first that there is.
	Address string
	Store   store.Store
	// OVSDB is the address of Open vSwitch's database. Default DefaultOVSDB.
	OVSDB string
	// Datapath is the datapath_type of bridges: "system" or "netdev". Default "" finds out: netdev
	// where the kernel has no Open vSwitch.
	Datapath string
	// Interfaces are patterns (path.Match) of names that are the host's own beside those that the
	// agent finds: see machine.interfaces.
	Interfaces []string
	// Addresses is a file that holds what interfaces were ordered to be, so that they are after
	// each start. "": the agent configures none.
	Addresses string
	// Listen has the database also listen for tunnel controllers; nil: as it does anyway.
	Listen *Listen
	// LeaseTTL is after how long without a word the host counts as dead; etcd rounds it up to whole
	// seconds. Default 3 s.
	LeaseTTL time.Duration
	// Move has this process join another pool with a token; startOver, called after, ends the
	// context of Run and begins anew there. A token that is refused is an error, and nothing has
	// changed. nil: the host cannot move.
	Move func(ctx context.Context, token string) (startOver func(), err error) `json:"-"`
	// Snapshots is a directory in which the agent keeps what it last read of the store, to start
	// from while the store cannot be reached; empty: it keeps nothing.
	Snapshots string
	Watchdog  *task.Watchdog // watches the copy of the store; nil: nothing does
	Log       *slog.Logger   // default: none
}

func (o Options) withDefaults() Options {
	o.OVSDB = cmp.Or(o.OVSDB, DefaultOVSDB)
	o.LeaseTTL = cmp.Or(o.LeaseTTL, 3*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}

// Check refuses options that no agent can run with. Store is not looked at.
func (o Options) Check() error {
	if o.HostID == "" || o.HostName == "" {
		return errors.New("agent of a pool's host: the host has no id or no name")
	}
	if _, err := netip.ParseAddr(o.Address); o.Address != "" && err != nil {
		return fmt.Errorf("agent of a pool's host: address %q: want one of this host's IP addresses", o.Address)
	}
	if o.Datapath != "" && o.Datapath != "system" && o.Datapath != "netdev" {
		return fmt.Errorf("agent of a pool's host: datapath %q: want system or netdev", o.Datapath)
	}
	for _, p := range o.Interfaces {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("agent of a pool's host: pattern of interfaces %q: %w", p, err)
		}
	}
	if o.Listen != nil {
		return o.Listen.check()
	}
	return nil
}

// ErrSecond is returned by Run while another such agent runs on this host.
var ErrSecond = errors.New("another agent of a pool's host runs here")

// Agent is the agent of a pool's host. It is a task, ready once the pool knows of this host and
// what it wanted then is there.
type Agent struct {
	task.Part
	opts  Options
	host  string // its ref
	log   *slog.Logger
	begun time.Time

	// Made by Run.
	kernel     *hostnet.Linux
	sw         *ovs.Client
	replica    *replica.Replica
	presence   *presence.Presence
	bridgesDue task.Notice // given when bridges, ports or orders may have changed
	reportDue  task.Notice // given when the host's report may have changed
	ordersDue  task.Notice // given when there may be other orders
	clerk      *clerk
	bridges    *bridges
	returned   *returned
	last       lastReport

	lack task.Lack

	mu     sync.Mutex
	status status
}

// New makes an agent. It does nothing until Run.
func New(o Options) *Agent {
	o = o.withDefaults()
	return &Agent{Part: task.NewPart("agent of a pool's host"), opts: o, host: HostRef(o.HostID), log: o.Log, begun: time.Now(),
		bridgesDue: task.NewNotice(), reportDue: task.NewNotice(), ordersDue: task.NewNotice()}
}

// HostRef returns the XenAPI's reference to the host with this id.
func HostRef(id string) string { return schema.XenRef(id) }

// String names the task, with what it waits for.
func (a *Agent) String() string { return a.lack.Of(a.Part.String()) }

// Run works until ctx ends. Bridges stay, see Cleanup. It must run in the host's network namespace,
// and not be called twice.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.opts.Check(); err != nil {
		return err
	}
	alone, err := lock()
	if err != nil {
		return err
	}
	defer alone.Close()
	if a.kernel, err = hostnet.Here(); err != nil {
		return err
	}
	defer a.kernel.Close()
	if a.sw, err = ovs.Open(ovsdb.Options{Address: a.opts.OVSDB, Log: a.log, Timeout: switchTimeout}); err != nil {
		return err
	}
	defer a.sw.Close()
	a.build()
	return a.work(ctx)
}

// build makes the parts. They start in work.
func (a *Agent) build() {
	a.replica = replica.New(a.opts.Store, replica.Options{Journal: follow.NewJournal(a.opts.Snapshots, "xen", a.host), Log: a.log, Watchdog: a.opts.Watchdog}, tables(a.host)...)
	a.replica.OnChange(a.changed)
	a.returned = &returned{agent: a}
	a.presence = presence.New(presence.Options{Store: a.opts.Store, Prefix: schema.XenPrefix + "state/" + a.host + "/", TTL: a.opts.LeaseTTL,
		Prepare: a.returned.before, Log: a.log})
	a.bridges = newBridges(a)
	a.clerk = &clerk{agent: a, answered: map[string]bool{}, addresses: newAddresses(a)}
}

// lock keeps a second agent from this host.
func lock() (io.Closer, error) {
	l, err := hostnet.Alone("xen-agent")
	if err != nil {
		return nil, fmt.Errorf("%w (%v)", ErrSecond, err)
	}
	return l, nil
}

// Relisten has the agent look again where the database is to listen, after the file of [Listen.CA]
// has come.
func (a *Agent) Relisten() { a.bridgesDue.Give() }

// changed wakes those whom a change of the pool concerns.
func (a *Agent) changed(u snapshot.Update) {
	if u.Diverged() {
		a.presence.RewriteAll() // what this host has reported may be gone
	}
	for _, c := range u.Changed {
		if c.Source == objects.Orders.Name() {
			a.ordersDue.Give()
		}
		bridgesDue, reportDue := a.concerns(c)
		if bridgesDue {
			a.bridgesDue.Give()
		}
		if reportDue {
			a.reportDue.Give()
		}
	}
}

// concerns reports whether bridges and ports, or the host's report, may depend on a change. That of
// a tunnel's status does not, nor that of other hosts' interfaces: there are many of both.
func (a *Agent) concerns(c snapshot.Changed) (bridgesDue, reportDue bool) {
	now, _ := c.New.(*objects.Object)
	old, _ := c.Old.(*objects.Object)
	either := now
	if now == nil {
		either = old
	}
	if either == nil {
		return true, false
	}
	switch either.Class {
	case "tunnel":
		return now == nil || old == nil, false
	case "PIF":
		ours := either.Text("host") == a.host
		return ours, ours && either.Bool("physical")
	}
	return true, false
}

// work runs the parts.
func (a *Agent) work(ctx context.Context) error {
	a.lack.Set("waits for the store")
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.replica.Run(ctx) })
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-a.replica.Ready():
		}
		a.lack.Set("waits for Open vSwitch")
		a.settle(ctx)
		a.lack.Set("reports this host")
		g.Go(func() error { return a.watch(ctx) })
		g.Go(func() error { return a.bridges.run(ctx) })
		g.Go(func() error { return a.reports(ctx) })
		g.Go(func() error { return a.presence.Run(ctx) })
		g.Go(func() error { return a.clerk.run(ctx) })
		select {
		case <-ctx.Done():
		case <-a.presence.Reported():
			a.lack.Set("")
			a.log.Info("ready", "after", time.Since(a.begun))
			a.BeReady()
		}
		return nil
	})
	return g.Wait()
}

// settle waits for Open vSwitch's database, so that a host with one does not begin as one without.
func (a *Agent) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, switchGrace)
	defer cancel()
	if s, err := a.sw.Wait(ctx, func(s *ovs.Snapshot) bool { return s.Lost == nil }); err != nil {
		a.log.Warn("Open vSwitch's database does not answer: this host counts as one with Linux bridges until it does", "database", a.opts.OVSDB, "err", s.Lost)
	}
}

// reader is the newest that is known of the pool.
func (a *Agent) reader() *snapshot.Snapshot { return a.replica.Snapshot() }
