package nft

import (
	"net/netip"
	"slices"

	"heddle/calico"
)

// sourceRules check the source of what an active workload sends (spec §7.5): its MAC where the endpoint has one, and its
// address, which for IPv6 must be routed back to it as well. IPv4 has the kernel's own reverse-path check.
func sourceRules(e *calico.WorkloadEndpoint) []rule {
	var rules []rule
	if e.MAC != nil {
		rules = append(rules, do(ofEthernet(), compare{f: etherSrc(), not: true, value: e.MAC[:]}, verdict{goTo, refusedSource}))
	}
	if own := addressesIn(e.IPv4Nets); len(own) > 0 {
		rules = append(rules, do(implied{version(4)}, oneAddressOf(address(4, source), own), verdict{kind: accept}))
	}
	if own := addressesIn(e.IPv6Nets); len(own) > 0 {
		rules = append(rules, do(implied{version(6)}, oneAddressOf(address(6, source), own), routedBack(), verdict{kind: accept}))
	}
	return append(rules, do(verdict{goTo, "source-other"}))
}

// senderRules check who an active workload says that it is in ARP; an unspecified sender asks whether an address is taken.
func senderRules(e *calico.WorkloadEndpoint) []rule {
	var rules []rule
	if e.MAC != nil {
		rules = append(rules, do(compare{f: arpEtherSrc(), not: true, value: e.MAC[:]}, verdict{goTo, refusedARP}))
	}
	own := append(addressesIn(e.IPv4Nets), string(netip.IPv4Unspecified().AsSlice()))
	return append(rules, do(oneAddressOf(arpSrc(), own), verdict{kind: accept}), do(verdict{goTo, refusedARP}))
}

func addressesIn(nets []netip.Prefix) []string {
	var all []string
	for _, n := range nets {
		all = append(all, string(n.Addr().AsSlice()))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func oneAddressOf(f field, values []string) statement {
	if len(values) == 1 {
		return compare{f: f, value: []byte(values[0])}
	}
	return oneOf{fields: []field{f}, values: sortedUnique(values)}
}
