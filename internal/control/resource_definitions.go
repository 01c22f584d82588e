package control

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// The operations on the resources with standard attributes.
type (
	networks struct {
		*resource[neutron.Network, neutron.NetworkView]
	}
	subnets struct {
		*resource[neutron.Subnet, neutron.SubnetView]
	}
	ports struct {
		*resource[neutron.Port, neutron.PortView]
	}
	groups struct {
		*resource[neutron.SecurityGroup, neutron.SecurityGroupView]
	}
)

// rules are the operations on security group rules, which lie in their groups.
type rules struct {
	*Service
	groups *finder[neutron.SecurityGroup] // those with the rules that a query asks for
}

func newNetworks(s *Service) *resource[neutron.Network, neutron.NetworkView] {
	t := schema.Networks
	return &resource[neutron.Network, neutron.NetworkView]{
		service: s, name: neutron.Networks, make: (*operation).createNetwork,
		finder: finder[neutron.Network]{t, []criterion[neutron.Network]{
			byOwnID(t),
			byName(t),
			byProject(t),
			onlyExternal(),
			onlyShared(t, neutron.Networks),
		}, visibleNetworks},
		standard:   func(n *neutron.Network) *neutron.Standard { return &n.Standard },
		attributes: func(o *neutron.NetworkView) *neutron.Standard { return &o.Standard },
		shared:     seesNetwork,
		mark: func(r records.Reader, c neutron.Caller, v *neutron.NetworkView) {
			v.Shared = sharedWith(r, c.ProjectID, neutron.Networks, v.ID)
		},
		answer: func(r records.Reader, n *neutron.Network, q neutron.Query) *neutron.NetworkView {
			if q.WithoutComputed {
				return networkView(r, n, nil)
			}
			view := networkView(r, n, slices.Collect(schema.Subnets.By(r, "network", n.ID)))
			view.Zones, view.Segmented = zonesOfNetwork(r, n.ID), segmented(r, n.ID)
			return view
		},
	}
}

func newSubnets(s *Service) *resource[neutron.Subnet, neutron.SubnetView] {
	t := schema.Subnets
	shared := criterion[neutron.Subnet]{
		values: func(q *neutron.Query) []string { return flag(q.OnlyShared) },
		find: func(r records.Reader, c neutron.Caller, _ []string) iter.Seq[*neutron.Subnet] {
			networks := union(schema.Networks, sharedObjects(schema.Networks, neutron.Networks, r, c)...)
			return union(t, onNetworks(t, r, networks)...)
		},
	}
	return &resource[neutron.Subnet, neutron.SubnetView]{
		service: s, name: neutron.Subnets, make: (*operation).createSubnet,
		finder: finder[neutron.Subnet]{t, []criterion[neutron.Subnet]{
			byOwnID(t),
			by(t, "network", func(q *neutron.Query) []string { return q.NetworkIDs }),
			byName(t),
			byProject(t),
			shared,
		}, func(r records.Reader, c neutron.Caller) []iter.Seq[*neutron.Subnet] {
			networks := append(sharedObjects(schema.Networks, neutron.Networks, r, c), schema.Networks.By(r, "project", c.ProjectID))
			return append(onNetworks(t, r, union(schema.Networks, networks...)), t.By(r, "project", c.ProjectID))
		}},
		standard:   func(s *neutron.Subnet) *neutron.Standard { return &s.Standard },
		attributes: func(o *neutron.SubnetView) *neutron.Standard { return &o.Standard },
		owner:      onNetwork(func(s *neutron.Subnet) string { return s.NetworkID }, subnetOwner),
		answer: func(_ records.Reader, s *neutron.Subnet, _ neutron.Query) *neutron.SubnetView {
			return &neutron.SubnetView{Subnet: s}
		},
		shared: func(r records.Reader, c neutron.Caller, s *neutron.Subnet) bool {
			return sharedWith(r, c.ProjectID, neutron.Networks, s.NetworkID)
		},
		mark: func(r records.Reader, c neutron.Caller, v *neutron.SubnetView) {
			v.Shared = sharedWith(r, c.ProjectID, neutron.Networks, v.NetworkID)
		},
	}
}

// onNetworks returns the records of each network, for tables with an index by network.
func onNetworks[T any](t *records.Table[T], r records.Reader, networks iter.Seq[*neutron.Network]) []iter.Seq[*T] {
	var parts []iter.Seq[*T]
	for n := range networks {
		parts = append(parts, t.By(r, "network", n.ID))
	}
	return parts
}

func newPorts(s *Service) *resource[neutron.Port, neutron.PortView] {
	t := schema.Ports
	return &resource[neutron.Port, neutron.PortView]{
		service: s, name: neutron.Ports, make: (*operation).createPort,
		finder: finder[neutron.Port]{t, []criterion[neutron.Port]{
			byOwnID(t),
			by(t, "mac_address", func(q *neutron.Query) []string { return q.MACAddresses }),
			by(t, "ip_address", func(q *neutron.Query) []string { return q.IPAddresses }),
			by(t, "device_id", func(q *neutron.Query) []string { return q.DeviceIDs }),
			byName(t),
			by(t, "subnet", func(q *neutron.Query) []string { return q.SubnetIDs }),
			by(t, "network", func(q *neutron.Query) []string { return q.NetworkIDs }),
			by(t, "host", func(q *neutron.Query) []string { return q.HostIDs }),
			by(t, "security_group", func(q *neutron.Query) []string { return q.SecurityGroupIDs }),
			byProject(t),
			by(t, "device_owner", func(q *neutron.Query) []string { return q.DeviceOwners }).onlyAdmins(),
		}, func(r records.Reader, c neutron.Caller) []iter.Seq[*neutron.Port] {
			if c.AdvancedService() {
				return []iter.Seq[*neutron.Port]{t.All(r)}
			}
			parts := onNetworks(t, r, schema.Networks.By(r, "project", c.ProjectID))
			return append(parts, t.By(r, "project", c.ProjectID))
		}},
		standard:   func(p *neutron.Port) *neutron.Standard { return &p.Standard },
		attributes: func(o *neutron.PortView) *neutron.Standard { return &o.Standard },
		owner:      onNetwork(func(p *neutron.Port) string { return p.NetworkID }, portOwner),
		answer: func(r records.Reader, p *neutron.Port, q neutron.Query) *neutron.PortView {
			if q.WithoutComputed {
				return &neutron.PortView{Port: p}
			}
			return s.portView(r, p)
		},
	}
}

// list lists the groups that the caller may see. It brings the default group of the project asked
// about, or else the caller's.
func (s groups) list(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.SecurityGroupView], error) {
	snap, err := s.service.withDefaultGroup(ctx, c, q)
	if err != nil {
		return nil, err
	}
	return s.in(snap, c, q), nil
}

func newGroups(s *Service) *resource[neutron.SecurityGroup, neutron.SecurityGroupView] {
	t := schema.SecurityGroups
	return shareable(&resource[neutron.SecurityGroup, neutron.SecurityGroupView]{
		service: s, name: neutron.SecurityGroups, prepare: (*operation).makeDefaultGroups, make: (*operation).createGroup,
		finder: finder[neutron.SecurityGroup]{t, []criterion[neutron.SecurityGroup]{
			byOwnID(t),
			byProject(t),
			onlyShared(t, neutron.SecurityGroups),
			byName(t).onlyAdmins(),
		}, visibleGroups},
		standard:   func(g *neutron.SecurityGroup) *neutron.Standard { return &g.Standard },
		attributes: func(o *neutron.SecurityGroupView) *neutron.Standard { return &o.Standard },
		owner:      func(_ records.Reader, g *neutron.SecurityGroup) (neutron.Owner, bool) { return groupOwner(g), true },
		answer: func(_ records.Reader, g *neutron.SecurityGroup, _ neutron.Query) *neutron.SecurityGroupView {
			return &neutron.SecurityGroupView{SecurityGroup: g}
		},
	}, func(o *neutron.SecurityGroupView) *bool { return &o.Shared })
}

func visibleGroups(r records.Reader, c neutron.Caller) []iter.Seq[*neutron.SecurityGroup] {
	return append(sharedObjects(schema.SecurityGroups, neutron.SecurityGroups, r, c), ownGroups(r, c)...)
}

func ownGroups(r records.Reader, c neutron.Caller) []iter.Seq[*neutron.SecurityGroup] {
	return []iter.Seq[*neutron.SecurityGroup]{schema.SecurityGroups.By(r, "project", c.ProjectID)}
}

// groupsOfRules returns the finder of the groups whose rules a query asks for.
func groupsOfRules() *finder[neutron.SecurityGroup] {
	t := schema.SecurityGroups
	return &finder[neutron.SecurityGroup]{t, []criterion[neutron.SecurityGroup]{
		by(t, "rule", func(q *neutron.Query) []string { return q.IDs }),
		byID(t, func(q *neutron.Query) []string { return q.SecurityGroupIDs }),
		by(t, "remote_group", func(q *neutron.Query) []string { return q.RemoteGroupIDs }),
		by(t, "remote_address_group", func(q *neutron.Query) []string { return q.RemoteAddressGroupIDs }),
	}, ownGroups}
}

// withDefaultGroup returns a snapshot with the default group that a list brings.
func (s *Service) withDefaultGroup(ctx context.Context, c neutron.Caller, q neutron.Query) (*records.Snap, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	project := c.ProjectID
	if len(q.ProjectIDs) > 0 {
		project = q.ProjectIDs[0]
	}
	if project == "" || findDefaultGroup(snap, project) != nil || !c.Owns(project) {
		return snap, nil
	}
	err = perform(ctx, s, c, func(o *operation) error {
		_, err := o.defaultGroup(project)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.view(ctx)
}

// show returns a rule that the caller may see. It is shared: do not modify it.
func (s rules) show(ctx context.Context, c neutron.Caller, id string) (*neutron.SecurityGroupRule, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	g, i := findRule(snap, id)
	if g == nil || !neutron.CanSee(c, neutron.SecurityGroupRules, groupOwner(g)) {
		return nil, neutron.SecurityGroupRules.NotFound(id)
	}
	return &g.Rules[i], nil
}

// list lists the rules that the caller may see. They are shared: do not modify them.
func (s rules) list(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.SecurityGroupRule], error) {
	snap, err := s.withDefaultGroup(ctx, c, q)
	if err != nil {
		return nil, err
	}
	var found []*neutron.SecurityGroupRule
	groups, _ := s.groups.candidates(snap, c, &q)
	for g := range groups {
		if !neutron.CanSee(c, neutron.SecurityGroupRules, groupOwner(g)) {
			continue
		}
		for i := range g.Rules {
			r := &g.Rules[i]
			if among(q.IDs, r.ID) && among(q.SecurityGroupIDs, r.SecurityGroupID) && among(q.RemoteGroupIDs, r.RemoteGroupID) &&
				among(q.RemoteAddressGroupIDs, r.RemoteAddressGroupID) && among(q.ProjectIDs, r.ProjectID) {
				found = append(found, r)
			}
		}
	}
	slices.SortFunc(found, func(a, b *neutron.SecurityGroupRule) int { return cmp.Compare(a.ID, b.ID) })
	return slices.Values(found), nil
}
