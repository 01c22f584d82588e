package policy

import (
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
	"heddle/internal/store/follow"
)

// core decides what this host must do to follow Calico's model. It is pure: it takes events, with
// the time at which they came, and returns what to do as data. The loop does that, and reports the
// outcome as another event.
//
//	store, kernel ─► loop ─► event ─► core ─► requests, plans ─► loop ─► nftables, routes, …
//	                  ▲                                           │
//	                  └── outcome ◄───────────────────────────────┘
//
// One pass of the loop calls prepare, committed, wire, planUpkeep, mended, tunnelsPut and report,
// in this order.
type core struct {
	model     model
	config    configuration
	links     links
	overlay   map[string]bool // interfaces of the virtual topology; nil: not known yet
	endpoints endpoints
	wiring    wiringState
	tunnels   tunnelState
	commit    commitState
	upkeep    schedule
	dirty     dirty
	out       *requests

	waiting  waitState
	problems map[string]bool   // of calc, as last logged
	statuses map[string]string // of endpoints, as last reported, by path
	counts   counters
}

// dirty marks what has changed since the last pass.
type dirty struct{ endpoints, surroundings, statuses, rules bool }

// configuration is the agent's settings.
type configuration struct {
	settings Settings
	unusable error    // a setting with which the agent must not work
	problems []string // each is logged when it is new
}

// waitState is the reason for which the agent waits.
type waitState struct {
	begun time.Time // when the agent started
	cause string    // as last logged; empty: nothing
}

// counters are counted for the metrics.
type counters struct {
	passes, commits, failures, mended uint64
	lastCommit                        time.Duration
}

// requests are the immediate effects of events.
type requests struct {
	relist      bool            // list the store again
	recheck     bool            // compare the statuses that the store has
	kick        []string        // interfaces to wire again
	unexplained []hostnet.Route // new routes that no endpoint explains
	log         []logLine
}

// logLine is a record for the log.
type logLine struct {
	level slog.Level
	text  string
	args  []any
}

func (r *requests) info(text string, args ...any)  { r.logAt(slog.LevelInfo, text, args) }
func (r *requests) warn(text string, args ...any)  { r.logAt(slog.LevelWarn, text, args) }
func (r *requests) error(text string, args ...any) { r.logAt(slog.LevelError, text, args) }

func (r *requests) logAt(level slog.Level, text string, args []any) {
	r.log = append(r.log, logLine{level, text, args})
}

func newCore(host string, now time.Time) *core {
	out := &requests{}
	return &core{model: newModel(host, out), links: newLinks(), endpoints: newEndpoints(), out: out, waiting: waitState{begun: now},
		dirty: dirty{endpoints: true, surroundings: true}, tunnels: tunnelState{due: true},
		wiring: wiringState{desired: map[string]wiring{}}, problems: map[string]bool{}, statuses: map[string]string{}}
}

// takeRequests returns what the events so far ask for, once.
func (c *core) takeRequests() requests {
	r := *c.out
	*c.out = requests{}
	return r
}

// applyStore applies an update of the store. When Ready becomes "true" again, the store is listed
// before anything is applied: what was written meanwhile may be incomplete.
func (c *core) applyStore(u follow.Update) {
	wasComplete := c.model.complete
	c.model.apply(u)
	changed := &c.model.changed
	if changed.opened && wasComplete && c.wiring.inForce {
		c.model.complete, c.out.relist = u.Full, true
	}
	c.dirty.surroundings = c.dirty.surroundings || changed.network
	c.tunnels.due = c.tunnels.due || changed.network
	c.dirty.statuses = c.dirty.statuses || changed.unreadable
	changed.opened, changed.network = false, false
}

func (c *core) setOverlay(names map[string]bool) {
	c.overlay = names
	c.dirty.endpoints, c.dirty.surroundings = true, true
}

// rulesChanged takes note that nftables has changed, perhaps by the agent itself.
func (c *core) rulesChanged() { c.dirty.rules = true }

// The causes for which the agent waits.
var (
	errNotReady   = errors.New("/calico/v1/Ready is not \"true\": have `heddle serve` started once, or set it with `heddle calico ready`")
	errNoSnapshot = errors.New("the first snapshot of /calico/ is not complete: the store does not answer yet")
	errNoOverlay  = errors.New("it is not known yet which interfaces belong to the virtual topology")
)

// waitingFor returns why nothing may be applied now; nil: it may.
func (c *core) waitingFor() error {
	switch {
	case !c.model.complete:
		return errNoSnapshot
	case !c.model.ready:
		return errNotReady
	case c.overlay == nil:
		return errNoOverlay
	}
	return nil
}

// needsSettings reports whether the settings must be resolved before the next pass.
func (c *core) needsSettings() bool { return c.model.changed.settings && c.waitingFor() == nil }

// configured are settings as they were resolved and applied.
type configured struct {
	settings Settings
	problems []Problem
	rulesErr error // why nftables cannot use them
	logErr   error // why the log file cannot be used
	ipv6     bool  // the kernel has IPv6
}

// configure takes new settings. It reports whether the agent may work with them.
func (c *core) configure(now configured) bool {
	c.model.changed.settings = false
	if !c.config.take(now, c.out) {
		return false
	}
	c.model.calc.SetMaxSetSize(now.settings.MaxSetSize)
	c.model.changed.policy = true
	c.dirty.endpoints, c.dirty.surroundings, c.dirty.statuses = true, true, true
	c.tunnels.due, c.commit.pending = true, true
	return true
}

// take replaces the settings, unless they are unusable, and logs their problems, each once.
func (k *configuration) take(now configured, out *requests) bool {
	k.unusable = nil
	var problems []string
	isNew := func(err error) bool {
		problems = append(problems, err.Error())
		return !slices.Contains(k.problems, err.Error())
	}
	for _, p := range now.problems {
		if p.Fatal {
			k.unusable = fmt.Errorf("a setting that can be used: %w", p)
		}
		if isNew(p) {
			out.problem(p)
		}
	}
	if now.logErr != nil && isNew(now.logErr) {
		out.error("cannot use the log file; logging to the screen alone", "err", now.logErr)
	}
	k.problems = problems
	if k.unusable == nil && now.rulesErr != nil {
		k.unusable = fmt.Errorf("settings that can be used: %w", now.rulesErr)
	}
	if k.unusable != nil {
		return false
	}
	k.settings = now.settings
	k.settings.IPv6 = now.settings.IPv6 && now.ipv6
	return true
}

func (r *requests) problem(p Problem) {
	switch {
	case p.Fatal:
		r.error("a setting cannot be used, and its default could open what it means to close",
			"setting", p.Name, "source", p.Source, "value", p.Value, "err", p.Err)
	case errors.Is(p.Err, errNoEffect):
		r.info("a setting has no effect here", "setting", p.Name, "source", p.Source, "why", p.Err)
	case errors.Is(p.Err, errUnknown):
		r.warn("a setting is not known", "setting", p.Name, "source", p.Source)
	default:
		r.error("a setting cannot be used; its default is in force",
			"setting", p.Name, "source", p.Source, "value", p.Value, "err", p.Err)
	}
}

// preparation has the steps that lead up to a commit.
type preparation struct {
	ready   bool              // the agent may apply changes
	updates []*calc.Changes   // for the ruleset
	around  *nft.Surroundings // for the ruleset; nil: as before
	release map[string]wiring // what interfaces keep; the rest goes at once
	forget  []netip.Addr      // addresses whose connections must be forgotten
	commit  bool
	next    time.Time // when the next pass is due at the latest
}

// prepare decides what follows for this host from all that has changed.
func (c *core) prepare(now time.Time) preparation {
	c.counts.passes++
	cause := c.waitingFor()
	if cause == nil {
		cause = c.config.unusable
	}
	p := preparation{ready: cause == nil, next: c.waiting.log(cause, now, c.out)}
	if !p.ready {
		return p
	}
	if c.model.changed.policy {
		c.model.changed.policy = false
		c.merge(c.model.calc.Changes(), &p)
	}
	if c.model.changed.problems {
		c.model.changed.problems = false
		c.logProblems()
	}
	if c.dirty.endpoints {
		c.dirty.endpoints = false
		c.assign(&p)
	}
	if c.dirty.surroundings {
		c.dirty.surroundings = false
		p.around = c.surroundings()
	}
	p.release, p.forget = c.wiring.release(c.endpoints.assigned.wirings)
	p.commit = c.commit.pending && !now.Before(c.commit.retryAt)
	return p
}

// waitLogDelay delays the log message for waits that are usual at the start.
const waitLogDelay = time.Second

// log logs each cause of waiting once, and returns when it must be looked at again.
func (s *waitState) log(cause error, now time.Time, out *requests) time.Time {
	text := ""
	if cause != nil {
		text = cause.Error()
	}
	starting := errors.Is(cause, errNoSnapshot) || errors.Is(cause, errNoOverlay)
	switch {
	case text == s.cause:
	case starting && now.Sub(s.begun) < waitLogDelay:
		return s.begun.Add(waitLogDelay)
	case text == "":
		out.info("no longer waiting")
	default:
		out.warn("waiting; what is in force stays", "for", text)
	}
	s.cause = text
	return now.Add(time.Hour)
}

// merge applies changes of calc. Workloads wait for an interface before they go to the ruleset.
func (c *core) merge(changes *calc.Changes, p *preparation) {
	same, reassign := c.endpoints.mergeWorkloads(changes.Workloads)
	c.dirty.endpoints = c.dirty.endpoints || reassign
	c.dirty.statuses = c.dirty.statuses || len(same)+len(changes.Hosts) > 0
	c.update(p, &calc.Changes{Workloads: same})
	for key, h := range changes.Hosts {
		setOrDelete(c.endpoints.hosts, key, h, h != nil)
		c.dirty.surroundings = true
	}
	c.update(p, &calc.Changes{Sets: changes.Sets, Lists: changes.Lists, Hosts: changes.Hosts})
}

// update has the ruleset changed, if there is a change.
func (c *core) update(p *preparation, changes *calc.Changes) {
	if len(changes.Sets)+len(changes.Lists)+len(changes.Workloads)+len(changes.Hosts) > 0 {
		p.updates = append(p.updates, changes)
		c.commit.pending = true
	}
}

// logProblems logs each problem of calc once. Unreadable objects have log lines of their own.
func (c *core) logProblems() {
	all := map[string]bool{}
	for _, p := range c.model.calc.Problems() {
		what := string(p.Set)
		if p.Key != nil {
			what = pathOf(p.Key)
		}
		text := what + ": " + p.Text
		all[text] = true
		if _, bad := c.model.bad[what]; !bad && !c.problems[text] {
			c.out.error("inconsistent object in the store", "what", what, "why", p.Text)
		}
	}
	c.problems = all
}

// assign gives interfaces and addresses to endpoints, and has the ruleset follow.
func (c *core) assign(p *preparation) {
	before := c.endpoints.assigned
	c.update(p, &calc.Changes{Workloads: c.endpoints.assign(&c.config.settings, c.overlay)})
	for key, why := range c.endpoints.assigned.refused {
		if before.refused[key] != why {
			c.out.error("an endpoint is refused", "key", pathOf(key), "why", why)
		}
	}
	for a, name := range c.endpoints.assigned.contested {
		if before.contested[a] != name {
			c.out.warn("an address is claimed by several endpoints", "address", a, "interface", name)
		}
	}
	c.dirty.statuses = true
}

// surroundings returns the facts about host and store for the ruleset, besides endpoints.
func (c *core) surroundings() *nft.Surroundings {
	hosts := make(map[calico.HostEndpointKey]*calico.HostEndpoint, len(c.endpoints.hosts))
	for key, h := range c.endpoints.hosts {
		hosts[key] = h.Endpoint
	}
	m := &c.model
	c.endpoints.governed = governed(c.links.devices, c.isWorkloadName, hosts)
	c.tunnels.wanted = tunnellingOf(m.pools, &c.config.settings, m.localAddress(), m.peers())
	s := &nft.Surroundings{HostInterfaces: c.endpoints.governed, Exempt: slices.Sorted(maps.Keys(c.overlay))}
	for _, cidr := range slices.SortedFunc(maps.Keys(m.pools), netip.Prefix.Compare) {
		s.Pools = append(s.Pools, nft.Pool{CIDR: cidr, Masquerade: m.pools[cidr].Masquerade})
	}
	if t := &c.tunnels.wanted; t.ipip != "" {
		s.IPIP = &nft.IPIP{Device: t.ipip, Address: t.address, Peers: m.ipipSources()}
	}
	if t := &c.tunnels.wanted; len(t.vxlans) > 0 {
		s.VXLAN = &nft.VXLAN{Port: vxlanPort, Peers: t.peers}
	}
	c.commit.pending, c.dirty.statuses = true, true
	return s
}

// device returns the device of that name, or nil.
func (c *core) device(name string) *device { return c.links.devices[name] }

func (c *core) isWorkloadName(name string) bool { return c.config.settings.isWorkload(name) }

// isOurs reports whether an interface is a workload's and not the virtual topology's.
func (c *core) isOurs(name string) bool { return c.isWorkloadName(name) && !c.overlay[name] }

func (c *core) hasIPv6() bool { return c.config.settings.IPv6 }
