package simulate

import (
	"net/netip"
	"slices"
)

// ruleIndex finds the rules of a chain that may match a packet by one of its addresses or ports, so
// that the cost of a router's chains does not follow the number of its floating IPs. A rule is in
// one of the lists, and each list is in order.
type ruleIndex struct {
	keyed        int // rules that turn on one address or port
	built        bool
	byDst, bySrc map[netip.Addr][]*rule
	byIn, byOut  map[*port][]*rule
	rest         []*rule
}

// indexFrom is the number of rules from which looking up is quicker than trying all.
const indexFrom = 8

// add follows a rule that has been added to a chain; all are its rules now.
func (x *ruleIndex) add(r *rule, all []*rule) {
	x.keyed += r.isKeyed()
	switch {
	case x.built:
		x.insert(r)
	case x.keyed >= indexFrom:
		x.build(all)
	}
}

// remove follows a rule that has been removed.
func (x *ruleIndex) remove(r *rule, all []*rule) { x.replace([]*rule{r}, nil, all) }

// replace follows the exchange of some rules for others.
func (x *ruleIndex) replace(gone []*rule, added []rule, all []*rule) {
	for _, r := range gone {
		x.keyed -= r.isKeyed()
		if x.built {
			x.delete(r)
		}
	}
	for i := range added {
		x.add(&added[i], all)
	}
	if x.keyed < indexFrom {
		*x = ruleIndex{keyed: x.keyed}
	}
}

func (x *ruleIndex) build(all []*rule) {
	*x = ruleIndex{
		keyed: x.keyed, built: true,
		byDst: map[netip.Addr][]*rule{}, bySrc: map[netip.Addr][]*rule{}, byIn: map[*port][]*rule{}, byOut: map[*port][]*rule{},
	}
	for _, r := range all {
		x.insert(r)
	}
}

func (x *ruleIndex) insert(r *rule) {
	add := func(list []*rule) []*rule {
		i, found := slices.BinarySearchFunc(list, r, compareRules)
		if found {
			return list
		}
		return slices.Insert(list, i, r)
	}
	x.change(r, add)
}

func (x *ruleIndex) delete(r *rule) {
	x.change(r, func(list []*rule) []*rule {
		i, _ := slices.BinarySearchFunc(list, r, compareRules)
		return slices.Delete(list, i, i+1)
	})
}

// change changes the list that a rule belongs to.
func (x *ruleIndex) change(r *rule, change func([]*rule) []*rule) {
	switch set := r.keys(); {
	case set&onDstIP != 0:
		changeList(x.byDst, r.dstIP.Addr(), change)
	case set&onSrcIP != 0:
		changeList(x.bySrc, r.srcIP.Addr(), change)
	case set&onOutPort != 0:
		changeList(x.byOut, r.outPorts[0], change)
	case set&onInPort != 0:
		changeList(x.byIn, r.inPorts[0], change)
	default:
		x.rest = change(x.rest)
	}
}

func changeList[K comparable](lists map[K][]*rule, k K, change func([]*rule) []*rule) {
	if list := change(lists[k]); len(list) > 0 {
		lists[k] = list
	} else {
		delete(lists, k)
	}
}

// keys returns the clauses by any of which the rule can be found: it does not match packets with
// another value.
func (r *rule) keys() (set clause) {
	if r.negated {
		return 0
	}
	exact := r.set &^ r.inverted
	if exact&onDstIP != 0 && r.dstIP.IsSingleIP() {
		set |= onDstIP
	}
	if exact&onSrcIP != 0 && r.srcIP.IsSingleIP() {
		set |= onSrcIP
	}
	if exact&onOutPort != 0 && len(r.outPorts) == 1 {
		set |= onOutPort
	}
	if exact&onInPort != 0 && len(r.inPorts) == 1 {
		set |= onInPort
	}
	return set
}

func (r *rule) isKeyed() int {
	if r.keys() != 0 {
		return 1
	}
	return 0
}

// candidates are the rules that may match a packet, in lists that are each in order.
type candidates [5][]*rule

// candidates returns the rules that may match the packet as it is now.
func (x *ruleIndex) candidates(f *filters) candidates {
	c := candidates{x.rest}
	if len(x.byDst) > 0 {
		c[1] = x.byDst[f.now.DstIP]
	}
	if len(x.bySrc) > 0 {
		c[2] = x.bySrc[f.now.SrcIP]
	}
	if len(x.byOut) > 0 {
		c[3] = x.byOut[f.outPort]
	}
	if len(x.byIn) > 0 {
		c[4] = x.byIn[f.inPort]
	}
	return c
}

// next takes the first rule out of the lists, nil when there is none left.
func (c *candidates) next() *rule {
	from := -1
	for i := range c {
		if len(c[i]) > 0 && (from < 0 || compareRules(c[i][0], c[from][0]) < 0) {
			from = i
		}
	}
	if from < 0 {
		return nil
	}
	r := c[from][0]
	c[from] = c[from][1:]
	return r
}

// skip drops the rules up to r.
func (c *candidates) skip(r *rule) {
	for i := range c {
		at, found := slices.BinarySearchFunc(c[i], r, compareRules)
		if found {
			at++
		}
		c[i] = c[i][at:]
	}
}
