package explain

import (
	"fmt"
	"net/netip"
	"slices"

	"heddle/internal/api/operator"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// mostRouters bounds the routers that a missing way is tried with.
const mostRouters = 8

// ways returns what may lead a packet on that has no route, or no neighbour at its next hop.
func (t *trial) ways(l *leg) []change {
	_, inRouter := schema.Routers.Peek(t.snap, l.device)
	switch sender := t.senderOf(l); {
	case inRouter:
		return t.waysOf(l.device, l)
	case sender == nil:
		return t.floatingIPs(l)
	default:
		return t.firstHops(sender, l)
	}
}

// senderOf returns the port that a leg begins at; nil: it begins outside.
func (t *trial) senderOf(l *leg) *neutron.Port {
	from := t.from.port
	if l.reply {
		from, _ = schema.Ports.Peek(t.snap, l.at.PortID)
	}
	return from
}

// receiverOf returns the port that a leg is for; nil: it is for the outside.
func (t *trial) receiverOf(l *leg) *neutron.Port {
	if l.reply {
		return t.from.port
	}
	return t.to.port
}

// waysOf returns what leads on from a router without a route: an interface on the receiver's
// subnet, or a gateway.
func (t *trial) waysOf(router string, l *leg) (all []change) {
	r, _ := schema.Routers.Peek(t.snap, router)
	if to := t.receiverOf(l); to != nil {
		if s := t.subnetOf(to, l.sent.dst); s != nil {
			all = appendChange(all, t.newInterface(r, s))
		}
		return all
	}
	for n := range schema.Networks.By(t.snap, "external", "true") {
		all = appendChange(all, t.newGateway(r, n))
	}
	return all
}

// firstHops returns what leads a packet out of the sender's subnet: the address of a router as its
// next hop, or an interface of a router at its gateway address.
func (t *trial) firstHops(sender *neutron.Port, l *leg) (all []change) {
	s := t.subnetOf(sender, l.sent.src)
	if s == nil || s.CIDR.Contains(l.sent.dst) {
		return nil
	}
	if s.GatewayIP == nil {
		for x := range schema.RouterPorts.By(t.snap, "subnet", s.ID) {
			all = appendChange(all, t.newHostRoute(s, x.PortID))
		}
		return all
	}
	for _, r := range t.routersToward(t.receiverOf(l)) {
		all = appendChange(all, t.newInterface(r, s))
	}
	return all
}

// routersToward returns routers that lead to a port, or to the outside for nil.
func (t *trial) routersToward(to *neutron.Port) (all []*neutron.Router) {
	if to == nil {
		for r := range schema.Routers.All(t.snap) {
			if len(r.Gateways) > 0 && len(all) < mostRouters {
				all = append(all, r)
			}
		}
		return all
	}
	for _, f := range to.FixedIPs {
		for x := range schema.RouterPorts.By(t.snap, "subnet", f.SubnetID) {
			if r, ok := schema.Routers.Peek(t.snap, x.RouterID); ok && len(all) < mostRouters {
				all = append(all, r)
			}
		}
	}
	return all
}

func appendChange(all []change, c *change) []change {
	if c == nil {
		return all
	}
	return append(all, *c)
}

// subnetOf returns the subnet of one of a port's addresses; nil if it has no such address.
func (t *trial) subnetOf(p *neutron.Port, a netip.Addr) *neutron.Subnet {
	for _, f := range p.FixedIPs {
		if s, ok := schema.Subnets.Peek(t.snap, f.SubnetID); ok && f.IPAddress == a {
			return s
		}
	}
	return nil
}

// newHostRoute returns the change that machines on a subnet without a gateway send to a router.
func (t *trial) newHostRoute(s *neutron.Subnet, routerPort string) *change {
	p, ok := schema.Ports.Peek(t.snap, routerPort)
	if !ok {
		return nil
	}
	i := slices.IndexFunc(p.FixedIPs, func(f neutron.FixedIP) bool { return f.SubnetID == s.ID })
	if i < 0 {
		return nil
	}
	a := p.FixedIPs[i].IPAddress
	command := []string{"heddle", "subnet", "set", s.ID}
	for _, r := range append(slices.Clone(s.HostRoutes), neutron.HostRoute{Destination: netip.PrefixFrom(a, 0).Masked(), Nexthop: a}) {
		command = append(command, "--route", r.Destination.String()+"="+r.Nexthop.String())
	}
	return &change{gateway: &gatewayOf{s.ID, a}, projects: []string{s.ProjectID}, remedies: []operator.Remedy{{
		Text: fmt.Sprintf("machines on subnet %s have a route by %s, of which they hear with their next lease", s.ID, a), Command: command}}}
}

// newInterface returns the change that a router is on a subnet, by its gateway address; nil if that
// cannot be.
func (t *trial) newInterface(r *neutron.Router, s *neutron.Subnet) *change {
	n, ok := schema.Networks.Peek(t.snap, s.NetworkID)
	if !ok || s.GatewayIP == nil || t.isTaken(s, *s.GatewayIP) {
		return nil
	}
	link := t.newLink(r, n, s, *s.GatewayIP, "network:router_interface")
	return &change{
		remedies: []operator.Remedy{{Text: fmt.Sprintf("router %s is on subnet %s", r.ID, s.ID), Command: []string{"heddle", "router", "add-subnet", r.ID, s.ID}}},
		projects: []string{r.ProjectID, s.ProjectID},
		bundles:  linkBundles(link, "router-interface", translate.RouterInterface(r, link)),
	}
}

// newGateway returns the change that a router has its gateway on an external network.
func (t *trial) newGateway(r *neutron.Router, n *neutron.Network) *change {
	s, a := t.freeAddress(n)
	if s == nil || len(r.Gateways) > 0 {
		return nil
	}
	link, with := t.newLink(r, n, s, a, "network:router_gateway"), *r
	with.Gateways = []neutron.RouterGateway{{NetworkID: n.ID, PortID: link.Port.ID, EnableSNAT: true}}
	return &change{
		remedies: []operator.Remedy{{Text: fmt.Sprintf("router %s has its gateway on network %s", r.ID, n.ID), Command: []string{"heddle", "router", "set-gateway", r.ID, n.ID}}},
		projects: []string{r.ProjectID, n.ProjectID},
		bundles:  linkBundles(link, "router-gateway", translate.RouterGateway(&with, link, true)),
	}
}

// newLink returns a router's link to a network by an address.
func (t *trial) newLink(r *neutron.Router, n *neutron.Network, s *neutron.Subnet, a netip.Addr, owner string) translate.RouterLink {
	id := t.newID()
	return translate.RouterLink{Network: n, Subnets: []*neutron.Subnet{s}, Port: &neutron.Port{
		Standard: neutron.Standard{ID: id, ProjectID: r.ProjectID}, NetworkID: n.ID, AdminStateUp: true, DeviceID: r.ID, DeviceOwner: owner,
		MACAddress: packet.MAC{0xfa, 0x16, 0x3e, 0xff, 0xff, byte(t.number)}, FixedIPs: []neutron.FixedIP{{SubnetID: s.ID, IPAddress: a}}}}
}

// linkBundles returns the bundles of a router's link, of which one is the router's end.
func linkBundles(l translate.RouterLink, kind string, end topology.Bundle) map[topology.Owner]*topology.Bundle {
	port := translate.Port(l.Port, l.Network, nil)
	return map[topology.Owner]*topology.Bundle{{Kind: "port", ID: l.Port.ID}: &port, {Kind: kind, ID: l.Port.ID}: &end}
}

// isTaken reports whether a port has an address of a subnet.
func (t *trial) isTaken(s *neutron.Subnet, a netip.Addr) bool {
	for p := range schema.Ports.By(t.snap, "ip_address", a.String()) {
		if slices.ContainsFunc(p.FixedIPs, func(f neutron.FixedIP) bool { return f.SubnetID == s.ID && f.IPAddress == a }) {
			return true
		}
	}
	return false
}

// mostTaken bounds the search for a free address.
const mostTaken = 4096

// freeAddress returns an IPv4 subnet of a network and an address of it that ports may be given, the
// last one that is free; nil if there is none.
func (t *trial) freeAddress(n *neutron.Network) (*neutron.Subnet, netip.Addr) {
	for s := range schema.Subnets.By(t.snap, "network", n.ID) {
		if !s.CIDR.Addr().Is4() {
			continue
		}
		for _, p := range s.AllocationPools {
			a := p.End
			for range mostTaken {
				if !a.IsValid() || a.Less(p.Start) {
					break
				}
				if !t.isTaken(s, a) {
					return s, a
				}
				a = a.Prev()
			}
		}
	}
	return nil, netip.Addr{}
}

// floatingIPs returns the changes by which a port has an address for the outside, which the
// question is about then.
func (t *trial) floatingIPs(l *leg) (all []change) {
	to := t.receiverOf(l)
	if to == nil || l.reply || !t.to.fixed.Is4() {
		return nil
	}
	s := t.subnetOf(to, t.to.fixed)
	if s == nil {
		return nil
	}
	for _, r := range t.routersToward(to) {
		for _, g := range r.Gateways {
			all = appendChange(all, t.newFloatingIP(r, g, to))
		}
	}
	return all
}

// newFloatingIP returns the change that a port has a floating IP of a router's external network.
func (t *trial) newFloatingIP(r *neutron.Router, g neutron.RouterGateway, to *neutron.Port) *change {
	n, ok := schema.Networks.Peek(t.snap, g.NetworkID)
	served, linked := schema.Ports.Peek(t.snap, g.PortID)
	if !ok || !linked {
		return nil
	}
	s, a := t.freeAddress(n)
	if s == nil {
		return nil
	}
	f := &neutron.FloatingIP{Standard: neutron.Standard{ID: t.newID()}, FloatingNetworkID: n.ID, FloatingIPAddress: a, PortID: to.ID, FixedIPAddress: t.to.fixed, RouterID: r.ID}
	b := translate.FloatingIP(f, r, translate.RouterLink{Port: served, Network: n, Subnets: []*neutron.Subnet{s}})
	return &change{
		remedies: []operator.Remedy{
			{Text: fmt.Sprintf("network %s has the floating IP %s", n.ID, a), Command: []string{"heddle", "fip", "create", n.ID, "--ip", a.String()}},
			{Text: fmt.Sprintf("port %s is known outside by %s: ask with that in place of %s", to.ID, a, t.to.fixed), Command: []string{"heddle", "fip", "attach", a.String(), to.ID}},
		},
		bundles:  map[topology.Owner]*topology.Bundle{{Kind: "floating-ip", ID: f.ID}: &b},
		projects: []string{r.ProjectID, n.ProjectID},
		to:       a,
	}
}
