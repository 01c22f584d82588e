package selector

import (
	"cmp"
	"maps"
	"slices"
)

// Bound is a condition on one label that holds wherever a selector matches. An index can skip
// selectors whose bounds fail.
type Bound struct {
	Label  string
	Absent bool     // the label must be absent; otherwise it must be present
	Values []string // where present: it must be one of these, sorted; nil: it may have any value
}

// Bounds returns the bounds of the selector, at most one a label, sorted by label. An impossible
// selector matches nothing.
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

// and returns the bound that implies both.
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

// boundsOfAny returns the bounds common to all possible kids, widened to what holds for each.
// Values are gathered first and sorted once, so that the work follows the length of the selector.
func boundsOfAny(kids []node) (bounds []Bound, possible bool) {
	var common map[string]*gathered
	counted := 0 // kids that are possible
	for i := range kids {
		b, ok := kids[i].bounds()
		if !ok {
			continue
		}
		if counted++; counted == 1 {
			common = make(map[string]*gathered, len(b))
			for _, x := range b {
				common[x.Label] = &gathered{Bound: x, in: 1, first: true}
			}
			continue
		}
		for _, x := range b {
			g := common[x.Label]
			if g == nil || g.in != counted-1 || g.Absent != x.Absent {
				continue // g falls behind, or is gone
			}
			g.in = counted
			g.widen(x.Values)
		}
	}
	for _, label := range slices.Sorted(maps.Keys(common)) {
		if g := common[label]; g.in == counted {
			slices.Sort(g.Values)
			g.Values = slices.Compact(g.Values)
			bounds = append(bounds, g.Bound)
		}
	}
	return bounds, counted > 0
}

// gathered is a bound of several kids, of which Values are not sorted yet.
type gathered struct {
	Bound
	in    int  // of the kids so far, the last that bounds the label
	first bool // Values are the first kid's own
}

// widen adds values, of which nil stands for every value.
func (g *gathered) widen(values []string) {
	switch {
	case g.Values == nil:
	case values == nil:
		g.Values = nil
	case g.first:
		g.Values, g.first = slices.Concat(g.Values, values), false
	default:
		g.Values = append(g.Values, values...)
	}
}
