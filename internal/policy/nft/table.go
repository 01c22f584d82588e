// Package nft keeps the rules that Calico's policy needs on this host in the kernel's nftables: one table of family inet
// and a small one of family arp, both called heddle, and both Heddle's alone.
//
// A [Table] is told what is wanted ([Table.Update], [Table.Configure], [Table.Surround]) and brings the kernel there with
// [Table.Commit]: all that changed since the last time, in one atomic batch, so that no packet ever meets half of a change.
// What an earlier process left behind is adopted as far as it is right. [Table.Mend] reads back what is there and mends
// it; [Kernel.Watch] says when somebody else has changed it. [Cleanup] removes all that is ours.
//
// How a packet is judged, from the wire on (priorities in brackets):
//
//	prerouting [-300]  sources of workloads; untracked policy of host endpoints
//	prerouting [-150]  pre-DNAT policy of host endpoints
//	prerouting [-100]  floating addresses and metadata become what they stand for
//	input      [0]     tunnels' peers; workloads to this host; inbound policy of host endpoints
//	forward    [0]     outbound policy of the workload, or inbound policy of the host endpoint, that the packet comes from
//	forward    [1]     inbound policy of the workload, or outbound policy of the host endpoint, that it goes to
//	output     [-300]  untracked policy of host endpoints
//	output     [0]     tunnels' peers; host to workloads; outbound policy of host endpoints
//	postrouting [100]  hairpins, masquerade
//
// In each, a map from the name of the interface leads to the chain that judges, so the number of interfaces costs
// nothing. That chain jumps to those of the policies and profiles that apply, which all endpoints share.
//
// In forward there are two base chains, so that to accept in the first leaves the packet to the second; otherwise a rule
// that allows simply accepts. What these chains accept, other tables of the host may still drop, whatever their priority.
// What they drop stays dropped.
//
// Two bits of a packet's mark are ours, 0x01000000 and 0x02000000: that early policy has accepted the packet, and that a
// rule has sent it to the next tier. Both are cleared before they are used, and rules touch them only where there are
// such policies.
package nft

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"heddle/calico"
	"heddle/internal/policy/calc"
)

// Table is what is wanted in nftables, and what is known to be there. Its methods may be called from any goroutine.
// Update, Configure and Surround only mark; Commit acts.
type Table struct {
	backend Backend
	log     *slog.Logger

	mu       sync.Mutex
	settings Settings
	around   Surroundings
	exempt   map[string]bool
	features features

	addresses map[calc.SetID]*addressState
	lists     map[calc.ListID]knownList
	workloads map[calico.WorkloadEndpointKey]*calc.Workload
	hosts     map[calico.HostEndpointKey]*calc.Host
	named     map[string]map[calico.WorkloadEndpointKey]bool // workloads by interface

	used     map[listKey]*listState
	judges   map[string]*judgeState
	alike    map[string]*judge   // those of this settlement, by what they were made of
	bindings map[string]*binding // by interface
	sets     map[ref]*namedSet   // those that are not of addresses
	chains   map[ref]*wantedChain
	fixed    map[ref]bool // of the chains, those that are of no endpoint

	dirty dirty
	have  have
}

// knownList is a list of rules that the calculation has told of. The zero knownList drops everything.
type knownList struct {
	*calc.List
	passes bool // it can send packets to the next tier
}

// dirty is what was marked since the last commit.
type dirty struct {
	fixed      bool // settings or surroundings
	all        bool // every interface
	interfaces map[string]bool
	lists      map[listKey]bool
	chains     map[ref]bool
	sets       map[ref]bool
	addresses  map[calc.SetID]bool
}

// have is what the kernel holds, as far as known.
type have struct {
	known      bool // false: read first
	certain    bool // nobody else has changed nftables since generation
	generation uint32
	chains     map[ref]chainSum
	sets       map[ref]string // shapes
}

// wantedChain is a chain as it shall be.
type wantedChain struct {
	hook  *hook
	rules func() []rule
}

// New makes a Table that wants what the settings alone ask for: that no interface of an unknown workload passes traffic.
// Nothing is touched before the first Commit.
func New(b Backend, s Settings, log *slog.Logger) (*Table, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Table{
		backend: b, log: log, settings: s, exempt: map[string]bool{},
		addresses: map[calc.SetID]*addressState{}, lists: map[calc.ListID]knownList{},
		workloads: map[calico.WorkloadEndpointKey]*calc.Workload{}, hosts: map[calico.HostEndpointKey]*calc.Host{},
		named: map[string]map[calico.WorkloadEndpointKey]bool{},
		used:  map[listKey]*listState{}, judges: map[string]*judgeState{}, bindings: map[string]*binding{},
		sets: map[ref]*namedSet{}, chains: map[ref]*wantedChain{},
		dirty: newDirty(true),
	}, nil
}

func newDirty(fixed bool) dirty {
	return dirty{fixed: fixed, interfaces: map[string]bool{}, lists: map[listKey]bool{}, chains: map[ref]bool{}, sets: map[ref]bool{},
		addresses: map[calc.SetID]bool{}}
}

// Configure replaces the settings.
func (t *Table) Configure(s Settings) error {
	if err := s.check(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settings = s
	t.dirty.fixed, t.dirty.all = true, true
	for k := range t.used {
		t.dirty.lists[k] = true // the default log prefix may be another
	}
	return nil
}

// Surround replaces what the agent has found on its host. It may be called at any time: what is as it was costs little.
// What it points to must not be changed after.
func (t *Table) Surround(s Surroundings) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if reflect.DeepEqual(s, t.around) {
		return
	}
	t.dirty.fixed = true
	exempt := map[string]bool{}
	for _, name := range s.Exempt {
		exempt[name] = true
	}
	for name := range allKeys(exempt, t.exempt) {
		if exempt[name] != t.exempt[name] {
			t.dirty.interfaces[name] = true
		}
	}
	for name := range allKeys(s.HostInterfaces, t.around.HostInterfaces) {
		was, had := t.around.HostInterfaces[name]
		if is, has := s.HostInterfaces[name]; had != has || was != is {
			t.dirty.interfaces[name] = true
		}
	}
	t.around, t.exempt = s, exempt
}

func allKeys[K comparable, V any](a, b map[K]V) map[K]bool {
	all := map[K]bool{}
	for k := range a {
		all[k] = true
	}
	for k := range b {
		all[k] = true
	}
	return all
}

// Update takes over what the calculation says has changed. The objects that it points to must not be changed after.
func (t *Table) Update(c *calc.Changes) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, change := range c.Sets {
		t.updateSet(id, change)
	}
	for id, list := range c.Lists {
		t.updateList(id, list)
	}
	for key, w := range c.Workloads {
		t.updateWorkload(key, w)
	}
	for key, h := range c.Hosts {
		if h == nil {
			delete(t.hosts, key)
		} else {
			t.hosts[key] = h
		}
		for name, governs := range t.around.HostInterfaces {
			if governs == key {
				t.dirty.interfaces[name] = true
			}
		}
	}
}

func (t *Table) updateList(id calc.ListID, list *calc.List) {
	before, now := t.lists[id], knownList{list, passes(list)}
	if list == nil {
		delete(t.lists, id)
	} else {
		t.lists[id] = now
	}
	for _, s := range []stage{normal, untracked, preDNAT} {
		if k := (listKey{id, s}); t.used[k] != nil {
			t.dirty.lists[k] = true
			t.dirty.all = t.dirty.all || now.passes != before.passes
		}
	}
}

func (t *Table) updateWorkload(key calico.WorkloadEndpointKey, w *calc.Workload) {
	if old := t.workloads[key]; old != nil && old.Endpoint != nil {
		name := old.Endpoint.Name
		t.dirty.interfaces[name] = true
		if delete(t.named[name], key); len(t.named[name]) == 0 {
			delete(t.named, name)
		}
		delete(t.workloads, key)
	}
	if w == nil || w.Endpoint == nil {
		return
	}
	t.workloads[key] = w
	name := w.Endpoint.Name
	t.dirty.interfaces[name] = true
	if t.named[name] == nil {
		t.named[name] = map[calico.WorkloadEndpointKey]bool{}
	}
	t.named[name][key] = true
}

// Commit brings what was marked into force, in one atomic batch. After an error the old state is in force, or the new
// one; the next Commit or Mend finds out which, and goes on from there. Commit with nothing marked does nothing.
func (t *Table) Commit(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle()
	if !t.have.known {
		_, err := t.mend(ctx)
		return err
	}
	err := t.carryOut(ctx, t.plan(nil))
	if err == nil || ctx.Err() != nil {
		return err
	}
	// Somebody may have changed what was there. The same is tried once more from what is there now.
	t.log.Warn("nftables refused a change; comparing all", "err", err)
	if _, again := t.mend(ctx); again != nil {
		return again
	}
	return nil
}

// Mend reads back what is in our tables, and mends what differs from what is wanted, also with what was marked. It tells
// what had to be done, an operation a line; empty: nothing. It costs little when nobody has changed nftables.
func (t *Table) Mend(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle()
	if t.have.known && t.have.certain {
		now, err := t.backend.generation(ctx)
		if err != nil {
			return "", err
		}
		if now == t.have.generation {
			return "", t.carryOut(ctx, t.plan(nil))
		}
	}
	return t.mend(ctx)
}

func (t *Table) mend(ctx context.Context) (string, error) {
	found, err := t.backend.read(ctx)
	if err != nil {
		t.have.known = false
		return "", err
	}
	if found.withoutARP != t.features.withoutARP {
		t.log.Warn("this kernel has no nftables of family arp: whom workloads say they are in ARP is not checked")
		t.features.withoutARP, t.dirty.fixed, t.dirty.all = found.withoutARP, true, true
		t.settle()
	}
	t.have.generation, t.have.certain = found.generation, true
	p := t.plan(found)
	if err := t.carryOut(ctx, p); err != nil {
		return "", err
	}
	return p.String(), nil
}

// carryOut commits a plan and remembers what is there after it.
func (t *Table) carryOut(ctx context.Context, p plan) error {
	parts := p.parts()
	if err := t.backend.commit(ctx, parts...); err != nil {
		t.have.known = false
		return err
	}
	if len(parts) > 0 {
		now, err := t.backend.generation(ctx)
		if err != nil {
			t.have.known = false
			return err
		}
		t.have.certain = t.have.certain && now == t.have.generation+uint32(len(parts))
		t.have.generation = now
	}
	p.done(t)
	return nil
}

// Refused tells how many packets were refused since the table was made, by reason: by-policy, source, …
func (t *Table) Refused(ctx context.Context) (map[string]Counter, error) {
	all, err := t.backend.counters(ctx)
	if err != nil {
		return nil, err
	}
	refused := map[string]Counter{}
	for name, c := range all {
		if reason, ok := strings.CutPrefix(name, "refused-"); ok {
			refused[reason] = c
		}
	}
	return refused, nil
}

// String prints what is wanted as nft would list it.
func (t *Table) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle()
	var b strings.Builder
	wanted := t.wantedSets()
	for _, table := range t.features.families() {
		text := tableText{family: table}
		for _, r := range slices.SortedFunc(maps.Keys(wanted), compareRefs) {
			if r.table == table {
				text.sets = append(text.sets, filledSet{wanted[r].shape(), slices.Collect(wanted[r].all())})
			}
		}
		for _, r := range t.features.counters() {
			if r.table == table {
				text.counters = append(text.counters, r.name)
			}
		}
		for _, r := range slices.SortedFunc(maps.Keys(t.chains), compareRefs) {
			if r.table == table {
				text.chains = append(text.chains, chain{ref: r, hook: t.chains[r].hook, rules: t.chains[r].rules()})
			}
		}
		text.print(&b)
	}
	return b.String()
}
