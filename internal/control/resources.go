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

// Network returns a network that the caller may see.
func (s *Service) Network(ctx context.Context, c neutron.Caller, id string) (*neutron.NetworkView, error) {
	return s.networks().show(ctx, c, id)
}

// Networks lists the networks that the caller may see.
func (s *Service) Networks(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.NetworkView], error) {
	return s.networks().list(ctx, c, q)
}

func (s *Service) networks() resource[neutron.Network, neutron.NetworkView] {
	res := resource[neutron.Network, neutron.NetworkView]{
		Service: s, name: neutron.Networks, table: schema.Networks,
		standard: func(n *neutron.Network) *neutron.Standard { return &n.Standard },
		owner:    func(_ records.Reader, n *neutron.Network) (neutron.Owner, bool) { return networkOwner(n), true },
		asked: func(n *neutron.Network, q neutron.Query) bool {
			return (!q.OnlyShared || n.Shared) && (!q.OnlyExternal || n.External)
		},
		answer: func(r records.Reader, n *neutron.Network, q neutron.Query) *neutron.NetworkView {
			if q.WithoutComputed {
				return networkView(n, nil)
			}
			return networkView(n, subnetsOn(r, n.ID))
		},
	}
	res.candidates = func(r records.Reader, c neutron.Caller, q neutron.Query) iter.Seq[*neutron.Network] {
		switch {
		case len(q.IDs) > 0:
			return res.byID(r, q.IDs)
		case len(q.Names) > 0:
			return res.by(r, "name", q.Names)
		case len(q.ProjectIDs) > 0:
			return res.by(r, "project", q.ProjectIDs)
		case q.OnlyExternal:
			return res.table.By(r, "external", "true")
		case q.OnlyShared:
			return res.table.By(r, "shared", "true")
		case c.Admin():
			return res.table.All(r)
		}
		return res.union(res.table.By(r, "project", c.ProjectID), res.table.By(r, "shared", "true"), res.table.By(r, "external", "true"))
	}
	return res
}

func subnetsOn(r records.Reader, networkID string) []string {
	ids := []string{}
	for s := range schema.Subnets.By(r, "network", networkID) {
		ids = append(ids, s.ID)
	}
	return ids
}

// Subnet returns a subnet that the caller may see.
func (s *Service) Subnet(ctx context.Context, c neutron.Caller, id string) (*neutron.SubnetView, error) {
	return s.subnets().show(ctx, c, id)
}

// Subnets lists the subnets that the caller may see.
func (s *Service) Subnets(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.SubnetView], error) {
	return s.subnets().list(ctx, c, q)
}

func (s *Service) subnets() resource[neutron.Subnet, neutron.SubnetView] {
	res := resource[neutron.Subnet, neutron.SubnetView]{
		Service: s, name: neutron.Subnets, table: schema.Subnets,
		standard: func(s *neutron.Subnet) *neutron.Standard { return &s.Standard },
		owner:    onNetwork(func(s *neutron.Subnet) string { return s.NetworkID }, subnetOwner),
		asked:    func(s *neutron.Subnet, q neutron.Query) bool { return among(q.NetworkIDs, s.NetworkID) },
		answer: func(r records.Reader, s *neutron.Subnet, q neutron.Query) *neutron.SubnetView {
			if q.WithoutComputed {
				return &neutron.SubnetView{Subnet: s}
			}
			return subnetView(r, s)
		},
	}
	res.candidates = func(r records.Reader, c neutron.Caller, q neutron.Query) iter.Seq[*neutron.Subnet] {
		switch {
		case len(q.IDs) > 0:
			return res.byID(r, q.IDs)
		case len(q.NetworkIDs) > 0:
			return res.by(r, "network", q.NetworkIDs)
		case len(q.Names) > 0:
			return res.by(r, "name", q.Names)
		case len(q.ProjectIDs) > 0:
			return res.by(r, "project", q.ProjectIDs)
		case q.OnlyShared:
			return res.union(onNetworks(res.table, r, schema.Networks.By(r, "shared", "true"))...)
		case c.Admin():
			return res.table.All(r)
		}
		parts := onNetworks(res.table, r, s.networks().candidates(r, c, neutron.Query{}))
		return res.union(append(parts, res.table.By(r, "project", c.ProjectID))...)
	}
	return res
}

// onNetworks are the records of each network, for tables with an index by network.
func onNetworks[T any](t *records.Table[T], r records.Reader, networks iter.Seq[*neutron.Network]) []iter.Seq[*T] {
	var parts []iter.Seq[*T]
	for n := range networks {
		parts = append(parts, t.By(r, "network", n.ID))
	}
	return parts
}

// Port returns a port that the caller may see.
func (s *Service) Port(ctx context.Context, c neutron.Caller, id string) (*neutron.PortView, error) {
	return s.ports().show(ctx, c, id)
}

// Ports lists the ports that the caller may see.
func (s *Service) Ports(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.PortView], error) {
	return s.ports().list(ctx, c, q)
}

func (s *Service) ports() resource[neutron.Port, neutron.PortView] {
	res := resource[neutron.Port, neutron.PortView]{
		Service: s, name: neutron.Ports, table: schema.Ports,
		standard: func(p *neutron.Port) *neutron.Standard { return &p.Standard },
		owner:    onNetwork(func(p *neutron.Port) string { return p.NetworkID }, portOwner),
		asked:    portAsked,
		answer: func(r records.Reader, p *neutron.Port, q neutron.Query) *neutron.PortView {
			if q.WithoutComputed {
				return &neutron.PortView{Port: p}
			}
			return s.portView(r, p)
		},
	}
	res.candidates = func(r records.Reader, c neutron.Caller, q neutron.Query) iter.Seq[*neutron.Port] {
		switch {
		case len(q.IDs) > 0:
			return res.byID(r, q.IDs)
		case len(q.MACAddresses) > 0:
			return res.by(r, "mac_address", q.MACAddresses)
		case len(q.IPAddresses) > 0:
			return res.by(r, "ip_address", q.IPAddresses)
		case len(q.DeviceIDs) > 0:
			return res.by(r, "device_id", q.DeviceIDs)
		case len(q.Names) > 0:
			return res.by(r, "name", q.Names)
		case len(q.SubnetIDs) > 0:
			return res.by(r, "subnet", q.SubnetIDs)
		case len(q.NetworkIDs) > 0:
			return res.by(r, "network", q.NetworkIDs)
		case len(q.HostIDs) > 0:
			return res.by(r, "host", q.HostIDs)
		case len(q.SecurityGroupIDs) > 0:
			return res.by(r, "security_group", q.SecurityGroupIDs)
		case len(q.ProjectIDs) > 0:
			return res.by(r, "project", q.ProjectIDs)
		case c.Admin() && len(q.DeviceOwners) > 0:
			return res.by(r, "device_owner", q.DeviceOwners)
		case c.Admin():
			return res.table.All(r)
		}
		parts := onNetworks(res.table, r, schema.Networks.By(r, "project", c.ProjectID))
		return res.union(append(parts, res.table.By(r, "project", c.ProjectID))...)
	}
	return res
}

// portAsked leaves MAC addresses and IP addresses of a query to the index that found the port, or to the API.
func portAsked(p *neutron.Port, q neutron.Query) bool {
	return among(q.NetworkIDs, p.NetworkID) && among(q.DeviceIDs, p.DeviceID) && among(q.DeviceOwners, p.DeviceOwner) &&
		among(q.HostIDs, p.HostID) && amongAny(q.SubnetIDs, p.FixedIPs, func(f neutron.FixedIP) string { return f.SubnetID }) &&
		amongAny(q.SecurityGroupIDs, p.SecurityGroups, func(id string) string { return id })
}

// SecurityGroup returns a group that the caller may see.
func (s *Service) SecurityGroup(ctx context.Context, c neutron.Caller, id string) (*neutron.SecurityGroupView, error) {
	return s.groups().show(ctx, c, id)
}

// SecurityGroups lists the groups that the caller may see. It brings the default group of the project asked about, or
// else the caller's.
func (s *Service) SecurityGroups(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.SecurityGroupView], error) {
	snap, err := s.withDefaultGroup(ctx, c, q)
	if err != nil {
		return nil, err
	}
	return s.groups().in(snap, c, q), nil
}

func (s *Service) groups() resource[neutron.SecurityGroup, neutron.SecurityGroupView] {
	res := resource[neutron.SecurityGroup, neutron.SecurityGroupView]{
		Service: s, name: neutron.SecurityGroups, table: schema.SecurityGroups,
		standard: func(g *neutron.SecurityGroup) *neutron.Standard { return &g.Standard },
		owner:    func(_ records.Reader, g *neutron.SecurityGroup) (neutron.Owner, bool) { return groupOwner(g), true },
		asked:    func(_ *neutron.SecurityGroup, q neutron.Query) bool { return !q.OnlyShared },
		answer: func(_ records.Reader, g *neutron.SecurityGroup, _ neutron.Query) *neutron.SecurityGroupView {
			return &neutron.SecurityGroupView{SecurityGroup: g}
		},
	}
	res.candidates = func(r records.Reader, c neutron.Caller, q neutron.Query) iter.Seq[*neutron.SecurityGroup] {
		switch {
		case len(q.IDs) > 0:
			return res.byID(r, q.IDs)
		case len(q.ProjectIDs) > 0:
			return res.by(r, "project", q.ProjectIDs)
		case c.Admin() && len(q.Names) > 0:
			return res.by(r, "name", q.Names)
		case c.Admin():
			return res.table.All(r)
		}
		return res.table.By(r, "project", c.ProjectID)
	}
	return res
}

// withDefaultGroup is a snapshot in which there is the default group that a list of groups or rules brings.
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

// SecurityGroupRule returns a rule that the caller may see. It is shared: do not modify it.
func (s *Service) SecurityGroupRule(ctx context.Context, c neutron.Caller, id string) (*neutron.SecurityGroupRule, error) {
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

// SecurityGroupRules lists the rules that the caller may see. They are shared: do not modify them.
func (s *Service) SecurityGroupRules(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.SecurityGroupRule], error) {
	snap, err := s.withDefaultGroup(ctx, c, q)
	if err != nil {
		return nil, err
	}
	var rules []*neutron.SecurityGroupRule
	for g := range s.groupsOfRules(snap, c, q) {
		if !neutron.CanSee(c, neutron.SecurityGroupRules, groupOwner(g)) {
			continue
		}
		for i := range g.Rules {
			r := &g.Rules[i]
			if among(q.IDs, r.ID) && among(q.SecurityGroupIDs, r.SecurityGroupID) && among(q.RemoteGroupIDs, r.RemoteGroupID) &&
				among(q.ProjectIDs, r.ProjectID) {
				rules = append(rules, r)
			}
		}
	}
	slices.SortFunc(rules, func(a, b *neutron.SecurityGroupRule) int { return cmp.Compare(a.ID, b.ID) })
	return slices.Values(rules), nil
}

func (s *Service) groupsOfRules(r records.Reader, c neutron.Caller, q neutron.Query) iter.Seq[*neutron.SecurityGroup] {
	groups := s.groups()
	switch {
	case len(q.IDs) > 0:
		return groups.by(r, "rule", q.IDs)
	case len(q.SecurityGroupIDs) > 0:
		return groups.byID(r, q.SecurityGroupIDs)
	case len(q.RemoteGroupIDs) > 0:
		return groups.by(r, "remote_group", q.RemoteGroupIDs)
	case c.Admin():
		return groups.table.All(r)
	}
	return groups.table.By(r, "project", c.ProjectID)
}
