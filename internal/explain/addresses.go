package explain

import (
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/api/operator"
	"heddle/internal/topology/packet"
)

var address = netip.MustParseAddr

// Addresses outside: all of an IP version, and those in between that no router forwards.
var (
	outside4 = operator.AddressRange{First: address("1.0.0.0"), Last: address("223.255.255.255")}
	outside6 = operator.AddressRange{First: address("1::"), Last: address("fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff")}
	unrouted = []operator.AddressRange{{First: address("127.0.0.0"), Last: address("127.255.255.255")}, {First: address("169.254.0.0"), Last: address("169.254.255.255")}}
)

// joinRanges puts ranges in order, and makes one of those that overlap or are adjacent.
func joinRanges(all []operator.AddressRange) (joined []operator.AddressRange) {
	slices.SortFunc(all, func(a, b operator.AddressRange) int { return a.First.Compare(b.First) })
	for _, r := range all {
		if n := len(joined) - 1; n >= 0 && r.First.Compare(joined[n].Last.Next()) <= 0 {
			if joined[n].Last.Less(r.Last) {
				joined[n].Last = r.Last
			}
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

// addressesText puts ranges of addresses outside into words, by those that are missing where that
// is shorter. What no router forwards is left out of account.
func addressesText(ranges []operator.AddressRange) string {
	all, space := slices.Clone(ranges), outside6
	if ranges[0].First.Is4() {
		all, space = append(all, unrouted...), outside4
	}
	all = joinRanges(all)
	var gaps []operator.AddressRange
	next := space.First
	for _, r := range all {
		if next.Less(r.First) {
			gaps = append(gaps, operator.AddressRange{First: next, Last: r.First.Prev()})
		}
		next = r.Last.Next()
	}
	if next.Compare(space.Last) <= 0 {
		gaps = append(gaps, operator.AddressRange{First: next, Last: space.Last})
	}
	switch {
	case len(gaps) == 0:
		return "any address"
	case len(gaps) <= len(ranges):
		return "any address but " + rangesText(gaps)
	}
	return rangesText(ranges)
}

func rangesText(ranges []operator.AddressRange) string {
	var texts []string
	for _, r := range ranges {
		texts = append(texts, packet.RangeText(r.First, r.Last))
	}
	return strings.Join(texts, ", ")
}
