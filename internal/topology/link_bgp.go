package topology

// placeBgp copies the BGP peers and networks of a bundle.
func (v *View) placeBgp(b *Bundle) {
	for _, p := range b.BgpPeers {
		v.BgpPeers[p.ID] = &p
	}
	for _, n := range b.BgpNetworks {
		v.BgpNetworks[n.ID] = &n
	}
	for _, g := range b.ServiceContainerGroups {
		g.ServiceContainerIDs = nil
		v.ServiceContainerGroups[g.ID] = &g
	}
}

// linkBgp adds speakers, peers, networks and container groups to what they refer to.
func (v *View) linkBgp(bundles []Bundle) {
	for i := range bundles {
		for _, s := range bundles[i].BgpSpeakers {
			r, c := v.Routers[s.RouterID], v.Chains[s.RedirectChainID]
			if r == nil {
				continue
			}
			r.ASNumber = s.ASNumber
			if c != nil {
				r.LocalRedirectChainID = c.ID
				c.RouterRedirectIDs = append(c.RouterRedirectIDs, r.ID)
			}
		}
	}
	for _, p := range v.BgpPeers {
		refer(v.Routers, p.RouterID, func(r *Router) *[]string { return &r.BgpPeerIDs }, p.ID)
	}
	for _, n := range v.BgpNetworks {
		refer(v.Routers, n.RouterID, func(r *Router) *[]string { return &r.BgpNetworkIDs }, n.ID)
	}
	for _, c := range v.ServiceContainers {
		refer(v.ServiceContainerGroups, c.ServiceGroupID, func(g *ServiceContainerGroup) *[]string { return &g.ServiceContainerIDs }, c.ID)
		refer(v.PortGroups, groupOf(v, c), func(g *PortGroup) *[]string { return &g.ServiceGroupIDs }, c.ServiceGroupID)
	}
}

// groupOf returns the port group of a container's group, or "".
func groupOf(v *View, c *ServiceContainer) string {
	if g := v.ServiceContainerGroups[c.ServiceGroupID]; g != nil {
		return g.PortGroupID
	}
	return ""
}

// bgpLists returns the lists that linkBgp fills.
func (v *View) bgpLists() (lists [][]string) {
	for _, r := range v.Routers {
		lists = append(lists, r.BgpPeerIDs, r.BgpNetworkIDs)
	}
	for _, g := range v.ServiceContainerGroups {
		lists = append(lists, g.ServiceContainerIDs)
	}
	for _, g := range v.PortGroups {
		lists = append(lists, g.ServiceGroupIDs)
	}
	return lists
}
