package topology

import (
	"cmp"
	"net/netip"
	"slices"
)

// View is the whole topology: every object under its id, with its back-references. Its JSON is what
// `heddle translate` prints (file-formats §1). [Link] makes it; it shares nothing mutable.
type View struct {
	Networks     map[string]*Network     `json:"Network"`
	Routers      map[string]*Router      `json:"Router"`
	Ports        map[string]*Port        `json:"Port"`
	PortGroups   map[string]*PortGroup   `json:"PortGroup"`
	Limits       map[string]*Limits      `json:"Limits,omitempty"`
	Routes       map[string]*Route       `json:"Route"`
	Chains       map[string]*Chain       `json:"Chain"` // Rules, ordered by RuleIDs
	Rules        map[string]*Rule        `json:"Rule"`
	IPAddrGroups map[string]*IPAddrGroup `json:"IPAddrGroup"`
	Dhcps        map[string]*Dhcp        `json:"Dhcp"`
	DhcpV6s      map[string]*DhcpV6      `json:"DhcpV6"`

	LoggingResources map[string]*LoggingResource `json:"LoggingResource,omitempty"`
	RuleLoggers      map[string]*RuleLogger      `json:"RuleLogger,omitempty"`

	Mirrors     map[string]*Mirror     `json:"Mirror,omitempty"`
	Hosts       map[string]*Host       `json:"Host"`
	TunnelZones map[string]*TunnelZone `json:"TunnelZone"`
	Tables      Tables                 `json:"tables"`

	GatewayDevices   map[string]*GatewayDevice  `json:"GatewayDevice,omitempty"`
	RemoteMacEntries map[string]*RemoteMacEntry `json:"RemoteMacEntry,omitempty"`

	LoadBalancers     map[string]*LoadBalancer     `json:"LoadBalancer,omitempty"`
	Pools             map[string]*Pool             `json:"Pool,omitempty"`
	PoolMembers       map[string]*PoolMember       `json:"PoolMember,omitempty"`
	Vips              map[string]*Vip              `json:"Vip,omitempty"`
	HealthMonitors    map[string]*HealthMonitor    `json:"HealthMonitor,omitempty"`
	ServiceContainers map[string]*ServiceContainer `json:"ServiceContainer,omitempty"`
}

// Tables are the persistent entries of the devices' tables, each a key and its value as text.
type Tables struct {
	MAC     map[string]map[uint16][][2]string `json:"mac"`     // network, VLAN: MAC, port id
	ARP     map[string][][2]string            `json:"arp"`     // network: IPv4 address, MAC
	ND      map[string][][2]string            `json:"nd"`      // network: IPv6 address, MAC
	Peering map[string][][2]string            `json:"peering"` // port: MAC, remote VTEP's IPv4 address
}

// Link joins the bundles of all owners, the hosts and the tunnel zones. The result does not depend
// on their order: ids are sorted, rules as in their chain, addresses by number. Entries for missing
// objects are left out, and so are rules that jump to missing chains, routes by missing ports or to
// the gateways of missing subnets, loggers of missing chains, links of routers to missing ports and
// groups, and mirrors to missing ports. Objects of load balancers stay when what they name is
// missing.
func Link(bundles []Bundle, hosts []Host, zones []TunnelZone) *View {
	v := &View{
		Networks:     map[string]*Network{},
		Routers:      map[string]*Router{},
		Ports:        map[string]*Port{},
		PortGroups:   map[string]*PortGroup{},
		Limits:       map[string]*Limits{},
		Routes:       map[string]*Route{},
		Chains:       map[string]*Chain{},
		Rules:        map[string]*Rule{},
		IPAddrGroups: map[string]*IPAddrGroup{},
		Dhcps:        map[string]*Dhcp{},
		DhcpV6s:      map[string]*DhcpV6{},

		LoggingResources: map[string]*LoggingResource{},
		RuleLoggers:      map[string]*RuleLogger{},

		Mirrors:     map[string]*Mirror{},
		Hosts:       map[string]*Host{},
		TunnelZones: map[string]*TunnelZone{},
		Tables: Tables{
			MAC:     map[string]map[uint16][][2]string{},
			ARP:     map[string][][2]string{},
			ND:      map[string][][2]string{},
			Peering: map[string][][2]string{},
		},
		GatewayDevices:    map[string]*GatewayDevice{},
		RemoteMacEntries:  map[string]*RemoteMacEntry{},
		LoadBalancers:     map[string]*LoadBalancer{},
		Pools:             map[string]*Pool{},
		PoolMembers:       map[string]*PoolMember{},
		Vips:              map[string]*Vip{},
		HealthMonitors:    map[string]*HealthMonitor{},
		ServiceContainers: map[string]*ServiceContainer{},
	}
	for i := range bundles {
		v.place(&bundles[i])
		v.placeBalancers(&bundles[i])
	}
	for _, h := range hosts {
		h.PortIDs, h.TunnelZoneIDs = nil, nil
		v.Hosts[h.ID] = &h
	}
	for _, z := range zones {
		z.Hosts = nil
		v.TunnelZones[z.ID] = &z
	}
	v.linkChains(bundles)
	for i := range bundles {
		v.linkEntries(&bundles[i])
	}
	v.linkMembers(bundles)
	v.linkDevices()
	v.linkPorts()
	v.linkPeers()
	v.linkRoutes(bundles)
	v.linkLoggers(bundles)
	v.linkBalancers()
	v.linkMirrors(bundles)
	v.linkGateways(bundles)
	v.linkHosts()
	v.sort()
	return v
}

// place copies a bundle's objects, without what Link fills in.
func (v *View) place(b *Bundle) {
	for _, n := range b.Networks {
		n.PortIDs, n.DhcpIDs, n.DhcpV6IDs = nil, nil, nil
		v.Networks[n.ID] = &n
	}
	for _, r := range b.Routers {
		r.PortIDs, r.RouteIDs, r.LoadBalancerID = nil, nil, ""
		v.Routers[r.ID] = &r
	}
	for _, p := range b.Ports {
		p.RouteIDs, p.FipNatRuleIDs = nil, nil
		p.MirrorIDs, p.PostInFilterMirrorIDs, p.PreOutFilterMirrorIDs = nil, nil, nil
		p.RemoteMacEntryIDs = nil
		v.Ports[p.ID] = &p
	}
	for _, g := range b.PortGroups {
		g.PortIDs = nil
		v.PortGroups[g.ID] = &g
	}
	for _, l := range b.Limits {
		v.Limits[l.ID] = &l
	}
	for _, c := range b.Chains {
		v.Chains[c.ID] = &Chain{ID: c.ID, Name: c.Name, TenantID: c.TenantID, RuleIDs: []string{}}
	}
	for _, g := range b.IPAddrGroups {
		g.IPAddrPorts, g.RuleIDs = nil, nil
		v.IPAddrGroups[g.ID] = &g
	}
	for _, d := range b.Dhcps {
		d.Hosts, d.RouterIfPortID, d.GatewayRouteIDs = nil, "", nil
		v.Dhcps[d.ID] = &d
	}
	for _, d := range b.DhcpV6s {
		d.Hosts, d.RouterIfPortID, d.GatewayRouteIDs = nil, "", nil
		v.DhcpV6s[d.ID] = &d
	}
	for _, r := range b.LoggingResources {
		r.LoggerIDs = nil
		v.LoggingResources[r.ID] = &r
	}
}

// linkChains places rules, those of each chain's own bundle among others' entries.
func (v *View) linkChains(bundles []Bundle) {
	entries := map[string][]RuleEntry{}
	for i := range bundles {
		for _, e := range bundles[i].Rules {
			entries[e.ChainID] = append(entries[e.ChainID], e)
		}
	}
	for i := range bundles {
		for _, source := range bundles[i].Chains {
			chain, others := v.Chains[source.ID], entries[source.ID]
			slices.SortFunc(others, RuleEntry.Compare)
			after := slices.IndexFunc(others, func(e RuleEntry) bool { return e.Place >= 0 })
			if after < 0 {
				after = len(others)
			}
			for _, e := range others[:after] {
				v.placeRule(chain, e.Rule)
			}
			for _, r := range source.Rules {
				v.placeRule(chain, r)
			}
			for _, e := range others[after:] {
				v.placeRule(chain, e.Rule)
			}
		}
	}
}

// placeRule adds a rule at the end of a chain, unless it jumps to a missing one.
func (v *View) placeRule(chain *Chain, r Rule) {
	if r.Type == Jump && v.Chains[r.JumpChainID] == nil {
		return
	}
	r.ChainID = chain.ID
	v.Rules[r.ID] = &r
	chain.RuleIDs = append(chain.RuleIDs, r.ID)
	v.linkRule(&r)
}

func (v *View) linkRule(r *Rule) {
	refer(v.Chains, r.JumpChainID, func(c *Chain) *[]string { return &c.JumpRuleIDs }, r.ID)
	refer(v.Ports, r.FipPortID, func(p *Port) *[]string { return &p.FipNatRuleIDs }, r.ID)
	if r.Condition == nil {
		return
	}
	for _, id := range slices.Compact([]string{r.Condition.IPAddrGroupIDSrc, r.Condition.IPAddrGroupIDDst}) {
		refer(v.IPAddrGroups, id, func(g *IPAddrGroup) *[]string { return &g.RuleIDs }, r.ID)
	}
}

// linkEntries adds what a bundle contributes to others' objects.
func (v *View) linkEntries(b *Bundle) {
	for _, e := range b.MACs {
		vlans := v.Tables.MAC[e.NetworkID]
		if vlans == nil {
			vlans = map[uint16][][2]string{}
			v.Tables.MAC[e.NetworkID] = vlans
		}
		vlans[e.VLAN] = append(vlans[e.VLAN], [2]string{e.MAC.String(), e.PortID})
	}
	for _, e := range b.Neighbours {
		table := v.Tables.ARP
		if e.IP.Is6() {
			table = v.Tables.ND
		}
		table[e.NetworkID] = append(table[e.NetworkID], [2]string{e.IP.String(), e.MAC.String()})
	}
	for _, h := range b.DhcpHosts {
		if d := v.Dhcps[h.SubnetID]; d != nil && h.IPAddress.Is4() {
			d.Hosts = append(d.Hosts, h.DhcpHostEntry)
		}
		if d := v.DhcpV6s[h.SubnetID]; d != nil && h.IPAddress.Is6() {
			d.Hosts = append(d.Hosts, h.DhcpHostEntry)
		}
	}
}

// linkMembers counts the ports that contribute each address of each group. A member of a set has no
// port.
func (v *View) linkMembers(bundles []Bundle) {
	var members []Membership
	for i := range bundles {
		members = append(members, bundles[i].Memberships...)
		for _, s := range bundles[i].MemberSets {
			for _, p := range s.Prefixes {
				members = append(members, Membership{GroupID: s.GroupID, IPAddress: p.String()})
			}
		}
	}
	slices.SortFunc(members, func(a, b Membership) int {
		return cmp.Or(cmp.Compare(a.GroupID, b.GroupID), compareAddr(a.IPAddress, b.IPAddress), cmp.Compare(a.PortID, b.PortID))
	})
	for _, m := range slices.Compact(members) {
		g := v.IPAddrGroups[m.GroupID]
		if g == nil {
			continue
		}
		if n := len(g.IPAddrPorts); n > 0 && g.IPAddrPorts[n-1].IPAddress == m.IPAddress {
			g.IPAddrPorts[n-1].PortIDs = append(g.IPAddrPorts[n-1].PortIDs, m.PortID)
			continue
		}
		g.IPAddrPorts = append(g.IPAddrPorts, IPAddrPorts{IPAddress: m.IPAddress, PortIDs: []string{m.PortID}})
	}
}

// refer adds an id to a list of the object called to, if it is there.
func refer[T any](objects map[string]*T, to string, list func(*T) *[]string, id string) {
	if o := objects[to]; o != nil {
		ids := list(o)
		*ids = append(*ids, id)
	}
}

// linkHosts joins hosts and zones by the addresses that hosts have in zones.
func (v *View) linkHosts() {
	for _, h := range v.Hosts {
		for _, t := range h.Tunnels {
			if z := v.TunnelZones[t.ZoneID]; z != nil {
				z.Hosts = append(z.Hosts, TunnelZoneHost{HostID: h.ID, IP: t.IP})
				h.TunnelZoneIDs = append(h.TunnelZoneIDs, z.ID)
			}
		}
	}
}

// sort puts every list that Link filled in passing into its order.
func (v *View) sort() {
	var lists [][]string
	for _, n := range v.Networks {
		lists = append(lists, n.PortIDs, n.DhcpIDs, n.DhcpV6IDs)
	}
	for _, r := range v.Routers {
		lists = append(lists, r.PortIDs, r.RouteIDs)
	}
	for _, p := range v.Ports {
		lists = append(lists, p.RouteIDs, p.FipNatRuleIDs, p.MirrorIDs, p.PostInFilterMirrorIDs, p.PreOutFilterMirrorIDs)
	}
	for _, g := range v.PortGroups {
		lists = append(lists, g.PortIDs)
	}
	for _, m := range v.Mirrors {
		lists = append(lists, m.PortPostInFilterIDs, m.PortPreOutFilterIDs)
	}
	for _, c := range v.Chains {
		lists = append(lists, c.JumpRuleIDs, c.LoggerIDs, c.PortInboundIDs, c.PortOutboundIDs, c.NetworkInboundIDs, c.NetworkOutboundIDs,
			c.RouterInboundIDs, c.RouterOutboundIDs, c.RouterForwardIDs)
	}
	for _, g := range v.IPAddrGroups {
		lists = append(lists, g.RuleIDs)
	}
	for _, h := range v.Hosts {
		lists = append(lists, h.PortIDs, h.TunnelZoneIDs)
	}
	for _, r := range v.LoggingResources {
		lists = append(lists, r.LoggerIDs)
	}
	for _, ids := range slices.Concat(lists, v.balancerLists(), v.gatewayLists()) {
		slices.Sort(ids)
	}
	for _, d := range v.Dhcps {
		slices.SortFunc(d.Hosts, compareHosts)
		slices.Sort(d.GatewayRouteIDs)
	}
	for _, d := range v.DhcpV6s {
		slices.SortFunc(d.Hosts, compareHosts)
		slices.Sort(d.GatewayRouteIDs)
	}
	for _, z := range v.TunnelZones {
		slices.SortFunc(z.Hosts, func(a, b TunnelZoneHost) int { return cmp.Compare(a.HostID, b.HostID) })
	}
	v.Tables.sort()
}

func (t *Tables) sort() {
	byKey := func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }
	byAddr := func(a, b [2]string) int { return cmp.Or(compareAddr(a[0], b[0]), cmp.Compare(a[1], b[1])) }
	for _, vlans := range t.MAC {
		for vlan, entries := range vlans {
			slices.SortFunc(entries, byKey)
			vlans[vlan] = slices.Compact(entries)
		}
	}
	for _, table := range []map[string][][2]string{t.ARP, t.ND} {
		for network, entries := range table {
			slices.SortFunc(entries, byAddr)
			table[network] = slices.Compact(entries)
		}
	}
}

func compareHosts(a, b DhcpHostEntry) int {
	return cmp.Or(a.IPAddress.Compare(b.IPAddress), slices.Compare(a.MAC[:], b.MAC[:]))
}

// compareAddr orders address texts by number, then prefixes and what is no address by their text.
func compareAddr(a, b string) int {
	x, _ := netip.ParseAddr(a)
	y, _ := netip.ParseAddr(b)
	return cmp.Or(x.Compare(y), cmp.Compare(a, b))
}
