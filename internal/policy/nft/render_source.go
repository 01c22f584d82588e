package nft

import (
	"net/netip"

	"heddle/calico"
)

// sourceRules check the source of what an active workload sends (spec §7.5): its MAC where the endpoint has one, and its
// address, which for IPv6 must be routed back to it as well. IPv4 has the kernel's own reverse-path check.
func sourceRules(e *calico.WorkloadEndpoint) []rule {
	var rules []rule
	if e.MAC != nil {
		rules = append(rules, do(ofEthernet(), compare{f: etherSrc(), not: true, value: e.MAC[:]}, verdict{goTo, refusedSource}))
	}
	for _, s := range oneAddressOf(address(4, source), addressesIn(e.IPv4Nets)) {
		rules = append(rules, do(implied{version(4)}, s, verdict{kind: accept}))
	}
	for _, s := range oneAddressOf(address(6, source), addressesIn(e.IPv6Nets)) {
		rules = append(rules, do(implied{version(6)}, s, routedBack(), verdict{kind: accept}))
	}
	return append(rules, do(verdict{goTo, "source-other"}))
}

// senderRules check who an active workload says that it is in ARP; an unspecified sender asks whether an address is taken.
func senderRules(e *calico.WorkloadEndpoint) []rule {
	var rules []rule
	if e.MAC != nil {
		rules = append(rules, do(compare{f: arpEtherSrc(), not: true, value: e.MAC[:]}, verdict{goTo, refusedARP}))
	}
	for _, s := range oneAddressOf(arpSrc(), sortedUnique(append(addressesIn(e.IPv4Nets), string(netip.IPv4Unspecified().AsSlice())))) {
		rules = append(rules, do(s, verdict{kind: accept}))
	}
	return append(rules, do(verdict{goTo, refusedARP}))
}

func addressesIn(nets []netip.Prefix) []string {
	var all []string
	for _, n := range nets {
		all = append(all, string(n.Addr().AsSlice()))
	}
	return sortedUnique(all)
}

// oneAddressOf are statements of which one is true for a field that has one of the values.
func oneAddressOf(f field, values []string) []statement {
	if len(values) > shortList {
		return []statement{oneOf{fields: []field{f}, values: values}}
	}
	var all []statement
	for _, v := range values {
		all = append(all, compare{f: f, value: []byte(v)})
	}
	return all
}
