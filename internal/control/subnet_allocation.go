package control

import (
	"math"
	"net/netip"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// poolFor returns the pool that a new subnet gets its range from; nil if the request names a range
// alone. The caller must see the pool.
func (o *operation) poolFor(v neutron.Values) (*neutron.SubnetPool, error) {
	_, hasCIDR := v["cidr"].(netip.Prefix)
	id, byDefault := v.Text("subnetpool_id"), v.Flag("use_default_subnetpool")
	switch {
	case hasCIDR && v.Number("prefixlen") != nil:
		return nil, badSubnets("cidr and prefixlen must not be supplied together")
	case id != "" && byDefault:
		return nil, badSubnets("subnetpool_id and use_default_subnetpool cannot both be specified")
	case id == "" && !byDefault && !hasCIDR:
		return nil, badSubnets("a subnetpool must be specified in the absence of a cidr")
	case id == "" && !byDefault, id == neutron.PrefixDelegationPool && hasCIDR:
		return nil, nil
	case !hasCIDR && len(list[neutron.Pool](v, "allocation_pools")) > 0:
		return nil, badSubnets("allocation_pools allowed only for specific subnet requests")
	case id == neutron.PrefixDelegationPool:
		return nil, badSubnets("this server has no prefix delegation; name a subnet pool or a cidr")
	case byDefault:
		return o.defaultPoolFor(number(v, "ip_version"))
	}
	p, _, err := o.subnetPools.inTransaction(o, id)
	if err == nil && p.IPVersion != number(v, "ip_version") {
		err = badSubnets("Cannot allocate IPv%d subnet from IPv%d subnet pool", number(v, "ip_version"), p.IPVersion)
	}
	return p, err
}

// defaultPoolFor returns the default pool of an IP version, which the caller must see.
func (o *operation) defaultPoolFor(version int) (*neutron.SubnetPool, error) {
	if p := o.visibleDefaultPool(version); p != nil {
		return p, nil
	}
	return nil, badSubnets("No default subnetpool found for IPv%d", version)
}

// visibleDefaultPool returns the default pool of an IP version if the caller sees it, or nil.
func (o *operation) visibleDefaultPool(version int) *neutron.SubnetPool {
	found := defaultSubnetPool(o.tx, version)
	if found == nil {
		return nil
	}
	p, _, err := o.subnetPools.inTransaction(o, found.ID)
	if err != nil {
		return nil
	}
	return p
}

func badSubnets(format string, args ...any) error {
	return neutron.Errorf(neutron.Invalid, "BadRequest", "Bad subnets request: "+format+".", args...)
}

// rangeFor returns the range of a new subnet: the one that the request names or, chosen, one of the
// pool. It is taken from the pool, if there is one.
func (o *operation) rangeFor(pool *neutron.SubnetPool, v neutron.Values) (cidr netip.Prefix, chosen bool, err error) {
	cidr, named := v["cidr"].(netip.Prefix)
	if pool == nil {
		return cidr, false, nil
	}
	bits := pool.DefaultPrefixLen
	if n := v.Number("prefixlen"); n != nil {
		bits = *n
	}
	if named {
		bits = cidr.Bits()
	}
	if err := o.checkShare(pool, v.Text("project_id"), bits); err != nil {
		return cidr, false, err
	}
	space, free := o.space(pool.ID), false
	if named {
		if free, err = space.take(cidr); err == nil && !free {
			err = neutron.Errorf(neutron.Invalid, "SubnetAllocationError",
				"Failed to allocate subnet: Cannot allocate requested subnet from the available set of prefixes.")
		}
		return cidr, false, err
	}
	if cidr, free, err = space.takeAny(bits); err == nil && !free {
		err = neutron.Errorf(neutron.Invalid, "SubnetAllocationError",
			"Failed to allocate subnet: Insufficient prefix space to allocate subnet size /%d.", bits)
	}
	return cidr, true, err
}

// checkShare refuses a range of a length that the pool does not give, or not to the project.
func (o *operation) checkShare(pool *neutron.SubnetPool, project string, bits int) error {
	switch {
	case bits > pool.MaxPrefixLen:
		return neutron.Errorf(neutron.Invalid, "MaxPrefixSubnetAllocationError",
			"Unable to allocate subnet with prefix length %d, maximum allowed prefix is %d.", bits, pool.MaxPrefixLen)
	case bits < pool.MinPrefixLen:
		return neutron.Errorf(neutron.Invalid, "MinPrefixSubnetAllocationError",
			"Unable to allocate subnet with prefix length %d, minimum allowed prefix is %d.", bits, pool.MinPrefixLen)
	case pool.DefaultQuota == nil || *pool.DefaultQuota == 0:
		return nil
	case shareOf(o.tx, pool, project)+quotaUnits(pool, bits) > float64(*pool.DefaultQuota):
		return conflict("SubnetPoolQuotaExceeded", "Per-tenant subnet pool prefix quota exceeded.")
	}
	return nil
}

// shareOf returns how much of a pool's quota a project's subnets use. The reference counts those of
// the pool's owner, whichever project asks.
func shareOf(r records.Reader, pool *neutron.SubnetPool, project string) float64 {
	used := 0.0
	for bits := range pool.Prefixes[0].Addr().BitLen() + 1 {
		subnets := schema.Subnets.CountBy(r, "pool_share", schema.PoolShare(pool.ID, project, bits))
		used += float64(subnets) * quotaUnits(pool, bits)
	}
	return used
}

// quotaUnits returns how many addresses, or for IPv6 how many /64, a range of a length has.
func quotaUnits(pool *neutron.SubnetPool, bits int) float64 {
	unit := 32
	if pool.IPVersion == 6 {
		unit = 64
	}
	return math.Ldexp(1, unit-bits)
}

// checkPoolAffinity refuses a new subnet that is not of the address scope or, without one, not of
// the pool that the network's subnets of its IP version are of.
func (o *operation) checkPoolAffinity(s *neutron.Subnet, others []*neutron.Subnet) error {
	var scope, own string
	if s.SubnetPoolID != "" {
		own = o.scopeOfPool(s.SubnetPoolID)
	}
	affine := true
	for _, other := range others {
		if other.IPVersion != s.IPVersion {
			continue
		}
		affine = affine && other.SubnetPoolID == s.SubnetPoolID
		if other.SubnetPoolID != "" {
			scope = o.scopeOfPool(other.SubnetPoolID)
		}
		if other.SubnetPoolID != "" && other.SubnetPoolID != s.SubnetPoolID {
			o.tx.Mark("subnets-beside/" + other.SubnetPoolID) // a change of its scope is checked again
		}
	}
	switch {
	case s.SubnetPoolID != "" && scope != "" && scope != own:
		return scopeAffinity()
	case !affine && (s.SubnetPoolID == "" || scope == ""):
		return neutron.Errorf(neutron.Invalid, "NetworkSubnetPoolAffinityError",
			"Subnets hosted on the same network must be allocated from the same subnet pool.")
	}
	return nil
}

// scopeOfPool returns the address scope of a pool that a subnet has, and guards it.
func (o *operation) scopeOfPool(id string) string {
	p, err := schema.SubnetPools.Get(o.tx, id)
	if err != nil {
		return ""
	}
	return p.AddressScopeID
}

// addressScopesOf returns the address scopes of subnets on one network.
func addressScopesOf(r records.Reader, subnets []*neutron.Subnet) (ids neutron.AddressScopeIDs) {
	for _, s := range subnets {
		p, ok := schema.SubnetPools.Peek(r, s.SubnetPoolID)
		switch {
		case !ok:
		case s.IPVersion == 4:
			ids.IPv4 = p.AddressScopeID
		default:
			ids.IPv6 = p.AddressScopeID
		}
	}
	return ids
}
