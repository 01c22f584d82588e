package explain

import (
	"fmt"
	"net/netip"
	"slices"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
)

// warn adds what deserves a second look.
func (c *comparison) warn(a *operator.DiffAnswer, asker netip.Addr) {
	for _, r := range a.Gained {
		if len(r.From.Outside) > 0 && r.Before == operator.FateNever {
			a.Warnings = append(a.Warnings, operator.DiffWarning{Kind: operator.WarnOutside, Object: portObject(&r.To.Ports[0]),
				Text: fmt.Sprintf("opens %s to outside: %s", portsText(r.To.Ports), r.From.Text)})
		}
	}
	for _, r := range a.Lost {
		if asker.IsValid() && r.From.Has(asker) {
			a.Warnings = append(a.Warnings, operator.DiffWarning{Kind: operator.WarnLockOut, Object: portObject(&r.To.Ports[0]),
				Text: fmt.Sprintf("locks out %s, from which you ask, from %s", asker, portsText(r.To.Ports))})
		}
	}
	a.Warnings = append(a.Warnings, c.rulesWithoutEffect()...)
}

func portObject(p *operator.ReachPort) flow.Object {
	return flow.Object{Kind: "port", ID: p.Port, Name: p.Name}
}

// portsText names a port, and counts the others.
func portsText(ports []operator.ReachPort) string {
	name := ports[0].Name
	if name == "" {
		name = ports[0].Port
	}
	if len(ports) > 1 {
		return fmt.Sprintf("%s and %d more", name, len(ports)-1)
	}
	return name
}

// rulesWithoutEffect warns of new rules that let nothing pass that did not pass before: another one
// of their group does, or no port is in the group.
func (c *comparison) rulesWithoutEffect() (all []operator.DiffWarning) {
	before, after := c.sides[0].snap, c.sides[1].snap
	for g := range schema.SecurityGroups.All(after) {
		old, existed := schema.SecurityGroups.Peek(before, g.ID)
		if existed && old == g {
			continue
		}
		empty := schema.Ports.CountBy(after, "security_group", g.ID) == 0
		for i := range g.Rules {
			r := &g.Rules[i]
			if existed && slices.ContainsFunc(old.Rules, func(o neutron.SecurityGroupRule) bool { return o.ID == r.ID }) {
				continue
			}
			w := operator.DiffWarning{Kind: operator.WarnNoEffect, Object: flow.Object{Kind: "security-group-rule", ID: r.ID, Group: &flow.Object{Kind: "security-group", ID: g.ID, Name: g.Name}}}
			if j := slices.IndexFunc(g.Rules, func(o neutron.SecurityGroupRule) bool { return o.ID != r.ID && covers(&o, r) }); j >= 0 {
				w.By, w.Text = g.Rules[j].ID, fmt.Sprintf("rule %s has no effect: %s lets pass all that it does: %s", RuleText(r), g.Rules[j].ID, RuleText(&g.Rules[j]))
				all = append(all, w)
			} else if empty && existed {
				w.Text = fmt.Sprintf("rule %s has no effect: no port is in group %s", RuleText(r), g.ID)
				all = append(all, w)
			}
		}
	}
	return all
}

// covers reports whether a rule lets pass all that another one does.
func covers(wide, narrow *neutron.SecurityGroupRule) bool {
	if wide.Direction != narrow.Direction || wide.Ethertype != narrow.Ethertype {
		return false
	}
	return coversService(wide, narrow) && coversRemote(wide, narrow)
}

func coversService(wide, narrow *neutron.SecurityGroupRule) bool {
	if wide.Protocol == "" {
		return true
	}
	a, known := neutron.ProtocolNumber(wide.Protocol)
	b, alsoKnown := neutron.ProtocolNumber(narrow.Protocol)
	switch {
	case !known || !alsoKnown || a != b || narrow.Protocol == "":
		return false
	case wide.PortRangeMin == nil && wide.PortRangeMax == nil:
		return true
	case wide.PortRangeMin == nil || wide.PortRangeMax == nil || narrow.PortRangeMin == nil || narrow.PortRangeMax == nil:
		return false
	case a == 1 || a == 58: // type and code
		return *wide.PortRangeMin == *narrow.PortRangeMin && *wide.PortRangeMax == *narrow.PortRangeMax
	}
	return *wide.PortRangeMin <= *narrow.PortRangeMin && *narrow.PortRangeMax <= *wide.PortRangeMax
}

func coversRemote(wide, narrow *neutron.SecurityGroupRule) bool {
	if wide.RemoteGroupID != narrow.RemoteGroupID || wide.RemoteAddressGroupID != narrow.RemoteAddressGroupID {
		return wide.RemoteGroupID == "" && wide.RemoteAddressGroupID == "" && isAll(wide.RemoteIPPrefix)
	}
	if isAll(wide.RemoteIPPrefix) {
		return true
	}
	a, err := netip.ParsePrefix(wide.RemoteIPPrefix)
	b, err2 := netip.ParsePrefix(narrow.RemoteIPPrefix)
	return err == nil && err2 == nil && a.Bits() <= b.Bits() && a.Contains(b.Addr())
}

// isAll reports whether a rule's prefix is that of all addresses.
func isAll(prefix string) bool {
	p, err := netip.ParsePrefix(prefix)
	return prefix == "" || err == nil && p.Bits() == 0
}
