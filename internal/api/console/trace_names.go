package console

import (
	"regexp"
	"slices"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

var uuids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// namesIn returns what the ids in an answer stand for: Neutron's objects, and what of the topology
// is derived from those. The ids in the names of chains lead to the objects of these.
func namesIn(snap *records.Snap, a *flow.TraceAnswer) map[string]flow.TraceName {
	return namesOf(snap, idsIn(a))
}

// namesOf returns what ids stand for.
func namesOf(snap *records.Snap, ids []string) map[string]flow.TraceName {
	n := &names{snap: snap, known: map[string]flow.TraceName{}}
	for _, id := range ids {
		n.object(id)
	}
	named := map[string]flow.TraceName{}
	for _, id := range ids {
		if name, ok := n.known[id]; ok {
			named[id] = name
		}
	}
	return named
}

// idsIn returns the ids that an answer has, each once.
func idsIn(a *flow.TraceAnswer) []string {
	texts := []string{a.Device, a.Reason}
	for _, s := range a.Walk {
		texts = append(texts, s.Device, s.Chain, s.Rule, s.Text)
		if s.Translation != nil {
			texts = append(texts, s.Translation.Host)
		}
	}
	for _, o := range slices.Concat(a.Outputs, a.Copies) {
		texts = append(texts, o.PortID, o.HostID)
	}
	for _, r := range a.Replies {
		texts = append(texts, r.PortID)
	}
	return idsOf(texts)
}

// idsOf returns the ids in some texts, each once.
func idsOf(texts []string) (ids []string) {
	for _, text := range texts {
		ids = append(ids, uuids.FindAllString(text, -1)...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// names collects names of objects.
type names struct {
	snap  *records.Snap
	known map[string]flow.TraceName
}

func (n *names) set(id, kind, name string) { n.known[id] = flow.TraceName{Kind: kind, Name: name} }

// object names an object of Neutron, if id is one's, and what is derived from it.
func (n *names) object(id string) {
	nameOf(n, schema.Networks, "network", id, func(o *neutron.Network) string { return o.Name })
	nameOf(n, schema.Routers, "router", id, func(o *neutron.Router) string { return o.Name })
	nameOf(n, schema.SecurityGroups, "security-group", id, func(o *neutron.SecurityGroup) string { return o.Name })
	nameOf(n, schema.Firewalls, "firewall", id, func(o *neutron.Firewall) string { return o.Name })
	nameOf(n, schema.FirewallGroups, "firewall-group", id, func(o *neutron.FirewallGroup) string { return o.Name })
	nameOf(n, schema.FirewallGroupPolicies, "firewall-group-policy", id, func(o *neutron.FirewallPolicy) string { return o.Name })
	nameOf(n, schema.QoSPolicies, "qos-policy", id, func(o *neutron.QoSPolicy) string { return o.Name })
	n.port(id)
	if r, ok := schema.Routers.Peek(n.snap, id); ok {
		for p := range schema.RouterPorts.By(n.snap, "router", id) {
			n.routerPort(p.PortID, r.Name)
		}
	}
	if o, ok := schema.Hosts.Peek(n.snap, id); ok {
		n.set(id, "host", o.Name)
	}
}

// nameOf names an object of a table and what is derived from it. kind is that of its bundle.
func nameOf[T any](n *names, table *records.Table[T], kind, id string, name func(*T) string) {
	if o, ok := table.Peek(n.snap, id); ok {
		n.set(id, words(kind), name(o))
		n.derived(kind, id, name(o))
	}
}

// words returns a bundle's kind as texts have it.
func words(kind string) string { return strings.ReplaceAll(kind, "-", " ") }

// port names a port of Neutron: by its first address if it has no name.
func (n *names) port(id string) {
	p, ok := schema.Ports.Peek(n.snap, id)
	if !ok {
		return
	}
	name := p.Name
	if name == "" && len(p.FixedIPs) > 0 {
		name = p.FixedIPs[0].IPAddress.String()
	}
	n.set(id, "port", name)
	n.derived("port", id, name)
	for f := range schema.FloatingIPs.By(n.snap, "port", id) {
		n.derived("floating-ip", f.ID, f.FloatingIPAddress.String())
	}
	for x := range schema.PortForwardings.By(n.snap, "internal_port", id) {
		if f, ok := schema.FloatingIPs.Peek(n.snap, x.FloatingIPID); ok {
			n.derived("port-forwarding", x.ID, x.Text(f))
		}
	}
	for x := range schema.NDPProxies.By(n.snap, "port", id) {
		n.derived("ndp-proxy", x.ID, x.IPAddress.String())
	}
	if x, linked := schema.RouterPorts.Peek(n.snap, id); linked {
		r, _ := schema.Routers.Peek(n.snap, x.RouterID)
		n.routerPort(id, r.Name)
	}
}

// routerPort names the router's end of a port, which is derived from it.
func (n *names) routerPort(portID, router string) {
	p, ok := schema.Ports.Peek(n.snap, portID)
	if !ok {
		return
	}
	network, _ := schema.Networks.Peek(n.snap, p.NetworkID)
	name := router + " on " + network.Name
	for kind, what := range map[string]string{"router-interface": "interface", "router-gateway": "gateway"} {
		n.derived(kind, portID, name)
		for _, end := range n.bundle(kind, portID).Ports {
			if end.ID != portID {
				n.set(end.ID, what, name)
			}
		}
	}
}

func (n *names) bundle(kind, id string) topology.Bundle {
	b, ok := schema.Bundles.Peek(n.snap, schema.BundleID(topology.Owner{Kind: kind, ID: id}))
	if !ok {
		return topology.Bundle{}
	}
	return b.Bundle
}

// derived names the chains, rules and LANs that an object has in the topology.
func (n *names) derived(kind, id, name string) {
	b, of := n.bundle(kind, id), words(kind)
	for _, c := range b.Chains {
		n.set(c.ID, "chain of "+of, name)
		for _, r := range c.Rules {
			n.set(r.ID, "rule of "+of, name)
		}
	}
	for _, e := range b.Rules {
		n.set(e.Rule.ID, "rule of "+of, name)
	}
	for _, p := range b.Ports {
		if p.PhysicalNetwork != "" {
			n.set(p.ID, "LAN "+p.PhysicalNetwork+" of network", name)
		}
	}
}
