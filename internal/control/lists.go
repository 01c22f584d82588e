package control

import (
	"context"
	"iter"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// A list walks the narrowest index that its query and the caller's rights allow, and leaves out what the query's other
// fields or the rights do not let through: its cost follows the answer, not the store.

// Network returns a network that the caller may see.
func (s *Service) Network(ctx context.Context, c neutron.Caller, id string) (*neutron.NetworkView, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	n, ok := schema.Networks.Peek(snap, id)
	if !ok || !neutron.CanSee(c, neutron.Networks, networkOwner(n)) {
		return nil, neutron.Networks.NotFound(id)
	}
	return networkView(n, subnetsOn(snap, id)), nil
}

// Networks lists the networks that the caller may see.
func (s *Service) Networks(ctx context.Context, c neutron.Caller, q neutron.Query) ([]*neutron.NetworkView, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	views := []*neutron.NetworkView{}
	for n := range candidateNetworks(snap, c, q) {
		if !neutron.CanSee(c, neutron.Networks, networkOwner(n)) || !among(q.IDs, n.ID) || !among(q.Names, n.Name) ||
			!among(q.ProjectIDs, n.ProjectID) || q.OnlyShared && !n.Shared || q.OnlyExternal && !n.External {
			continue
		}
		v := networkView(n, nil)
		if !q.WithoutComputed {
			v.Subnets = subnetsOn(snap, n.ID)
		}
		views = append(views, v)
	}
	return views, nil
}

func candidateNetworks(r records.Reader, c neutron.Caller, q neutron.Query) iter.Seq[*neutron.Network] {
	t := schema.Networks
	switch {
	case len(q.IDs) > 0:
		return byID(t, r, q.IDs)
	case len(q.Names) > 0:
		return by(t, r, "name", q.Names)
	case len(q.ProjectIDs) > 0:
		return by(t, r, "project", q.ProjectIDs)
	case q.OnlyExternal:
		return t.By(r, "external", "true")
	case q.OnlyShared:
		return t.By(r, "shared", "true")
	case c.Admin():
		return t.All(r)
	}
	return func(yield func(*neutron.Network) bool) {
		for n := range t.By(r, "project", c.ProjectID) {
			if !yield(n) {
				return
			}
		}
		for n := range t.By(r, "shared", "true") {
			if n.ProjectID != c.ProjectID && !yield(n) {
				return
			}
		}
		for n := range t.By(r, "external", "true") {
			if n.ProjectID != c.ProjectID && !n.Shared && !yield(n) {
				return
			}
		}
	}
}

func subnetsOn(r records.Reader, networkID string) []string {
	ids := []string{}
	for s := range schema.Subnets.By(r, "network", networkID) {
		ids = append(ids, s.ID)
	}
	return ids
}

// Subnet returns a subnet that the caller may see. It is shared: do not modify it.
func (s *Service) Subnet(ctx context.Context, c neutron.Caller, id string) (*neutron.Subnet, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	sub, ok := schema.Subnets.Peek(snap, id)
	if !ok || !seesSubnet(snap, c, sub) {
		return nil, neutron.Subnets.NotFound(id)
	}
	return sub, nil
}

// Subnets lists the subnets that the caller may see. They are shared: do not modify them.
func (s *Service) Subnets(ctx context.Context, c neutron.Caller, q neutron.Query) ([]*neutron.Subnet, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	subnets := []*neutron.Subnet{}
	for sub := range candidateSubnets(snap, c, q) {
		if among(q.IDs, sub.ID) && among(q.Names, sub.Name) && among(q.NetworkIDs, sub.NetworkID) &&
			among(q.ProjectIDs, sub.ProjectID) && seesSubnet(snap, c, sub) {
			subnets = append(subnets, sub)
		}
	}
	return subnets, nil
}

func candidateSubnets(r records.Reader, c neutron.Caller, q neutron.Query) iter.Seq[*neutron.Subnet] {
	t := schema.Subnets
	switch {
	case len(q.IDs) > 0:
		return byID(t, r, q.IDs)
	case len(q.NetworkIDs) > 0:
		return by(t, r, "network", q.NetworkIDs)
	case len(q.Names) > 0:
		return by(t, r, "name", q.Names)
	case len(q.ProjectIDs) > 0:
		return by(t, r, "project", q.ProjectIDs)
	case c.Admin():
		return t.All(r)
	}
	return func(yield func(*neutron.Subnet) bool) {
		for s := range t.By(r, "project", c.ProjectID) {
			if !yield(s) {
				return
			}
		}
		for n := range candidateNetworks(r, c, neutron.Query{}) {
			for s := range t.By(r, "network", n.ID) {
				if s.ProjectID != c.ProjectID && !yield(s) {
					return
				}
			}
		}
	}
}

func seesSubnet(r records.Reader, c neutron.Caller, s *neutron.Subnet) bool {
	if c.Owns(s.ProjectID) {
		return true
	}
	n, ok := schema.Networks.Peek(r, s.NetworkID)
	return ok && neutron.CanSee(c, neutron.Subnets, subnetOwner(s, n))
}

// Port returns a port that the caller may see.
func (s *Service) Port(ctx context.Context, c neutron.Caller, id string) (*neutron.PortView, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	p, ok := schema.Ports.Peek(snap, id)
	if !ok || !seesPort(snap, c, p) {
		return nil, neutron.Ports.NotFound(id)
	}
	return s.portView(snap, p), nil
}

// Ports lists the ports that the caller may see.
func (s *Service) Ports(ctx context.Context, c neutron.Caller, q neutron.Query) ([]*neutron.PortView, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	views := []*neutron.PortView{}
	for p := range candidatePorts(snap, c, q) {
		if !asked(p, q) || !seesPort(snap, c, p) {
			continue
		}
		if q.WithoutComputed {
			views = append(views, &neutron.PortView{Port: p})
		} else {
			views = append(views, s.portView(snap, p))
		}
	}
	return views, nil
}

// asked says whether a query lets a port through. Addresses of lists are compared by index alone.
func asked(p *neutron.Port, q neutron.Query) bool {
	return among(q.IDs, p.ID) && among(q.Names, p.Name) && among(q.ProjectIDs, p.ProjectID) && among(q.NetworkIDs, p.NetworkID) &&
		among(q.DeviceIDs, p.DeviceID) && among(q.DeviceOwners, p.DeviceOwner) && among(q.HostIDs, p.HostID) &&
		(len(q.SubnetIDs) == 0 || slices.ContainsFunc(p.FixedIPs, func(f neutron.FixedIP) bool { return slices.Contains(q.SubnetIDs, f.SubnetID) })) &&
		(len(q.SecurityGroupIDs) == 0 || slices.ContainsFunc(p.SecurityGroups, func(g string) bool { return slices.Contains(q.SecurityGroupIDs, g) }))
}

func candidatePorts(r records.Reader, c neutron.Caller, q neutron.Query) iter.Seq[*neutron.Port] {
	t := schema.Ports
	switch {
	case len(q.IDs) > 0:
		return byID(t, r, q.IDs)
	case len(q.MACAddresses) > 0:
		return by(t, r, "mac_address", q.MACAddresses)
	case len(q.IPAddresses) > 0:
		return byEach(t, r, "ip_address", q.IPAddresses)
	case len(q.DeviceIDs) > 0:
		return by(t, r, "device_id", q.DeviceIDs)
	case len(q.Names) > 0:
		return by(t, r, "name", q.Names)
	case len(q.SubnetIDs) > 0:
		return byEach(t, r, "subnet", q.SubnetIDs)
	case len(q.NetworkIDs) > 0:
		return by(t, r, "network", q.NetworkIDs)
	case len(q.HostIDs) > 0:
		return by(t, r, "host", q.HostIDs)
	case len(q.SecurityGroupIDs) > 0:
		return byEach(t, r, "security_group", q.SecurityGroupIDs)
	case len(q.ProjectIDs) > 0:
		return by(t, r, "project", q.ProjectIDs)
	case c.Admin() && len(q.DeviceOwners) > 0:
		return by(t, r, "device_owner", q.DeviceOwners)
	case c.Admin():
		return t.All(r)
	}
	return func(yield func(*neutron.Port) bool) {
		for p := range t.By(r, "project", c.ProjectID) {
			if !yield(p) {
				return
			}
		}
		for n := range schema.Networks.By(r, "project", c.ProjectID) {
			for p := range t.By(r, "network", n.ID) {
				if p.ProjectID != c.ProjectID && !yield(p) {
					return
				}
			}
		}
	}
}

func seesPort(r records.Reader, c neutron.Caller, p *neutron.Port) bool {
	if c.Owns(p.ProjectID) {
		return true
	}
	n, ok := schema.Networks.Peek(r, p.NetworkID)
	return ok && neutron.CanSee(c, neutron.Ports, portOwner(p, n))
}

// SecurityGroup returns a group that the caller may see.
func (s *Service) SecurityGroup(ctx context.Context, c neutron.Caller, id string) (*neutron.SecurityGroupView, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	g, ok := schema.SecurityGroups.Peek(snap, id)
	if !ok || !neutron.CanSee(c, neutron.SecurityGroups, groupOwner(g)) {
		return nil, neutron.SecurityGroups.NotFound(id)
	}
	return &neutron.SecurityGroupView{SecurityGroup: g}, nil
}

// SecurityGroups lists the groups that the caller may see. It brings the default group of the project asked about, or
// else the caller's.
func (s *Service) SecurityGroups(ctx context.Context, c neutron.Caller, q neutron.Query) ([]*neutron.SecurityGroupView, error) {
	snap, err := s.withDefaultGroup(ctx, c, q)
	if err != nil {
		return nil, err
	}
	views := []*neutron.SecurityGroupView{}
	for g := range candidateGroups(snap, c, q) {
		if among(q.IDs, g.ID) && among(q.Names, g.Name) && among(q.ProjectIDs, g.ProjectID) && !q.OnlyShared &&
			neutron.CanSee(c, neutron.SecurityGroups, groupOwner(g)) {
			views = append(views, &neutron.SecurityGroupView{SecurityGroup: g})
		}
	}
	return views, nil
}

func candidateGroups(r records.Reader, c neutron.Caller, q neutron.Query) iter.Seq[*neutron.SecurityGroup] {
	t := schema.SecurityGroups
	switch {
	case len(q.IDs) > 0:
		return byID(t, r, q.IDs)
	case len(q.ProjectIDs) > 0:
		return by(t, r, "project", q.ProjectIDs)
	case c.Admin() && len(q.Names) > 0:
		return by(t, r, "name", q.Names)
	case c.Admin():
		return t.All(r)
	}
	return t.By(r, "project", c.ProjectID)
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
func (s *Service) SecurityGroupRules(ctx context.Context, c neutron.Caller, q neutron.Query) ([]*neutron.SecurityGroupRule, error) {
	snap, err := s.withDefaultGroup(ctx, c, q)
	if err != nil {
		return nil, err
	}
	rules := []*neutron.SecurityGroupRule{}
	for g := range groupsOfRules(snap, c, q) {
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
	return rules, nil
}

func groupsOfRules(r records.Reader, c neutron.Caller, q neutron.Query) iter.Seq[*neutron.SecurityGroup] {
	t := schema.SecurityGroups
	switch {
	case len(q.IDs) > 0:
		return byEach(t, r, "rule", q.IDs)
	case len(q.SecurityGroupIDs) > 0:
		return byID(t, r, q.SecurityGroupIDs)
	case len(q.RemoteGroupIDs) > 0:
		return byEach(t, r, "remote_group", q.RemoteGroupIDs)
	case c.Admin():
		return t.All(r)
	}
	return t.By(r, "project", c.ProjectID)
}

// among says whether a list of a query lets a value through: it is empty, or has it.
func among(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }

// byID are the records with these ids.
func byID[T any](t *records.Table[T], r records.Reader, ids []string) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, id := range distinct(ids) {
			if record, ok := t.Peek(r, id); ok && !yield(record) {
				return
			}
		}
	}
}

// by are the records with one of these values in an index in which each record has one value.
func by[T any](t *records.Table[T], r records.Reader, index string, values []string) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, value := range distinct(values) {
			for record := range t.By(r, index, value) {
				if !yield(record) {
					return
				}
			}
		}
	}
}

// byEach is by for an index in which a record may have several values.
func byEach[T any](t *records.Table[T], r records.Reader, index string, values []string) iter.Seq[*T] {
	if len(values) == 1 {
		return t.By(r, index, values[0])
	}
	return func(yield func(*T) bool) {
		seen := map[*T]bool{}
		for record := range by(t, r, index, values) {
			if !seen[record] && !yield(record) {
				return
			}
			seen[record] = true
		}
	}
}

// distinct keeps the first of equal texts.
func distinct(texts []string) []string {
	out := make([]string, 0, len(texts))
	for _, t := range texts {
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}
