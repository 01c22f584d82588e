package control

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

func (o *operation) createFirewallGroup(_ context.Context, v neutron.Values) (*neutron.FirewallGroup, error) {
	if v.Text("name") == neutron.DefaultFirewallGroup {
		return nil, defaultGroupExists()
	}
	g := &neutron.FirewallGroup{
		Standard: o.standard(v, 0), AdminStateUp: v.Flag("admin_state_up"), Shared: v.Flag("shared"), PortIDs: []string{},
	}
	if err := o.applyFirewallGroup(g, v); err != nil {
		return nil, err
	}
	return g, o.putFirewallGroup(g)
}

// update changes a firewall group. Of a default group members change only the ports, and admins all
// but the name.
func (s firewallGroups) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.FirewallGroupView, error) {
	return s.modify(ctx, c, id, v, ifMatch, func(o *operation, g, old *neutron.FirewallGroup) error {
		if err := checkDefaultFirewallGroup(c, old, v); err != nil {
			return err
		}
		setFlag(&g.AdminStateUp, v, "admin_state_up")
		setFlag(&g.Shared, v, "shared")
		return o.applyFirewallGroup(g, v)
	}, (*operation).putFirewallGroup)
}

// checkDefaultFirewallGroup refuses changes of a default group, and of another one into that.
func checkDefaultFirewallGroup(c neutron.Caller, old *neutron.FirewallGroup, v neutron.Values) error {
	if old.Name != neutron.DefaultFirewallGroup {
		if v.Text("name") == neutron.DefaultFirewallGroup {
			return defaultGroupExists()
		}
		return nil
	}
	fixed := []string{"name"}
	if !c.Admin() {
		fixed = append(fixed, "description", "admin_state_up", attrIngressPolicy, attrEgressPolicy)
	}
	if slices.ContainsFunc(fixed, v.Has) {
		return conflict("FirewallGroupCannotUpdateDefault", "Updating default firewall group not allowed.")
	}
	return nil
}

// delete deletes a firewall group that is not active.
func (s firewallGroups) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return perform(ctx, s.service, c, func(o *operation) error {
		g, err := s.toChange(o, id, neutron.Delete, nil, ifMatch)
		switch {
		case err != nil:
			return err
		case g.Name == neutron.DefaultFirewallGroup && !c.Admin():
			return conflict("FirewallGroupCannotRemoveDefault", "Deleting default firewall group not allowed.")
		case (&neutron.FirewallGroupView{FirewallGroup: g}).Status() == statusActive:
			return conflict("FirewallGroupInUse", "Firewall group %s is still active.", id)
		}
		return errors.Join(o.dropBundle(kindFirewallGroup, id), schema.FirewallGroups.Delete(o.tx, id))
	})
}

// The attributes by which a firewall group has policies.
const (
	attrIngressPolicy = "ingress_firewall_policy_id"
	attrEgressPolicy  = "egress_firewall_policy_id"
)

// applyFirewallGroup sets the policies and ports that a request names.
func (o *operation) applyFirewallGroup(g *neutron.FirewallGroup, v neutron.Values) error {
	for name, to := range map[string]*string{attrIngressPolicy: &g.IngressPolicyID, attrEgressPolicy: &g.EgressPolicyID} {
		if v.Has(name) {
			*to = v.Text(name)
		}
	}
	for _, id := range []string{v.Text(attrIngressPolicy), v.Text(attrEgressPolicy)} {
		if id == "" {
			continue
		}
		if err := o.checkGroupPolicy(g, id); err != nil {
			return err
		}
	}
	if !v.Has("ports") {
		return nil
	}
	return o.setGroupPorts(g, list[string](v, "ports"))
}

// checkGroupPolicy refuses a policy that is neither shared nor of the group's project.
func (o *operation) checkGroupPolicy(g *neutron.FirewallGroup, id string) error {
	p, _, err := o.groupPolicies.inTransaction(o, id)
	if err != nil {
		return err
	}
	if !p.Shared && p.ProjectID != g.ProjectID {
		return neutron.Errorf(neutron.NotFound, "FirewallPolicyConflict", "Operation cannot be performed since firewall policy %s for your project "+
			"could not be found. Please confirm if the firewall policy exists and is shared.", id)
	}
	return nil
}

// setGroupPorts puts a group on interfaces of its project's routers that have no other group.
func (o *operation) setGroupPorts(g *neutron.FirewallGroup, ids []string) error {
	var taken []string
	for _, id := range ids {
		if slices.Contains(g.PortIDs, id) {
			continue
		}
		p, _, err := o.ports.inTransaction(o, id)
		if err != nil {
			return err
		}
		x, err := schema.RouterPorts.Get(o.tx, id)
		switch {
		case err != nil || x.Gateway:
			return conflict("FirewallGroupPortInvalid", "Port %s of firewall group is invalid.", id)
		case p.ProjectID != g.ProjectID:
			return conflict("FirewallGroupPortInvalidProject", "Operation cannot be performed as port %s is in an invalid project %s.", id, p.ProjectID)
		case len(schema.FirewallGroups.Referrers(o.tx, "port", id)) > 0:
			taken = append(taken, id)
		}
	}
	if taken != nil {
		return portsInFirewallGroups(taken...)
	}
	g.PortIDs = ids
	return nil
}

func portsInFirewallGroups(ids ...string) error {
	return conflict("FirewallGroupPortInUse", "Port(s) %s provided already associated with other firewall group(s).", strings.Join(ids, ", "))
}

func defaultGroupExists() error {
	return conflict("FirewallGroupDefaultAlreadyExists",
		"Default firewall group already exists. 'default' is the reserved name for firewall group.")
}

// putFirewallGroup stores a group with what is derived from it.
func (o *operation) putFirewallGroup(g *neutron.FirewallGroup) error {
	err := schema.FirewallGroups.Put(o.tx, g)
	var taken *records.TakenError
	if errors.As(err, &taken) && taken.Name == "one_group" {
		return portsInFirewallGroups(taken.Value)
	}
	if err != nil {
		return err
	}
	ports := make([]translate.GroupPort, len(g.PortIDs))
	for i, id := range g.PortIDs {
		x, err := schema.RouterPorts.Need(o.tx, id)
		if err != nil {
			return err
		}
		ports[i] = translate.GroupPort{PortID: id, RouterID: x.RouterID}
	}
	return o.putBundle(kindFirewallGroup, g.ID, translate.FirewallGroup(g, ports))
}

// leaveFirewallGroup takes a router's port that is going out of its group.
func (o *operation) leaveFirewallGroup(port string) error {
	for _, id := range schema.FirewallGroups.Referrers(o.tx, "port", port) {
		old, err := schema.FirewallGroups.Get(o.tx, id)
		if err != nil {
			return err
		}
		g := *old
		g.PortIDs = slices.DeleteFunc(slices.Clone(g.PortIDs), func(p string) bool { return p == port })
		o.bump(&g.Standard)
		if err := o.putFirewallGroup(&g); err != nil {
			return err
		}
	}
	return nil
}

// makeDefaultFirewallGroups makes the default groups of the projects that are about to get others.
func (o *operation) makeDefaultFirewallGroups(vs []neutron.Values) error {
	for _, v := range vs {
		if err := o.makeDefaultFirewallGroup(v.Text("project_id")); err != nil {
			return err
		}
	}
	return nil
}

func hasDefaultFirewallGroup(r records.Reader, project string) bool {
	return schema.FirewallGroups.CountBy(r, "default", project) > 0
}

// makeDefaultFirewallGroup makes a project's default group unless it has one: its ports let out
// what machines send, and its replies in. No quota stands against it, as in the reference. A unique
// key keeps it single.
func (o *operation) makeDefaultFirewallGroup(project string) error {
	if project == "" || o.opts.NoDefaultGroups || hasDefaultFirewallGroup(o.tx, project) {
		return nil
	}
	named := func(name, description string) neutron.Standard {
		return o.standard(neutron.Values{"project_id": project, "name": name, "description": description}, 0)
	}
	policy := func(direction, description, action string) (string, error) {
		p := &neutron.FirewallPolicy{Standard: named("default "+direction, description)}
		for _, version := range []int{4, 6} {
			family := "IPv" + strconv.Itoa(version)
			r := &neutron.FirewallRule{
				Standard:  named("default "+direction+" "+strings.ToLower(family), "default "+direction+" rule for "+family),
				IPVersion: version, Action: action, Enabled: true,
			}
			p.Rules = append(p.Rules, r.ID)
			if err := schema.FirewallGroupRules.Put(o.tx, r); err != nil {
				return "", err
			}
		}
		return p.ID, o.putGroupPolicy(p)
	}
	ingress, err := policy("ingress", "Ingress firewall policy", neutron.FirewallDeny)
	if err != nil {
		return err
	}
	egress, err := policy("egress", "Egress firewall policy", neutron.FirewallAllow)
	if err != nil {
		return err
	}
	return o.putFirewallGroup(&neutron.FirewallGroup{
		Standard: named(neutron.DefaultFirewallGroup, "Default firewall group"), AdminStateUp: true,
		IngressPolicyID: ingress, EgressPolicyID: egress, PortIDs: []string{},
	})
}
