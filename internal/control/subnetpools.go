package control

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"

	"heddle/internal/control/addresses"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// createSubnetPool makes a pool, all of whose space is free.
func (o *operation) createSubnetPool(_ context.Context, v neutron.Values) (*neutron.SubnetPool, error) {
	p := &neutron.SubnetPool{Standard: o.standard(v, 0)}
	if err := o.applySubnetPool(p, &neutron.SubnetPool{}, v); err != nil {
		return nil, err
	}
	if err := o.putSubnetPool(p, &neutron.SubnetPool{}); err != nil {
		return nil, err
	}
	return p, o.share(neutron.SubnetPools, p.ID, v)
}

// update changes a pool. A prefix is only taken away by [Service.RemovePrefixes].
func (s subnetPools) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.SubnetPoolView, error) {
	pending := false
	view, err := transact(ctx, s.service, c, func(o *operation) (*neutron.SubnetPoolView, error) {
		pending = false
		old, err := s.toChange(o, id, neutron.Update, v, ifMatch)
		if err != nil {
			return nil, err
		}
		if v.Has("prefixes") && len(addresses.Without(old.Prefixes, list[netip.Prefix](v, "prefixes"))) > 0 {
			return nil, illegalPrefixUpdate("Existing prefixes must be a subset of the new prefixes")
		}
		p, err := o.changeSubnetPool(old, v)
		if err != nil {
			return nil, err
		}
		if p.AddressScopeID != old.AddressScopeID {
			if pending, err = o.rescope(id); err != nil {
				return nil, err
			}
		}
		return s.answerTo(o.tx, c, p, neutron.Query{}), nil
	})
	if pending && err == nil {
		s.service.carryOut(ctx, workDeriveScopes, id)
	}
	return view, err
}

// rescope rewrites what routers have of their ports on a pool's subnets, after it has got another
// address scope. For many ports it makes pending work, and reports that.
func (o *operation) rescope(poolID string) (pending bool, err error) {
	done, _, err := steps{o}.deriveScopes(poolID, "")
	if err != nil || done {
		return false, err
	}
	return true, o.begin(workDeriveScopes, poolID)
}

// deriveScopes rewrites some of the routers' ports on a pool's subnets, after those that the last
// step has returned.
func (o steps) deriveScopes(poolID, after string) (done bool, next string, err error) {
	count := 0
	for s := range schema.Subnets.By(o.tx, "subnetpool", poolID) {
		for x := range schema.RouterPorts.By(o.tx, "subnet", s.ID) {
			at := s.ID + "/" + x.PortID
			if at <= after {
				continue
			}
			if count == stepObjects {
				return false, next, nil
			}
			if err := o.deriveRouterPortAt(x.PortID); err != nil {
				return false, "", err
			}
			count, next = count+1, at
		}
	}
	return true, "", nil
}

// changeSubnetPool gives a pool the values of an update, and returns what it is then.
func (o *operation) changeSubnetPool(old *neutron.SubnetPool, v neutron.Values) (*neutron.SubnetPool, error) {
	p := *old
	applyStandard(&p.Standard, v)
	if err := o.applySubnetPool(&p, old, v); err != nil {
		return nil, err
	}
	if reflect.DeepEqual(&p, old) {
		return old, nil
	}
	o.bump(&p.Standard)
	return &p, o.putSubnetPool(&p, old)
}

// applySubnetPool sets what a request names, and what it leaves to the server at create.
func (o *operation) applySubnetPool(p, old *neutron.SubnetPool, v neutron.Values) error {
	if v.Has("prefixes") {
		if err := setPrefixes(p, list[netip.Prefix](v, "prefixes")); err != nil {
			return err
		}
	}
	if err := applyPrefixLengths(p, v, old.IPVersion == 0); err != nil {
		return err
	}
	if v.Has("default_quota") {
		p.DefaultQuota = v.Number("default_quota")
	}
	setFlag(&p.Default, v, "is_default")
	if p.Default && !old.Default && defaultSubnetPool(o.tx, p.IPVersion) != nil {
		return invalid("A default subnetpool for this IP family has already been set. Only one default may exist per IP family")
	}
	if v.Has("address_scope_id") {
		p.AddressScopeID = v.Text("address_scope_id")
	}
	return o.checkAddressScope(p, old)
}

// setPrefixes gives a pool prefixes of one IP version.
func setPrefixes(p *neutron.SubnetPool, prefixes []netip.Prefix) error {
	if len(prefixes) == 0 {
		return neutron.Errorf(neutron.Invalid, "EmptySubnetPoolPrefixList", "Empty subnet pool prefix list.")
	}
	p.IPVersion = 4
	if prefixes[0].Addr().Is6() {
		p.IPVersion = 6
	}
	for _, q := range prefixes {
		if q.Addr().BitLen() != prefixes[0].Addr().BitLen() {
			return neutron.Errorf(neutron.Invalid, "PrefixVersionMismatch", "Cannot mix IPv4 and IPv6 prefixes in a subnet pool.")
		}
	}
	p.Prefixes = addresses.Compact(prefixes)
	return neutron.CheckList("prefixes", len(p.Prefixes))
}

// applyPrefixLengths sets the bounds of the lengths of subnets, with the reference's defaults for a
// new pool.
func applyPrefixLengths(p *neutron.SubnetPool, v neutron.Values, isNew bool) error {
	bits := p.Prefixes[0].Addr().BitLen()
	set := func(to *int, name string, otherwise int) {
		if n := v.Number(name); n != nil {
			*to = *n
		} else if isNew {
			*to = otherwise
		}
	}
	least := 8
	if p.IPVersion == 6 {
		least = 64
	}
	set(&p.MinPrefixLen, "min_prefixlen", least)
	set(&p.MaxPrefixLen, "max_prefixlen", bits)
	set(&p.DefaultPrefixLen, "default_prefixlen", p.MinPrefixLen)
	for _, bound := range []struct {
		broken       bool
		name, beyond string
		is, limit    int
	}{
		{p.MinPrefixLen > p.MaxPrefixLen, "min_prefixlen", "max_prefixlen", p.MinPrefixLen, p.MaxPrefixLen},
		{p.MaxPrefixLen > bits, "max_prefixlen", "ip_version_max", p.MaxPrefixLen, bits},
		{p.DefaultPrefixLen < p.MinPrefixLen, "default_prefixlen", "min_prefixlen", p.DefaultPrefixLen, p.MinPrefixLen},
		{p.DefaultPrefixLen > p.MaxPrefixLen, "default_prefixlen", "max_prefixlen", p.DefaultPrefixLen, p.MaxPrefixLen},
	} {
		if bound.broken {
			return neutron.Errorf(neutron.Invalid, "IllegalSubnetPoolPrefixBounds", "Illegal prefix bounds: %s=%d, %s=%d.",
				bound.name, bound.is, bound.beyond, bound.limit)
		}
	}
	return nil
}

// defaultSubnetPool returns the default pool of an IP version, or nil.
func defaultSubnetPool(r records.Reader, version int) *neutron.SubnetPool {
	for p := range schema.SubnetPools.By(r, "default", schema.DefaultPool(version)) {
		return p
	}
	return nil
}

// checkAddressScope refuses a change of a pool that its address scope, which the caller must see,
// does not allow.
func (o *operation) checkAddressScope(p, old *neutron.SubnetPool) error {
	if old.AddressScopeID != "" {
		had, _, err := o.addressScopes.inTransaction(o, old.AddressScopeID)
		if err != nil {
			return err
		}
		if !o.caller.Owns(had.ProjectID) {
			return illegalPoolUpdate("subnetpool %s cannot be updated when associated with shared address scope %s", p.ID, had.ID)
		}
	}
	if p.AddressScopeID == "" || p.AddressScopeID == old.AddressScopeID && slices.Equal(p.Prefixes, old.Prefixes) {
		return nil
	}
	scope, _, err := o.addressScopes.inTransaction(o, p.AddressScopeID)
	switch {
	case err != nil:
		return err
	case scope.IPVersion != p.IPVersion:
		return neutron.Errorf(neutron.Invalid, "IllegalSubnetPoolIpVersionAssociationToAddressScope",
			"Illegal subnetpool association: subnetpool %s cannot associate with address scope %s because subnetpool ip_version is not %d.",
			p.ID, scope.ID, scope.IPVersion)
	}
	if p.AddressScopeID != old.AddressScopeID {
		if err := o.checkScopeAffinity(p); err != nil {
			return err
		}
	}
	return o.checkScopePrefixes(p)
}

// checkScopeAffinity refuses a pool another address scope while its subnets have others beside them
// on a network, which would not follow it.
func (o *operation) checkScopeAffinity(p *neutron.SubnetPool) error {
	o.tx.Heed("subnets-beside/" + p.ID)
	schema.Subnets.Referrers(o.tx, "subnetpool", p.ID) // guards that no new ones come
	for s := range schema.Subnets.By(o.tx, "subnetpool", p.ID) {
		for other := range schema.Subnets.By(o.tx, "network", s.NetworkID) {
			if other.IPVersion == s.IPVersion && other.SubnetPoolID != p.ID {
				return scopeAffinity()
			}
		}
	}
	return nil
}

func scopeAffinity() error {
	return neutron.Errorf(neutron.Invalid, "NetworkAddressScopeAffinityError",
		"Subnets of the same address family hosted on the same network must all participate in the same address scope.")
}

// checkScopePrefixes refuses prefixes that overlap with those of other pools in the address scope.
// Pools enter a scope, and grow in it, one after the other.
func (o *operation) checkScopePrefixes(p *neutron.SubnetPool) error {
	o.tx.Touch("address-scope/" + p.AddressScopeID)
	for other := range schema.SubnetPools.By(o.tx, "address_scope", p.AddressScopeID) {
		if other.ID != p.ID && len(addresses.Common(other.Prefixes, p.Prefixes)) > 0 {
			return conflict("AddressScopePrefixConflict",
				"Failed to associate address scope: subnetpools within an address scope must have unique prefixes.")
		}
	}
	return nil
}

// putSubnetPool stores a pool, and what its other prefixes mean to its free space.
func (o *operation) putSubnetPool(p, old *neutron.SubnetPool) error {
	err := schema.SubnetPools.Put(o.tx, p)
	if err != nil || slices.Equal(p.Prefixes, old.Prefixes) {
		return err
	}
	space := o.space(p.ID)
	for _, removed := range addresses.Without(old.Prefixes, p.Prefixes) {
		switch free, err := space.take(removed); {
		case err != nil:
			return err
		case !free:
			return illegalPrefixUpdate("One or more the prefixes to be removed is in use by a subnet")
		}
	}
	for _, added := range addresses.Without(p.Prefixes, old.Prefixes) {
		if err := space.give(added); err != nil {
			return err
		}
	}
	return nil
}

// AddPrefixes adds prefixes to a pool, and returns those it has then.
func (s *Service) AddPrefixes(ctx context.Context, c neutron.Caller, id string, prefixes []netip.Prefix) ([]netip.Prefix, error) {
	return s.changePrefixes(ctx, c, id, "add_prefixes", func(had []netip.Prefix) []netip.Prefix { return slices.Concat(had, prefixes) })
}

// RemovePrefixes takes prefixes from a pool of which no subnet has addresses, and returns those it
// has then.
func (s *Service) RemovePrefixes(ctx context.Context, c neutron.Caller, id string, prefixes []netip.Prefix) ([]netip.Prefix, error) {
	return s.changePrefixes(ctx, c, id, "remove_prefixes", func(had []netip.Prefix) []netip.Prefix { return addresses.Without(had, prefixes) })
}

func (s *Service) changePrefixes(ctx context.Context, c neutron.Caller, id, action string, change func([]netip.Prefix) []netip.Prefix) ([]netip.Prefix, error) {
	return transact(ctx, s, c, func(o *operation) ([]netip.Prefix, error) {
		old, err := o.subnetPoolToActOn(id, action)
		if err != nil {
			return nil, err
		}
		p, err := o.changeSubnetPool(old, neutron.Values{"prefixes": change(old.Prefixes)})
		if err != nil {
			return nil, err
		}
		return p.Prefixes, nil
	})
}

// OnboardSubnets moves a network's subnets of a pool's IP version into the pool, which gets their
// ranges among its prefixes, and returns them. It moves all or none (extension subnet_onboard).
func (s *Service) OnboardSubnets(ctx context.Context, c neutron.Caller, id, networkID string) ([]*neutron.Subnet, error) {
	pending := false
	moved, err := transact(ctx, s, c, func(o *operation) (moved []*neutron.Subnet, err error) {
		pending = false
		p, err := o.subnetPoolToActOn(id, "onboard_network_subnets")
		if err != nil {
			return nil, err
		}
		if err := o.checkOnboarding(networkID); err != nil {
			return nil, err
		}
		for sub := range schema.Subnets.By(o.tx, "network", networkID) {
			if sub.IPVersion == p.IPVersion {
				moved = append(moved, sub)
			}
		}
		if len(moved) == 0 {
			return moved, nil
		}
		rescoped, err := o.onboard(p, moved)
		if err != nil {
			return nil, err
		}
		if rescoped {
			pending, err = o.rescope(id)
		}
		return moved, err
	})
	if pending && err == nil {
		s.carryOut(ctx, workDeriveScopes, id)
	}
	return moved, err
}

// checkOnboarding refuses to move the subnets of a network that is not the caller's.
func (o *operation) checkOnboarding(networkID string) error {
	n, err := o.networkFor(networkID)
	switch {
	case err != nil:
		return err
	case !o.caller.Owns(n.ProjectID):
		return neutron.Errorf(neutron.Forbidden, "NotAuthorized", "Not authorized.")
	}
	return nil
}

// onboard moves subnets into a pool, and reports whether one had another address scope.
func (o *operation) onboard(p *neutron.SubnetPool, subnets []*neutron.Subnet) (rescoped bool, err error) {
	// The network's revision rises, so subnets that are made at once are held against each other.
	if err := o.bumpNetwork(subnets[0].NetworkID); err != nil {
		return false, err
	}
	ranges := slices.Clone(p.Prefixes)
	for _, sub := range subnets {
		ranges = append(ranges, sub.CIDR)
	}
	if _, err := o.changeSubnetPool(p, neutron.Values{"prefixes": ranges}); err != nil {
		return false, err
	}
	for _, old := range subnets {
		switch free, err := o.space(p.ID).take(old.CIDR); {
		case err != nil:
			return false, err
		case !free:
			return false, illegalPoolUpdate("Onboarding subnet %s: %s conflicts with allocated prefixes in subnet pool %s", old.ID, old.CIDR, p.ID)
		}
		scope := ""
		if old.SubnetPoolID != "" {
			scope = o.scopeOfPool(old.SubnetPoolID)
			if err := o.space(old.SubnetPoolID).give(old.CIDR); err != nil {
				return false, err
			}
		}
		rescoped = rescoped || scope != p.AddressScopeID
		sub := *old
		sub.SubnetPoolID = p.ID
		o.bump(&sub.Standard)
		if err := schema.Subnets.Put(o.tx, &sub); err != nil {
			return false, err
		}
	}
	return rescoped, nil
}

// subnetPoolToActOn finds a pool that the caller may change.
func (o *operation) subnetPoolToActOn(id, action string) (*neutron.SubnetPool, error) {
	p, owner, err := o.subnetPools.inTransaction(o, id)
	if err != nil {
		return nil, err
	}
	return p, neutron.AuthorizeAction(o.caller, neutron.SubnetPools, action, owner)
}

// delete deletes a pool of which no subnet has a range.
func (s subnetPools) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return perform(ctx, s.service, c, func(o *operation) error {
		if _, err := s.toChange(o, id, neutron.Delete, nil, ifMatch); err != nil {
			return err
		}
		o.space(id)
		err := schema.SubnetPools.Delete(o.tx, id)
		var used *records.InUseError
		if errors.As(err, &used) {
			return neutron.Errorf(neutron.Invalid, "SubnetPoolDeleteError", "Unable to delete subnet pool: Subnet pool has existing allocations.")
		}
		return err
	})
}

func illegalPrefixUpdate(why string) error {
	return neutron.Errorf(neutron.Invalid, "IllegalSubnetPoolPrefixUpdate", "Illegal update to prefixes: %s.", why)
}

func illegalPoolUpdate(format string, args ...any) error {
	return neutron.Errorf(neutron.Invalid, "IllegalSubnetPoolUpdate", "Illegal subnetpool update : "+format+".", args...)
}
