package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"heddle/calico"
	"heddle/internal/hostnet"
	"heddle/internal/policy/calc"
	"heddle/internal/policy/nft"
	"heddle/internal/reconcile"
)

// ruleset is what the engine needs of nftables: see [nft.Table].
type ruleset interface {
	Update(*calc.Changes)
	Configure(nft.Settings) error
	Surround(nft.Surroundings)
	Commit(context.Context) error
	Mend(context.Context) (string, error)
}

// engine decides. Everything in it belongs to one goroutine: it takes in what store and kernel tell, and in a pass brings
// the kernel to what follows from it.
type engine struct {
	host    string // this host's name in the model
	net     hostnet.Net
	rules   ruleset
	calc    *calc.Calc
	log     *slog.Logger
	now     func() time.Time
	report  *reporter
	sources Sources // of settings; the datastore's are filled in
	resync  func()  // asks for a snapshot of the store
	logTo   func(Logging) error

	known     known
	bound     map[string]bool // interfaces of the overlay; nil: not known yet
	devices   map[string]*device
	names     map[int]string              // of devices, by index
	addresses map[int]map[netip.Addr]bool // of devices, by index

	begun     time.Time
	dirty     dirty
	settings  Settings
	unusable  error           // a setting with which the agent must not work
	problems  []string        // of settings, as last logged
	troubles  map[string]bool // of what is stored, as last logged
	workloads map[calico.WorkloadEndpointKey]*calc.Workload
	hosts     map[calico.HostEndpointKey]*calc.Host
	assigned  assignment
	passed    map[calico.WorkloadEndpointKey]*calc.Workload // as the ruleset has them
	governed  map[string]calico.HostEndpointKey
	tunnelled tunnelling
	tunnels   tunnels
	failed    map[string]error // tunnel devices that are not as they should be

	ifaces    *interfaces
	wiring    *reconcile.Reconciler[string, wiring]
	wired     map[string]wiring // as wanted of the reconciler
	applied   bool              // something was applied in this life
	forwards6 bool              // this host forwards IPv6
	waiting   string            // as last logged
	refusal   error             // of the last commit
	refusals  int               // commits that failed in a row
	retryAt   time.Time         // of a failed commit
	lookAt    time.Time         // when tunnels are looked at again
	sweepAt   time.Time         // when routes are read back
	mendAt    time.Time         // when the ruleset is read back
	resyncAt  time.Time         // when the store is read anew
	statuses  map[string]string // as told to the reporter, by path
	counts    counts
}

// dirty says what has changed since the last pass.
type dirty struct {
	settings, calc, problems, endpoints, surroundings, tunnels, rules, foreign, statuses, unreadable bool
}

// counts are what the agent counts.
type counts struct {
	passes, commits, failures, mended uint64
	lastCommit                        time.Duration
}

func newEngine(host string, n hostnet.Net, rules ruleset, report *reporter, log *slog.Logger) *engine {
	e := &engine{host: host, net: n, rules: rules, calc: calc.New(host), log: log, now: time.Now, begun: time.Now(), report: report, resync: func() {}, logTo: func(Logging) error { return nil },
		known: newKnown(), devices: map[string]*device{}, names: map[int]string{}, addresses: map[int]map[netip.Addr]bool{},
		workloads: map[calico.WorkloadEndpointKey]*calc.Workload{}, hosts: map[calico.HostEndpointKey]*calc.Host{},
		passed: map[calico.WorkloadEndpointKey]*calc.Workload{}, wired: map[string]wiring{}, statuses: map[string]string{},
		tunnels: tunnels{net: n, log: log}}
	e.dirty = dirty{settings: true, surroundings: true, endpoints: true, tunnels: true}
	e.ifaces = newInterfaces(n, e.devices, e.mine, func() time.Time { return e.now() }, log)
	e.wiring = e.ifaces.reconciler()
	return e
}

// mine says whether an interface is a workload's and not the overlay's.
func (e *engine) mine(name string) bool { return e.settings.isWorkload(name) && !e.bound[name] }

// pass brings the kernel to what is known and says when it has to be called again at the latest.
func (e *engine) pass(ctx context.Context) time.Time {
	e.counts.passes++
	err := e.waitingFor()
	if err == nil {
		err = e.resolve()
	}
	next := e.wait(err)
	if err == nil {
		e.decide()
		e.apply(ctx)
	}
	if e.applied {
		next = earlier(next, e.keep(ctx))
	} else if e.dirty.rules && err == nil {
		next = earlier(next, e.retryAt)
	}
	return next
}

// patient is how long the agent waits for what always takes a moment before it says so.
const patient = time.Second

// wait says what is waited for, once for each cause, and when it has to be asked again.
func (e *engine) wait(cause error) time.Time {
	text, next := "", e.now().Add(time.Hour)
	if cause != nil {
		text = cause.Error()
	}
	begins := errors.Is(cause, errNoSnapshot) || errors.Is(cause, errNoBindings)
	switch {
	case text == e.waiting:
	case begins && e.now().Sub(e.begun) < patient:
		return e.begun.Add(patient)
	case text == "":
		e.log.Info("going on")
	default:
		e.log.Warn("waiting; what is in force stays", "for", text)
	}
	e.waiting = text
	return next
}

// resolve reads the settings anew when one has changed. An error says that there is one with which the agent must not
// work.
func (e *engine) resolve() error {
	if !e.dirty.settings {
		return e.unusable
	}
	e.dirty.settings = false
	e.sources.Global, e.sources.Host = e.known.global, e.known.own
	settings, problems := Resolve(e.sources)
	e.unusable = nil
	var told []string
	for _, p := range problems {
		told = append(told, p.Error())
		if p.Fatal {
			e.unusable = fmt.Errorf("a setting that can be used: %w", p)
		}
		if !slices.Contains(e.problems, p.Error()) {
			e.logProblem(p)
		}
	}
	if err := e.logTo(settings.Logging); err != nil {
		told = append(told, err.Error())
		if !slices.Contains(e.problems, err.Error()) {
			e.log.Error("the log goes to the screen alone", "err", err)
		}
	}
	e.problems = told
	if e.unusable != nil {
		return e.unusable
	}
	if err := e.rules.Configure(settings.Rules); err != nil {
		e.unusable = fmt.Errorf("settings that can be used: %w", err)
		return e.unusable
	}
	e.calc.SetMaxSetSize(settings.MaxSetSize)
	e.dirty.calc = true
	if _, err := e.net.Setting("ipv6/conf/all/forwarding"); errors.Is(err, hostnet.ErrNotFound) {
		settings.IPv6 = false // this kernel has none
	}
	e.settings = settings
	e.ifaces.ipv6 = settings.IPv6
	e.report.configure(settings)
	e.dirty.endpoints, e.dirty.surroundings, e.dirty.tunnels, e.dirty.rules, e.dirty.statuses = true, true, true, true, true
	return nil
}

// decide works out what follows for this host from all that has changed.
func (e *engine) decide() {
	if e.dirty.calc {
		e.dirty.calc = false
		e.merge(e.calc.Changes())
	}
	if e.dirty.problems {
		e.dirty.problems = false
		e.tellProblems()
	}
	if e.dirty.endpoints {
		e.dirty.endpoints = false
		e.assign()
	}
	if e.dirty.surroundings {
		e.dirty.surroundings = false
		e.surround()
	}
}

// logProblem logs what is wrong with a setting.
func (e *engine) logProblem(p Problem) {
	switch {
	case p.Fatal:
		e.log.Error("a setting cannot be used, and its default could open what it means to close", "setting", p.Name, "source", p.Source, "value", p.Value, "err", p.Err)
	case errors.Is(p.Err, errNoEffect):
		e.log.Info("a setting has no effect here", "setting", p.Name, "source", p.Source, "why", p.Err)
	case errors.Is(p.Err, errUnknown):
		e.log.Warn("a setting is not known", "setting", p.Name, "source", p.Source)
	default:
		e.log.Error("a setting cannot be used; its default is in force", "setting", p.Name, "source", p.Source, "value", p.Value, "err", p.Err)
	}
}

// merge takes in what calc has decided. Sets and lists go straight to the ruleset; endpoints when they have their
// interface.
func (e *engine) merge(c *calc.Changes) {
	e.mergeWorkloads(c.Workloads)
	for key, h := range c.Hosts {
		setOrDelete(e.hosts, key, h, h != nil)
		e.dirty.surroundings, e.dirty.statuses = true, true
	}
	if len(c.Sets)+len(c.Lists)+len(c.Hosts) > 0 {
		e.rules.Update(&calc.Changes{Sets: c.Sets, Lists: c.Lists, Hosts: c.Hosts})
		e.dirty.rules = true
	}
}

// mergeWorkloads takes in what became of local workloads. Those that ask for the same interface and addresses as before
// keep what they have, without looking at all others.
func (e *engine) mergeWorkloads(changes map[calico.WorkloadEndpointKey]*calc.Workload) {
	same := map[calico.WorkloadEndpointKey]*calc.Workload{}
	for key, w := range changes {
		old := e.workloads[key]
		setOrDelete(e.workloads, key, w, w != nil)
		if old == nil || w == nil || !asksForSame(old.Endpoint, w.Endpoint) {
			e.dirty.endpoints = true
		} else if e.passed[key] != nil {
			same[key], e.passed[key] = w, w
		}
	}
	if len(same) > 0 {
		e.rules.Update(&calc.Changes{Workloads: same})
		e.dirty.rules, e.dirty.statuses = true, true
	}
}

// tellProblems logs what is wrong with what is stored, other than what a single endpoint suffers from, when it is new.
func (e *engine) tellProblems() {
	all := map[string]bool{}
	for _, p := range e.calc.Problems() {
		what := string(p.Set)
		if p.Key != nil {
			what = pathOf(p.Key)
		}
		text := what + ": " + p.Text
		all[text] = true
		if _, bad := e.known.bad[what]; !bad && !e.troubles[text] {
			e.log.Error("something in the store cannot be as it says", "what", what, "why", p.Text)
		}
	}
	e.troubles = all
}

// assign gives interfaces and addresses to endpoints, and the ruleset those that have theirs.
func (e *engine) assign() {
	before := e.assigned
	e.assigned = assign(e.workloads, &e.settings, func(name string) bool { return e.bound[name] })
	changed := map[calico.WorkloadEndpointKey]*calc.Workload{}
	for key, w := range e.assigned.workloads {
		if e.passed[key] != w {
			changed[key] = w
		}
	}
	for key := range e.passed {
		if e.assigned.workloads[key] == nil {
			changed[key] = nil
		}
	}
	if len(changed) > 0 {
		e.rules.Update(&calc.Changes{Workloads: changed})
		e.passed = e.assigned.workloads
		e.dirty.rules = true
	}
	for key, why := range e.assigned.refused {
		if before.refused[key] != why {
			e.log.Error("an endpoint is refused", "key", pathOf(key), "why", why)
		}
	}
	for a, name := range e.assigned.contested {
		if before.contested[a] != name {
			e.log.Warn("an address is claimed by several endpoints", "address", a, "goes to interface", name)
		}
	}
	e.dirty.statuses = true
}

// surround tells the ruleset what this host has and the store knows beside endpoints.
func (e *engine) surround() {
	endpoints := make(map[calico.HostEndpointKey]*calico.HostEndpoint, len(e.hosts))
	for key, h := range e.hosts {
		endpoints[key] = h.Endpoint
	}
	e.governed = governed(e.devices, e.settings.isWorkload, endpoints)
	e.tunnelled = tunnellingOf(e.known.pools, &e.settings, e.localAddress(), e.peers())
	s := nft.Surroundings{HostInterfaces: e.governed, Exempt: slices.Sorted(maps.Keys(e.bound))}
	for _, cidr := range slices.SortedFunc(maps.Keys(e.known.pools), netip.Prefix.Compare) {
		s.Pools = append(s.Pools, nft.Pool{CIDR: cidr, Masquerade: e.known.pools[cidr].Masquerade})
	}
	if t := &e.tunnelled; t.ipip != "" {
		s.IPIP = &nft.IPIP{Device: t.ipip, Address: t.address, Peers: e.allHosts()}
	}
	if t := &e.tunnelled; len(t.vxlans) > 0 {
		s.VXLAN = &nft.VXLAN{Port: vxlanPort, Peers: t.peers}
	}
	e.rules.Surround(s)
	e.dirty.rules, e.dirty.statuses = true, true
}

// localAddress is this host's own address in tunnels.
func (e *engine) localAddress() netip.Addr {
	if ip, ok := e.known.hostIPs[e.host]; ok {
		return ip
	}
	return e.known.bgpIPs[e.host]
}

// peers are the addresses of the other hosts: those by which tunnels and routes reach them.
func (e *engine) peers() []netip.Addr {
	all := map[netip.Addr]bool{}
	for _, of := range []map[string]netip.Addr{e.known.hostIPs, e.known.bgpIPs} {
		for name, ip := range of {
			if name != e.host {
				all[ip] = true
			}
		}
	}
	delete(all, e.localAddress())
	return slices.SortedFunc(maps.Keys(all), netip.Addr.Compare)
}

// allHosts are the addresses that IPIP packets may come from: every bird_ip (spec §10).
func (e *engine) allHosts() []netip.Addr {
	all := map[netip.Addr]bool{}
	for _, ip := range e.known.hostIPs {
		all[ip] = true
	}
	return slices.SortedFunc(maps.Keys(all), netip.Addr.Compare)
}
