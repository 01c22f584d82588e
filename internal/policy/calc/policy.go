package calc

import (
	"math"
	"slices"

	"heddle/calico"
	"heddle/calico/selector"
)

// defaultTier exists without metadata.
const defaultTier = "default"

// tier is what is known of a tier. It exists while it has metadata or policies.
type tier struct {
	name     string
	order    float64 // +Inf: none
	present  bool    // it has metadata, be they valid or not
	policies map[*policy]bool
}

// counts says whether policies of the tier apply.
func (t *tier) counts() bool { return t.present || t.name == defaultTier }

// policy is what is known of a policy. It exists while it is stored, and then until Changes have taken note.
type policy struct {
	id       uint64
	key      calico.PolicyKey
	tier     *tier
	valid    *calico.Policy // last valid version; nil: there has been none
	partial  *calico.Policy // what can be read of a version that is refused; nil: its selector cannot
	invalid  string         // why the version that is stored is refused
	text     string         // of query's selector
	query    query          // filed if selects
	selects  bool           // it is in force and its selector is readable
	lists    *lists         // nil: not yet needed
	queued   bool           // in Calc.queuedPolicies
	moved    bool           // selections that have it must be made anew
	searched bool           // its selector has changed
}

// inForce is the version that counts: of a refused one what can be read, which denies everything, else the last valid
// one. nil: none.
func (p *policy) inForce() *calico.Policy {
	if p.invalid != "" && p.partial != nil {
		return p.partial
	}
	return p.valid
}

// denies says that the policy denies everything, because the stored version is refused.
func (p *policy) denies() bool { return p.invalid != "" && p.partial != nil }

// list is the policy's list in a direction.
func (p *policy) list(d Direction) *list {
	if p.lists == nil {
		id := ListID{Tier: p.key.Tier, Name: p.key.Policy}
		p.lists = newLists(list{id: id, policy: p})
	}
	return &p.lists[d]
}

// source is the stored rules of a list. missing says why there are none, problem what endpoints have to report.
func (l *list) source() (rules []calico.Rule, missing, problem string) {
	if p := l.profile; p != nil {
		switch {
		case p.rules != nil:
			return direction(l.id.Direction, p.rules.InboundRules, p.rules.OutboundRules), "", ""
		case p.invalid != "":
			return nil, "its rules are invalid: " + p.invalid, l.name() + ": its rules are invalid: " + p.invalid
		}
		return nil, "it has no rules", l.name() + ": it has no rules"
	}
	p := l.policy
	switch {
	case p.denies():
		return nil, "it is invalid: " + p.invalid, l.name() + ": it is invalid, and denies everything: " + p.invalid
	case p.invalid != "":
		problem = l.name() + ": it is invalid, and its last valid version stays: " + p.invalid
	}
	return direction(l.id.Direction, p.valid.InboundRules, p.valid.OutboundRules), "", problem
}

func direction(d Direction, inbound, outbound []calico.Rule) []calico.Rule {
	if d == Inbound {
		return inbound
	}
	return outbound
}

// policy returns the policy by a key.
func (c *Calc) policy(key calico.PolicyKey) *policy {
	p := c.policies[key]
	if p == nil {
		c.index.lastID++
		p = &policy{id: c.index.lastID, key: key, tier: c.tier(key.Tier)}
		p.tier.policies[p] = true
		c.policies[key] = p
	}
	return p
}

// setPolicy takes a valid version of a policy; nil: it is deleted.
func (c *Calc) setPolicy(key calico.PolicyKey, object *calico.Policy) {
	if object != nil {
		if _, err := c.parse(object.Selector); err != nil {
			c.refusePolicy(key, nil, "selector: "+err.Error())
			return
		}
	}
	c.putPolicy(key, object, nil, "")
}

// refusePolicy takes note of a version that is refused. partial is what can be read of it, with its selector at least;
// nil: the selector cannot.
func (c *Calc) refusePolicy(key calico.PolicyKey, partial *calico.Policy, reason string) {
	c.invalid[key] = reason
	if partial != nil {
		if _, err := c.parse(partial.Selector); err != nil {
			partial = nil
		}
	}
	valid := (*calico.Policy)(nil)
	if p := c.policies[key]; p != nil {
		valid = p.valid
	}
	c.putPolicy(key, valid, partial, reason)
}

func (c *Calc) putPolicy(key calico.PolicyKey, valid, partial *calico.Policy, invalid string) {
	p := c.policy(key)
	before, denied := p.inForce(), p.denies()
	p.valid, p.partial, p.invalid = valid, partial, invalid
	p.moved = p.moved || denied != p.denies() || !sameStanding(before, p.inForce())
	c.reread(p.lists)
	c.queuePolicy(p)
}

// sameStanding says whether two versions of a policy take the same place among others. Which rules they have and which
// endpoints they pick does not count.
func sameStanding(a, b *calico.Policy) bool {
	if a == nil || b == nil {
		return a == b
	}
	return (a.Order == nil) == (b.Order == nil) && (a.Order == nil || *a.Order == *b.Order) &&
		a.Untracked == b.Untracked && a.PreDNAT == b.PreDNAT && slices.Equal(a.Types, b.Types)
}

func (c *Calc) queuePolicy(p *policy) {
	if !p.queued {
		p.queued = true
		c.queuedPolicies = append(c.queuedPolicies, p)
	}
}

// MaxSelector is the length in bytes up to which the selector of a refused policy is evaluated, to close traffic of the
// endpoints that it selects and of no others. It is more than a valid selector may have.
const MaxSelector = 16 * selector.MaxLength

// parse reads a selector. Whoever decoded it has decided about extensions and its length.
func (c *Calc) parse(text string) (*selector.Selector, error) {
	return selector.Parse(text, selector.Extensions(), selector.Length(MaxSelector))
}

// setTier takes a tier's metadata.
func (c *Calc) setTier(name string, present bool, order *float64) {
	t := c.tier(name)
	t.present = present
	if order == nil {
		t.order = math.Inf(1)
	} else {
		t.order = *order
	}
	c.tierMoved(t)
}

// refuseTier takes note of metadata that are refused. The order stays as it was: a tier must not vanish with the
// policies that close traffic.
func (c *Calc) refuseTier(name string) {
	t := c.tier(name)
	t.present = true
	c.tierMoved(t)
}

func (c *Calc) tierMoved(t *tier) {
	for p := range t.policies {
		p.moved = true
		c.queuePolicy(p)
	}
	c.dropTier(t)
}

// tier returns the tier by a name.
func (c *Calc) tier(name string) *tier {
	t := c.tiers[name]
	if t == nil {
		t = &tier{name: name, order: math.Inf(1), policies: map[*policy]bool{}}
		c.tiers[name] = t
	}
	return t
}

func (c *Calc) dropTier(t *tier) {
	if !t.present && len(t.policies) == 0 {
		delete(c.tiers, t.name)
	}
}

// fileQuery brings a policy's selector into the index, where its version in force has another one.
func (c *Calc) fileQuery(p *policy) {
	now := p.inForce()
	if p.selects && now != nil && now.Selector == p.text {
		return
	}
	if p.selects {
		c.index.unfile(&p.query)
		p.selects = false
	}
	p.searched = true
	if now == nil {
		return
	}
	sel, err := c.parse(now.Selector)
	if err != nil {
		return // setPolicy and refusePolicy let no such selector in
	}
	p.query = query{kind: ofPolicies, selector: sel, policy: p}
	p.text, p.selects = now.Selector, true
	c.index.file(&p.query)
}

// dropPolicy forgets a policy that is not stored, once Changes have taken note.
func (c *Calc) dropPolicy(p *policy) {
	if p.valid != nil || p.invalid != "" || !p.lists.idle() {
		return
	}
	delete(c.policies, p.key)
	delete(p.tier.policies, p)
	c.dropTier(p.tier)
}
