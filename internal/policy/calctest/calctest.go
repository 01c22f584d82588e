// Package calctest has large networks for the benchmarks of policy, as decoded objects.
package calctest

import (
	"fmt"
	"net/netip"

	"heddle/calico"
)

// Here is the host from which the networks are seen.
const Here = "host-0"

// Network is the objects of a large network.
type Network struct {
	Name string
	// Fill makes the objects and hands them over one by one, as an agent does.
	Fill func(update func(calico.Key, any))
}

// Networks are those that the time and memory from objects to rules are measured by.
func Networks() []Network {
	return []Network{{"many-endpoints", manyEndpoints}, {"many-selectors", manySelectors}, {"many-customers", manyCustomers}}
}

// manyEndpoints has 250,000 endpoints, 200 of them here, and 10,000 policies of 5 rules with 29
// distinct selectors; each policy picks an endpoint here.
func manyEndpoints(update func(calico.Key, any)) {
	for n := range 250_000 {
		update(Workload(hostOf(n, 200), n, map[string]string{
			"alpha": "beta", "app": fmt.Sprintf("app-%d", n%1000), "role": fmt.Sprintf("role-%d", n%29),
		}, fmt.Sprintf("profile-%d", n%100)))
	}
	for i := range 100 {
		name := fmt.Sprintf("profile-%d", i)
		update(calico.ProfileRulesKey{Profile: name}, &calico.ProfileRules{OutboundRules: []calico.Rule{{Action: calico.Allow}}})
		update(calico.ProfileTagsKey{Profile: name}, &calico.ProfileTags{fmt.Sprintf("tag-%d", i)})
	}
	for i := range 10_000 {
		var selectors []string
		for r := range 5 {
			selectors = append(selectors, fmt.Sprintf(`role == "role-%d"`, (i+r)%29))
		}
		update(Policy(i, fmt.Sprintf(`app == "app-%d"`, i%200), selectors...))
	}
}

// manySelectors has 10,000 endpoints, 200 of them here, and 10,000 policies for all endpoints, each
// with one rule that has a selector of its own.
func manySelectors(update func(calico.Key, any)) {
	for n := range 10_000 {
		update(Workload(hostOf(n, 200), n, map[string]string{"alpha": "beta", fmt.Sprintf("ipset-%d", n): ""}))
	}
	for i := range 10_000 {
		update(Policy(i, "all()", OneEndpoint(i)))
	}
}

// manyCustomers has 100,000 customers, 100 of them here, each with an endpoint, a profile and a
// policy that concern no other.
func manyCustomers(update func(calico.Key, any)) {
	for n := range 100_000 {
		update(Workload(hostOf(n, 100), n, map[string]string{"customer": fmt.Sprintf("c%d", n)}, fmt.Sprintf("profile-%d", n)))
	}
	for n := range 100_000 {
		name := fmt.Sprintf("profile-%d", n)
		update(calico.ProfileRulesKey{Profile: name}, &calico.ProfileRules{InboundRules: []calico.Rule{{Action: calico.Allow, SrcTag: name}}})
		update(calico.ProfileTagsKey{Profile: name}, &calico.ProfileTags{name})
	}
	for n := range 100_000 {
		own := fmt.Sprintf(`customer == "c%d"`, n)
		update(Policy(n, own, own, own))
	}
}

// OneEndpoint is a selector that picks those labelled alpha=beta that have the label ipset-i.
func OneEndpoint(i int) string { return fmt.Sprintf(`(alpha == "beta" && has(ipset-%d))`, i) }

// hostOf puts the first endpoints here and spreads the others over 1,000 hosts.
func hostOf(n, local int) string {
	if n < local {
		return Here
	}
	return fmt.Sprintf("host-%d", 1+n%1000)
}

// Workload is an active endpoint of a host, by number, with an address.
func Workload(host string, n int, labels map[string]string, profiles ...string) (calico.Key, any) {
	key := calico.WorkloadEndpointKey{Host: host, Orchestrator: "openstack", Workload: fmt.Sprintf("workload-%08d", n), Endpoint: fmt.Sprintf("endpoint-%08d", n)}
	mac := calico.MAC{2, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	return key, &calico.WorkloadEndpoint{
		State: calico.Active, Name: fmt.Sprintf("cali%08x", n), MAC: &mac, ProfileIDs: profiles, Labels: labels,
		IPv4Nets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 32)},
	}
}

// PolicyKey is that of a policy of the default tier, by number.
func PolicyKey(i int) calico.PolicyKey {
	return calico.PolicyKey{Tier: "default", Policy: fmt.Sprintf("policy-%05d", i)}
}

// Policy is one by number, which is its order too, with a rule for each of the peers' selectors.
func Policy(i int, selector string, peers ...string) (calico.Key, any) {
	order := float64(i)
	p := &calico.Policy{Selector: selector, Order: &order}
	p.InboundRules, p.OutboundRules = Rules(peers...)
	return PolicyKey(i), p
}

// Rules allows a port from and to selected endpoints, alternating inbound and outbound.
func Rules(selectors ...string) (inbound, outbound []calico.Rule) {
	inbound, outbound = make([]calico.Rule, 0, (len(selectors)+1)/2), make([]calico.Rule, 0, len(selectors)/2)
	for i, s := range selectors {
		r := calico.Rule{Action: calico.Allow, Protocol: calico.ProtocolTCP, DstPorts: []calico.Ports{{Low: 80, High: 80}}}
		if i%2 == 0 {
			r.SrcSelector = s
			inbound = append(inbound, r)
		} else {
			r.DstSelector = s
			outbound = append(outbound, r)
		}
	}
	return inbound, outbound
}
