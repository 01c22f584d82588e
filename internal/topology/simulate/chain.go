package simulate

import "heddle/internal/topology"

// verb is the effect of a rule whose condition is met, and the result of a chain.
type verb uint8

const (
	goOn verb = iota // CONTINUE, and the end of a chain
	accept
	drop
	reject
	giveBack // RETURN
	jump
	invalid // not understood by this version: drops
)

// chain is a list of rules, compiled.
type chain struct {
	object
	claims claims[topology.Chain]
	def    *topology.Chain // nil while it is only referred to
	rules  []rule

	ports    users[*port]
	networks users[*network]
	jumpers  users[*chain] // chains with rules that jump here
}

// rule is one rule, compiled.
type rule struct {
	condition
	id     string
	verb   verb
	target *chain // of a jump
}

func (c *chain) label() string {
	if c.def != nil && c.def.Name != "" {
		return c.def.Name
	}
	return c.id
}

func (w *World) linkChain(c *chain) {
	def := c.claims.top()
	if def == c.def {
		return
	}
	w.touchChain(c)
	c.def = def
	old := c.rules
	c.rules = nil
	if def != nil && len(def.Rules) > 0 {
		c.rules = make([]rule, len(def.Rules))
		for i := range def.Rules {
			w.compileRule(c, &def.Rules[i], &c.rules[i])
		}
	}
	for i := range old {
		w.releaseRule(c, &old[i])
	}
}

func (w *World) compileRule(c *chain, from *topology.Rule, r *rule) {
	r.id = from.ID
	r.verb = verbOf(from)
	if r.verb == jump {
		r.target = hold(w.chains, from.JumpChainID)
		r.target.jumpers.add(c)
	}
	w.compileCondition(c, from.Condition, &r.condition)
}

func verbOf(r *topology.Rule) verb {
	switch {
	case r.Type == topology.Jump && r.JumpChainID != "":
		return jump
	case r.Type != topology.Literal:
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
	for _, g := range []*group{r.srcGroup, r.dstGroup} {
		if g != nil {
			g.users.remove(c)
			release(w.groups, g)
		}
	}
	for _, ports := range [][]*port{r.inPorts, r.outPorts} {
		for _, p := range ports {
			release(w.ports, p)
		}
	}
}
