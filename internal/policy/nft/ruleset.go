package nft

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"heddle/calico"
	"heddle/internal/policy/calc"
)

// listState is the chain of a list in use.
type listState struct {
	users    int
	views    []view // of address sets that its rules name, each once
	rules    int
	counters []ref // of its rules
}

// view names an address set of a version.
type view struct {
	id      calc.SetID
	version int
}

type judgeState struct {
	*judge
	users int
}

// binding has the objects for one interface.
type binding struct {
	entries  map[ref]element // one for each of some maps
	chains   map[ref]*wantedChain
	judges   []*judge
	floating []calico.NAT
}

// ruleset derives, from its inputs, the objects that should be in nftables. Chains of lists and
// judges are shared and counted.
type ruleset struct {
	in       inputs
	out      objects
	features features
	fixed    map[ref]bool // chains that do not depend on single endpoints
	used     map[listKey]*listState
	judges   map[string]*judgeState
	alike    map[string]*judge   // those of this settlement, by what they were made of
	bindings map[string]*binding // by interface
	rules    int                 // of lists in use
	counted  bool                // each rule has a counter
}

func newRuleset(s Settings) ruleset {
	return ruleset{in: newInputs(s), out: newObjects(), used: map[listKey]*listState{}, judges: map[string]*judgeState{},
		bindings: map[string]*binding{}}
}

func (rs *ruleset) updateList(id calc.ListID, list *calc.List) {
	before, now := rs.in.lists[id], knownList{list, passes(list)}
	if list == nil {
		delete(rs.in.lists, id)
	} else {
		rs.in.lists[id] = now
	}
	for _, s := range []stage{normal, untracked, preDNAT} {
		if k := (listKey{id, s}); rs.used[k] != nil {
			rs.in.dirty.lists[k] = true
			rs.in.dirty.all = rs.in.dirty.all || now.passes != before.passes
		}
	}
}

func (rs *ruleset) settle() {
	was := rs.features
	rs.features = rs.in.features(was.withoutARP)
	if rs.in.dirty.fixed || was != rs.features {
		rs.settleFixed()
	}
	if was != rs.features {
		for _, j := range rs.judges {
			rs.wantJudge(j.judge) // they begin with what the features ask for
		}
	}
	if rs.in.dirty.all {
		for _, names := range []map[string]bool{allKeys(rs.in.named, nil), allKeys(rs.in.around.HostInterfaces, nil), allKeys(rs.bindings, nil)} {
			maps.Copy(rs.in.dirty.interfaces, names)
		}
		rs.in.dirty.all = false
	}
	rs.alike = map[string]*judge{}
	floating := false
	for name := range rs.in.dirty.interfaces {
		floating = rs.bind(name) || floating
	}
	rs.alike = nil // what it was made of may be gone, and its place be taken, by the next time
	clear(rs.in.dirty.interfaces)
	if floating {
		rs.settleFloating()
	}
	rs.settleLists()
	if counted := rs.rules <= rs.in.settings.MostCounted; counted != rs.counted {
		rs.counted = counted
		for k := range rs.used {
			rs.in.dirty.lists[k] = true
		}
		rs.settleLists()
	}
	rs.in.dirty.fixed = false
}

// counters returns all named counters, in order.
func (rs *ruleset) counters() []ref {
	all := slices.AppendSeq(rs.features.counters(), maps.Keys(rs.out.counters))
	slices.SortFunc(all, compareRefs)
	return all
}

func (rs *ruleset) settleLists() {
	for k := range rs.in.dirty.lists {
		if rs.used[k] != nil {
			rs.settleList(k)
		}
	}
	clear(rs.in.dirty.lists)
}

// settleFixed makes the objects that do not depend on single endpoints.
func (rs *ruleset) settleFixed() {
	b := builder{settings: &rs.in.settings, around: &rs.in.around, features: rs.features}
	fixed := map[ref]bool{}
	for _, c := range b.chains() {
		fixed[c.ref] = true
		rs.out.want(c.ref, &wantedChain{c.hook, func() []rule { return c.rules }})
	}
	for r := range rs.fixed {
		if !fixed[r] {
			rs.out.unwant(r)
		}
	}
	rs.fixed = fixed
	rs.settleSets()
}

func (rs *ruleset) settleSets() {
	wanted := map[ref]bool{}
	for _, s := range namedSets(rs.features) {
		wanted[s.ref] = true
		if rs.out.sets[s.ref] == nil {
			rs.out.sets[s.ref] = newNamedSet(s)
			rs.out.dirty.sets[s.ref] = true
			rs.in.dirty.all = true // interfaces put their entries into it
		}
	}
	for r := range rs.out.sets {
		if !wanted[r] {
			delete(rs.out.sets, r)
			rs.out.dirty.sets[r] = true
		}
	}
	rs.out.fill(ref{inet, setExempt}, nameElements(rs.in.exempt))
	rs.out.fill(ref{arp, setExempt}, nameElements(rs.in.exempt))
	if rs.in.around.IPIP != nil {
		rs.out.fill(ref{inet, setIPIPPeers}, addressElements(rs.in.around.IPIP.Peers, 4))
	}
	if rs.in.around.VXLAN != nil {
		rs.out.fill(ref{inet, setVXLANPeers4}, addressElements(rs.in.around.VXLAN.Peers, 4))
		rs.out.fill(ref{inet, setVXLANPeers6}, addressElements(rs.in.around.VXLAN.Peers, 6))
	}
	rs.settleFloating()
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

// bind updates the objects of an interface. It reports whether floating addresses may have changed.
func (rs *ruleset) bind(name string) (floating bool) {
	old, is := rs.bindings[name], rs.newBinding(name)
	for _, j := range is.judges {
		rs.acquireJudge(j)
	}
	if old == nil {
		old = &binding{}
	}
	for set := range old.entries {
		if _, ok := is.entries[set]; !ok && rs.out.sets[set] != nil {
			rs.out.sets[set].remove(string(nameKey(name)))
			rs.out.dirty.sets[set] = true
		}
	}
	for set, e := range is.entries {
		e.key = string(nameKey(name))
		if was, ok := rs.out.sets[set].elements[e.key]; !ok || was != e {
			rs.out.sets[set].put(e)
			rs.out.dirty.sets[set] = true
		}
	}
	for r := range old.chains {
		if is.chains[r] == nil {
			rs.out.unwant(r)
		}
	}
	for r, c := range is.chains {
		rs.out.want(r, c)
	}
	for _, j := range old.judges {
		rs.releaseJudge(j.name)
	}
	if rs.bindings[name] = is; is.entries == nil {
		delete(rs.bindings, name)
	}
	return !slices.Equal(old.floating, is.floating)
}

func (rs *ruleset) newBinding(name string) *binding {
	switch {
	case rs.in.exempt[name]:
	case rs.in.settings.workload(name):
		if key, ok := rs.in.winner(name); ok {
			return rs.workloadBinding(name, rs.in.workloads[key])
		}
	default:
		if key, ok := rs.in.around.HostInterfaces[name]; ok && rs.in.hosts[key] != nil {
			return rs.hostBinding(rs.in.hosts[key])
		}
	}
	return &binding{}
}

func toChain(name string) element { return element{verdict: verdict{goTo, name}} }

func (rs *ruleset) workloadBinding(name string, w *calc.Workload) *binding {
	e := w.Endpoint
	if e.State != calico.Active {
		refused := toChain(refusedInactive)
		b := &binding{entries: map[ref]element{{inet, mapSource}: refused, {inet, mapWorkloadOut}: refused, {inet, mapWorkloadIn}: refused,
			{inet, mapWorkloadHost}: refused}}
		if !rs.features.withoutARP {
			b.entries[ref{arp, mapSender}] = toChain(refusedARP)
		}
		return b
	}
	out, in := rs.judge(workloadOut, w.Tiers, w.Profiles), rs.judge(workloadIn, w.Tiers, w.Profiles)
	check := ref{inet, interfaceChain("source", name)}
	b := &binding{
		entries: map[ref]element{{inet, mapSource}: toChain(check.name), {inet, mapWorkloadOut}: toChain(out.name),
			{inet, mapWorkloadIn}: toChain(in.name), {inet, mapWorkloadHost}: {verdict: verdict{kind: accept}}},
		chains:   map[ref]*wantedChain{check: {rules: func() []rule { return sourceRules(e) }}},
		judges:   []*judge{out, in},
		floating: slices.Concat(e.IPv4NAT, e.IPv6NAT),
	}
	if !rs.features.withoutARP {
		sender := ref{arp, interfaceChain("sender", name)}
		b.entries[ref{arp, mapSender}] = toChain(sender.name)
		b.chains[sender] = &wantedChain{rules: func() []rule { return senderRules(e) }}
	}
	return b
}

func (rs *ruleset) hostBinding(h *calc.Host) *binding {
	b := &binding{entries: map[ref]element{}}
	add := func(set string, j *judge) {
		b.entries[ref{inet, set}] = toChain(j.name)
		b.judges = append(b.judges, j)
	}
	add(mapHostIn, rs.judge(hostIn, h.Tiers, h.Profiles))
	add(mapHostOut, rs.judge(hostOut, h.Tiers, h.Profiles))
	add(mapHostForwardIn, rs.judge(hostForwardIn, h.Tiers, h.Profiles))
	add(mapHostForwardOut, rs.judge(hostForwardOut, h.Tiers, h.Profiles))
	for set, kind := range map[string]judgeKind{mapUntrackedIn: untrackedIn, mapUntrackedOut: untrackedOut} {
		if j := rs.judge(kind, h.Untracked, nil); !j.empty() {
			add(set, j)
		}
	}
	if j := rs.judge(preDNATIn, h.PreDNAT, nil); !j.empty() {
		add(mapPreDNAT, j)
	}
	return b
}

// judge returns the judge of tiers and profiles. Endpoints mostly share their tiers, which may be
// long: equal slices are looked at once.
func (rs *ruleset) judge(kind judgeKind, tiers []calc.Tier, profiles []string) *judge {
	made := fmt.Appendf(nil, "%d %q", kind, profiles)
	for _, tier := range tiers {
		made = fmt.Appendf(made, " %p %d %p %d", tier.Inbound, len(tier.Inbound), tier.Outbound, len(tier.Outbound))
	}
	j := rs.alike[string(made)]
	if j == nil {
		j = newJudge(kind, tiers, profiles, func(id calc.ListID) bool { return rs.in.lists[id].passes })
		rs.alike[string(made)] = j
	}
	return j
}

func (rs *ruleset) acquireJudge(j *judge) {
	state := rs.judges[j.name]
	if state == nil {
		state = &judgeState{judge: j}
		rs.judges[j.name] = state
		rs.wantJudge(j)
		j.lists(rs.acquireList)
	}
	state.users++
}

func (rs *ruleset) wantJudge(j *judge) {
	for _, c := range j.chains() {
		rs.out.want(c.ref, &wantedChain{rules: func() []rule { return c.rules(rs.features) }})
	}
}

func (rs *ruleset) releaseJudge(name string) {
	state := rs.judges[name]
	if state.users--; state.users > 0 {
		return
	}
	delete(rs.judges, name)
	for _, c := range state.chains() {
		rs.out.unwant(c.ref)
	}
	state.lists(rs.releaseList)
}

func (rs *ruleset) acquireList(k listKey) {
	if rs.used[k] == nil {
		rs.used[k] = &listState{}
		rs.in.dirty.lists[k] = true
	}
	rs.used[k].users++
}

func (rs *ruleset) releaseList(k listKey) {
	l := rs.used[k]
	if l.users--; l.users > 0 {
		return
	}
	delete(rs.used, k)
	rs.rules -= l.rules
	rs.out.wantCounters(l.counters, nil)
	rs.out.unwant(ref{inet, k.chain()})
	for _, v := range l.views {
		rs.out.useSet(v, -1)
	}
}

// settleList makes the chain of a list, and updates the users of sets.
func (rs *ruleset) settleList(k listKey) {
	l, list, render := rs.used[k], rs.in.lists[k.list].List, listRenderer{k, rs.in.settings.LogPrefix, rs.counted}
	counters := render.counters(list)
	rs.out.wantCounters(l.counters, counters)
	rs.rules += rulesIn(list) - l.rules
	l.rules, l.counters = rulesIn(list), counters
	old := l.views
	l.views = viewsOf(list)
	for _, v := range l.views {
		rs.out.useSet(v, 1)
	}
	for _, v := range old {
		rs.out.useSet(v, -1)
	}
	rs.out.want(ref{inet, k.chain()}, &wantedChain{rules: func() []rule { return render.rules(list) }})
}

func (v view) index() int {
	if v.version == 4 {
		return 0
	}
	return 1
}

func (rs *ruleset) settleFloating() {
	var all []calico.NAT
	for _, b := range rs.bindings {
		all = append(all, b.floating...)
	}
	to, hairpins := floatingMaps(all)
	for _, v := range rs.features.floatingVersions() {
		rs.out.fill(floatingMap(v).ref, ofVersion(to, v, 1))
		rs.out.fill(hairpinMap(v).ref, ofVersion(hairpins, v, 2))
	}
}

// ofVersion returns the elements whose keys have so many addresses of a version.
func ofVersion(all []element, version, addresses int) []element {
	return slices.DeleteFunc(slices.Clone(all), func(e element) bool { return len(e.key) != addresses*typeOfVersion(version).length })
}

// floatingMaps returns the entries of the maps of floating addresses and of hairpins. A floating
// address of several addresses goes to the lowest; of several floating addresses of one, the first
// in text serves hairpins.
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
