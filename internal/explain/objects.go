package explain

import (
	"slices"
	"strings"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
)

// NameObjects puts the users' objects, with their names, in place of the owners that the steps of a
// trace have: the rule of a security group in place of the group.
func NameObjects(snap *records.Snap, t *flow.TraceAnswer) {
	for i := range t.Walk {
		step := &t.Walk[i]
		NameObject(snap, step.Object, step.Rule)
		for j := range step.Routes {
			NameObject(snap, step.Routes[j].Object, "")
		}
	}
}

// nameObjects names the objects of the steps, and lists those that have decided.
func (l *leg) nameObjects(snap *records.Snap) {
	NameObjects(snap, &l.Trace)
	for i := range l.Trace.Walk {
		step := &l.Trace.Walk[i]
		decides := step.Kind == flow.StepDrop && !l.Allowed || step.Kind == flow.StepFilter && step.Object != nil && step.Object.Group != nil
		if decides && step.Object != nil && !slices.ContainsFunc(l.By, func(o flow.Object) bool { return o.ID == step.Object.ID }) {
			l.By = append(l.By, *step.Object)
		}
	}
}

// NameObject makes of the owner of a rule, which may be "", the object of the user's.
func NameObject(snap *records.Snap, o *flow.Object, rule string) {
	if o == nil {
		return
	}
	switch o.Kind {
	case "port", "router-interface", "router-gateway":
		namePort(snap, o)
	case "network":
		n, _ := schema.Networks.Peek(snap, o.ID)
		o.Name = nameOf(n, func(n *neutron.Network) string { return n.Name })
	case "router":
		r, _ := schema.Routers.Peek(snap, o.ID)
		o.Name = nameOf(r, func(r *neutron.Router) string { return r.Name })
	case "load-balancer":
		l, _ := schema.LoadBalancers.Peek(snap, o.ID)
		o.Name = nameOf(l, func(l *neutron.LoadBalancer) string { return l.Name })
	case "floating-ip":
		f, _ := schema.FloatingIPs.Peek(snap, o.ID)
		o.Name = nameOf(f, func(f *neutron.FloatingIP) string { return f.FloatingIPAddress.String() })
	case "security-group":
		g, _ := schema.SecurityGroups.Peek(snap, o.ID)
		o.Name = nameOf(g, func(g *neutron.SecurityGroup) string { return g.Name })
		if r := groupRule(g, rule); r != nil {
			makePart(o, "security-group-rule", r.ID, "")
		}
	case "profile-rule":
		if id, of := strings.CutPrefix(o.Group.ID, translate.ProfilePrefix); of {
			g, _ := schema.SecurityGroups.Peek(snap, id)
			o.Group.Name = nameOf(g, func(g *neutron.SecurityGroup) string { return g.Name })
		}
	case "firewall":
		f, _ := schema.Firewalls.Peek(snap, o.ID)
		if o.Name = nameOf(f, func(f *neutron.Firewall) string { return f.Name }); f != nil {
			policy, _ := schema.FirewallPolicies.Peek(snap, f.PolicyID)
			nameFirewallRule(snap, o, schema.FirewallRules, policy, rule)
		}
	case "firewall-group-policy":
		p, _ := schema.FirewallGroupPolicies.Peek(snap, o.ID)
		if o.Name = nameOf(p, func(p *neutron.FirewallPolicy) string { return p.Name }); p != nil {
			nameFirewallRule(snap, o, schema.FirewallGroupRules, p, rule)
		}
	}
}

// OfSecurityGroup reports whether an object is the profile of a security group.
func OfSecurityGroup(o *flow.Object) bool {
	return o.Kind == "profile" && strings.HasPrefix(o.ID, translate.ProfilePrefix)
}

// nameOf returns the name of an object; "" if it is not there.
func nameOf[T any](o *T, name func(*T) string) string {
	if o == nil {
		return ""
	}
	return name(o)
}

// makePart makes an object a part of what it was.
func makePart(o *flow.Object, kind, id, name string) {
	whole := *o
	*o = flow.Object{Kind: kind, ID: id, Name: name, Group: &whole}
}

// namePort names a port by its first address if it has no name; a router's is part of it.
func namePort(snap *records.Snap, o *flow.Object) {
	p, ok := schema.Ports.Peek(snap, o.ID)
	if !ok {
		return
	}
	if o.Name = p.Name; o.Name == "" && len(p.FixedIPs) > 0 {
		o.Name = p.FixedIPs[0].IPAddress.String()
	}
	if x, ok := schema.RouterPorts.Peek(snap, o.ID); ok && o.Kind != "port" {
		r, _ := schema.Routers.Peek(snap, x.RouterID)
		o.Group = &flow.Object{Kind: "router", ID: x.RouterID, Name: nameOf(r, func(r *neutron.Router) string { return r.Name })}
	}
}

// groupRule returns the rule of a security group that a rule of its chains is of; nil: of none.
func groupRule(g *neutron.SecurityGroup, rule string) *neutron.SecurityGroupRule {
	if g == nil {
		return nil
	}
	for i := range g.Rules {
		if translate.IsOfGroupRule(&g.Rules[i], rule) {
			return &g.Rules[i]
		}
	}
	return nil
}

// nameFirewallRule makes of a firewall, or of the policy of a firewall group, the rule of its
// policy that a rule of its chain is of. That which denies the rest is of none.
func nameFirewallRule(snap *records.Snap, o *flow.Object, rules *records.Table[neutron.FirewallRule], policy *neutron.FirewallPolicy, rule string) {
	if policy == nil {
		return
	}
	for _, id := range policy.Rules {
		if r, ok := rules.Peek(snap, id); ok && translate.IsOfFirewallRule(o.ID, id, rule) {
			makePart(o, "firewall-rule", id, r.Name)
			return
		}
	}
}
