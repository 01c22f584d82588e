package policy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"heddle/calico"
	"heddle/internal/hostnet"
	"heddle/internal/policy/calc"
)

// endpoints are those of this host, as calc decides.
type endpoints struct {
	workloads map[calico.WorkloadEndpointKey]*calc.Workload
	hosts     map[calico.HostEndpointKey]*calc.Host
	assigned  assignment
	inRules   map[calico.WorkloadEndpointKey]*calc.Workload // as the ruleset has them
	governed  map[string]calico.HostEndpointKey             // host endpoints by interface
}

func newEndpoints() endpoints {
	return endpoints{workloads: map[calico.WorkloadEndpointKey]*calc.Workload{}, hosts: map[calico.HostEndpointKey]*calc.Host{},
		inRules: map[calico.WorkloadEndpointKey]*calc.Workload{}}
}

// mergeWorkloads applies changes. It returns the workloads that keep their interface and addresses,
// and reports whether others need another assignment.
func (e *endpoints) mergeWorkloads(changes map[calico.WorkloadEndpointKey]*calc.Workload) (same map[calico.WorkloadEndpointKey]*calc.Workload, reassign bool) {
	same = map[calico.WorkloadEndpointKey]*calc.Workload{}
	for key, w := range changes {
		before := e.workloads[key]
		setOrDelete(e.workloads, key, w, w != nil)
		if before == nil || w == nil || !sameRequests(before.Endpoint, w.Endpoint) {
			reassign = true
		} else if e.inRules[key] != nil {
			same[key], e.inRules[key] = w, w
		}
	}
	return same, reassign
}

// assign assigns interfaces and addresses. It returns the changes for the ruleset; nil: gone.
func (e *endpoints) assign(s *Settings, exempt map[string]bool) map[calico.WorkloadEndpointKey]*calc.Workload {
	e.assigned = assign(e.workloads, s, func(name string) bool { return exempt[name] })
	changed := map[calico.WorkloadEndpointKey]*calc.Workload{}
	for key, w := range e.assigned.workloads {
		if e.inRules[key] != w {
			changed[key] = w
		}
	}
	for key := range e.inRules {
		if e.assigned.workloads[key] == nil {
			changed[key] = nil
		}
	}
	if len(changed) > 0 {
		e.inRules = e.assigned.workloads
	}
	return changed
}

// assignment has the interface of each local endpoint, with its wiring.
type assignment struct {
	workloads map[calico.WorkloadEndpointKey]*calc.Workload // those that have their interface
	wirings   map[string]wiring                             // of active ones, by interface
	holders   map[string]calico.WorkloadEndpointKey         // by interface
	refused   map[calico.WorkloadEndpointKey]string         // why an endpoint has no interface
	owners    map[netip.Addr]string                         // interfaces by routed address
	contested map[netip.Addr]string                         // owners of addresses that several endpoints claim
}

// assign gives each interface to one endpoint and each address to one interface. Where several
// claim one, it goes to the endpoint with the lowest key. An endpoint's own address goes before a
// floating one, and of floating ones that with the lowest inner address (spec §9).
func assign(all map[calico.WorkloadEndpointKey]*calc.Workload, s *Settings, exempt func(name string) bool) assignment {
	a := assignment{workloads: map[calico.WorkloadEndpointKey]*calc.Workload{}, wirings: map[string]wiring{},
		holders: map[string]calico.WorkloadEndpointKey{}, refused: map[calico.WorkloadEndpointKey]string{},
		owners: map[netip.Addr]string{}, contested: map[netip.Addr]string{}}
	claims := map[netip.Addr]claim{}
	for _, k := range slices.SortedFunc(maps.Keys(all), compareWorkloads) {
		name := all[k].Endpoint.Name
		holder, taken := a.holders[name]
		switch {
		case !s.isWorkload(name):
			a.refused[k] = fmt.Sprintf("interface %q begins with none of the prefixes of workload interfaces %v", name, s.Rules.WorkloadPrefixes)
		case exempt(name):
			a.refused[k] = fmt.Sprintf("interface %s belongs to a port of the virtual topology", name)
		case taken:
			a.refused[k] = fmt.Sprintf("interface %s is that of endpoint %s/%s/%s", name, holder.Orchestrator, holder.Workload, holder.Endpoint)
		default:
			a.holders[name] = k
			a.workloads[k] = all[k]
			for _, c := range claimsOf(all[k].Endpoint, s.IPv6) {
				a.addClaim(claims, c)
			}
		}
	}
	for name, k := range a.holders {
		ep := a.workloads[k].Endpoint
		if ep.State != calico.Active {
			continue
		}
		w := wiringOf(ep, s.IPv6)
		w.Routed = slices.DeleteFunc(w.Routed, func(ip netip.Addr) bool { return claims[ip].name != name })
		a.wirings[name] = w
		for _, ip := range w.Routed {
			a.owners[ip] = name
		}
	}
	return a
}

func compareWorkloads(x, y calico.WorkloadEndpointKey) int {
	return cmp.Or(cmp.Compare(x.Orchestrator, y.Orchestrator), cmp.Compare(x.Workload, y.Workload), cmp.Compare(x.Endpoint, y.Endpoint))
}

// sameRequests reports whether two versions of an endpoint need the same interface and addresses.
func sameRequests(a, b *calico.WorkloadEndpoint) bool {
	return a == b || a.Name == b.Name && a.State == b.State && a.IPv6Gateway == b.IPv6Gateway && equalValues(a.MAC, b.MAC) &&
		slices.Equal(a.IPv4Nets, b.IPv4Nets) && slices.Equal(a.IPv6Nets, b.IPv6Nets) &&
		slices.Equal(a.IPv4NAT, b.IPv4NAT) && slices.Equal(a.IPv6NAT, b.IPv6NAT)
}

// claim is an address that an endpoint requests for its interface.
type claim struct {
	address netip.Addr
	name    string     // of the interface
	inner   netip.Addr // of a floating address
}

func claimsOf(ep *calico.WorkloadEndpoint, ipv6 bool) []claim {
	if ep.State != calico.Active {
		return nil
	}
	var out []claim
	add := func(nets []netip.Prefix, floating []calico.NAT) {
		for _, n := range nets {
			out = append(out, claim{address: n.Addr(), name: ep.Name})
		}
		for _, n := range floating {
			out = append(out, claim{address: n.ExtIP, name: ep.Name, inner: n.IntIP})
		}
	}
	add(ep.IPv4Nets, ep.IPv4NAT)
	if ipv6 {
		add(ep.IPv6Nets, ep.IPv6NAT)
	}
	return out
}

// addClaim enters a claim. The earlier one stays unless the new one is stronger.
func (a *assignment) addClaim(claims map[netip.Addr]claim, c claim) {
	earlier, taken := claims[c.address]
	if !taken || earlier.name == c.name {
		claims[c.address] = c
		return
	}
	if earlier.inner.IsValid() && (!c.inner.IsValid() || c.inner.Less(earlier.inner)) {
		claims[c.address], earlier = c, c
	}
	a.contested[c.address] = earlier.name
}

// isWorkload reports whether an interface is a workload's, by its name (spec §8.1).
func (s *Settings) isWorkload(name string) bool {
	return slices.ContainsFunc(s.Rules.WorkloadPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// governed chooses for each interface of the host itself the endpoint that governs it: of those
// that match, the one with the lowest id (spec §8.5). One with a name matches that interface alone;
// one without matches each interface with an expected address, except the loopback.
func governed(devices map[string]*device, workload func(name string) bool, hosts map[calico.HostEndpointKey]*calico.HostEndpoint) map[string]calico.HostEndpointKey {
	out := map[string]calico.HostEndpointKey{}
	keys := slices.SortedFunc(maps.Keys(hosts), func(a, b calico.HostEndpointKey) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	for _, key := range keys {
		ep := hosts[key]
		if ep == nil {
			continue
		}
		for name, d := range devices {
			if _, taken := out[name]; !taken && !workload(name) && matches(ep, d) {
				out[name] = key
			}
		}
	}
	return out
}

func matches(ep *calico.HostEndpoint, d *device) bool {
	if ep.Name != "" {
		return ep.Name == d.Name
	}
	if d.Kind == hostnet.Loopback {
		return false
	}
	expected := func(a netip.Addr) bool { return d.addresses[a] }
	return slices.ContainsFunc(ep.ExpectedIPv4Addrs, expected) || slices.ContainsFunc(ep.ExpectedIPv6Addrs, expected)
}
