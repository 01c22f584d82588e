package policy

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/policy/calc"
	"heddle/internal/policy/nft"
	"heddle/internal/reconcile"
	"heddle/internal/store/follow"
	"heddle/internal/telemetry"
)

// ruleset is the part of [nft.Table] that the loop needs.
type ruleset interface {
	Update(*calc.Changes)
	Configure(nft.Settings) error
	Surround(nft.Surroundings)
	Commit(context.Context) error
	Mend(context.Context) (string, error)
}

// statusWriter is the part of [reporter] that the loop needs.
type statusWriter interface {
	configure(Settings)
	recheck()
	write(statusReport)
}

// loop does what the core decides: it owns access to kernel, reporter and log. For one goroutine.
type loop struct {
	core    *core
	sources Sources // of settings on this host
	// mostCounted is the number of rules up to which each is counted.
	mostCounted int
	net         hostnet.Net
	rules       ruleset
	ifaces      *interfaces
	wiring      *reconcile.Reconciler[string, wiring]
	tunnels     tunnels
	report      statusWriter
	log         *slog.Logger
	now         func() time.Time
	relist      func()               // has the store listed again
	logTo       func(Logging) error  // applies the settings of the log
	serveAt     func(netip.AddrPort) // has metadata served there
	serveTo     func(assignment)     // has it served to these
}

func newLoop(host string, n hostnet.Net, rules ruleset, report statusWriter, now func() time.Time, log *slog.Logger) *loop {
	l := &loop{core: newCore(host, now()), net: n, rules: rules, report: report, log: log, now: now,
		tunnels: tunnels{net: n, log: log}, relist: func() {}, logTo: func(Logging) error { return nil }, serveAt: func(netip.AddrPort) {}, serveTo: func(assignment) {}}
	l.ifaces = newInterfaces(n, l.core, now, log)
	l.wiring = l.ifaces.reconciler()
	return l
}

// events are the channels by which events arrive.
type events struct {
	store   <-chan follow.Update
	overlay <-chan map[string]bool
	kernel  <-chan hostnet.Event
	rules   <-chan struct{} // nftables has changed, perhaps by the agent itself
	asked   <-chan struct{} // by the watchdog
}

func (l *loop) list() error {
	links, err := l.net.Links()
	if err != nil {
		return err
	}
	addresses, err := l.net.AllAddresses()
	if err != nil {
		return err
	}
	l.core.listLinks(links, addresses, l.now())
	l.serve()
	return nil
}

// applyStore passes an update of the store to the core.
func (l *loop) applyStore(u follow.Update) {
	l.core.applyStore(u)
	l.serve()
}

// applyKernel passes an event of the kernel to the core; more is false after the last one.
func (l *loop) applyKernel(event hostnet.Event, more bool) error {
	switch {
	case !more:
		return errors.New("the watch of links, addresses and routes has ended")
	case event.Kind == hostnet.Lost:
		l.wiring.Sweep()
		return l.list()
	}
	l.core.applyEvent(event, l.now())
	l.serve()
	return nil
}

func (l *loop) serve() {
	r := l.core.takeRequests()
	for _, line := range r.log {
		l.log.Log(context.Background(), line.level, line.text, line.args...)
	}
	for _, route := range r.unexplained {
		l.ifaces.noteStrange(route)
	}
	for _, name := range r.kick {
		l.wiring.Kick(name)
	}
	if r.recheck {
		l.report.recheck()
	}
	if r.relist {
		l.relist()
	}
}

// pass brings the kernel to the desired state, and returns when the next pass is due.
func (l *loop) pass(ctx context.Context) time.Time {
	defer l.serve()
	if l.core.needsSettings() {
		l.configure()
	}
	p := l.core.prepare(l.now())
	l.serve()
	if p.ready {
		l.change(ctx, p)
		l.serveTo(l.core.endpoints.assigned) // routes of former holders are gone, those of new ones not there
		l.wire(l.core.wire())
	}
	next := p.next
	if l.core.wiring.inForce {
		next = earlier(next, l.upkeep(ctx))
	}
	if l.core.commit.pending && p.ready {
		next = earlier(next, l.core.commit.retryAt)
	}
	return next
}

func (l *loop) configure() {
	from := l.sources
	from.Global, from.Host = l.core.model.global, l.core.model.own
	settings, problems := Resolve(from)
	settings.Rules.MostCounted = l.mostCounted
	c := configured{settings: settings, problems: problems, logErr: l.logTo(settings.Logging)}
	if !slices.ContainsFunc(problems, func(p Problem) bool { return p.Fatal }) {
		c.rulesErr = l.rules.Configure(settings.Rules)
	}
	_, err := l.net.Setting("ipv6/conf/all/forwarding")
	c.ipv6 = !errors.Is(err, hostnet.ErrNotFound)
	if l.core.configure(c) {
		l.report.configure(l.core.config.settings)
		l.serveAt(l.core.config.settings.OwnMetadata)
	}
}

// change applies updates and commits. Routes and neighbours that leave go before the commit.
func (l *loop) change(ctx context.Context, p preparation) {
	for _, c := range p.updates {
		l.rules.Update(c)
	}
	if p.around != nil {
		l.rules.Surround(*p.around)
	}
	for name, stays := range p.release {
		if err := l.ifaces.Release(name, stays); err != nil {
			l.log.Warn("cannot remove what left an interface, will try again", "interface", name, "err", err)
		}
		l.wiring.Want(name, stays) // or a sweep would bring it back before the commit
	}
	l.forgetConnections(p.forget)
	if !p.commit {
		return
	}
	began := time.Now()
	err := l.rules.Commit(ctx)
	if err == nil || ctx.Err() == nil {
		l.core.committed(err, time.Since(began), l.now())
	}
}

func (l *loop) wire(w wiringPlan) {
	if w.forward6 {
		l.forwardIPv6()
	}
	if w.first {
		l.forwardIPv4()
		l.warnOfLooseRPF()
		routes, err := l.net.Routes()
		if err != nil {
			l.log.Warn("cannot read which addresses workloads had before", "err", err)
		}
		l.forgetConnections(l.core.endpoints.assigned.reassigned(routes))
	}
	for name, desired := range w.want {
		l.wiring.Want(name, desired)
	}
	for _, name := range w.unwant {
		l.wiring.Unwant(name)
	}
	if w.first {
		l.wiring.Complete()
	}
}

// upkeep checks and repairs what was put in place, reports, and returns when it is due again.
func (l *loop) upkeep(ctx context.Context) time.Time {
	p := l.core.planUpkeep(l.now())
	if p.sweep {
		l.wiring.Sweep()
		l.forwardIPv4()
	}
	if p.forward6 {
		l.forwardIPv6()
	}
	next := l.wiring.Pass(ctx)
	if l.ifaces.touched {
		l.ifaces.touched, l.core.dirty.statuses = false, true
	}
	if p.mend {
		operations, err := l.rules.Mend(ctx)
		if ctx.Err() == nil {
			l.core.mended(operations, err, l.now())
		}
	}
	if p.relist {
		l.relist()
	}
	if p.tunnels != nil {
		l.core.tunnelsPut(l.tunnels.put(*p.tunnels))
	}
	if report := l.core.report(l.wiring.InPlace); report != nil {
		l.report.write(*report)
	}
	return earlier(next, l.core.nextUpkeep(l.now()))
}

// forgetConnections forgets the connections of addresses that have left their workload.
func (l *loop) forgetConnections(addresses []netip.Addr) {
	if len(addresses) == 0 {
		return
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	if err := l.net.ForgetConnections(addresses...); err != nil {
		l.log.Warn("cannot forget the connections of addresses that left", "addresses", addresses, "err", err)
	}
}

func (l *loop) forwardIPv4() {
	err := l.net.Set(hostnet.Setting{Name: "ipv4/ip_forward", Value: "1"}, hostnet.Setting{Name: "ipv4/conf/default/rp_filter", Value: "1"})
	if err != nil {
		l.log.Error("cannot make this host forward packets: workloads have no connectivity", "err", err)
	}
}

func (l *loop) forwardIPv6() {
	if err := l.net.Set(hostnet.Setting{Name: "ipv6/conf/all/forwarding", Value: "1"}); err != nil && !errors.Is(err, hostnet.ErrNotFound) {
		l.log.Error("cannot make this host forward IPv6: workloads have no IPv6 connectivity", "err", err)
	}
}

// warnOfLooseRPF warns of a setting that weakens the kernel's check of IPv4 sources (spec §7.5).
func (l *loop) warnOfLooseRPF() {
	all, err := l.net.Setting("ipv4/conf/all/rp_filter")
	if err == nil && all == "2" && !l.core.config.settings.IgnoreLooseRPF {
		l.log.Warn("net.ipv4.conf.all.rp_filter is 2 (loose): it overrides the strict check on workload interfaces; " +
			"sources are checked by our own rules all the same. Set it to 1 or 0, or IgnoreLooseRPF")
	}
}

// isSettled reports whether everything that etcd asks of this host is in force.
func (l *loop) isSettled() bool {
	return l.core.wiring.inForce && l.core.commit.refusal == nil && !l.core.commit.pending
}

func (l *loop) metrics() []telemetry.Value { return l.core.metrics(l.wiring.Status()) }

// maxEvents bounds the events before a pass, so that a storm of events cannot put it off for ever.
const maxEvents = 10_000

// run passes events to the core and makes a pass for all that have come. It calls done after each.
func (l *loop) run(ctx context.Context, from events, done func()) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-from.asked:
			continue
		case u := <-from.store:
			l.applyStore(u)
		case names := <-from.overlay:
			l.core.setOverlay(names)
		case <-from.rules:
			l.core.rulesChanged()
		case event, more := <-from.kernel:
			err = l.applyKernel(event, more)
		}
		for n, idle := 0, false; err == nil && !idle && n < maxEvents; n++ {
			select {
			case u := <-from.store:
				l.applyStore(u)
			case event, more := <-from.kernel:
				err = l.applyKernel(event, more)
			default:
				idle = true
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		next := l.pass(ctx)
		done()
		timer.Reset(max(0, time.Until(next)))
	}
}
