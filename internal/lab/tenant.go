package lab

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/projects"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/roles"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/users"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/portsbinding"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"heddle/internal/netlab"
)

// Tenant is a project with a user. Methods call the public API, and add each object to Undo unless
// they say otherwise.
type Tenant struct {
	API   *gophercloud.ServiceClient // as the tenant's own user
	Admin *gophercloud.ServiceClient // binding ports to hosts is the operator's right
	Undo  *UndoList
}

// UndoList holds steps that remove objects.
type UndoList struct {
	steps []undoStep
}

type undoStep struct {
	what string
	do   func(context.Context) error
}

// Add adds a step; what names the object in errors.
func (u *UndoList) Add(what string, do func(context.Context) error) {
	u.steps = append(u.steps, undoStep{what, do})
}

// Run runs the steps in reverse order, and goes on after failures.
func (u *UndoList) Run(ctx context.Context) []error {
	var errs []error
	for _, step := range slices.Backward(u.steps) {
		if err := step.do(ctx); err != nil {
			errs = append(errs, fmt.Errorf("take down %s: %w", step.what, err))
		}
	}
	u.steps = nil
	return errs
}

// NewTenant makes a project with a member and logs in as that member.
func (l *Lab) NewTenant(ctx context.Context, name string, undo *UndoList) (*Tenant, error) {
	identity, err := l.Admin.Identity()
	if err != nil {
		return nil, err
	}
	project, err := projects.Create(ctx, identity, projects.CreateOpts{Name: name}).Extract()
	if err != nil {
		return nil, fmt.Errorf("project %s: %w", name, err)
	}
	undo.Add("project "+name, func(ctx context.Context) error { return projects.Delete(ctx, identity, project.ID).ExtractErr() })
	const password = "demo-password"
	user, err := users.Create(ctx, identity, users.CreateOpts{Name: name, Password: password}).Extract()
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	undo.Add("user "+name, func(ctx context.Context) error { return users.Delete(ctx, identity, user.ID).ExtractErr() })
	if err := grantMember(ctx, identity, project.ID, user.ID); err != nil {
		return nil, err
	}
	own, err := l.Cloud.LoginAs(ctx, gophercloud.AuthOptions{UserID: user.ID, Password: password, TenantID: project.ID})
	if err != nil {
		return nil, err
	}
	t := &Tenant{Undo: undo}
	if t.API, err = own.Network(); err != nil {
		return nil, err
	}
	t.Admin, err = l.Admin.Network()
	return t, err
}

func grantMember(ctx context.Context, identity *gophercloud.ServiceClient, project, user string) error {
	pages, err := roles.List(identity, roles.ListOpts{Name: "member"}).AllPages(ctx)
	if err != nil {
		return fmt.Errorf("roles: %w", err)
	}
	found, err := roles.ExtractRoles(pages)
	if err != nil || len(found) != 1 {
		return fmt.Errorf("the identity service has no role member: %w", err)
	}
	return roles.Assign(ctx, identity, found[0].ID, roles.AssignOpts{UserID: user, ProjectID: project}).ExtractErr()
}

// Network makes a network with an IPv4 subnet and, with cidr6, an IPv6 one.
func (t *Tenant) Network(ctx context.Context, name, cidr, cidr6 string) (*networks.Network, error) {
	all := []subnets.CreateOpts{{CIDR: cidr, IPVersion: gophercloud.IPv4, Name: name}}
	if cidr6 != "" {
		all = append(all, subnets.CreateOpts{CIDR: cidr6, IPVersion: gophercloud.IPv6, Name: name + "6"})
	}
	return t.network(ctx, name, networks.CreateOpts{Name: name}, all)
}

func (t *Tenant) network(ctx context.Context, name string, opts networks.CreateOptsBuilder, all []subnets.CreateOpts) (*networks.Network, error) {
	n, err := networks.Create(ctx, t.API, opts).Extract()
	if err != nil {
		return nil, fmt.Errorf("network %s: %w", name, err)
	}
	t.Undo.Add("network "+name, func(ctx context.Context) error { return networks.Delete(ctx, t.API, n.ID).ExtractErr() })
	for _, s := range all {
		s.NetworkID = n.ID
		if _, err := subnets.Create(ctx, t.API, s).Extract(); err != nil {
			return nil, fmt.Errorf("subnet %s: %w", s.CIDR, err)
		}
	}
	return n, nil
}

// Group makes a security group with rules; without keepEgress the two default rules are removed.
func (t *Tenant) Group(ctx context.Context, name string, keepEgress bool, allow ...rules.CreateOpts) (string, error) {
	g, err := groups.Create(ctx, t.API, groups.CreateOpts{Name: name}).Extract()
	if err != nil {
		return "", fmt.Errorf("security group %s: %w", name, err)
	}
	t.Undo.Add("security group "+name, func(ctx context.Context) error { return groups.Delete(ctx, t.API, g.ID).ExtractErr() })
	if !keepEgress {
		for _, r := range g.Rules {
			if err := rules.Delete(ctx, t.API, r.ID).ExtractErr(); err != nil {
				return "", fmt.Errorf("rule of security group %s: %w", name, err)
			}
		}
	}
	for _, r := range allow {
		if _, err := t.Allow(ctx, g.ID, r); err != nil {
			return "", err
		}
	}
	return g.ID, nil
}

// Allow adds a rule, by default for incoming IPv4, and returns its id.
func (t *Tenant) Allow(ctx context.Context, group string, r rules.CreateOpts) (string, error) {
	r.SecGroupID = group
	r.Direction = cmp.Or(r.Direction, rules.DirIngress)
	r.EtherType = cmp.Or(r.EtherType, rules.EtherType4)
	made, err := rules.Create(ctx, t.API, r).Extract()
	if err != nil {
		return "", fmt.Errorf("rule of security group %s: %w", group, err)
	}
	return made.ID, nil
}

// Forbid removes a rule.
func (t *Tenant) Forbid(ctx context.Context, rule string) error {
	return rules.Delete(ctx, t.API, rule).ExtractErr()
}

// Port makes a port and then binds it to a host, as a hypervisor would.
func (t *Tenant) Port(ctx context.Context, name, network, host string, addresses, securityGroups []string) (*ports.Port, error) {
	opts := ports.CreateOpts{Name: name, NetworkID: network, FixedIPs: fixedIPs(addresses), SecurityGroups: &securityGroups}
	p, err := ports.Create(ctx, t.API, opts).Extract()
	if err != nil {
		return nil, fmt.Errorf("port %s: %w", name, err)
	}
	t.Undo.Add("port "+name, func(ctx context.Context) error { return ports.Delete(ctx, t.API, p.ID).ExtractErr() })
	owner := "compute:demo"
	bind := portsbinding.UpdateOptsExt{UpdateOptsBuilder: ports.UpdateOpts{DeviceOwner: &owner}, HostID: &host}
	if _, err := ports.Update(ctx, t.Admin, p.ID, bind).Extract(); err != nil {
		return nil, fmt.Errorf("bind port %s to host %s: %w", name, host, err)
	}
	return p, nil
}

// Create makes an object of a collection for which the client library has no calls, and returns its
// id.
func (t *Tenant) Create(ctx context.Context, kind string, fields map[string]any, collection ...string) (id string, err error) {
	var made map[string]struct{ ID string }
	url := t.API.ServiceURL(collection...)
	if _, err := t.API.Post(ctx, url, map[string]any{kind: fields}, &made, nil); err != nil {
		return "", fmt.Errorf("%s: %w", kind, err)
	}
	id = made[kind].ID
	t.Undo.Add(kind, func(ctx context.Context) error {
		_, err := t.API.Delete(ctx, url+"/"+id, nil)
		return err
	})
	return id, nil
}

func fixedIPs(addresses []string) []ports.IP {
	fixed := make([]ports.IP, len(addresses))
	for i, a := range addresses {
		fixed[i].IPAddress = a
	}
	return fixed
}

// WaitStatus waits some seconds for a port's status, and returns the last one.
func (t *Tenant) WaitStatus(ctx context.Context, port, want string) (got string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = netlab.Until(ctx, "status", func() (bool, error) { // the last one is returned
		var p *ports.Port
		if p, err = ports.Get(ctx, t.API, port).Extract(); err == nil {
			got = p.Status
		}
		return got == want, err
	})
	return got, err
}

// ofType adds provider:network_type to a network's options.
type ofType struct {
	networks.CreateOpts
	network string
}

// ToNetworkCreateMap returns the call's body.
func (o ofType) ToNetworkCreateMap() (map[string]any, error) {
	body, err := o.CreateOpts.ToNetworkCreateMap()
	if err == nil {
		body["network"].(map[string]any)["provider:network_type"] = o.network
	}
	return body, err
}

// RoutedNetwork makes a routed network with these subnets.
func (t *Tenant) RoutedNetwork(ctx context.Context, name string, all ...subnets.CreateOpts) (*networks.Network, error) {
	return t.network(ctx, name, ofType{networks.CreateOpts{Name: name}, "routed"}, all)
}

// BoundPort makes a port on a host in one call. The caller deletes it.
func (t *Tenant) BoundPort(ctx context.Context, name, network, host string, addresses []string, group string) (*ports.Port, error) {
	opts := ports.CreateOpts{Name: name, NetworkID: network, DeviceOwner: "compute:demo", FixedIPs: fixedIPs(addresses), SecurityGroups: &[]string{group}}
	p, err := ports.Create(ctx, t.API, portsbinding.CreateOptsExt{CreateOptsBuilder: opts, HostID: host}).Extract()
	if err != nil {
		return nil, fmt.Errorf("port %s: %w", name, err)
	}
	return p, nil
}
