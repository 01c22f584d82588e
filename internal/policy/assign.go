package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"heddle/calico"
	"heddle/internal/policy/calc"
)

// assignment says which local endpoint has which interface, and what the interface is to have.
type assignment struct {
	workloads map[calico.WorkloadEndpointKey]*calc.Workload // those that have their interface
	wirings   map[string]wiring                             // of active ones, by interface
	holders   map[string]calico.WorkloadEndpointKey         // by interface
	refused   map[calico.WorkloadEndpointKey]string         // why an endpoint has no interface
	owners    map[netip.Addr]string                         // interfaces by routed address
	contested map[netip.Addr]string                         // addresses that several claim, and who has them
}

// assign gives each interface to one endpoint and each address to one interface. Where several claim one, it goes to the
// endpoint with the lowest key; an endpoint's own address goes before a floating one, and of floating ones that with the
// lowest inner address (spec §9).
func assign(all map[calico.WorkloadEndpointKey]*calc.Workload, s *Settings, exempt func(name string) bool) assignment {
	a := assignment{workloads: map[calico.WorkloadEndpointKey]*calc.Workload{}, wirings: map[string]wiring{},
		holders: map[string]calico.WorkloadEndpointKey{}, refused: map[calico.WorkloadEndpointKey]string{},
		owners: map[netip.Addr]string{}, contested: map[netip.Addr]string{}}
	keys := make([]calico.WorkloadEndpointKey, 0, len(all))
	for k := range all {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareWorkloads)
	claims := map[netip.Addr]claim{}
	for _, k := range keys {
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
				a.claim(claims, c)
			}
		}
	}
	for name, k := range a.holders {
		w := wiringOf(a.workloads[k].Endpoint, s.IPv6)
		w.Routed = slices.DeleteFunc(w.Routed, func(ip netip.Addr) bool { return claims[ip].name != name })
		if a.workloads[k].Endpoint.State == calico.Active {
			a.wirings[name] = w
			for _, ip := range w.Routed {
				a.owners[ip] = name
			}
		}
	}
	return a
}

func compareWorkloads(x, y calico.WorkloadEndpointKey) int {
	return cmp.Or(cmp.Compare(x.Orchestrator, y.Orchestrator), cmp.Compare(x.Workload, y.Workload), cmp.Compare(x.Endpoint, y.Endpoint))
}

// asksForSame says whether two versions of an endpoint ask for the same interface and addresses.
func asksForSame(a, b *calico.WorkloadEndpoint) bool {
	return a == b || a.Name == b.Name && a.State == b.State && a.IPv6Gateway == b.IPv6Gateway &&
		(a.MAC == nil) == (b.MAC == nil) && (a.MAC == nil || *a.MAC == *b.MAC) &&
		slices.Equal(a.IPv4Nets, b.IPv4Nets) && slices.Equal(a.IPv6Nets, b.IPv6Nets) &&
		slices.Equal(a.IPv4NAT, b.IPv4NAT) && slices.Equal(a.IPv6NAT, b.IPv6NAT)
}

// claim is an address that an interface is to have.
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

// claim enters a claim; the one that came first stays unless the new one is stronger.
func (a *assignment) claim(claims map[netip.Addr]claim, c claim) {
	held, taken := claims[c.address]
	if !taken || held.name == c.name {
		claims[c.address] = c
		return
	}
	if held.inner.IsValid() && (!c.inner.IsValid() || c.inner.Less(held.inner)) {
		claims[c.address], held = c, c
	}
	a.contested[c.address] = held.name
}
