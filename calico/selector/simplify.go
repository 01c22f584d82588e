package selector

import "slices"

// simplify rewrites an expression into an equivalent one that is cheaper to evaluate. Alternatives
// of one label become one set, which takes one look at the label:
//
//	a == "1" || a in {"2", "3"} || b == "x" || !a != "4"  →  a in {"1", "2", "3", "4"} || b == "x"
//	a != "1" && a not in {"2", "3"}   →   a not in {"1", "2", "3"}
func (n *node) simplify() {
	if n.negate {
		n.absorbNegation()
	}
	if n.op != opAnd && n.op != opOr {
		return
	}
	for i := range n.kids {
		n.kids[i].simplify()
	}
	n.kids = merge(n.kids, n.op)
	if len(n.kids) == 1 {
		kid := n.kids[0]
		kid.negate = kid.negate != n.negate
		if *n = kid; n.negate {
			n.absorbNegation()
		}
	}
}

// opposites are the comparisons that hold exactly where another one fails.
var opposites = map[op]op{opEqual: opNotEqual, opNotEqual: opEqual, opIn: opNotIn, opNotIn: opIn}

// absorbNegation turns a negated comparison into its opposite.
func (n *node) absorbNegation() {
	if opposite, ok := opposites[n.op]; ok {
		n.op, n.negate = opposite, false
	}
}

// term identifies operands that merge: equal ones, and comparisons of one label.
type term struct {
	op     op
	label  string
	value  string // of what does not merge
	negate bool
}

// mergeFrom is the number of operands from which merging pays.
const mergeFrom = 5

// merge joins operands of op that compare one label, in the order of the first of each.
func merge(kids []node, of op) []node {
	if len(kids) < mergeFrom {
		return kids
	}
	single, set := opEqual, opIn // what merges under ||
	if of == opAnd {
		single, set = opNotEqual, opNotIn
	}
	first := make(map[term]int, len(kids)) // index in kept
	kept := kids[:0]
	for _, k := range kids {
		t := term{op: k.op, label: k.label, value: k.value, negate: k.negate}
		switch k.op {
		case opAnd, opOr:
			kept = append(kept, k)
			continue
		case opIn, opNotIn, opEqual, opNotEqual:
			if k.op != set && k.op != single { // these do not unite under of
				kept = append(kept, k)
				continue
			}
			t.op, t.value = set, ""
		}
		at, known := first[t]
		if !known {
			first[t] = len(kept)
			kept = append(kept, k)
		} else if t.op == set {
			kept[at].unite(&k, set)
		}
	}
	for i := range kept {
		if n := &kept[i]; n.op == set {
			slices.Sort(n.set)
			n.set = slices.Compact(n.set)
		}
	}
	clear(kids[len(kept):])
	return kept
}

// unite appends the values of k to those of n, which become a set.
func (n *node) unite(k *node, set op) {
	if n.op != set {
		n.op, n.set, n.value = set, []string{n.value}, ""
	}
	if k.op == set {
		n.set = append(n.set, k.set...)
	} else {
		n.set = append(n.set, k.value)
	}
}
