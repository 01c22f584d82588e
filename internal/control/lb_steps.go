package control

import (
	"context"
	"errors"

	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/schema"
)

// Load balancers on a subnet and members of a pool can be more than one commit should hold
// (decision 0007).

// stepMembers bounds the members of a step; each is four operations.
const stepMembers = 500

// deriveLoadBalancersOn rewrites the load balancers with addresses on a subnet, of which many are
// pending work.
func (o *operation) deriveLoadBalancersOn(subnetID string) (pending bool, err error) {
	if schema.LoadBalancers.CountBy(o.tx, "vip_subnet", subnetID) > stepObjects {
		return true, o.begin(workDeriveLoadBalancers, subnetID)
	}
	_, _, err = steps{o}.deriveLoadBalancers(subnetID, "")
	return false, err
}

// deriveLoadBalancers rewrites some load balancers with addresses on a subnet, after a balancer's
// id.
func (o steps) deriveLoadBalancers(subnetID, after string) (done bool, next string, err error) {
	count := 0
	for lb := range schema.LoadBalancers.By(o.tx, "vip_subnet", subnetID) {
		if lb.ID <= after {
			continue
		}
		if count == stepObjects {
			return false, next, nil
		}
		lb, err := schema.LoadBalancers.Get(o.tx, lb.ID)
		if err != nil {
			return false, "", err
		}
		if err := o.deriveLoadBalancer(lb); err != nil {
			return false, "", err
		}
		count, next = count+1, lb.ID
	}
	return true, "", nil
}

// dropPool deletes a pool with its members, or makes that pending work if they are many.
func (o *operation) dropPool(p *neutron.LBPool) (pending bool, err error) {
	if len(schema.VIPs.Referrers(o.tx, "pool", p.ID)) > 0 {
		return false, neutron.PoolInUse(p.ID)
	}
	if schema.LBMembers.CountBy(o.tx, "pool", p.ID) > stepMembers {
		return true, o.begin(workDeletePool, p.ID)
	}
	if p.V1() {
		return false, o.removeV1Pool(p)
	}
	return false, o.removeLBPool(p)
}

// deletePool deletes some members of a pool, or takes those of LBaaS v1 out of it, and finally
// deletes it.
func (o steps) deletePool(id string) (done bool, err error) {
	p, err := schema.LBPools.Get(o.tx, id)
	if err != nil {
		return true, nil // gone
	}
	members := firstOf(schema.LBMembers.By(o.tx, "pool", id), stepMembers+1)
	if len(members) <= stepMembers {
		if p.V1() {
			return true, o.removeV1Pool(p)
		}
		return true, o.removeLBPool(p)
	}
	for _, m := range members[:stepMembers] {
		if p.V1() {
			err = o.detachMember(m.ID)
		} else {
			err = o.removeMember(m.ID)
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// dropTree deletes a load balancer with all that is below it, or makes that pending work if that is
// much.
func (o *operation) dropTree(lb *neutron.LoadBalancer) (pending bool, err error) {
	if done, err := (steps{o}).deleteTree(lb.ID); err != nil || done {
		return false, err
	}
	return true, o.begin(workDeleteBalancer, lb.ID)
}

// deleteTree deletes members of some pools of a load balancer, then what is below it, and finally
// the balancer.
func (o steps) deleteTree(id string) (done bool, err error) {
	lb, err := schema.LoadBalancers.Get(o.tx, id)
	if err != nil {
		return true, nil // gone
	}
	room := stepMembers
	for _, pool := range schema.LBPools.Referrers(o.tx, "load_balancer", id) {
		for _, m := range firstOf(schema.LBMembers.By(o.tx, "pool", pool), room+1) {
			if room == 0 {
				return false, nil
			}
			if err := o.removeMember(m.ID); err != nil {
				return false, err
			}
			room--
		}
	}
	below := 0
	for _, listener := range schema.Listeners.Referrers(o.tx, "load_balancer", id) {
		if below++; below > stepObjects {
			return false, nil
		}
		if err := o.removeListener(listener); err != nil {
			return false, err
		}
	}
	for _, pool := range schema.LBPools.Referrers(o.tx, "load_balancer", id) {
		if below++; below > stepObjects {
			return false, nil
		}
		p, err := schema.LBPools.Get(o.tx, pool)
		if err != nil {
			return false, err
		}
		if err := o.removeLBPool(p); err != nil {
			return false, err
		}
	}
	return true, o.removeLoadBalancer(lb)
}

// balancerToFill finds a load balancer that something is to be made below.
func (s *LoadBalancing) balancerToFill(o *operation, id string) (*neutron.LoadBalancer, error) {
	lb, err := s.balancers.use(o, id)
	if err == nil && o.pending(workDeleteBalancer, id) {
		return nil, neutron.LBNotFound(neutron.NameLoadBalancer, id)
	}
	return lb, err
}

// ReplaceMembers makes the members of a pool those of a request: by their addresses and ports, of
// which members that stay keep their ids and whatever the request does not name. With additive,
// members that the request does not name stay too. It is one commit, unless more than some 500
// members are replaced: then new ones come first and others go last, in several commits, of which a
// server that is killed may have made the first only.
func (s *LoadBalancing) ReplaceMembers(ctx context.Context, c neutron.Caller, pool string, vs []neutron.Values, additive bool) error {
	named, err := placesOf(pool, vs)
	if err != nil {
		return err
	}
	err = perform(ctx, s.Service, c, func(o *operation) error {
		if !additive {
			if _, err := s.dropMembers(o, pool, named, -1); err != nil {
				return err
			}
		}
		return s.putMembers(o, pool, vs, true)
	})
	if !errors.Is(err, store.ErrTooLarge) {
		return err // all of the request has been checked
	}
	for begin := 0; begin < len(vs); begin += stepMembers {
		some := vs[begin:min(len(vs), begin+stepMembers)]
		if err := perform(ctx, s.Service, c, func(o *operation) error {
			return s.putMembers(o, pool, some, false)
		}); err != nil {
			return err
		}
	}
	for done := additive; !done; {
		if done, err = transact(ctx, s.Service, c, func(o *operation) (bool, error) { return s.dropMembers(o, pool, named, stepMembers) }); err != nil {
			return err
		}
	}
	return nil
}

// placesOf returns where the members of a request are, which differ.
func placesOf(pool string, vs []neutron.Values) (map[string]bool, error) {
	named := map[string]bool{}
	for _, v := range vs {
		address, port := requestedAddress(v, "address"), number(v, "protocol_port")
		place := memberPlace(address, port)
		if named[place] {
			return nil, neutron.MemberTaken(pool, address.String(), port)
		}
		named[place] = true
	}
	return named, nil
}

// putMembers makes the members of a request, or changes those that are there. charge is false for
// those that the project's limit is known to allow, once others have gone.
func (s *LoadBalancing) putMembers(o *operation, pool string, vs []neutron.Values, charge bool) error {
	p, lb, err := s.poolToFill(o, pool)
	if err != nil {
		return err
	}
	had := map[string]string{} // ids
	for _, id := range schema.LBMembers.Referrers(o.tx, "pool", pool) {
		// No condition on each: a pool may have more members than a commit can have conditions, and
		// their places never change.
		if m, ok := schema.LBMembers.Peek(o.tx, id); ok {
			had[memberPlace(m.Address, m.ProtocolPort)] = id
		}
	}
	fresh := 0 // that are charged for
	for _, v := range vs {
		if _, stays := had[memberPlace(requestedAddress(v, "address"), number(v, "protocol_port"))]; !stays && charge {
			fresh++
		}
	}
	if err := o.chargeLB(p.ProjectID, lbQuotaMember, neutron.NameMember, fresh); err != nil {
		return err
	}
	for _, v := range vs {
		if id, stays := had[memberPlace(requestedAddress(v, "address"), number(v, "protocol_port"))]; stays {
			err = s.keepMember(o, id, v)
		} else {
			_, err = s.newMember(o, p, lb, v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dropMembers deletes members of a pool that are not named, at most so many, -1 for all, and
// reports whether none is left.
func (s *LoadBalancing) dropMembers(o *operation, pool string, named map[string]bool, most int) (done bool, err error) {
	if _, _, err := s.poolToFill(o, pool); err != nil {
		return false, err
	}
	dropped := 0
	for _, id := range schema.LBMembers.Referrers(o.tx, "pool", pool) {
		m, ok := schema.LBMembers.Peek(o.tx, id) // as in putMembers
		if !ok || named[memberPlace(m.Address, m.ProtocolPort)] {
			continue
		}
		if dropped == most {
			return false, nil
		}
		if err := o.removeMember(id); err != nil {
			return false, err
		}
		dropped++
	}
	return true, nil
}
