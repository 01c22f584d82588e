package policy

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"heddle/internal/hostnet"
)

// retryMin and retryMax bound the pauses between attempts at a commit that the kernel refuses.
const retryMin, retryMax = 100 * time.Millisecond, 10 * time.Second

// commitState is the state of nftables.
type commitState struct {
	pending  bool      // there are changes to commit
	refusal  error     // of the last commit
	refusals int       // failed commits in a row
	retryAt  time.Time // of a failed commit
}

// committed takes the outcome of a commit. The same failure is logged once.
func (c *core) committed(err error, took time.Duration, now time.Time) {
	s := &c.commit
	c.counts.lastCommit = took
	c.dirty.statuses = c.dirty.statuses || (err == nil) != (s.refusal == nil)
	if err == nil {
		c.counts.commits++
		if s.refusal != nil {
			c.out.info("rules are in force again", "failures", s.refusals)
		}
		*s = commitState{}
		return
	}
	c.counts.failures++
	if s.refusal == nil || s.refusal.Error() != err.Error() {
		c.out.error("the kernel refuses the rules; those before stay in force", "err", err)
	}
	s.refusal = err
	s.retryAt = now.Add(min(retryMin<<min(s.refusals, 10), retryMax))
	s.refusals++
}

// wiringState is the state passed to the reconciler of interfaces.
type wiringState struct {
	desired   map[string]wiring
	inForce   bool // a commit has succeeded since the agent started, and interfaces were wired
	forwards6 bool // this host forwards IPv6
}

// release returns what remains of interfaces that lose routes or neighbours, and the addresses
// whose connections must be forgotten before another workload gets them (spec §8.3).
func (s *wiringState) release(next map[string]wiring) (keep map[string]wiring, forget []netip.Addr) {
	keep = map[string]wiring{}
	for name, old := range s.desired {
		w := next[name]
		if stays := old.common(w); !stays.equal(old) {
			forget = append(forget, subtract(old.Routed, w.Routed)...)
			keep[name], s.desired[name] = stays, stays
		}
	}
	return keep, forget
}

// wiringPlan has the steps after a commit.
type wiringPlan struct {
	first    bool // the first since the agent started: this host must forward IPv4 from now on
	forward6 bool // this host must forward IPv6 from now on
	want     map[string]wiring
	unwant   []string
}

// wire decides which interfaces to wire. While a commit is pending, nothing new is wired, and at
// first nothing forwarded. IPv6 is forwarded once a workload has it: a host that forwards takes no
// more routes from router advertisements unless accept_ra is 2.
func (c *core) wire() wiringPlan {
	p, s := wiringPlan{want: map[string]wiring{}}, &c.wiring
	if c.commit.pending {
		return p
	}
	if !s.inForce {
		p.first, s.inForce = true, true
		c.out.info("policy is in force", "revision", c.model.revision,
			"workloads", len(c.endpoints.assigned.workloads), "host endpoints", len(c.endpoints.hosts))
	}
	for name, w := range c.endpoints.assigned.wirings {
		if !s.forwards6 && slices.ContainsFunc(w.Routed, netip.Addr.Is6) {
			p.forward6, s.forwards6 = true, true
		}
		if old, ok := s.desired[name]; !ok || !old.equal(w) {
			p.want[name], s.desired[name] = w, w
		}
	}
	for name := range s.desired {
		if _, desired := c.endpoints.assigned.wirings[name]; !desired {
			p.unwant = append(p.unwant, name)
			delete(s.desired, name)
		}
	}
	return p
}

// reassigned returns the addresses that are not yet routed to their workload, given the routes
// before the first wiring: without an agent, they may have been another workload's.
func (a *assignment) reassigned(routes []hostnet.Route) []netip.Addr {
	type place struct {
		dst  netip.Prefix
		link string
	}
	before := map[place]bool{}
	for _, r := range routes {
		before[place{r.Dst, r.Link}] = true
	}
	var all []netip.Addr
	for address, name := range a.owners {
		if !before[place{host(address), name}] {
			all = append(all, address)
		}
	}
	return all
}

// schedule has the times at which what is there is checked.
type schedule struct {
	sweepAt  time.Time // routes
	mendAt   time.Time // rules; zero: at once if they are checked at intervals, else never
	relistAt time.Time // the store
}

// upkeepPlan names the checks that are due.
type upkeepPlan struct {
	sweep    bool        // read back what interfaces have
	forward6 bool        // make sure that IPv6 is forwarded
	relist   bool        // list the store again
	mend     bool        // read the rules back
	tunnels  *tunnelling // nil: leave the devices alone
}

// planUpkeep decides which checks are due. All but those of tunnels go on while the agent waits.
func (c *core) planUpkeep(now time.Time) (p upkeepPlan) {
	s, k := &c.config.settings, &c.upkeep
	if s.RoutesRefresh > 0 && !now.Before(k.sweepAt) {
		k.sweepAt = now.Add(s.RoutesRefresh)
		p.sweep, p.forward6 = true, c.wiring.forwards6
	}
	if set := !k.mendAt.IsZero(); c.dirty.rules || (set || s.RulesRefresh > 0) && !now.Before(k.mendAt) {
		k.mendAt = time.Time{}
		if s.RulesRefresh > 0 {
			k.mendAt = now.Add(s.RulesRefresh)
		}
		p.mend, c.dirty.rules = true, false
	}
	if s.ResyncInterval > 0 && (k.relistAt.IsZero() || now.After(k.relistAt)) {
		p.relist = !k.relistAt.IsZero()
		k.relistAt = now.Add(s.ResyncInterval)
	}
	if c.waiting.cause == "" && c.tunnels.isDue(now) {
		c.tunnels.due, c.tunnels.at = false, now.Add(tunnelsEvery)
		p.tunnels = &c.tunnels.wanted
	}
	return p
}

func (c *core) nextUpkeep(now time.Time) time.Time {
	s, next := &c.config.settings, now.Add(time.Hour)
	if s.RoutesRefresh > 0 {
		next = earlier(next, c.upkeep.sweepAt)
	}
	if s.RulesRefresh > 0 || !c.upkeep.mendAt.IsZero() {
		next = earlier(next, c.upkeep.mendAt)
	}
	if s.ResyncInterval > 0 {
		next = earlier(next, c.upkeep.relistAt)
	}
	if c.waiting.cause == "" && c.tunnels.exist() {
		next = earlier(next, c.tunnels.at)
	}
	return next
}

// mended takes the outcome of reading the rules back: the operations that were needed, one a line.
func (c *core) mended(operations string, err error, now time.Time) {
	switch {
	case err != nil:
		c.out.error("cannot mend the rules, will try again", "err", err)
		c.upkeep.mendAt = now.Add(retryMax)
	case operations != "":
		c.counts.mended++
		first, _, _ := strings.Cut(operations, "\n")
		c.out.warn("repaired rules that another program had changed", "operations", strings.Count(operations, "\n"), "first", first)
	}
}

// tunnelsPut takes the outcome of setting up the tunnel devices: what failed, by device.
func (c *core) tunnelsPut(failed map[string]error) {
	c.tunnels.record(failed, c.out)
	c.dirty.statuses = true
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
