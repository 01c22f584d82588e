package control

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"time"

	"heddle/calico"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
)

// An operation on more objects than one commit should hold (decision 0007) commits a
// [schema.PendingWork] and then proceeds in steps: commits of bounded size, each of which leaves
// the store consistent. The record prevents others from adding to what is being deleted, and makes
// sure that some server finishes the work.

const (
	// stepObjects bounds the ports, subnets or endpoints of a step; each is some ten operations.
	stepObjects = 64
	// stepRules bounds the security group rules of a step, which may have half a kilobyte each.
	stepRules = 1000
	// ruleAddresses is the number of addresses that count as one rule.
	ruleAddresses = 16
)

// Kinds of pending work; the object is the network, subnet, group or trunk unless it is said.
const (
	workDeleteNetwork   = "delete-network"
	workDeleteGroup     = "delete-security-group"
	workDeleteSubnet    = "delete-subnet"
	workDeriveEndpoints = "derive-endpoints"
	workDeriveProfiles  = "derive-profiles" // of allGroups

	workDeriveAddressGroup = "derive-address-group" // in profiles
	workDeleteTrunk        = "delete-trunk"
	workDeriveRouterPorts  = "derive-router-ports" // of a subnet
	workDeriveScopes       = "derive-scopes"       // of a pool's subnets
	workDeriveFirewalls    = "derive-firewalls"    // of a policy
	workDeriveGroupRule    = "derive-group-rule"   // in policies of firewall groups
	workDerivePorts        = "derive-ports"        // of a network
	workDeriveNDPProxies   = "derive-ndp-proxies"  // of a router, and its interfaces

	workDeriveLoadBalancers = "derive-load-balancers" // on a subnet
	workDeletePool          = "delete-lb-pool"        // the object is the pool
	workDeleteBalancer      = "delete-load-balancer"  // likewise, with all below it
)

const allGroups = "all"

// begin decides on work, which the commit of this operation makes pending.
func (o *operation) begin(kind, objectID string) error {
	return schema.PendingWorks.Put(o.tx, &schema.PendingWork{Kind: kind, ObjectID: objectID, Nonce: o.newID()})
}

// pending reports whether work on an object is pending. The commit fails if that changes.
func (o *operation) pending(kind, objectID string) bool {
	_, err := schema.PendingWorks.Get(o.tx, schema.PendingWorkID(kind, objectID))
	return err == nil
}

// refuseChange refuses to change a network, or what is on it, while the network is being deleted.
func (o *operation) refuseChange(networkID string) error {
	if o.pending(workDeleteNetwork, networkID) {
		return conflict("NetworkInUse", "Network %s is being deleted.", networkID)
	}
	return nil
}

// carryOut finishes pending work for the call that decided on it. The decision is committed: if
// this fails, [Pending] finishes the work.
func (s *Service) carryOut(ctx context.Context, kind, objectID string) {
	_ = s.finish(ctx, schema.PendingWorkID(kind, objectID))
}

// finish carries out one pending work, step by step. A server carries out one at a time.
func (s *Service) finish(ctx context.Context, id string) error {
	select {
	case s.working <- struct{}{}:
		defer func() { <-s.working }()
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx = store.WithReserve(ctx)
	type progress struct {
		done         bool
		nonce, after string
	}
	var at progress
	for !at.done {
		next, err := transact(ctx, s, neutron.Caller{}, func(o *operation) (progress, error) {
			w, err := schema.PendingWorks.Get(o.tx, id)
			var none *records.NotFoundError
			if errors.As(err, &none) {
				return progress{done: true}, nil // another server has finished it
			}
			if err != nil {
				return progress{}, err
			}
			next := progress{nonce: w.Nonce}
			if at.nonce == w.Nonce {
				next.after = at.after
			}
			if next.done, next.after, err = (steps{o}).next(w, next.after); err == nil && next.done {
				err = schema.PendingWorks.Delete(o.tx, id)
			}
			return next, err
		})
		if err != nil {
			return err
		}
		at = next
	}
	return nil
}

// steps carries out pending work in an operation.
type steps struct{ *operation }

// next does the next part of a work, and reports whether it was the last one. Work that leaves its
// objects in place continues after the id that the step before has returned.
func (o steps) next(w *schema.PendingWork, after string) (done bool, next string, err error) {
	switch w.Kind {
	case workDeleteNetwork:
		done, err = o.deleteNetwork(w.ObjectID)
	case workDeleteGroup:
		done, err = o.deleteGroup(w.ObjectID)
	case workDeleteSubnet:
		done, err = o.deleteSubnet(w.ObjectID)
	case workDeleteTrunk:
		done, err = o.deleteTrunk(w.ObjectID)
	case workDeriveProfiles:
		return o.deriveProfiles(schema.SecurityGroups.All(o.tx), after)
	case workDeriveAddressGroup:
		return o.deriveProfiles(schema.SecurityGroups.By(o.tx, "remote_address_group", w.ObjectID), after)
	case workDeriveRouterPorts:
		return o.deriveRouterPorts(w.ObjectID, after)
	case workDeriveScopes:
		return o.deriveScopes(w.ObjectID, after)
	case workDeriveFirewalls:
		return o.deriveFirewalls(w.ObjectID, after)
	case workDeriveGroupRule:
		return o.deriveGroupRule(w.ObjectID, after)
	case workDeriveEndpoints:
		return o.deriveEndpoints(w.ObjectID, after)
	case workDerivePorts:
		return o.derivePorts(w.ObjectID, after)
	case workDeriveNDPProxies:
		return o.deriveNDPProxies(w.ObjectID, after)
	case workDeriveLoadBalancers:
		return o.deriveLoadBalancers(w.ObjectID, after)
	case workDeletePool:
		done, err = o.deletePool(w.ObjectID)
	case workDeleteBalancer:
		done, err = o.deleteTree(w.ObjectID)
	default: // a newer server's, which finishes it
		return true, "", errUnknownWork
	}
	return done, "", err
}

var errUnknownWork = errors.New("pending work of a kind that this version does not know")

// deleteNetwork deletes some ports of a network, then subnets, and finally the network.
func (o steps) deleteNetwork(id string) (done bool, err error) {
	n, err := schema.Networks.Get(o.tx, id)
	if err != nil {
		return true, nil // gone
	}
	ports := firstOf(schema.Ports.By(o.tx, "network", id), stepObjects+1)
	var served []neutron.FixedIP
	for _, p := range ports[:min(len(ports), stepObjects)] {
		if err := errors.Join(o.removeFloatingIPOf(p.ID), o.removePort(p, n)); err != nil {
			return false, err
		}
		served = append(served, servedBy(p)...)
	}
	room := stepObjects - len(ports)
	if room < 0 {
		return false, o.deriveSubnetsOf(served)
	}
	subnets := firstOf(schema.Subnets.By(o.tx, "network", id), room+1)
	for _, sub := range subnets[:min(len(subnets), room)] {
		if err := o.removeSubnet(sub.ID, n); err != nil {
			return false, err
		}
	}
	if len(subnets) > room {
		served = slices.DeleteFunc(served, func(f neutron.FixedIP) bool {
			_, there := schema.Subnets.Peek(o.tx, f.SubnetID)
			return !there
		})
		return false, o.deriveSubnetsOf(served)
	}
	if done, err := o.removePolicies(id, room-len(subnets)); err != nil || !done {
		return false, err
	}
	if err := o.dropBundle(kindNetwork, id); err != nil {
		return false, err
	}
	return true, schema.Networks.Delete(o.tx, id)
}

// deleteGroup takes rules that name a group out of some other groups, then the group's own rules,
// which may name many others, and with the last of them deletes the group.
func (o steps) deleteGroup(id string) (done bool, err error) {
	g, err := schema.SecurityGroups.Get(o.tx, id)
	if err != nil {
		return true, nil // gone
	}
	others, rules := 0, 0
	for other := range schema.SecurityGroups.By(o.tx, "remote_group", id) {
		if other.ID == id {
			continue
		}
		rules += len(other.Rules)
		if others == stepObjects || others > 0 && rules > stepRules {
			return false, nil
		}
		if err := o.forgetRemote(other.ID, id); err != nil {
			return false, err
		}
		others++
	}
	if len(g.Rules) > stepRules {
		return false, o.changeRules(g, g.Rules[:len(g.Rules)-stepRules])
	}
	if done, err := o.removePolicies(id, stepObjects-others); err != nil || !done {
		return false, err
	}
	if err := errors.Join(o.dropBundle(kindGroup, id), o.dropLoggers("security_group", id), o.calico().dropProfile(id)); err != nil {
		return false, err
	}
	return true, schema.SecurityGroups.Delete(o.tx, id)
}

// deleteSubnet takes a subnet's addresses from some ports, and finally deletes it.
func (o steps) deleteSubnet(id string) (done bool, err error) {
	sub, err := schema.Subnets.Get(o.tx, id)
	if err != nil {
		return true, nil // gone
	}
	n, err := schema.Networks.Get(o.tx, sub.NetworkID)
	if err != nil {
		return false, err
	}
	ports := firstOf(schema.Ports.By(o.tx, "subnet", id), stepObjects+1)
	for _, p := range ports[:min(len(ports), stepObjects)] {
		if p, err = schema.Ports.Get(o.tx, p.ID); err != nil {
			return false, err
		}
		changed := *p
		changed.FixedIPs = slices.DeleteFunc(slices.Clone(p.FixedIPs), func(f neutron.FixedIP) bool { return f.SubnetID == id })
		o.bump(&changed.Standard)
		if err := o.putPort(&changed, n); err != nil {
			return false, err
		}
	}
	if len(ports) > stepObjects {
		return false, nil
	}
	if err := o.removeSubnet(id, n); err != nil {
		return false, err
	}
	return true, o.bumpNetwork(n.ID)
}

// deriveProfiles rewrites the profiles of some of the groups, which are in order, after a group's
// id.
func (o steps) deriveProfiles(all iter.Seq[*neutron.SecurityGroup], after string) (done bool, next string, err error) {
	groups, rules := 0, 0
	for g := range all {
		if g.ID <= after {
			continue
		}
		rules += len(g.Rules)
		for _, id := range schema.SecurityGroups.Values("remote_address_group", g) {
			if group, ok := schema.AddressGroups.Peek(o.tx, id); ok {
				rules += group.Size / ruleAddresses
			}
		}
		if groups == stepObjects || groups > 0 && rules > stepRules {
			return false, next, nil
		}
		g, err := schema.SecurityGroups.Get(o.tx, g.ID)
		if err != nil {
			return false, "", err
		}
		if err := o.calico().deriveProfile(g); err != nil {
			return false, "", err
		}
		groups, next = groups+1, g.ID
	}
	return true, "", nil
}

// firstOf returns the first n of a sequence.
func firstOf[T any](all iter.Seq[T], n int) []T {
	var first []T
	for one := range all {
		if len(first) == n {
			break
		}
		first = append(first, one)
	}
	return first
}

// deriveEndpoints rewrites the endpoints of some ports of a routed network, after a port's id.
func (o steps) deriveEndpoints(networkID, after string) (done bool, next string, err error) {
	n, err := schema.Networks.Get(o.tx, networkID)
	if err != nil {
		return true, "", nil // gone
	}
	count := 0
	for p := range schema.Ports.By(o.tx, "network", networkID) {
		if p.ID <= after || !translate.HasEndpoint(p, n) {
			continue
		}
		if count == stepObjects {
			return false, next, nil
		}
		p, err := schema.Ports.Get(o.tx, p.ID)
		if err != nil {
			return false, "", err
		}
		e, err := o.endpoint(o.tx, p, n)
		if err != nil {
			return false, "", err
		}
		if err := o.calico().put(calico.Key(translate.EndpointKey(p)), e); err != nil {
			return false, "", err
		}
		count, next = count+1, p.ID
	}
	return true, "", nil
}

// Pending finishes pending work, whichever server decided on it. It is a task; every server runs
// one. The server that decided carries it out, so others wait before they join in.
type Pending struct {
	task.Part
	service *Service
	log     *slog.Logger
	marked  *marks[struct{}] // by id
	grace   time.Duration
}

// pendingGrace is the time left to the server that decided on the work.
const pendingGrace = 5 * time.Second

// NewPending returns the task, which follows the service's replica from when that runs.
func NewPending(s *Service, r *replica.Replica, log *slog.Logger) *Pending {
	p := &Pending{Part: task.NewPart("pending work"), service: s, log: log, marked: newMarks[struct{}](), grace: pendingGrace}
	r.OnChange(p.notice)
	return p
}

func (p *Pending) notice(u snapshot.Update) {
	for _, c := range u.Changed {
		if c.Source == schema.PendingWorks.Name() && c.New != nil {
			p.marked.add(c.ID, struct{}{})
		}
	}
}

// Run finishes pending work until ctx ends. What it finds at first it does not wait with: the
// server that decided on it may be this one, before it was killed.
func (p *Pending) Run(ctx context.Context) error {
	p.BeReady()
	var grace time.Duration
	p.marked.follow(ctx, p.log, "could not finish pending work", func(ctx context.Context) error {
		task.Pause(ctx, grace)
		grace = p.grace
		return p.pass(ctx)
	})
	return nil
}

// pass finishes all marked work, and returns the last error; what it concerns stays marked.
func (p *Pending) pass(ctx context.Context) error {
	var last error
	for _, id := range slices.Sorted(maps.Keys(p.marked.take())) {
		p.log.Debug("finishing pending work", "work", id)
		switch err := p.service.finish(ctx, id); {
		case errors.Is(err, errUnknownWork):
			p.log.Warn("ignoring pending work of a newer version", "work", id)
		case err != nil:
			p.marked.keep(id, struct{}{})
			last = err
		}
	}
	return last
}
