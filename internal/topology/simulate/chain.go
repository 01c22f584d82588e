package simulate

import (
	"cmp"
	"slices"

	"heddle/internal/topology"
)

// verb is the effect of a rule whose condition is met, and the result of a chain.
type verb uint8

const (
	goOn verb = iota // CONTINUE, and the end of a chain
	accept
	drop
	reject
	giveBack // RETURN
	jump
	translate // by NAT; then the rule's action
	invalid   // not understood by this version: drops
	redirect  // to the port of the rule; only in the redirect chain of a router
	ended     // the decision holds why
)

// chain is a list of rules, compiled.
type chain struct {
	object
	claims  claims[topology.Chain]
	def     *topology.Chain       // nil while it is only referred to
	entries map[string]*ruleEntry // of other owners, by rule id
	rules   []*rule               // all in order
	index   ruleIndex

	loggers     []*topology.Logger     // by id
	ruleLoggers []*topology.RuleLogger // likewise

	ports    users[*port]
	networks users[*network]
	routers  users[*router]
	jumpers  users[*chain] // chains with rules that jump here
}

// rule is one rule, compiled.
type rule struct {
	condition
	id     string
	order  order
	verb   verb
	target *chain // of a jump
	to     *port  // of a redirect
	nat    *translation
}

// order is the place of a rule in its chain: those of the chain's own bundle come before other
// entries of their place.
type order struct {
	place int
	entry bool
	index int    // in the chain's own bundle
	id    string // of an entry
}

func (o order) compare(x order) int {
	if o.place != x.place {
		return cmp.Compare(o.place, x.place)
	}
	if o.entry != x.entry {
		if x.entry {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(o.index, x.index), cmp.Compare(o.id, x.id))
}

func compareRules(a, b *rule) int { return a.order.compare(b.order) }

// ruleEntry is a rule that other owners have in a chain.
type ruleEntry struct {
	claims claims[topology.RuleEntry]
	def    *topology.RuleEntry
	rule   *rule
}

func (c *chain) label() string {
	if c.def != nil && c.def.Name != "" {
		return c.def.Name
	}
	return c.id
}

// purpose returns what the chain is for, "" if that is not known.
func (c *chain) purpose() topology.ChainPurpose {
	if c.def == nil {
		return ""
	}
	return c.def.Purpose
}

// position returns the place of a rule in its chain, from 1 on.
func (c *chain) position(r *rule) int {
	i, _ := slices.BinarySearchFunc(c.rules, r, compareRules)
	return i + 1
}

// linkChain follows the chain's own definition.
func (w *World) linkChain(c *chain) {
	def := c.claims.top()
	if def == c.def {
		return
	}
	w.touchChain(c)
	w.reportRules(c)
	c.def = def
	old := c.rules
	var own []rule
	if def != nil {
		own = make([]rule, len(def.Rules))
	}
	all := make([]*rule, 0, len(own)+len(c.entries))
	for i := range own {
		own[i].order.index = i
		w.compileRule(c, &def.Rules[i], &own[i])
		all = append(all, &own[i])
	}
	var gone []*rule
	for _, r := range old {
		if r.order.entry {
			all = append(all, r)
		} else {
			gone = append(gone, r)
		}
	}
	slices.SortFunc(all, compareRules)
	c.rules = all
	c.index.replace(gone, own, all)
	for _, r := range gone {
		w.releaseRule(c, r)
	}
}

type entryKey struct{ chain, rule string }

func ruleEntryKey(e *topology.RuleEntry) entryKey { return entryKey{e.ChainID, e.Rule.ID} }

// setRuleEntry changes one owner's rule in another's chain.
func (w *World) setRuleEntry(owner topology.Owner, before, after *topology.RuleEntry) {
	of := after
	if after == nil {
		of = before
	}
	c := hold(w.chains, of.ChainID)
	e := c.entries[of.Rule.ID]
	if e == nil {
		if c.entries == nil {
			c.entries = map[string]*ruleEntry{}
		}
		e = &ruleEntry{}
		c.entries[of.Rule.ID] = e
	}
	had := e.claims.set(owner, after)
	c.refs += presence(after) - presence(had)
	w.linkEntry(c, e)
	if len(e.claims) == 0 {
		delete(c.entries, of.Rule.ID)
	}
	release(w.chains, c)
}

func (w *World) linkEntry(c *chain, e *ruleEntry) {
	def := e.claims.top()
	if def == e.def {
		return
	}
	w.touchChain(c)
	w.reportRules(c)
	old := e.rule
	e.def, e.rule = def, nil
	if old != nil {
		i, _ := slices.BinarySearchFunc(c.rules, old, compareRules)
		c.rules = slices.Delete(c.rules, i, i+1)
		c.index.remove(old, c.rules)
	}
	if def != nil {
		e.rule = &rule{order: order{place: def.Place, entry: true, id: def.Rule.ID}}
		w.compileRule(c, &def.Rule, e.rule)
		i, _ := slices.BinarySearchFunc(c.rules, e.rule, compareRules)
		c.rules = slices.Insert(c.rules, i, e.rule)
		c.index.add(e.rule, c.rules)
	}
	if old != nil {
		w.releaseRule(c, old)
	}
}

func (w *World) compileRule(c *chain, from *topology.Rule, r *rule) {
	r.id = from.ID
	r.verb = verbOf(from)
	switch {
	case r.verb == jump:
		r.target = hold(w.chains, from.JumpChainID)
		r.target.jumpers.add(c)
	case r.verb == redirect:
		r.to = hold(w.ports, from.TargetPortID)
	case from.Type == topology.NAT && r.verb != invalid:
		if r.nat = compileTranslation(from, r.verb); r.nat == nil {
			r.verb = invalid
		} else {
			r.verb = translate
		}
	}
	r.ofNAT = from.Type == topology.NAT
	w.compileCondition(c, from.Condition, &r.condition)
}

func verbOf(r *topology.Rule) verb {
	switch {
	case r.Type == topology.Jump && r.JumpChainID != "":
		return jump
	case r.Type == topology.L2Transform && r.Action == topology.Redirect && r.TargetPortID != "":
		return redirect
	case r.Type != topology.Literal && r.Type != topology.NAT:
		return invalid
	}
	switch r.Action {
	case topology.Accept:
		return accept
	case topology.Continue:
		return goOn
	case topology.Drop:
		return drop
	case topology.Reject:
		return reject
	case topology.Return:
		return giveBack
	}
	return invalid
}

func (w *World) releaseRule(c *chain, r *rule) {
	if r.target != nil {
		r.target.jumpers.remove(c)
		release(w.chains, r.target)
	}
	if r.to != nil {
		release(w.ports, r.to)
	}
	for _, g := range []*group{r.srcGroup, r.dstGroup} {
		if g != nil {
			g.users.remove(c)
			release(w.groups, g)
		}
	}
	for _, g := range []*portGroup{r.portGroup, r.inGroup, r.outGroup} {
		if g != nil {
			release(w.portGroups, g)
		}
	}
	for _, ports := range [][]*port{r.inPorts, r.outPorts} {
		for _, p := range ports {
			release(w.ports, p)
		}
	}
}

// swapFilters makes user one of the users of the filters in after, and no longer of those in
// before.
func swapFilters[P comparable](w *World, user P, of func(*chain) *users[P], before, after []*chain) {
	for _, c := range after {
		if c != nil {
			of(c).add(user)
			w.reportOwn(c)
		}
	}
	for _, c := range before {
		if c != nil {
			of(c).remove(user)
			w.reportOwn(c)
			release(w.chains, c)
		}
	}
}

// useChain holds the chain with that id, none for "".
func (w *World) useChain(id string) *chain {
	if id == "" {
		return nil
	}
	return hold(w.chains, id)
}
