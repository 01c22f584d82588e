package nft

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"heddle/calico"
	"heddle/internal/policy/calc"
)

// inputs are the state from which the ruleset is derived.
type inputs struct {
	settings  Settings
	around    Surroundings
	exempt    map[string]bool // interfaces that policy leaves alone
	lists     map[calc.ListID]knownList
	workloads map[calico.WorkloadEndpointKey]*calc.Workload
	hosts     map[calico.HostEndpointKey]*calc.Host
	named     map[string]map[calico.WorkloadEndpointKey]bool // workloads by interface
	dirty     inputMarks
}

// knownList is a list of rules of the calculation. The zero knownList drops everything.
type knownList struct {
	*calc.List
	passes bool // it can send packets to the next tier
}

// inputMarks mark changes since the ruleset was settled.
type inputMarks struct {
	fixed      bool // settings or surroundings
	all        bool // every interface
	interfaces map[string]bool
	lists      map[listKey]bool
}

func newInputs(s Settings) inputs {
	return inputs{settings: s, exempt: map[string]bool{}, lists: map[calc.ListID]knownList{},
		workloads: map[calico.WorkloadEndpointKey]*calc.Workload{}, hosts: map[calico.HostEndpointKey]*calc.Host{},
		named: map[string]map[calico.WorkloadEndpointKey]bool{},
		dirty: inputMarks{fixed: true, interfaces: map[string]bool{}, lists: map[listKey]bool{}}}
}

// surround replaces the surroundings, and marks the interfaces that this affects.
func (in *inputs) surround(s Surroundings) {
	if reflect.DeepEqual(s, in.around) {
		return
	}
	in.dirty.fixed = true
	exempt := map[string]bool{}
	for _, name := range s.Exempt {
		exempt[name] = true
	}
	for name := range allKeys(exempt, in.exempt) {
		if exempt[name] != in.exempt[name] {
			in.dirty.interfaces[name] = true
		}
	}
	for name := range allKeys(s.HostInterfaces, in.around.HostInterfaces) {
		was, had := in.around.HostInterfaces[name]
		if is, has := s.HostInterfaces[name]; had != has || was != is {
			in.dirty.interfaces[name] = true
		}
	}
	in.around, in.exempt = s, exempt
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

func (in *inputs) updateWorkload(key calico.WorkloadEndpointKey, w *calc.Workload) {
	if old := in.workloads[key]; old != nil && old.Endpoint != nil {
		name := old.Endpoint.Name
		in.dirty.interfaces[name] = true
		if delete(in.named[name], key); len(in.named[name]) == 0 {
			delete(in.named, name)
		}
		delete(in.workloads, key)
	}
	if w == nil || w.Endpoint == nil {
		return
	}
	in.workloads[key] = w
	name := w.Endpoint.Name
	in.dirty.interfaces[name] = true
	if in.named[name] == nil {
		in.named[name] = map[calico.WorkloadEndpointKey]bool{}
	}
	in.named[name][key] = true
}

func (in *inputs) updateHost(key calico.HostEndpointKey, h *calc.Host) {
	if h == nil {
		delete(in.hosts, key)
	} else {
		in.hosts[key] = h
	}
	for name, governs := range in.around.HostInterfaces {
		if governs == key {
			in.dirty.interfaces[name] = true
		}
	}
}

// features returns which optional parts of the ruleset are requested.
func (in *inputs) features(withoutARP bool) features {
	f := features{withoutARP: withoutARP, exempt: len(in.exempt) > 0, ipip: in.around.IPIP != nil, vxlan: in.around.VXLAN != nil}
	for name, key := range in.around.HostInterfaces {
		if h := in.hosts[key]; h != nil && !in.exempt[name] {
			f.untracked = f.untracked || len(h.Untracked) > 0
			f.preDNAT = f.preDNAT || len(h.PreDNAT) > 0
		}
	}
	for _, w := range in.workloads {
		if w.Endpoint.State == calico.Active {
			f.floating4 = f.floating4 || len(w.Endpoint.IPv4NAT) > 0
			f.floating6 = f.floating6 || len(w.Endpoint.IPv6NAT) > 0
		}
	}
	return f
}

// winner returns the workload that has the interface: of several, the one whose key comes first.
func (in *inputs) winner(name string) (calico.WorkloadEndpointKey, bool) {
	keys := slices.SortedFunc(maps.Keys(in.named[name]), func(a, b calico.WorkloadEndpointKey) int {
		return cmp.Or(cmp.Compare(a.Orchestrator, b.Orchestrator), cmp.Compare(a.Workload, b.Workload), cmp.Compare(a.Endpoint, b.Endpoint))
	})
	if len(keys) == 0 {
		return calico.WorkloadEndpointKey{}, false
	}
	return keys[0], true
}
