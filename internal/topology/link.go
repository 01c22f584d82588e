package topology

import (
	"cmp"
	"net/netip"
	"slices"
)

// View is the whole topology with every object under its id and its back-references filled in. Its JSON is what
// `heddle translate` prints (file-formats §1). It is made by [Link] and shares nothing that a caller may change.
type View struct {
	Networks     map[string]*Network     `json:"Network"`
	Ports        map[string]*Port        `json:"Port"`
	Chains       map[string]*Chain       `json:"Chain"` // rules are in Rules; RuleIDs has their order
	Rules        map[string]*Rule        `json:"Rule"`
	IPAddrGroups map[string]*IPAddrGroup `json:"IPAddrGroup"`
	Dhcps        map[string]*Dhcp        `json:"Dhcp"`
	DhcpV6s      map[string]*DhcpV6      `json:"DhcpV6"`
	Hosts        map[string]*Host        `json:"Host"`
	TunnelZones  map[string]*TunnelZone  `json:"TunnelZone"`
	Tables       Tables                  `json:"tables"`
}

// Tables are the persistent entries of the devices' tables, each a key and what it stands for as text.
type Tables struct {
	MAC     map[string]map[uint16][][2]string `json:"mac"`     // by network and VLAN: MAC address, port id
	ARP     map[string][][2]string            `json:"arp"`     // by network: IPv4 address, MAC address
	ND      map[string][][2]string            `json:"nd"`      // by network: IPv6 address, MAC address
	Peering map[string][][2]string            `json:"peering"` // by port: MAC address, IPv4 address of the remote VTEP
}

// Link joins the bundles of all owners, the hosts and the tunnel zones. The result depends on what is there, not on the
// order it is given in: lists of ids are in ascending order, rules in that of their chain, addresses in numeric order.
// An entry for an object that is not there is left out, and so is a rule that jumps to a chain that is not there.
func Link(bundles []Bundle, hosts []Host, zones []TunnelZone) *View {
	v := &View{
		Networks:     map[string]*Network{},
		Ports:        map[string]*Port{},
		Chains:       map[string]*Chain{},
		Rules:        map[string]*Rule{},
		IPAddrGroups: map[string]*IPAddrGroup{},
		Dhcps:        map[string]*Dhcp{},
		DhcpV6s:      map[string]*DhcpV6{},
		Hosts:        map[string]*Host{},
		TunnelZones:  map[string]*TunnelZone{},
		Tables: Tables{
			MAC:     map[string]map[uint16][][2]string{},
			ARP:     map[string][][2]string{},
			ND:      map[string][][2]string{},
			Peering: map[string][][2]string{},
		},
	}
	for i := range bundles {
		v.place(&bundles[i])
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
	for _, p := range b.Ports {
		v.Ports[p.ID] = &p
	}
	for _, c := range b.Chains {
		v.Chains[c.ID] = &Chain{ID: c.ID, Name: c.Name, TenantID: c.TenantID, RuleIDs: []string{}}
	}
	for _, g := range b.IPAddrGroups {
		g.IPAddrPorts, g.RuleIDs = nil, nil
		v.IPAddrGroups[g.ID] = &g
	}
	for _, d := range b.Dhcps {
		d.Hosts = nil
		v.Dhcps[d.ID] = &d
	}
	for _, d := range b.DhcpV6s {
		d.Hosts = nil
		v.DhcpV6s[d.ID] = &d
	}
}

// linkChains gives rules their places. It runs when every chain is placed, so that it knows which jumps lead nowhere.
func (v *View) linkChains(bundles []Bundle) {
	for i := range bundles {
		for _, source := range bundles[i].Chains {
			chain := v.Chains[source.ID]
			for _, r := range source.Rules {
				if r.Type == Jump && v.Chains[r.JumpChainID] == nil {
					continue
				}
				r.ChainID = chain.ID
				v.Rules[r.ID] = &r
				chain.RuleIDs = append(chain.RuleIDs, r.ID)
				v.linkRule(&r)
			}
		}
	}
}

// linkRule tells the chain and the groups that a rule names about it.
func (v *View) linkRule(r *Rule) {
	if target := v.Chains[r.JumpChainID]; target != nil {
		target.JumpRuleIDs = append(target.JumpRuleIDs, r.ID)
	}
	if r.Condition == nil {
		return
	}
	groups := []string{r.Condition.IPAddrGroupIDSrc, r.Condition.IPAddrGroupIDDst}
	for _, id := range slices.Compact(groups) {
		if g := v.IPAddrGroups[id]; g != nil {
			g.RuleIDs = append(g.RuleIDs, r.ID)
		}
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

// linkMembers counts the ports that contribute each address of each group.
func (v *View) linkMembers(bundles []Bundle) {
	var members []Membership
	for i := range bundles {
		members = append(members, bundles[i].Memberships...)
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

// linkDevices tells networks, chains and hosts what hangs on them.
func (v *View) linkDevices() {
	for _, n := range v.Networks {
		if c := v.Chains[n.InboundFilterID]; c != nil {
			c.NetworkInboundIDs = append(c.NetworkInboundIDs, n.ID)
		}
		if c := v.Chains[n.OutboundFilterID]; c != nil {
			c.NetworkOutboundIDs = append(c.NetworkOutboundIDs, n.ID)
		}
	}
	for _, p := range v.Ports {
		if n := v.Networks[p.NetworkID]; n != nil {
			n.PortIDs = append(n.PortIDs, p.ID)
		}
		if c := v.Chains[p.InboundFilterID]; c != nil {
			c.PortInboundIDs = append(c.PortInboundIDs, p.ID)
		}
		if c := v.Chains[p.OutboundFilterID]; c != nil {
			c.PortOutboundIDs = append(c.PortOutboundIDs, p.ID)
		}
		if h := v.Hosts[p.HostID]; h != nil {
			h.PortIDs = append(h.PortIDs, p.ID)
		}
	}
	for _, d := range v.Dhcps {
		if n := v.Networks[d.NetworkID]; n != nil {
			n.DhcpIDs = append(n.DhcpIDs, d.ID)
		}
	}
	for _, d := range v.DhcpV6s {
		if n := v.Networks[d.NetworkID]; n != nil {
			n.DhcpV6IDs = append(n.DhcpV6IDs, d.ID)
		}
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
	for _, n := range v.Networks {
		slices.Sort(n.PortIDs)
		slices.Sort(n.DhcpIDs)
		slices.Sort(n.DhcpV6IDs)
	}
	for _, c := range v.Chains {
		slices.Sort(c.JumpRuleIDs)
		slices.Sort(c.PortInboundIDs)
		slices.Sort(c.PortOutboundIDs)
		slices.Sort(c.NetworkInboundIDs)
		slices.Sort(c.NetworkOutboundIDs)
	}
	for _, g := range v.IPAddrGroups {
		slices.Sort(g.RuleIDs)
	}
	for _, d := range v.Dhcps {
		slices.SortFunc(d.Hosts, compareHosts)
	}
	for _, d := range v.DhcpV6s {
		slices.SortFunc(d.Hosts, compareHosts)
	}
	for _, h := range v.Hosts {
		slices.Sort(h.PortIDs)
		slices.Sort(h.TunnelZoneIDs)
	}
	for _, z := range v.TunnelZones {
		slices.SortFunc(z.Hosts, func(a, b TunnelZoneHost) int { return cmp.Compare(a.HostID, b.HostID) })
	}
	v.Tables.sort()
}

func (t *Tables) sort() {
	byKey := func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }
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
