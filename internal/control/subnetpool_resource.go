package control

import (
	"iter"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// The operations on subnet pools and address scopes.
type (
	subnetPools struct {
		*resource[neutron.SubnetPool, neutron.SubnetPoolView]
	}
	addressScopes struct {
		*resource[neutron.AddressScope, neutron.AddressScopeView]
	}
)

func newSubnetPools(s *Service) *resource[neutron.SubnetPool, neutron.SubnetPoolView] {
	return shareable(&resource[neutron.SubnetPool, neutron.SubnetPoolView]{
		service: s, name: neutron.SubnetPools, make: (*operation).createSubnetPool, finder: ownAndGranted(schema.SubnetPools, neutron.SubnetPools),
		standard:   func(p *neutron.SubnetPool) *neutron.Standard { return &p.Standard },
		attributes: func(o *neutron.SubnetPoolView) *neutron.Standard { return &o.Standard },
		answer: func(_ records.Reader, p *neutron.SubnetPool, _ neutron.Query) *neutron.SubnetPoolView {
			return &neutron.SubnetPoolView{SubnetPool: p}
		},
	}, func(o *neutron.SubnetPoolView) *bool { return &o.Shared })
}

func newAddressScopes(s *Service) *resource[neutron.AddressScope, neutron.AddressScopeView] {
	return shareable(&resource[neutron.AddressScope, neutron.AddressScopeView]{
		service: s, name: neutron.AddressScopes, make: (*operation).createAddressScope, finder: ownAndGranted(schema.AddressScopes, neutron.AddressScopes),
		standard:   func(a *neutron.AddressScope) *neutron.Standard { return &a.Standard },
		attributes: func(o *neutron.AddressScopeView) *neutron.Standard { return &o.Standard },
		answer: func(_ records.Reader, a *neutron.AddressScope, _ neutron.Query) *neutron.AddressScopeView {
			return &neutron.AddressScopeView{AddressScope: a}
		},
	}, func(o *neutron.AddressScopeView) *bool { return &o.Shared })
}

// ownAndGranted returns a finder of objects that policies share, with an index by project and name.
func ownAndGranted[T any](t *records.Table[T], typ neutron.Resource) finder[T] {
	return finder[T]{t, []criterion[T]{
		byOwnID(t),
		byName(t).onlyAdmins(),
		byProject(t),
		onlyShared(t, typ),
	}, func(r records.Reader, c neutron.Caller) []iter.Seq[*T] {
		return append(sharedObjects(t, typ, r, c), t.By(r, "project", c.ProjectID))
	}}
}

// sharedPools returns the type of subnet pools, whose users are the projects with subnets. One is
// shared with those alone who may use its address scope.
func sharedPools() sharedType {
	t := sharedTable(neutron.SubnetPools, schema.SubnetPools, func(p *neutron.SubnetPool) string { return p.ProjectID },
		usersIn(schema.Subnets, "subnetpool", func(s *neutron.Subnet) string { return s.ProjectID }))
	t.admit = func(o *operation, policy *neutron.RBACPolicy) error {
		p, err := schema.SubnetPools.Get(o.tx, policy.ObjectID)
		if err != nil || p.AddressScopeID == "" {
			return err
		}
		target := policy.Target
		if target == neutron.EveryProject {
			target = ""
		}
		if sharedWith(o.tx, target, neutron.AddressScopes, p.AddressScopeID) {
			return nil
		}
		return neutron.Errorf(neutron.Invalid, "RbacPolicyInitError", "Failed to create RBAC policy on object %s because %s.",
			p.ID, "target project doesn't have access to associated address scope.")
	}
	return t
}

// SubnetPools returns the operations on subnet pools, beside [Service.AddPrefixes],
// [Service.RemovePrefixes] and [Service.OnboardSubnets].
func (s *Service) SubnetPools() Operations[*neutron.SubnetPoolView] {
	o := s.subnetPools.operations()
	o.Update, o.Delete = s.subnetPools.update, s.subnetPools.delete
	return o
}

// AddressScopes returns the operations on address scopes.
func (s *Service) AddressScopes() Operations[*neutron.AddressScopeView] {
	o := s.addressScopes.untagged()
	o.Update, o.Delete = s.addressScopes.update, s.addressScopes.delete
	return o
}
