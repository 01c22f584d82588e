package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"heddle/internal/api/operator"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// mostRemedies bounds the changes that are tried: a way there, a rule at each end and a firewall's
// in each direction.
const mostRemedies = 6

// change is a change that may let a packet get further.
type change struct {
	remedies []operator.Remedy // the commands that make it, in order
	bundles  map[topology.Owner]*topology.Bundle
	projects []string   // whose objects it changes or uses
	kept     func()     // called once it has helped, for the changes that follow
	to       netip.Addr // by which the far end is known with it; invalid: as before
	gateway  *gatewayOf // that machines send to with it; nil: as before
}

// gatewayOf is a subnet's gateway.
type gatewayOf struct {
	subnet  string // id
	address netip.Addr
}

// trial makes changes to the world in memory, and takes them back.
type trial struct {
	*inquiry
	made   map[topology.Owner]*topology.Bundle
	groups map[string]*neutron.SecurityGroup // as changed
	rules  map[string][]neutron.FirewallRule // that policies have been given, the first one first
	number int                               // of the next thing to be made
}

// remedies returns changes after all of which packets pass in both directions, as simulated with
// them; none if no change that it knows of is what is missing. The world is as before then.
func (x *inquiry) remedies(l *leg) (all []operator.Remedy) {
	t := &trial{inquiry: x, made: map[topology.Owner]*topology.Bundle{}, groups: map[string]*neutron.SecurityGroup{}, rules: map[string][]neutron.FirewallRule{}}
	to := x.to
	defer func() {
		x.to, x.gateway = to, nil
		for owner := range t.made {
			x.world.Apply(owner, t.stored(owner))
		}
	}()
	for range mostRemedies {
		made, next := t.improve(l)
		if made == nil {
			return nil
		}
		if all = append(all, made...); next == nil {
			return all
		}
		l = next
	}
	return nil
}

// improve makes the first change with which the packet gets further, and returns the direction that
// is denied then, nil if none is; no remedies if no change helps.
func (t *trial) improve(l *leg) (made []operator.Remedy, next *leg) {
	for _, c := range t.changes(l) {
		if !t.mayMake(&c) {
			continue
		}
		before, to, gateway := map[topology.Owner]*topology.Bundle{}, t.to, t.gateway
		for owner, b := range c.bundles {
			before[owner] = t.bundle(owner)
			t.apply(owner, b)
		}
		if c.to.IsValid() {
			t.to.address = c.to
		}
		if c.gateway != nil {
			t.gateway = c.gateway
		}
		next = firstDenied(t.legs())
		if next == nil || next.device != l.device || next.code != l.code || next.reply != l.reply {
			if c.kept != nil {
				c.kept()
			}
			return c.remedies, next
		}
		t.to, t.gateway = to, gateway
		for owner, b := range before {
			t.apply(owner, b)
		}
	}
	return nil, nil
}

// mayMake reports whether the caller may make a change.
func (t *trial) mayMake(c *change) bool {
	return !slices.ContainsFunc(c.projects, func(project string) bool { return !t.caller.Owns(project) })
}

// firstDenied returns the direction that does not pass; nil if both do.
func firstDenied(there, back *leg) *leg {
	switch {
	case !there.Allowed:
		return there
	case back != nil && !back.Allowed:
		return back
	}
	return nil
}

func (t *trial) apply(owner topology.Owner, b *topology.Bundle) {
	t.world.Apply(owner, b)
	t.made[owner] = b
}

// bundle returns the bundle that the world has of an owner now.
func (t *trial) bundle(owner topology.Owner) *topology.Bundle {
	if b, changed := t.made[owner]; changed {
		return b
	}
	return t.stored(owner)
}

// stored returns the bundle that the store has of an owner; nil if it has none.
func (x *inquiry) stored(owner topology.Owner) *topology.Bundle {
	b, ok := schema.Bundles.Peek(x.snap, schema.BundleID(owner))
	if !ok {
		return nil
	}
	return &b.Bundle
}

// changes returns what may let the packet of a leg get further, the least first.
func (t *trial) changes(l *leg) []change {
	switch l.code {
	case flow.CodeNoRule:
		return t.groupRules(l)
	case flow.CodePortDown, flow.CodeNetworkDown, flow.CodeRouterDown:
		return t.enable(l)
	case flow.CodeFirewall, flow.CodeFirewallDefault:
		return t.firewallRules(l)
	case flow.CodeNoRoute, flow.CodeNoNeighbour:
		return t.ways(l)
	}
	return nil
}

// groupRules returns the narrowest rules that let a packet pass a port, in one of its groups.
func (t *trial) groupRules(l *leg) (all []change) {
	f, ok := t.filteredAt(l)
	if !ok || len(f.port.SecurityGroups) == 0 {
		return nil
	}
	id := f.port.SecurityGroups[0]
	g := t.groups[id]
	if g == nil {
		if g, ok = schema.SecurityGroups.Peek(t.snap, id); !ok || t.stored(groupOwner(id)) == nil {
			return nil
		}
	}
	for _, narrow := range []bool{true, false} {
		changed, rule := *g, f.rule(narrow, len(g.Rules))
		changed.Rules = append(slices.Clone(g.Rules), rule)
		b := translate.SecurityGroup(&changed)
		all = append(all, change{
			remedies: []operator.Remedy{{Text: fmt.Sprintf("security group %s allows %s", id, RuleText(&rule)), Command: ruleCommand(id, &rule)}},
			bundles:  map[topology.Owner]*topology.Bundle{groupOwner(id): &b},
			projects: []string{f.port.ProjectID, g.ProjectID},
			kept:     func() { t.groups[id] = &changed },
		})
	}
	return all
}

// enable returns the change of the administrative state that drops a packet.
func (t *trial) enable(l *leg) []change {
	o := l.dropper()
	if o == nil {
		return nil
	}
	noun, owners := o.Kind, []topology.Owner{{Kind: o.Kind, ID: o.ID}}
	switch o.Kind {
	case "network":
		noun = "net"
	case "router":
	case "port", "router-interface", "router-gateway":
		noun, owners = "port", nil
		for _, kind := range []string{"port", "router-interface", "router-gateway"} {
			owners = append(owners, topology.Owner{Kind: kind, ID: o.ID})
		}
	default:
		return nil
	}
	c := change{bundles: map[topology.Owner]*topology.Bundle{}, projects: []string{projectOf(t.snap, o)},
		remedies: []operator.Remedy{{Text: fmt.Sprintf("%s %s is administratively up", noun, o.ID), Command: []string{"heddle", noun, "set", o.ID, "--admin-up"}}}}
	for _, owner := range owners {
		if b := t.bundle(owner); b != nil {
			c.bundles[owner] = raised(b)
		}
	}
	return []change{c}
}

// dropper returns the owner of what drops the packet; nil if it is not known.
func (l *leg) dropper() *flow.Object {
	for i := len(l.Trace.Walk) - 1; i >= 0; i-- {
		if s := &l.Trace.Walk[i]; s.Kind == flow.StepDrop && s.Device == l.device && s.Object != nil {
			o := s.Object
			for o.Group != nil && o.Kind != "router-interface" && o.Kind != "router-gateway" {
				o = o.Group
			}
			return o
		}
	}
	return nil
}

// last returns the headers that a packet had at the end of its way, or where it was dropped.
func (l *leg) last() headers {
	h := l.sent
	for i := range l.Trace.Walk {
		s := &l.Trace.Walk[i]
		if s.Kind == flow.StepDrop {
			break
		}
		if a := s.After; a != nil {
			h.src, h.dst, h.srcPort, h.dstPort = a.Src, a.Dst, a.SrcPort, a.DstPort
		}
	}
	return h
}

// raised returns a bundle of which all is administratively up.
func raised(b *topology.Bundle) *topology.Bundle {
	up := *b
	up.Ports, up.Networks, up.Routers = slices.Clone(b.Ports), slices.Clone(b.Networks), slices.Clone(b.Routers)
	for i := range up.Ports {
		up.Ports[i].AdminStateUp = true
	}
	for i := range up.Networks {
		up.Networks[i].AdminStateUp = true
	}
	for i := range up.Routers {
		up.Routers[i].AdminStateUp = true
	}
	return &up
}

// firewallRules returns the rule that lets a packet pass the policy of a firewall group. Of
// firewalls of version 1 there is none: their clients have no command for it.
func (t *trial) firewallRules(l *leg) []change {
	o := l.dropper()
	if o == nil || o.Kind != "firewall-group-policy" {
		return nil
	}
	p, ok := schema.FirewallGroupPolicies.Peek(t.snap, o.ID)
	if !ok {
		return nil
	}
	sent := l.last()
	rule := neutron.FirewallRule{Standard: neutron.Standard{ID: t.newID(), Name: fmt.Sprintf("allow-%s-%d", sent.service.name, t.number)}, Enabled: true, Action: "allow",
		Protocol: sent.service.name, IPVersion: 4, SourceIPAddress: sent.src.String(), DestinationIPAddress: sent.dst.String()}
	create := []string{"openstack", "firewall", "group", "rule", "create", "--name", rule.Name, "--action", "allow", "--protocol", rule.Protocol}
	if sent.src.Is6() {
		rule.IPVersion, rule.Protocol = 6, cmp.Or(map[string]string{"ipv6-icmp": "icmp"}[rule.Protocol], rule.Protocol)
		create = append(create, "--ip-version", "6")
	}
	create = append(create, "--source-ip-address", rule.SourceIPAddress, "--destination-ip-address", rule.DestinationIPAddress)
	if sent.service.port != 0 {
		rule.DestinationPort = strconv.Itoa(int(sent.dstPort))
		create = append(create, "--destination-port", rule.DestinationPort)
	}
	given := append([]neutron.FirewallRule{rule}, t.rules[p.ID]...)
	all := slices.Clone(given)
	for _, id := range p.Rules {
		if r, ok := schema.FirewallGroupRules.Peek(t.snap, id); ok {
			all = append(all, *r)
		}
	}
	b := translate.FirewallGroupPolicy(p, all)
	return []change{{
		remedies: []operator.Remedy{
			{Text: fmt.Sprintf("firewall policy %s allows %s from %s to %s", p.ID, sent.service, sent.src, sent.dst), Command: create},
			{Text: "the rule is the policy's first", Command: []string{"openstack", "firewall", "group", "policy", "add", "rule", p.ID, rule.Name}},
		},
		bundles:  map[topology.Owner]*topology.Bundle{{Kind: o.Kind, ID: p.ID}: &b},
		projects: []string{p.ProjectID},
		kept:     func() { t.rules[p.ID] = given },
	}}
}

// newID returns the id of something that is made in the trial alone.
func (t *trial) newID() string {
	t.number++
	return "remedy-" + strconv.Itoa(t.number)
}
