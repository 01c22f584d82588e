package translate

import (
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// Port translates a port of network n (midonet-translations §7). groups are the port's groups; only
// Stateful is read. The binding is BoundHostID and InterfaceName.
func Port(p *neutron.Port, n *neutron.Network, groups []*neutron.SecurityGroup) topology.Bundle {
	class := ClassOf(p.DeviceOwner)
	if bridgeless(n) || class == FloatingAddress {
		return topology.Bundle{}
	}
	var b topology.Bundle
	if class.seeded() {
		seed(&b, p, class)
	}
	if class == Remote {
		return b
	}
	port := topology.Port{
		ID:                p.ID,
		NetworkID:         p.NetworkID,
		AdminStateUp:      p.AdminStateUp,
		TunnelKey:         p.TunnelKey,
		PreviousHostID:    p.PreviousHostID,
		PreviousInterface: p.PreviousInterface,
		VlanID:            p.SubportVLAN,
		Trunk:             p.TrunkID != "",
	}
	if !linked(p) {
		bind(&port, p)
		port.LimitsID = portLimits(p, n)
	}
	if !class.Trusted() {
		b.Chains = portChains(p, groups)
		port.InboundFilterID = Derive(roleChainIn, p.ID)
		port.OutboundFilterID = Derive(roleChainOut, p.ID)
		b.Memberships = memberships(p)
	}
	if class == VIF {
		b.DhcpHosts = dhcpHosts(p)
	}
	b.Ports = []topology.Port{port}
	return b
}

// linked reports whether a router has the port: it then leads to the router and to no host.
func linked(p *neutron.Port) bool {
	class := ClassOf(p.DeviceOwner)
	return (class == Gateway || class == RouterIface) && p.DeviceID != ""
}

// bind makes a port exterior if p has a whole binding.
func bind(port *topology.Port, p *neutron.Port) {
	if p.BoundHostID != "" && p.InterfaceName != "" {
		port.HostID, port.InterfaceName = p.BoundHostID, p.InterfaceName
		port.Standbys = standbys(p)
	}
}

// standbys returns the interfaces of the inactive bindings that may become active. One in whose
// place another was activated may not: the machine has left that host.
func standbys(p *neutron.Port) (all []topology.Standby) {
	for _, o := range p.OtherBindings {
		there := *p
		there.Profile = o.Profile
		if name := InterfaceName(&there); name != "" && o.BoundHostID != "" && !o.Deactivated {
			all = append(all, topology.Standby{HostID: o.BoundHostID, InterfaceName: name})
		}
	}
	return all
}

// seed adds the port's persistent MAC, ARP and ND entries (H5). The MAC of a remote machine is
// behind the port that joins its network to the layer-2 gateway.
func seed(b *topology.Bundle, p *neutron.Port, class Class) {
	behind := p.ID
	if class == Remote {
		behind = Derive(roleL2GWNetPort, p.NetworkID)
	}
	b.MACs = []topology.MACEntry{{NetworkID: p.NetworkID, MAC: p.MACAddress, PortID: behind}}
	for _, f := range p.FixedIPs {
		b.Neighbours = append(b.Neighbours, topology.NeighbourEntry{
			NetworkID: p.NetworkID, IP: f.IPAddress, MAC: p.MACAddress,
		})
	}
}

// memberships adds fixed addresses to groups; address pairs are no members (§7.1 step 5).
func memberships(p *neutron.Port) []topology.Membership {
	var ms []topology.Membership
	for _, group := range groupIDs(p) {
		for _, f := range p.FixedIPs {
			ms = append(ms, topology.Membership{GroupID: group, PortID: p.ID, IPAddress: f.IPAddress.String()})
		}
	}
	return ms
}

// dhcpHosts returns the machine's address and options for each of the port's subnets.
func dhcpHosts(p *neutron.Port) []topology.DhcpHost {
	var hosts []topology.DhcpHost
	for _, f := range p.FixedIPs {
		version := 4
		if f.IPAddress.Is6() {
			version = 6
		}
		h := topology.DhcpHost{SubnetID: f.SubnetID, PortID: p.ID}
		h.MAC, h.IPAddress, h.Name = p.MACAddress, f.IPAddress, p.DNSName
		for _, o := range p.ExtraDHCPOpts {
			if o.IPVersion == version || o.IPVersion == 0 && version == 4 {
				h.ExtraDhcpOpts = append(h.ExtraDhcpOpts, topology.DhcpOpt{Name: o.OptName, Value: o.OptValue})
			}
		}
		hosts = append(hosts, h)
	}
	return hosts
}

// groupIDs returns the port's groups in order, each once.
func groupIDs(p *neutron.Port) []string {
	var ids []string
	for i, id := range p.SecurityGroups {
		if !slices.Contains(p.SecurityGroups[:i], id) {
			ids = append(ids, id)
		}
	}
	return ids
}
