package selector

import (
	"cmp"
	"slices"
)

// Bound is what must hold of one label wherever a selector matches. It lets an index skip most selectors, or most
// labelled things: where the bound fails the selector does not match; where it holds it may or may not.
type Bound struct {
	Label  string
	Absent bool     // the label must be absent; otherwise it must be present
	Values []string // where present: it must be one of these, sorted; nil: it may have any value
}

// Bounds returns what must hold for the selector to match, at most one bound a label, sorted by label. A selector that
// is not possible matches nothing.
func (s *Selector) Bounds() (bounds []Bound, possible bool) { return s.root.bounds() }

func (n *node) bounds() ([]Bound, bool) {
	if n.negate {
		switch n.op {
		case opHas:
			return []Bound{{Label: n.label, Absent: true}}, true
		case opAll:
			return nil, false
		}
		return nil, true
	}
	switch n.op {
	case opEqual:
		return []Bound{{Label: n.label, Values: []string{n.value}}}, true
	case opIn:
		return []Bound{{Label: n.label, Values: n.set}}, len(n.set) > 0
	case opHas, opContains, opStarts, opEnds:
		return []Bound{{Label: n.label}}, true
	case opAnd:
		return boundsOfAll(n.kids)
	case opOr:
		return boundsOfAny(n.kids)
	}
	return nil, true
}

// boundsOfAll joins the bounds of kids that must all hold.
func boundsOfAll(kids []node) ([]Bound, bool) {
	var all []Bound
	for i := range kids {
		b, possible := kids[i].bounds()
		if !possible {
			return nil, false
		}
		all = append(all, b...)
	}
	slices.SortStableFunc(all, func(a, b Bound) int { return cmp.Compare(a.Label, b.Label) })
	joined := all[:0]
	for _, b := range all {
		if last := len(joined) - 1; last >= 0 && joined[last].Label == b.Label {
			both, possible := joined[last].and(b)
			if !possible {
				return nil, false
			}
			joined[last] = both
			continue
		}
		joined = append(joined, b)
	}
	return joined, true
}

// and is the bound of what both hold for.
func (b Bound) and(c Bound) (Bound, bool) {
	switch {
	case b.Absent || c.Absent:
		return b, b.Absent && c.Absent
	case b.Values == nil:
		return c, true
	case c.Values == nil:
		return b, true
	}
	var common []string
	for _, v := range b.Values {
		if _, found := slices.BinarySearch(c.Values, v); found {
			common = append(common, v)
		}
	}
	return Bound{Label: b.Label, Values: common}, len(common) > 0
}

// boundsOfAny keeps the bounds that hold whichever of the kids holds. Kids that are not possible do not count.
func boundsOfAny(kids []node) (bounds []Bound, possible bool) {
	for i := range kids {
		b, ok := kids[i].bounds()
		switch {
		case !ok:
		case !possible:
			bounds, possible = b, true
		default:
			bounds = either(bounds, b)
		}
	}
	return bounds, possible
}

// either keeps the labels that both bound, widened to what holds for both.
func either(a, b []Bound) []Bound {
	var kept []Bound
	for _, x := range a {
		i, found := slices.BinarySearchFunc(b, x.Label, func(b Bound, label string) int { return cmp.Compare(b.Label, label) })
		if found && x.Absent == b[i].Absent {
			kept = append(kept, Bound{Label: x.Label, Absent: x.Absent, Values: union(x.Values, b[i].Values)})
		}
	}
	return kept
}

// union of two sorted lists, of which nil stands for every value.
func union(a, b []string) []string {
	if a == nil || b == nil {
		return nil
	}
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}
