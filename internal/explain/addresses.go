package explain

import (
	"slices"
	"strings"

	"heddle/internal/api/operator"
	"heddle/internal/reach"
	"heddle/internal/topology/packet"
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
// is shorter.
func addressesText(ranges []operator.AddressRange) string {
	var gaps []operator.AddressRange
	for _, all := range reach.Outside(ranges[0].First.Is4()) {
		next := all.First
		for _, r := range ranges {
			if r.Last.Less(next) || all.Last.Less(r.First) {
				continue
			}
			if next.Less(r.First) {
				gaps = append(gaps, operator.AddressRange{First: next, Last: r.First.Prev()})
			}
			next = r.Last.Next()
		}
		if next.Compare(all.Last) <= 0 {
			gaps = append(gaps, operator.AddressRange{First: next, Last: all.Last})
		}
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
