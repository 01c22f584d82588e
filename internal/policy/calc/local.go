package calc

import (
	"maps"
	"slices"

	"heddle/calico"
)

// local is an endpoint of this host: exactly one of workload and host is set while it is stored.
type local struct {
	kind             endpointKind
	workloadKey      calico.WorkloadEndpointKey
	hostKey          calico.HostEndpointKey
	workload         *calico.WorkloadEndpoint
	host             *calico.HostEndpoint
	invalid          string      // why the stored host endpoint is refused
	of               *localClass // nil: it has no class, as it is gone or never was valid
	reportedWorkload *Workload
	reportedHost     *Host
	queueable
}

// localEndpoints are the endpoints of this host, with the policies that apply to them.
type localEndpoints struct {
	index        *index
	lists        *ruleLists
	policies     *policyTable
	workloads    map[calico.WorkloadEndpointKey]*local
	hosts        map[calico.HostEndpointKey]*local
	classes      map[*localClass]bool
	selections   map[string]*selection
	touched      *touched
	queue        queue[*local]
	room         []byte   // used again and again
	foundQueries []*query // likewise
}

// localClass is the shared state of the endpoints of this host that are in one class.
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

// redo is the amount of a local class to be recomputed; each step includes those before it.
type redo uint8

const (
	nothing  redo = iota
	reselect      // its selections
	rematch       // and which policies match
)

// touched are the local classes that must be recomputed.
type touched struct{ items []*localClass }

func (t *touched) add(lc *localClass, r redo) {
	if lc.redo == nothing {
		t.items = append(t.items, lc)
	}
	lc.redo = max(lc.redo, r)
}

// place moves a local endpoint to a class; nil: to none.
func (le *localEndpoints) place(l *local, k *class) {
	le.queue.add(l)
	if l.of != nil && l.of.class == k {
		return
	}
	if old := l.of; old != nil {
		members := &old.members[l.kind]
		*members = slices.DeleteFunc(*members, func(other *local) bool { return other == l })
		le.touched.add(old, reselect)
		l.of = nil
	}
	if k == nil {
		return
	}
	if k.local == nil {
		k.local = &localClass{class: k}
		le.classes[k.local] = true
		for _, in := range k.inherits {
			k.local.profiles = append(k.local.profiles, in.profile.name)
			le.lists.need(in.profile.list(Inbound))
			le.lists.need(in.profile.list(Outbound))
		}
		le.touched.add(k.local, rematch)
	}
	l.of = k.local
	k.local.members[l.kind] = append(k.local.members[l.kind], l)
	le.touched.add(k.local, reselect)
}

// settle recomputes which policies apply to the touched local classes. Those without members go
// last: the classes of their former members mostly need the same lists.
func (le *localEndpoints) settle() {
	for _, lc := range le.touched.items {
		if lc.empty() {
			continue
		}
		if lc.redo == rematch {
			le.matchPolicies(lc)
		}
		for s := range lc.picked {
			le.pick(lc, endpointKind(s))
			if now := lc.picked[s]; now != nil {
				lc.matched, lc.shared = now.policies, true
			}
		}
		lc.redo = nothing
	}
	for _, lc := range le.touched.items {
		if lc.empty() {
			le.drop(lc)
		}
	}
	le.touched.items = le.touched.items[:0]
}

func (lc *localClass) empty() bool { return len(lc.members[workloads])+len(lc.members[hosts]) == 0 }

func (le *localEndpoints) matchPolicies(lc *localClass) {
	le.foundQueries = le.index.queriesOf(ofPolicies, lc.class, le.foundQueries[:0])
	lc.matched, lc.shared = make([]*policy, len(le.foundQueries)), false
	for i, q := range le.foundQueries {
		lc.matched[i] = q.policy
	}
	slices.SortFunc(lc.matched, byPolicyID)
}

// pick updates the selection of the endpoints of one kind of a local class.
func (le *localEndpoints) pick(lc *localClass, of endpointKind) {
	before, now := lc.picked[of], (*selection)(nil)
	if len(lc.members[of]) > 0 {
		now = le.selection(lc.matched, of, before)
	}
	if now == before {
		return
	}
	if now != nil {
		le.use(now)
	}
	if before != nil {
		le.unuse(before)
	}
	lc.picked[of] = now
	for _, l := range lc.members[of] {
		le.queue.add(l)
	}
	le.lists.complaints = true
}

// drop removes a local class without members.
func (le *localEndpoints) drop(lc *localClass) {
	delete(le.classes, lc)
	lc.class.local = nil
	lc.redo = nothing
	for _, s := range lc.picked {
		if s != nil {
			le.unuse(s)
		}
	}
	for _, in := range lc.class.inherits {
		le.lists.unneed(in.profile.list(Inbound))
		le.lists.unneed(in.profile.list(Outbound))
	}
}

// findProblems recomputes what local endpoints have to report, if that may have changed.
func (le *localEndpoints) findProblems() {
	if !le.lists.complaints {
		return
	}
	le.lists.complaints = false
	for _, s := range le.selections {
		s.problems = nil
		if le.lists.failing > 0 {
			s.problems = problemsOf(s.lists, nil)
		}
	}
	for lc := range le.classes {
		for s := range lc.picked {
			le.findProblemsOf(lc, endpointKind(s))
		}
	}
}

func (le *localEndpoints) findProblemsOf(lc *localClass, of endpointKind) {
	var now []string
	if s := lc.picked[of]; s != nil && le.lists.failing > 0 {
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
		le.queue.add(l)
	}
}

// problemsOf appends the problems of lists, each once.
func problemsOf(lists []*list, problems []string) []string {
	for _, l := range lists {
		if l.complaint != "" {
			problems = append(problems, l.complaint)
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}

// addChanges adds the changes of the local endpoints in the queue.
func (le *localEndpoints) addChanges(out *Changes) {
	for _, l := range le.queue.items {
		l.queued = false
		if l.kind == workloads {
			le.addWorkload(l, out)
		} else {
			le.addHost(l, out)
		}
	}
	le.queue.items = le.queue.items[:0]
}

func (le *localEndpoints) addWorkload(l *local, out *Changes) {
	if l.workload == nil {
		delete(le.workloads, l.workloadKey)
		if l.reportedWorkload != nil {
			out.Workloads[l.workloadKey] = nil
		}
		return
	}
	now := &Workload{
		Key: l.workloadKey, Endpoint: l.workload, Tiers: l.of.picked[workloads].tiers, Profiles: l.of.profiles, Errors: l.of.problems[workloads],
	}
	if l.reportedWorkload == nil || !sameWorkload(now, l.reportedWorkload) {
		l.reportedWorkload = now
		out.Workloads[l.workloadKey] = now
	}
}

func (le *localEndpoints) addHost(l *local, out *Changes) {
	if l.host == nil {
		delete(le.hosts, l.hostKey)
		if l.reportedHost != nil {
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
	if l.reportedHost == nil || !sameHost(now, l.reportedHost) {
		l.reportedHost = now
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

// sameWorkloadEndpoint compares what matters to a host: not the members for DHCP and unknown ones.
// Absent and empty members are equal.
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
