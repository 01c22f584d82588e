package nft

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"heddle/calico"
	"heddle/internal/policy/calc"
)

// listState is the chain of a list of rules that some judge asks.
type listState struct {
	users int
	views []view // of address sets that its rules name, each once
}

// view names an address set of a version.
type view struct {
	id      calc.SetID
	version int
}

// judgeState is a judge that some interface has.
type judgeState struct {
	*judge
	users int
}

// binding is what one interface needs.
type binding struct {
	entries  map[ref]element // one for each of some maps
	chains   map[ref]*wantedChain
	judges   []*judge
	floating []calico.NAT
}

// settle works out, from what was marked, which chains and sets shall be there. It leaves marked what a commit must
// look at.
func (t *Table) settle() {
	was := t.features
	t.features = t.wantedFeatures()
	if t.dirty.fixed || was != t.features {
		t.settleFixed()
	}
	if was != t.features {
		for _, j := range t.judges {
			t.wantJudge(j.judge) // they begin with what the features ask for
		}
	}
	if t.dirty.all {
		for _, names := range []map[string]bool{allKeys(t.named, nil), allKeys(t.around.HostInterfaces, nil), allKeys(t.bindings, nil)} {
			maps.Copy(t.dirty.interfaces, names)
		}
		t.dirty.all = false
	}
	t.alike = map[string]*judge{}
	floating := false
	for name := range t.dirty.interfaces {
		floating = t.bind(name) || floating
	}
	t.alike = nil // what it was made of may be gone, and its place be taken, by the next time
	clear(t.dirty.interfaces)
	if floating {
		t.settleFloating()
	}
	for k := range t.dirty.lists {
		if t.used[k] != nil {
			t.settleList(k)
		}
	}
	clear(t.dirty.lists)
	t.dirty.fixed = false
}

// wantedFeatures finds which optional parts are asked for.
func (t *Table) wantedFeatures() features {
	f := features{withoutARP: t.features.withoutARP, exempt: len(t.exempt) > 0, ipip: t.around.IPIP != nil, vxlan: t.around.VXLAN != nil}
	for name, key := range t.around.HostInterfaces {
		if h := t.hosts[key]; h != nil && !t.exempt[name] {
			f.untracked = f.untracked || len(h.Untracked) > 0
			f.preDNAT = f.preDNAT || len(h.PreDNAT) > 0
		}
	}
	for _, w := range t.workloads {
		if w.Endpoint.State == calico.Active {
			f.floating4 = f.floating4 || len(w.Endpoint.IPv4NAT) > 0
			f.floating6 = f.floating6 || len(w.Endpoint.IPv6NAT) > 0
		}
	}
	return f
}

// settleFixed makes the chains and sets that do not depend on single endpoints.
func (t *Table) settleFixed() {
	b := builder{settings: &t.settings, around: &t.around, features: t.features}
	fixed := map[ref]bool{}
	for _, c := range b.chains() {
		fixed[c.ref] = true
		t.want(c.ref, &wantedChain{c.hook, func() []rule { return c.rules }})
	}
	for r := range t.fixed {
		if !fixed[r] {
			t.unwant(r)
		}
	}
	t.fixed = fixed
	t.settleSets()
}

func (t *Table) settleSets() {
	wanted := map[ref]bool{}
	for _, s := range namedSets(t.features) {
		wanted[s.ref] = true
		if t.sets[s.ref] == nil {
			t.sets[s.ref] = newNamedSet(s)
			t.dirty.sets[s.ref] = true
			t.dirty.all = true // interfaces put their entries into it
		}
	}
	for r := range t.sets {
		if !wanted[r] {
			delete(t.sets, r)
			t.dirty.sets[r] = true
		}
	}
	t.fill(ref{inet, setExempt}, nameElements(t.exempt))
	t.fill(ref{arp, setExempt}, nameElements(t.exempt))
	if t.around.IPIP != nil {
		t.fill(ref{inet, setIPIPPeers}, addressElements(t.around.IPIP.Peers, 4))
	}
	if t.around.VXLAN != nil {
		t.fill(ref{inet, setVXLANPeers4}, addressElements(t.around.VXLAN.Peers, 4))
		t.fill(ref{inet, setVXLANPeers6}, addressElements(t.around.VXLAN.Peers, 6))
	}
	t.settleFloating()
}

// fill makes a set, if it is wanted, hold the elements.
func (t *Table) fill(r ref, all []element) {
	if s := t.sets[r]; s != nil {
		s.replace(all)
		t.dirty.sets[r] = true
	}
}

func nameElements(names map[string]bool) []element {
	var all []element
	for n := range names {
		all = append(all, element{key: string(nameKey(n))})
	}
	return all
}

func addressElements(addrs []netip.Addr, version int) []element {
	var all []element
	for _, a := range addrs {
		if a.Is4() == (version == 4) {
			all = append(all, element{key: string(a.AsSlice())})
		}
	}
	return all
}

func (t *Table) want(r ref, c *wantedChain) {
	t.chains[r] = c
	t.dirty.chains[r] = true
}

func (t *Table) unwant(r ref) {
	delete(t.chains, r)
	t.dirty.chains[r] = true
}

// bind works out what an interface needs, and says whether floating addresses may have changed.
func (t *Table) bind(name string) (floating bool) {
	old, is := t.bindings[name], t.newBinding(name)
	for _, j := range is.judges {
		t.acquireJudge(j)
	}
	if old == nil {
		old = &binding{}
	}
	for set := range old.entries {
		if _, ok := is.entries[set]; !ok && t.sets[set] != nil {
			t.sets[set].remove(string(nameKey(name)))
			t.dirty.sets[set] = true
		}
	}
	for set, e := range is.entries {
		e.key = string(nameKey(name))
		if was, ok := t.sets[set].elements[e.key]; !ok || was != e {
			t.sets[set].put(e)
			t.dirty.sets[set] = true
		}
	}
	for r := range old.chains {
		if is.chains[r] == nil {
			t.unwant(r)
		}
	}
	for r, c := range is.chains {
		t.want(r, c)
	}
	for _, j := range old.judges {
		t.releaseJudge(j.name)
	}
	if t.bindings[name] = is; is.entries == nil {
		delete(t.bindings, name)
	}
	return !slices.Equal(old.floating, is.floating)
}

func (t *Table) newBinding(name string) *binding {
	switch {
	case t.exempt[name]:
	case t.settings.workload(name):
		if key, ok := t.winner(name); ok {
			return t.workloadBinding(name, t.workloads[key])
		}
	default:
		if key, ok := t.around.HostInterfaces[name]; ok && t.hosts[key] != nil {
			return t.hostBinding(t.hosts[key])
		}
	}
	return &binding{}
}

// winner is the workload that has the interface: of several, the one whose key comes first.
func (t *Table) winner(name string) (calico.WorkloadEndpointKey, bool) {
	keys := slices.SortedFunc(maps.Keys(t.named[name]), func(a, b calico.WorkloadEndpointKey) int {
		return cmp.Or(cmp.Compare(a.Orchestrator, b.Orchestrator), cmp.Compare(a.Workload, b.Workload), cmp.Compare(a.Endpoint, b.Endpoint))
	})
	if len(keys) == 0 {
		return calico.WorkloadEndpointKey{}, false
	}
	return keys[0], true
}

func toChain(name string) element { return element{verdict: verdict{goTo, name}} }

func (t *Table) workloadBinding(name string, w *calc.Workload) *binding {
	e := w.Endpoint
	if e.State != calico.Active {
		refused := toChain(refusedInactive)
		b := &binding{entries: map[ref]element{{inet, mapSource}: refused, {inet, mapWorkloadOut}: refused, {inet, mapWorkloadIn}: refused,
			{inet, mapWorkloadHost}: refused}}
		if !t.features.withoutARP {
			b.entries[ref{arp, mapSender}] = toChain(refusedARP)
		}
		return b
	}
	out, in := t.judge(workloadOut, w.Tiers, w.Profiles), t.judge(workloadIn, w.Tiers, w.Profiles)
	check := ref{inet, interfaceChain("source", name)}
	b := &binding{
		entries: map[ref]element{{inet, mapSource}: toChain(check.name), {inet, mapWorkloadOut}: toChain(out.name),
			{inet, mapWorkloadIn}: toChain(in.name), {inet, mapWorkloadHost}: {verdict: verdict{kind: accept}}},
		chains:   map[ref]*wantedChain{check: {rules: func() []rule { return sourceRules(e) }}},
		judges:   []*judge{out, in},
		floating: slices.Concat(e.IPv4NAT, e.IPv6NAT),
	}
	if !t.features.withoutARP {
		sender := ref{arp, interfaceChain("sender", name)}
		b.entries[ref{arp, mapSender}] = toChain(sender.name)
		b.chains[sender] = &wantedChain{rules: func() []rule { return senderRules(e) }}
	}
	return b
}

func (t *Table) hostBinding(h *calc.Host) *binding {
	b := &binding{entries: map[ref]element{}}
	add := func(set string, j *judge) {
		b.entries[ref{inet, set}] = toChain(j.name)
		b.judges = append(b.judges, j)
	}
	add(mapHostIn, t.judge(hostIn, h.Tiers, h.Profiles))
	add(mapHostOut, t.judge(hostOut, h.Tiers, h.Profiles))
	add(mapHostForwardIn, t.judge(hostForwardIn, h.Tiers, h.Profiles))
	add(mapHostForwardOut, t.judge(hostForwardOut, h.Tiers, h.Profiles))
	for set, kind := range map[string]judgeKind{mapUntrackedIn: untrackedIn, mapUntrackedOut: untrackedOut} {
		if j := t.judge(kind, h.Untracked, nil); !j.empty() {
			add(set, j)
		}
	}
	if j := t.judge(preDNATIn, h.PreDNAT, nil); !j.empty() {
		add(mapPreDNAT, j)
	}
	return b
}

// judge makes the judge of tiers and profiles. Endpoints that the same policies select mostly come with the very same
// tiers, which may be long: they are looked at once.
func (t *Table) judge(kind judgeKind, tiers []calc.Tier, profiles []string) *judge {
	made := fmt.Appendf(nil, "%d %q", kind, profiles)
	for _, tier := range tiers {
		made = fmt.Appendf(made, " %p %d %p %d", tier.Inbound, len(tier.Inbound), tier.Outbound, len(tier.Outbound))
	}
	j := t.alike[string(made)]
	if j == nil {
		j = newJudge(kind, tiers, profiles, func(id calc.ListID) bool { return t.lists[id].passes })
		t.alike[string(made)] = j
	}
	return j
}

func (t *Table) acquireJudge(j *judge) {
	state := t.judges[j.name]
	if state == nil {
		state = &judgeState{judge: j}
		t.judges[j.name] = state
		t.wantJudge(j)
		j.lists(t.acquireList)
	}
	state.users++
}

func (t *Table) wantJudge(j *judge) {
	for _, c := range j.chains() {
		t.want(c.ref, &wantedChain{rules: func() []rule { return c.rules(t.features) }})
	}
}

func (t *Table) releaseJudge(name string) {
	state := t.judges[name]
	if state.users--; state.users > 0 {
		return
	}
	delete(t.judges, name)
	for _, c := range state.chains() {
		t.unwant(c.ref)
	}
	state.lists(t.releaseList)
}

func (t *Table) acquireList(k listKey) {
	if t.used[k] == nil {
		t.used[k] = &listState{}
		t.dirty.lists[k] = true
	}
	t.used[k].users++
}

func (t *Table) releaseList(k listKey) {
	l := t.used[k]
	if l.users--; l.users > 0 {
		return
	}
	delete(t.used, k)
	t.unwant(ref{inet, k.chain()})
	for _, v := range l.views {
		t.useSet(v, -1)
	}
}

// settleList makes the chain of a list, and the sets that it names.
func (t *Table) settleList(k listKey) {
	l, list, render := t.used[k], t.lists[k.list].List, listRenderer{k.stage, t.settings.LogPrefix}
	old := l.views
	l.views = viewsOf(list)
	for _, v := range l.views {
		t.useSet(v, 1)
	}
	for _, v := range old {
		t.useSet(v, -1)
	}
	t.want(ref{inet, k.chain()}, &wantedChain{rules: func() []rule { return render.rules(k.list, list) }})
}

// useSet counts who names an address set. One that nobody has told of is empty.
func (t *Table) useSet(v view, by int) {
	s := t.addresses[v.id]
	if s == nil {
		s = &addressState{gone: true}
		t.addresses[v.id] = s
	}
	s.users[v.index()] += by
	t.dirty.addresses[v.id] = true
}

func (v view) index() int {
	if v.version == 4 {
		return 0
	}
	return 1
}

// settleFloating fills the maps of floating addresses (spec §9).
func (t *Table) settleFloating() {
	var all []calico.NAT
	for _, b := range t.bindings {
		all = append(all, b.floating...)
	}
	to, hairpins := floatingMaps(all)
	for _, v := range t.features.floatingVersions() {
		t.fill(floatingMap(v).ref, ofVersion(to, v, 1))
		t.fill(hairpinMap(v).ref, ofVersion(hairpins, v, 2))
	}
}

// ofVersion picks the elements whose keys are of so many addresses of a version.
func ofVersion(all []element, version, addresses int) []element {
	return slices.DeleteFunc(slices.Clone(all), func(e element) bool { return len(e.key) != addresses*typeOfVersion(version).length })
}

// floatingMaps are the entries of the maps of floating addresses and of hairpins. Of several addresses that one floating
// address stands for, the lowest has it; of several floating addresses of one, the first in text is used for hairpins.
func floatingMaps(all []calico.NAT) (to, hairpins []element) {
	inside, outside := map[netip.Addr]netip.Addr{}, map[netip.Addr]netip.Addr{}
	for _, n := range all {
		if old, ok := inside[n.ExtIP]; !ok || n.IntIP.Less(old) {
			inside[n.ExtIP] = n.IntIP
		}
		if old, ok := outside[n.IntIP]; !ok || n.ExtIP.String() < old.String() {
			outside[n.IntIP] = n.ExtIP
		}
	}
	for ext, in := range inside {
		to = append(to, element{key: string(ext.AsSlice()), data: string(in.AsSlice())})
	}
	for in, ext := range outside {
		hairpins = append(hairpins, element{key: string(in.AsSlice()) + string(in.AsSlice()), data: string(ext.AsSlice())})
	}
	return to, hairpins
}
