package calc

import (
	"math"
	"slices"

	"heddle/calico"
	"heddle/calico/selector"
)

const defaultTier = "default"

// tier is a tier that has metadata or policies.
type tier struct {
	name     string
	order    float64 // +Inf: none
	present  bool    // it has metadata, be they valid or not
	policies map[*policy]bool
}

func (t *tier) counts() bool { return t.present || t.name == defaultTier }

// policy is a stored policy, or a deleted one until the next Changes.
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
	moved    bool           // selections that have it must be replaced
	searched bool           // its selector has changed
	queueable
}

// policyTable holds all policies and tiers.
type policyTable struct {
	index   *index
	lists   *ruleLists
	invalid map[calico.Key]string // shared with Calc
	all     map[calico.PolicyKey]*policy
	tiers   map[string]*tier
	queue   queue[*policy]
}

// inForce returns the version that counts, or nil: of a refused one the readable part, which denies
// everything, else the last valid one.
func (p *policy) inForce() *calico.Policy {
	if p.invalid != "" && p.partial != nil {
		return p.partial
	}
	return p.valid
}

// denies reports whether the policy denies everything, because the stored version is refused.
func (p *policy) denies() bool { return p.invalid != "" && p.partial != nil }

func (p *policy) list(d Direction) *list {
	if p.lists == nil {
		id := ListID{Tier: p.key.Tier, Name: p.key.Policy}
		p.lists = newLists(list{id: id, policy: p})
	}
	return &p.lists[d]
}

// source returns the stored rules of a list, or why there are none, and a problem to report.
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
func (pt *policyTable) get(key calico.PolicyKey) *policy {
	p := pt.all[key]
	if p == nil {
		pt.index.lastID++
		p = &policy{id: pt.index.lastID, key: key, tier: pt.tier(key.Tier)}
		p.tier.policies[p] = true
		pt.all[key] = p
	}
	return p
}

// set takes a valid version of a policy; nil: it is deleted.
func (pt *policyTable) set(key calico.PolicyKey, object *calico.Policy) {
	if object != nil {
		if _, err := parse(object.Selector); err != nil {
			pt.refuse(key, nil, "selector: "+err.Error())
			return
		}
	}
	pt.put(key, object, nil, "")
}

// refuse takes a version that is refused. partial is its readable part with a selector, or nil.
func (pt *policyTable) refuse(key calico.PolicyKey, partial *calico.Policy, reason string) {
	pt.invalid[key] = reason
	if partial != nil {
		if _, err := parse(partial.Selector); err != nil {
			partial = nil
		}
	}
	valid := (*calico.Policy)(nil)
	if p := pt.all[key]; p != nil {
		valid = p.valid
	}
	pt.put(key, valid, partial, reason)
}

func (pt *policyTable) put(key calico.PolicyKey, valid, partial *calico.Policy, invalid string) {
	p := pt.get(key)
	before, denied := p.inForce(), p.denies()
	p.valid, p.partial, p.invalid = valid, partial, invalid
	p.moved = p.moved || denied != p.denies() || !sameStanding(before, p.inForce())
	pt.lists.reread(p.lists)
	pt.queue.add(p)
}

// sameStanding reports whether two versions of a policy have the same place among others.
func sameStanding(a, b *calico.Policy) bool {
	if a == nil || b == nil {
		return a == b
	}
	return (a.Order == nil) == (b.Order == nil) && (a.Order == nil || *a.Order == *b.Order) &&
		a.Untracked == b.Untracked && a.PreDNAT == b.PreDNAT && slices.Equal(a.Types, b.Types)
}

// MaxSelector is the length in bytes up to which the selector of a refused policy is evaluated, to
// close traffic of the selected endpoints alone. Valid selectors are shorter.
const MaxSelector = 16 * selector.MaxLength

// parse parses a selector. Extensions and the length were checked when it was decoded.
func parse(text string) (*selector.Selector, error) {
	return selector.Parse(text, selector.Extensions(), selector.Length(MaxSelector))
}

func (pt *policyTable) setTier(name string, present bool, order *float64) {
	t := pt.tier(name)
	t.present = present
	if order == nil {
		t.order = math.Inf(1)
	} else {
		t.order = *order
	}
	pt.tierMoved(t)
}

// refuseTier takes metadata that are refused. The order stays: a tier must not vanish with the
// policies that close traffic.
func (pt *policyTable) refuseTier(name string) {
	t := pt.tier(name)
	t.present = true
	pt.tierMoved(t)
}

func (pt *policyTable) tierMoved(t *tier) {
	for p := range t.policies {
		p.moved = true
		pt.queue.add(p)
	}
	pt.dropTier(t)
}

func (pt *policyTable) tier(name string) *tier {
	t := pt.tiers[name]
	if t == nil {
		t = &tier{name: name, order: math.Inf(1), policies: map[*policy]bool{}}
		pt.tiers[name] = t
	}
	return t
}

func (pt *policyTable) dropTier(t *tier) {
	if !t.present && len(t.policies) == 0 {
		delete(pt.tiers, t.name)
	}
}

// fileQuery indexes the selector of a policy if that has changed.
func (pt *policyTable) fileQuery(p *policy) {
	now := p.inForce()
	if p.selects && now != nil && now.Selector == p.text {
		return
	}
	if p.selects {
		pt.index.unfile(&p.query)
		p.selects = false
	}
	p.searched = true
	if now == nil {
		return
	}
	sel, err := parse(now.Selector)
	if err != nil {
		return // setPolicy and refusePolicy let no such selector in
	}
	p.query = query{kind: ofPolicies, selector: sel, policy: p}
	p.text, p.selects = now.Selector, true
	pt.index.file(&p.query)
}

// drop removes a policy that is no longer stored, once Changes has reported that.
func (pt *policyTable) drop(p *policy) {
	if p.valid != nil || p.invalid != "" || !p.lists.idle() {
		return
	}
	delete(pt.all, p.key)
	delete(p.tier.policies, p)
	pt.dropTier(p.tier)
}
