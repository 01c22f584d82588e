package nft

import (
	"net/netip"

	"heddle/calico"
)

// sourceRules checks the source of an active workload's packets (spec §7.5): the MAC, if the
// endpoint has one, and the address, which for IPv6 must be routed back to it. IPv4 has the
// kernel's reverse-path check.
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

// senderRules checks the sender in an active workload's ARP packets; an unspecified one is a probe.
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

// oneAddressOf returns alternative statements for a field that has one of the values.
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
