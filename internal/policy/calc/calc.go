package calc

import (
	"fmt"
	"net/netip"

	"heddle/calico"
)

// DefaultMaxSetSize bounds the addresses of one family in a set by default.
const DefaultMaxSetSize = 1 << 20

// Calc holds what is stored, in a compact form, and what follows from it for one host:
//
//	endpoint ─► class ─► effective labels ─┬─► policies that pick it ─► selection ─► lists
//	profile labels,  │   and tags          └─► address sets ◄── selectors, tags ◄─────┘
//	tags ────────────┘
//
// Update brings classes and the members of sets up to date at once. Changes works out which
// policies, lists and sets are needed, for all updates together: the first call fills each set in
// one go. A Calc serves one goroutine.
type Calc struct {
	host      string                // "": all are local
	invalid   map[calico.Key]string // why a stored object is refused
	endpoints *endpoints
	index     *index
	classes   *classTable
	policies  *policyTable
	lists     *ruleLists
	sets      *addressSets
	locals    *localEndpoints
}

// New returns the calculation for a host, by its name in keys.
func New(host string) *Calc {
	c := &Calc{host: host, invalid: map[calico.Key]string{}, index: newIndex(), endpoints: newEndpoints()}
	touched := &touched{}
	c.sets = &addressSets{index: c.index, endpoints: c.endpoints, maxSize: DefaultMaxSetSize, all: map[SetID]*set{}, ids: map[string]SetID{}}
	c.lists = &ruleLists{sets: c.sets}
	c.policies = &policyTable{index: c.index, lists: c.lists, invalid: c.invalid, all: map[calico.PolicyKey]*policy{}, tiers: map[string]*tier{}}
	c.classes = &classTable{index: c.index, sets: c.sets, lists: c.lists, touched: touched, profiles: map[string]*profile{}}
	c.locals = &localEndpoints{index: c.index, lists: c.lists, policies: c.policies, touched: touched,
		workloads: map[calico.WorkloadEndpointKey]*local{}, hosts: map[calico.HostEndpointKey]*local{},
		classes: map[*localClass]bool{}, selections: map[string]*selection{}}
	return c
}

// NewForAll returns the calculation for all hosts together: what it decides for each endpoint is
// what the host's own would.
func NewForAll() *Calc { return New("") }

// isLocal reports whether the endpoints of a host are decided on.
func (c *Calc) isLocal(host string) bool { return c.host == "" || host == c.host }

// queue holds items that Changes must look at, each once.
type queue[T interface{ mark() *bool }] struct{ items []T }

func (q *queue[T]) add(item T) {
	if queued := item.mark(); !*queued {
		*queued = true
		q.items = append(q.items, item)
	}
}

// queueable is the mark of an item that can be in a queue.
type queueable struct{ queued bool }

func (q *queueable) mark() *bool { return &q.queued }

// SetMaxSetSize changes how many addresses of one family a set may hold (MaxIpsetSize). Lists that
// name a larger set drop everything.
func (c *Calc) SetMaxSetSize(n int) {
	if n == c.sets.maxSize {
		return
	}
	c.sets.maxSize = n
	for _, s := range c.sets.all {
		c.sets.queue.add(s)
		for _, l := range s.users {
			c.lists.queue.add(l)
		}
	}
}

// Update takes the object that is stored by a key, as calico.Decode returns it; nil: it is deleted.
// The Calc keeps the object. It ignores other keys, and those of the legacy tree, whose objects
// come by the v1 keys that heddle/calico/legacy gives them.
func (c *Calc) Update(key calico.Key, object any) {
	delete(c.invalid, key)
	var ok bool
	switch k := key.(type) {
	case calico.WorkloadEndpointKey:
		ok = k.Legacy || update(object, func(o *calico.WorkloadEndpoint) { c.setWorkload(k, o) })
	case calico.HostEndpointKey:
		ok = update(object, func(o *calico.HostEndpoint) { c.setHost(k, o, "") })
	case calico.ProfileRulesKey:
		ok = k.Legacy || update(object, func(o *calico.ProfileRules) { c.classes.setRules(k.Profile, o, "") })
	case calico.ProfileTagsKey:
		ok = k.Legacy || update(object, func(o *calico.ProfileTags) { c.classes.setTags(k.Profile, value(o)) })
	case calico.ProfileLabelsKey:
		ok = update(object, func(o *calico.ProfileLabels) { c.classes.setLabels(k.Profile, value(o)) })
	case calico.PolicyKey:
		ok = update(object, func(o *calico.Policy) { c.policies.set(k, o) })
	case calico.TierKey:
		ok = update(object, func(o *calico.Tier) { c.policies.setTier(k.Tier, o != nil, value(o).Order) })
	default:
		ok = true
	}
	if !ok {
		c.Invalid(key, nil, fmt.Sprintf("it is a %T", object))
	}
}

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

// value returns *p, or the zero value.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Invalid marks the object stored by a key as refused. That may close traffic and never opens it
// (docs/policy.md): an endpoint and parts of a profile count as missing, which drops traffic. Of a
// policy and a host endpoint, partial is the readable part, of the type that Decode would return,
// or nil.
//
// A policy with a readable selector denies everything, at its order if that is readable too;
// otherwise the last valid version stays. So does that of a tier and of a host endpoint. Of a host
// endpoint that was never valid, only the name in partial counts.
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
		c.classes.setRules(k.Profile, nil, reason)
	case calico.ProfileTagsKey:
		if k.Legacy {
			return
		}
		c.classes.setTags(k.Profile, nil)
	case calico.ProfileLabelsKey:
		c.classes.setLabels(k.Profile, nil)
	case calico.PolicyKey:
		o, _ := partial.(*calico.Policy)
		c.policies.refuse(k, o, reason)
	case calico.TierKey:
		c.policies.refuseTier(k.Tier)
	default:
		return
	}
	c.invalid[key] = reason
}

// setWorkload takes a workload endpoint; nil: there is none.
func (c *Calc) setWorkload(key calico.WorkloadEndpointKey, o *calico.WorkloadEndpoint) {
	var l *local
	if c.isLocal(key.Host) {
		if l = c.locals.workloads[key]; l == nil {
			if o == nil {
				return
			}
			l = &local{kind: workloads, workloadKey: key}
			c.locals.workloads[key] = l
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

// setHost takes a host endpoint; nil: there is none. With a reason it is refused: the last valid
// version stays; without one, o is the readable part.
func (c *Calc) setHost(key calico.HostEndpointKey, o *calico.HostEndpoint, invalid string) {
	var l *local
	if c.isLocal(key.Host) {
		if l = c.locals.hosts[key]; l == nil {
			if o == nil && invalid == "" {
				return
			}
			l = &local{kind: hosts, hostKey: key}
			c.locals.hosts[key] = l
		}
		l.invalid = invalid
		c.locals.queue.add(l)
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
		c.locals.place(l, k)
	}
	if k == nil {
		c.remove(key)
	} else {
		c.put(key, k, addresses)
	}
}

func (c *Calc) classOf(labels map[string]string, profileIDs []string) *class {
	own := make([]*pair, 0, len(labels))
	for name, value := range labels {
		own = append(own, c.index.pair(name, value))
	}
	profiles := make([]*profile, 0, len(profileIDs))
	for _, id := range distinct(profileIDs) {
		profiles = append(profiles, c.classes.profile(id))
	}
	return c.classes.get(own, profiles)
}
