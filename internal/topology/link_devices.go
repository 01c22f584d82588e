package topology

import (
	"maps"
	"slices"
)

// linkDevices adds networks, routers and subnets to what they refer to.
func (v *View) linkDevices() {
	for _, n := range v.Networks {
		refer(v.Chains, n.InboundFilterID, func(c *Chain) *[]string { return &c.NetworkInboundIDs }, n.ID)
		refer(v.Chains, n.OutboundFilterID, func(c *Chain) *[]string { return &c.NetworkOutboundIDs }, n.ID)
	}
	for _, r := range v.Routers {
		refer(v.Chains, r.InboundFilterID, func(c *Chain) *[]string { return &c.RouterInboundIDs }, r.ID)
		refer(v.Chains, r.OutboundFilterID, func(c *Chain) *[]string { return &c.RouterOutboundIDs }, r.ID)
		refer(v.Chains, r.ForwardChainID, func(c *Chain) *[]string { return &c.RouterForwardIDs }, r.ID)
	}
	for _, d := range v.Dhcps {
		refer(v.Networks, d.NetworkID, func(n *Network) *[]string { return &n.DhcpIDs }, d.ID)
	}
	for _, d := range v.DhcpV6s {
		refer(v.Networks, d.NetworkID, func(n *Network) *[]string { return &n.DhcpV6IDs }, d.ID)
	}
}

// linkPorts adds ports to their devices, chains, hosts, groups and subnets.
func (v *View) linkPorts() {
	for _, p := range v.Ports {
		refer(v.Networks, p.NetworkID, func(n *Network) *[]string { return &n.PortIDs }, p.ID)
		refer(v.Routers, p.RouterID, func(r *Router) *[]string { return &r.PortIDs }, p.ID)
		refer(v.Chains, p.InboundFilterID, func(c *Chain) *[]string { return &c.PortInboundIDs }, p.ID)
		refer(v.Chains, p.OutboundFilterID, func(c *Chain) *[]string { return &c.PortOutboundIDs }, p.ID)
		refer(v.Hosts, p.HostID, func(h *Host) *[]string { return &h.PortIDs }, p.ID)
		var groups []string
		for _, id := range p.PortGroupIDs {
			if v.PortGroups[id] != nil {
				groups = append(groups, id)
			}
			refer(v.PortGroups, id, func(g *PortGroup) *[]string { return &g.PortIDs }, p.ID)
		}
		p.PortGroupIDs = groups
		p.DhcpID = v.linkGateway(p)
	}
}

// linkGateway makes a port the one with the gateway address of its subnet, and returns the subnet;
// "" if that is missing. Of several ports the lowest id counts.
func (v *View) linkGateway(p *Port) string {
	var holder *string
	if d := v.Dhcps[p.DhcpID]; d != nil {
		holder = &d.RouterIfPortID
	} else if d := v.DhcpV6s[p.DhcpID]; d != nil {
		holder = &d.RouterIfPortID
	} else {
		return ""
	}
	if *holder == "" || p.ID < *holder {
		*holder = p.ID
	}
	return p.DhcpID
}

// linkPeers gives each port that another names its peer, and removes peers that are missing. Of
// several ports that name one the lowest id counts.
func (v *View) linkPeers() {
	for _, id := range slices.Sorted(maps.Keys(v.Ports)) {
		p := v.Ports[id]
		peer := v.Ports[p.PeerID]
		switch {
		case peer == nil:
			p.PeerID = ""
		case peer.PeerID == "":
			peer.PeerID = id
		}
	}
}

// linkRoutes places the routes whose port or router, and whose subnet if they name one, are there.
func (v *View) linkRoutes(bundles []Bundle) {
	for i := range bundles {
		for _, r := range bundles[i].Routes {
			port, router := v.Ports[r.NextHopPortID], v.Routers[r.RouterID]
			v4, v6 := v.Dhcps[r.GatewayDhcpID], v.DhcpV6s[r.GatewayDhcpID]
			if port == nil && router == nil || r.GatewayDhcpID != "" && v4 == nil && v6 == nil {
				continue
			}
			v.Routes[r.ID] = &r
			refer(v.Ports, r.NextHopPortID, func(p *Port) *[]string { return &p.RouteIDs }, r.ID)
			refer(v.Routers, r.RouterID, func(r *Router) *[]string { return &r.RouteIDs }, r.ID)
			refer(v.Dhcps, r.GatewayDhcpID, func(d *Dhcp) *[]string { return &d.GatewayRouteIDs }, r.ID)
			refer(v.DhcpV6s, r.GatewayDhcpID, func(d *DhcpV6) *[]string { return &d.GatewayRouteIDs }, r.ID)
		}
	}
}

// linkMirrors places the mirrors whose port is there, and attaches them to ports.
func (v *View) linkMirrors(bundles []Bundle) {
	for i := range bundles {
		for _, m := range bundles[i].Mirrors {
			if p := v.Ports[m.ToPortID]; p != nil {
				m.PortPostInFilterIDs, m.PortPreOutFilterIDs = nil, nil
				v.Mirrors[m.ID] = &m
				p.MirrorIDs = append(p.MirrorIDs, m.ID)
			}
		}
	}
	for i := range bundles {
		for _, e := range bundles[i].MirrorEntries {
			v.attachMirror(&e)
		}
	}
}

// attachMirror enters a mirror into a list of a port, and the port into one of the mirror.
func (v *View) attachMirror(e *MirrorEntry) {
	p, m := v.Ports[e.PortID], v.Mirrors[e.MirrorID]
	if p == nil || m == nil {
		return
	}
	switch e.Position {
	case PostInFilter:
		p.PostInFilterMirrorIDs = append(p.PostInFilterMirrorIDs, m.ID)
		m.PortPostInFilterIDs = append(m.PortPostInFilterIDs, p.ID)
	case PreOutFilter:
		p.PreOutFilterMirrorIDs = append(p.PreOutFilterMirrorIDs, m.ID)
		m.PortPreOutFilterIDs = append(m.PortPreOutFilterIDs, p.ID)
	}
}
