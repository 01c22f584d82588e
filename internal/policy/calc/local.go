package calc

import (
	"maps"
	"slices"

	"heddle/calico"
)

// local is an endpoint of this host: exactly one of workload and host is set while it is stored.
type local struct {
	kind         endpointKind
	workloadKey  calico.WorkloadEndpointKey
	hostKey      calico.HostEndpointKey
	workload     *calico.WorkloadEndpoint
	host         *calico.HostEndpoint
	invalid      string      // why the stored host endpoint is refused
	of           *localClass // nil: it has no class, as it is gone or never was valid
	toldWorkload *Workload
	toldHost     *Host
	queued       bool
}

// localClass is what endpoints of this host that are of one class share.
type localClass struct {
	class    *class
	members  [endpointKinds][]*local
	matched  []*policy // whose selectors pick the class, sorted by id; shared with its selections once they are made
	shared   bool      // matched must be copied before it is changed
	picked   [endpointKinds]*selection
	problems [endpointKinds][]string
	profiles []string
	redo     redo
}

// redo is how much of a local class is to be worked out again; each step includes those before it.
type redo uint8

const (
	nothing  redo = iota
	reselect      // its selections
	rematch       // and which policies match
)

// touch notes that a local class is to be worked out again.
func (c *Calc) touch(lc *localClass, r redo) {
	if lc.redo == nothing {
		c.touched = append(c.touched, lc)
	}
	lc.redo = max(lc.redo, r)
}

// place makes a local endpoint one of a class; nil: of none.
func (c *Calc) place(l *local, k *class) {
	c.queueLocal(l)
	if l.of != nil && l.of.class == k {
		return
	}
	if old := l.of; old != nil {
		members := &old.members[l.kind]
		*members = slices.DeleteFunc(*members, func(other *local) bool { return other == l })
		c.touch(old, reselect)
		l.of = nil
	}
	if k == nil {
		return
	}
	if k.local == nil {
		k.local = &localClass{class: k}
		c.localClasses[k.local] = true
		for _, in := range k.inherits {
			k.local.profiles = append(k.local.profiles, in.profile.name)
			c.need(in.profile.list(Inbound))
			c.need(in.profile.list(Outbound))
		}
		c.touch(k.local, rematch)
	}
	l.of = k.local
	k.local.members[l.kind] = append(k.local.members[l.kind], l)
	c.touch(k.local, reselect)
}

func (c *Calc) queueLocal(l *local) {
	if !l.queued {
		l.queued = true
		c.queuedLocals = append(c.queuedLocals, l)
	}
}

// settleLocals works out which policies apply to the local classes that have been touched. Those without members go
// last: the ones that their members have moved to mostly need the same.
func (c *Calc) settleLocals() {
	for _, lc := range c.touched {
		if lc.empty() {
			continue
		}
		if lc.redo == rematch {
			c.matchPolicies(lc)
		}
		for s := range lc.picked {
			c.pick(lc, endpointKind(s))
			if now := lc.picked[s]; now != nil {
				lc.matched, lc.shared = now.policies, true
			}
		}
		lc.redo = nothing
	}
	for _, lc := range c.touched {
		if lc.empty() {
			c.dropLocal(lc)
		}
	}
	c.touched = c.touched[:0]
}

func (lc *localClass) empty() bool { return len(lc.members[workloads])+len(lc.members[hosts]) == 0 }

// matchPolicies finds the policies that pick a local class.
func (c *Calc) matchPolicies(lc *localClass) {
	c.foundQueries = c.index.queriesOf(ofPolicies, lc.class, c.foundQueries[:0])
	lc.matched, lc.shared = make([]*policy, len(c.foundQueries)), false
	for i, q := range c.foundQueries {
		lc.matched[i] = q.policy
	}
	slices.SortFunc(lc.matched, byPolicyID)
}

// pick gives the endpoints of one kind of a local class their selection.
func (c *Calc) pick(lc *localClass, of endpointKind) {
	before, now := lc.picked[of], (*selection)(nil)
	if len(lc.members[of]) > 0 {
		now = c.selection(lc.matched, of, before)
	}
	if now == before {
		return
	}
	if now != nil {
		c.use(now)
	}
	if before != nil {
		c.unuse(before)
	}
	lc.picked[of] = now
	for _, l := range lc.members[of] {
		c.queueLocal(l)
	}
	c.complaints = true
}

// dropLocal forgets a local class without members.
func (c *Calc) dropLocal(lc *localClass) {
	delete(c.localClasses, lc)
	lc.class.local = nil
	lc.redo = nothing
	for _, s := range lc.picked {
		if s != nil {
			c.unuse(s)
		}
	}
	for _, in := range lc.class.inherits {
		c.unneed(in.profile.list(Inbound))
		c.unneed(in.profile.list(Outbound))
	}
}

// findProblems works out what local endpoints have to report, where that may have changed.
func (c *Calc) findProblems() {
	if !c.complaints {
		return
	}
	c.complaints = false
	for _, s := range c.selections {
		s.problems = nil
		if c.failing > 0 {
			s.problems = problemsOf(s.lists, nil)
		}
	}
	for lc := range c.localClasses {
		for s := range lc.picked {
			c.findProblemsOf(lc, endpointKind(s))
		}
	}
}

func (c *Calc) findProblemsOf(lc *localClass, of endpointKind) {
	var now []string
	if s := lc.picked[of]; s != nil && c.failing > 0 {
		lists := make([]*list, 0, 2*len(lc.class.inherits))
		for _, in := range lc.class.inherits {
			lists = append(lists, in.profile.list(Inbound), in.profile.list(Outbound))
		}
		now = problemsOf(lists, slices.Clone(s.problems))
	}
	if slices.Equal(now, lc.problems[of]) {
		return
	}
	lc.problems[of] = now
	for _, l := range lc.members[of] {
		c.queueLocal(l)
	}
}

// problemsOf appends the complaints about lists, each once.
func problemsOf(lists []*list, problems []string) []string {
	for _, l := range lists {
		if l.complaint != "" {
			problems = append(problems, l.complaint)
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}

// tellLocals says what became of the local endpoints in the queue.
func (c *Calc) tellLocals(out *Changes) {
	for _, l := range c.queuedLocals {
		l.queued = false
		if l.kind == workloads {
			c.tellWorkload(l, out)
		} else {
			c.tellHost(l, out)
		}
	}
	c.queuedLocals = c.queuedLocals[:0]
}

func (c *Calc) tellWorkload(l *local, out *Changes) {
	if l.workload == nil {
		delete(c.localWorkloads, l.workloadKey)
		if l.toldWorkload != nil {
			out.Workloads[l.workloadKey] = nil
		}
		return
	}
	now := &Workload{
		Key: l.workloadKey, Endpoint: l.workload, Tiers: l.of.picked[workloads].tiers, Profiles: l.of.profiles, Errors: l.of.problems[workloads],
	}
	if l.toldWorkload == nil || !sameWorkload(now, l.toldWorkload) {
		l.toldWorkload = now
		out.Workloads[l.workloadKey] = now
	}
}

func (c *Calc) tellHost(l *local, out *Changes) {
	if l.host == nil {
		delete(c.localHosts, l.hostKey)
		if l.toldHost != nil {
			out.Hosts[l.hostKey] = nil
		}
		return
	}
	now := &Host{Key: l.hostKey, Endpoint: l.host, Invalid: l.invalid}
	if l.of != nil {
		s := l.of.picked[hosts]
		now.Tiers, now.Untracked, now.PreDNAT = s.tiers, s.untracked, s.preDNAT
		now.Profiles, now.Errors = l.of.profiles, l.of.problems[hosts]
	}
	if l.toldHost == nil || !sameHost(now, l.toldHost) {
		l.toldHost = now
		out.Hosts[l.hostKey] = now
	}
}

func sameWorkload(a, b *Workload) bool {
	return (a.Endpoint == b.Endpoint || sameWorkloadEndpoint(a.Endpoint, b.Endpoint)) && slices.EqualFunc(a.Tiers, b.Tiers, sameTier) &&
		slices.Equal(a.Profiles, b.Profiles) && slices.Equal(a.Errors, b.Errors)
}

func sameHost(a, b *Host) bool {
	return a.Invalid == b.Invalid && (a.Endpoint == b.Endpoint || sameHostEndpoint(a.Endpoint, b.Endpoint)) &&
		slices.EqualFunc(a.Tiers, b.Tiers, sameTier) && slices.EqualFunc(a.Untracked, b.Untracked, sameTier) &&
		slices.EqualFunc(a.PreDNAT, b.PreDNAT, sameTier) && slices.Equal(a.Profiles, b.Profiles) && slices.Equal(a.Errors, b.Errors)
}

// sameWorkloadEndpoint compares what matters to a host. Absent and empty members are equal, and those for DHCP and
// unknown ones do not count.
func sameWorkloadEndpoint(a, b *calico.WorkloadEndpoint) bool {
	return a.State == b.State && a.Name == b.Name && (a.MAC == b.MAC || a.MAC != nil && b.MAC != nil && *a.MAC == *b.MAC) &&
		slices.Equal(a.ProfileIDs, b.ProfileIDs) && slices.Equal(a.IPv4Nets, b.IPv4Nets) && slices.Equal(a.IPv6Nets, b.IPv6Nets) &&
		slices.Equal(a.IPv4NAT, b.IPv4NAT) && slices.Equal(a.IPv6NAT, b.IPv6NAT) &&
		a.IPv4Gateway == b.IPv4Gateway && a.IPv6Gateway == b.IPv6Gateway && maps.Equal(a.Labels, b.Labels)
}

func sameHostEndpoint(a, b *calico.HostEndpoint) bool {
	return a.Name == b.Name && slices.Equal(a.ExpectedIPv4Addrs, b.ExpectedIPv4Addrs) && slices.Equal(a.ExpectedIPv6Addrs, b.ExpectedIPv6Addrs) &&
		slices.Equal(a.ProfileIDs, b.ProfileIDs) && maps.Equal(a.Labels, b.Labels)
}
