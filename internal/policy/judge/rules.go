package judge

import (
	"net/netip"
	"slices"

	"heddle/calico"
	"heddle/internal/policy/calc"
)

// Rules gathers calc's changes for this host. The zero value has no rules.
type Rules struct {
	sets      map[calc.SetID]map[netip.Addr]bool
	lists     map[calc.ListID]*calc.List
	workloads map[calico.WorkloadEndpointKey]*calc.Workload
	hosts     map[calico.HostEndpointKey]*calc.Host
}

// Apply applies changes.
func (r *Rules) Apply(c *calc.Changes) {
	if r.sets == nil {
		*r = Rules{map[calc.SetID]map[netip.Addr]bool{}, map[calc.ListID]*calc.List{}, map[calico.WorkloadEndpointKey]*calc.Workload{}, map[calico.HostEndpointKey]*calc.Host{}}
	}
	for id, change := range c.Sets {
		r.changeSet(id, change)
	}
	apply(r.lists, c.Lists)
	apply(r.workloads, c.Workloads)
	apply(r.hosts, c.Hosts)
}

// Of returns the rules of a host that has some endpoints; the lists and sets are those of r, which
// must not change meanwhile.
func (r *Rules) Of(workloads map[calico.WorkloadEndpointKey]*calc.Workload, hosts map[calico.HostEndpointKey]*calc.Host) *Rules {
	return &Rules{r.sets, r.lists, workloads, hosts}
}

func (r *Rules) changeSet(id calc.SetID, c *calc.SetChange) {
	if c == nil || c.Gone {
		delete(r.sets, id)
		return
	}
	if c.New || r.sets[id] == nil {
		r.sets[id] = map[netip.Addr]bool{}
	}
	for _, a := range c.Removed {
		delete(r.sets[id], a)
	}
	for _, a := range c.Added {
		r.sets[id][a] = true
	}
}

func apply[K comparable, V any](all, changed map[K]*V) {
	for key, value := range changed {
		if value == nil {
			delete(all, key)
		} else {
			all[key] = value
		}
	}
}

// workload returns a workload; an unknown one has no endpoint, and its interface is closed.
func (r *Rules) workload(key calico.WorkloadEndpointKey) *calc.Workload {
	if w := r.workloads[key]; w != nil {
		return w
	}
	return &calc.Workload{Key: key}
}

// PolicyOf returns the tiers and profiles of the endpoint at a place, those of its normal policy.
func (r *Rules) PolicyOf(p Place) ([]calc.Tier, []string) {
	if w := r.workloads[p.workload]; w != nil {
		return w.Tiers, w.Profiles
	}
	if h := r.hosts[p.host]; h != nil {
		return h.Tiers, h.Profiles
	}
	return nil, nil
}

// ownAddress reports whether the host endpoint expects the address, so that it is the host's own.
func (r *Rules) ownAddress(key calico.HostEndpointKey, a netip.Addr) bool {
	h := r.hosts[key]
	return h != nil && h.Endpoint != nil && (slices.Contains(h.Endpoint.ExpectedIPv4Addrs, a) || slices.Contains(h.Endpoint.ExpectedIPv6Addrs, a))
}

// Translated returns the destination of packets to an address: for a floating address the lowest
// address that it stands for, else the address itself (spec §9).
func (r *Rules) Translated(dst netip.Addr) netip.Addr {
	to := dst
	for _, w := range r.workloads {
		if w.Endpoint.State != calico.Active {
			continue
		}
		for _, n := range slices.Concat(w.Endpoint.IPv4NAT, w.Endpoint.IPv6NAT) {
			if n.ExtIP == dst && (to == dst || n.IntIP.Less(to)) {
				to = n.IntIP
			}
		}
	}
	return to
}
