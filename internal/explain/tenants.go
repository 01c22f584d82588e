package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
)

// foreign names an object of another project's to a tenant.
const foreign = "another project's"

// conceal makes of an answer what its caller, who is no administrator, may know. It is made anew of
// what is known to be harmless: kinds and codes, and what is about the project's own objects. No
// host, and no id, name or address of others is in it.
func (x *inquiry) conceal(a *operator.WhyAnswer) {
	a.Revision, a.From.Host, a.To.Host, a.From.Endpoint, a.To.Endpoint, a.Names = 0, "", "", "", "", map[string]flow.TraceName{}
	x.concealLeg(&a.There, a.Names)
	if a.Back != nil {
		x.concealLeg(a.Back, a.Names)
	}
}

func (x *inquiry) concealLeg(l *operator.WhyLeg, names map[string]flow.TraceName) {
	t := &l.Trace
	seen := operator.WhyLeg{Allowed: l.Allowed, Nearest: l.Nearest, Trace: flow.TraceAnswer{LiveState: t.LiveState, Verdict: t.Verdict, Code: t.Code, Walk: []flow.Step{}}}
	for i := range t.Walk {
		seen.Trace.Walk = append(seen.Trace.Walk, x.concealed(&t.Walk[i], names))
	}
	for i := range l.By {
		o := *x.concealedObject(&l.By[i], names)
		if o.ID != "" || !slices.Contains(seen.By, o) {
			seen.By = append(seen.By, o)
		}
	}
	if p, ok := schema.Ports.Peek(x.snap, l.Port); ok && x.caller.Owns(p.ProjectID) {
		seen.Port = l.Port
	}
	switch {
	case l.Allowed && seen.Port != "":
		seen.Reason = "arrives at port " + seen.Port
	case l.Allowed:
		seen.Reason = "leaves for where the other end is"
	case len(l.Nearest) > 0: // of a port of the caller's
		seen.Reason = l.Reason
	case len(seen.By) > 0:
		o := &seen.By[len(seen.By)-1]
		seen.Reason = fmt.Sprintf("dropped by the %s %s", strings.ReplaceAll(o.Kind, "-", " "), cmp.Or(o.ID, "of another project"))
	default:
		seen.Reason = "does not arrive"
	}
	if seen.Rest = l.Rest; l.Rest != nil {
		x.concealLeg(seen.Rest, names)
	}
	*l = seen
}

// toldKinds are the kinds of steps whose words are about the step's own object and the packet.
var toldKinds = map[flow.StepKind]bool{flow.StepFilter: true, flow.StepTranslation: true, flow.StepRoute: true}

// concealed returns what a tenant may know of a step.
func (x *inquiry) concealed(s *flow.Step, names map[string]flow.TraceName) flow.Step {
	seen := flow.Step{Kind: s.Kind, Code: s.Code, Purpose: s.Purpose, Text: strings.ReplaceAll(string(s.Kind), "-", " "), Object: x.concealedObject(s.Object, names)}
	if seen.Object == nil || seen.Object.ID == "" {
		return seen
	}
	if toldKinds[s.Kind] {
		seen.Text, seen.Chain, seen.Rule = s.Text, s.Chain, s.Rule
	}
	if s.Kind == flow.StepTranslation && s.Translation != nil {
		t := *s.Translation
		t.Host = ""
		seen.Translation = &t
	}
	return seen
}

// concealedObject returns what a tenant may know of an object, and adds the name of one that is the
// project's own to names.
func (x *inquiry) concealedObject(o *flow.Object, names map[string]flow.TraceName) *flow.Object {
	if o == nil {
		return nil
	}
	if project := projectOf(x.snap, o); project == "" || !x.caller.Owns(project) {
		return &flow.Object{Kind: o.Kind, Name: foreign}
	}
	for part := o; part != nil; part = part.Group {
		if part.Name != "" {
			names[part.ID] = flow.TraceName{Kind: strings.ReplaceAll(part.Kind, "-", " "), Name: part.Name}
		}
	}
	return o
}

// projectOf returns the id of the project that an object is of, or that of the whole of which it is
// a part; "" if that is not known.
func projectOf(snap *records.Snap, o *flow.Object) string {
	for o.Group != nil {
		o = o.Group
	}
	switch o.Kind {
	case "port", "router-interface", "router-gateway":
		return projectIn(snap, schema.Ports, o.ID, func(p *neutron.Port) string { return p.ProjectID })
	case "network":
		return projectIn(snap, schema.Networks, o.ID, func(n *neutron.Network) string { return n.ProjectID })
	case "router":
		return projectIn(snap, schema.Routers, o.ID, func(r *neutron.Router) string { return r.ProjectID })
	case "load-balancer":
		return projectIn(snap, schema.LoadBalancers, o.ID, func(l *neutron.LoadBalancer) string { return l.ProjectID })
	case "floating-ip":
		return projectIn(snap, schema.FloatingIPs, o.ID, func(f *neutron.FloatingIP) string { return f.ProjectID })
	case "security-group":
		return projectIn(snap, schema.SecurityGroups, o.ID, func(g *neutron.SecurityGroup) string { return g.ProjectID })
	case "firewall":
		return projectIn(snap, schema.Firewalls, o.ID, func(f *neutron.Firewall) string { return f.ProjectID })
	case "firewall-group":
		return projectIn(snap, schema.FirewallGroups, o.ID, func(g *neutron.FirewallGroup) string { return g.ProjectID })
	case "firewall-group-policy":
		return projectIn(snap, schema.FirewallGroupPolicies, o.ID, func(p *neutron.FirewallPolicy) string { return p.ProjectID })
	}
	return ""
}

func projectIn[T any](snap *records.Snap, table *records.Table[T], id string, project func(*T) string) string {
	if o, ok := table.Peek(snap, id); ok {
		return project(o)
	}
	return ""
}
