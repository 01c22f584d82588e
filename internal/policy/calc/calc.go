package calc

import (
	"fmt"
	"net/netip"

	"heddle/calico"
)

// DefaultMaxSetSize is the most addresses of one family in a set, unless SetMaxSetSize says otherwise.
const DefaultMaxSetSize = 1 << 20

// Calc holds what is stored, in a compact form, and what follows from it for one host:
//
//	endpoint ─► class (own labels, profiles) ─► effective labels and tags ─┬─► policies that pick it ─► selection ─► lists
//	profile labels, tags ───────────────┘                                  └─► address sets ◄── selectors, tags ◄─────┘
//
// Update brings classes and the members of sets up to date at once. Which policies, lists and sets are needed is worked
// out in Changes, for all updates together; so the first one, after a snapshot, fills each set in one go. A Calc serves
// one goroutine.
type Calc struct {
	host       string
	maxSetSize int

	index     index
	endpoints endpoints
	profiles  map[string]*profile
	policies  map[calico.PolicyKey]*policy
	tiers     map[string]*tier
	invalid   map[calico.Key]string // why a stored object is refused

	localWorkloads map[calico.WorkloadEndpointKey]*local
	localHosts     map[calico.HostEndpointKey]*local
	localClasses   map[*localClass]bool
	selections     map[string]*selection
	sets           map[SetID]*set
	setIDs         map[string]SetID // by canonical text of a selector
	failing        int              // lists that endpoints have to complain about
	complaints     bool             // what endpoints have to report may have changed

	// What Changes has to look at.
	queuedPolicies []*policy
	touched        []*localClass
	queuedLists    []*list
	queuedSets     []*set
	queuedLocals   []*local

	// Room that is used again and again.
	scratch      []*pair
	found        []*class
	foundQueries []*query
	room         []byte
}

// New returns the calculation for a host, by its name in keys.
func New(host string) *Calc {
	return &Calc{
		host: host, maxSetSize: DefaultMaxSetSize, index: newIndex(), endpoints: newEndpoints(),
		profiles: map[string]*profile{}, policies: map[calico.PolicyKey]*policy{}, tiers: map[string]*tier{}, invalid: map[calico.Key]string{},
		localWorkloads: map[calico.WorkloadEndpointKey]*local{}, localHosts: map[calico.HostEndpointKey]*local{},
		localClasses: map[*localClass]bool{}, selections: map[string]*selection{}, sets: map[SetID]*set{}, setIDs: map[string]SetID{},
	}
}

// SetMaxSetSize changes how many addresses of one family a set may hold (MaxIpsetSize). Lists that name a larger one
// drop everything.
func (c *Calc) SetMaxSetSize(n int) {
	if n == c.maxSetSize {
		return
	}
	c.maxSetSize = n
	for _, s := range c.sets {
		c.queueSet(s)
		for _, l := range s.users {
			c.queueList(l)
		}
	}
}

// Update takes the object that is stored by a key, as calico.Decode gives it; nil: it is deleted. The object belongs to
// the Calc from then on. Keys that matter to no calculation are let pass, and so are those of the legacy tree, whose
// objects come by the keys that heddle/calico/legacy gives them.
func (c *Calc) Update(key calico.Key, object any) {
	delete(c.invalid, key)
	var ok bool
	switch k := key.(type) {
	case calico.WorkloadEndpointKey:
		ok = k.Legacy || update(object, func(o *calico.WorkloadEndpoint) { c.setWorkload(k, o) })
	case calico.HostEndpointKey:
		ok = update(object, func(o *calico.HostEndpoint) { c.setHost(k, o, "") })
	case calico.ProfileRulesKey:
		ok = k.Legacy || update(object, func(o *calico.ProfileRules) { c.setProfileRules(k.Profile, o, "") })
	case calico.ProfileTagsKey:
		ok = k.Legacy || update(object, func(o *calico.ProfileTags) { c.setProfileTags(k.Profile, value(o)) })
	case calico.ProfileLabelsKey:
		ok = update(object, func(o *calico.ProfileLabels) { c.setProfileLabels(k.Profile, value(o)) })
	case calico.PolicyKey:
		ok = update(object, func(o *calico.Policy) { c.setPolicy(k, o) })
	case calico.TierKey:
		ok = update(object, func(o *calico.Tier) { c.setTier(k.Tier, o != nil, value(o).Order) })
	default:
		ok = true
	}
	if !ok {
		c.Invalid(key, nil, fmt.Sprintf("it is a %T", object))
	}
}

// update hands an object over if it is a T, or nil.
func update[T any](object any, take func(*T)) bool {
	if object == nil {
		take(nil)
		return true
	}
	o, ok := object.(*T)
	if ok {
		take(o)
	}
	return ok
}

// value is what p points to, or the zero value.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Invalid takes note that the object stored by a key is refused, and why. It may close traffic and never opens it
// (docs/policy.md): an endpoint and parts of a profile count as missing, which drops traffic. Of a policy and a host
// endpoint, partial is what can be read nevertheless, as the type that Decode would give, or nil.
//
// A policy whose selector can be read (partial has it and, if that can be read too, its order) denies everything;
// otherwise the last valid version stays. So do a tier's and a host endpoint's; of the latter, when there has been none,
// only the name in partial counts.
func (c *Calc) Invalid(key calico.Key, partial any, reason string) {
	switch k := key.(type) {
	case calico.WorkloadEndpointKey:
		if k.Legacy {
			return
		}
		c.setWorkload(k, nil)
	case calico.HostEndpointKey:
		o, _ := partial.(*calico.HostEndpoint)
		c.setHost(k, o, reason)
	case calico.ProfileRulesKey:
		if k.Legacy {
			return
		}
		c.setProfileRules(k.Profile, nil, reason)
	case calico.ProfileTagsKey:
		if k.Legacy {
			return
		}
		c.setProfileTags(k.Profile, nil)
	case calico.ProfileLabelsKey:
		c.setProfileLabels(k.Profile, nil)
	case calico.PolicyKey:
		o, _ := partial.(*calico.Policy)
		c.refusePolicy(k, o, reason)
	case calico.TierKey:
		c.refuseTier(k.Tier)
	default:
		return
	}
	c.invalid[key] = reason
}

// setWorkload takes a workload endpoint; nil: there is none.
func (c *Calc) setWorkload(key calico.WorkloadEndpointKey, o *calico.WorkloadEndpoint) {
	var l *local
	if key.Host == c.host {
		if l = c.localWorkloads[key]; l == nil {
			if o == nil {
				return
			}
			l = &local{kind: workloads, workloadKey: key}
			c.localWorkloads[key] = l
		}
		l.workload = o
	}
	if o == nil {
		c.settleEndpoint(c.endpoints.hashWorkload(key), l, nil, nil)
		return
	}
	nets := make([]netip.Addr, 0, 8)
	for _, n := range o.IPv4Nets {
		nets = append(nets, n.Addr())
	}
	for _, n := range o.IPv6Nets {
		nets = append(nets, n.Addr())
	}
	k := c.classOf(o.Labels, o.ProfileIDs)
	c.settleEndpoint(c.endpoints.hashWorkload(key), l, k, addressesOf(nets))
}

// setHost takes a host endpoint; nil: there is none. With a reason it is refused: the last valid version stays, and if
// there is none, o is what can be read.
func (c *Calc) setHost(key calico.HostEndpointKey, o *calico.HostEndpoint, invalid string) {
	var l *local
	if key.Host == c.host {
		if l = c.localHosts[key]; l == nil {
			if o == nil && invalid == "" {
				return
			}
			l = &local{kind: hosts, hostKey: key}
			c.localHosts[key] = l
		}
		l.invalid = invalid
		c.queueLocal(l)
	}
	switch {
	case invalid == "":
	case l != nil && l.of == nil: // none has been valid
		l.host = &calico.HostEndpoint{Name: value(o).Name}
		return
	default:
		return
	}
	if l != nil {
		l.host = o
	}
	if o == nil {
		c.settleEndpoint(c.endpoints.hashHost(key), l, nil, nil)
		return
	}
	k := c.classOf(o.Labels, o.ProfileIDs)
	c.settleEndpoint(c.endpoints.hashHost(key), l, k, addressesOf(o.ExpectedIPv4Addrs, o.ExpectedIPv6Addrs))
}

// settleEndpoint gives an endpoint, local or not, its class and addresses; no class: it is gone.
func (c *Calc) settleEndpoint(key keyHash, l *local, k *class, addresses []address) {
	if l != nil {
		c.place(l, k)
	}
	if k == nil {
		c.remove(key)
	} else {
		c.put(key, k, addresses)
	}
}

// classOf is the class of endpoints with these labels and profiles.
func (c *Calc) classOf(labels map[string]string, profileIDs []string) *class {
	own := make([]*pair, 0, len(labels))
	for name, value := range labels {
		own = append(own, c.index.pair(name, value))
	}
	profiles := make([]*profile, 0, len(profileIDs))
	for _, id := range distinct(profileIDs) {
		profiles = append(profiles, c.profile(id))
	}
	return c.class(own, profiles)
}
