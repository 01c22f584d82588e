package offline

import (
	"maps"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// world is what a server would have in its store: the Neutron objects and the hosts, each under its id.
type world struct {
	networks map[string]*neutron.Network
	subnets  map[string]*neutron.Subnet
	ports    map[string]*neutron.Port
	groups   map[string]*neutron.SecurityGroup
	hosts    map[string]*topology.Host

	tunnelKeys uint32 // the last that a port was given
}

func newWorld() *world {
	return &world{
		networks: map[string]*neutron.Network{},
		subnets:  map[string]*neutron.Subnet{},
		ports:    map[string]*neutron.Port{},
		groups:   map[string]*neutron.SecurityGroup{},
		hosts:    map[string]*topology.Host{},
	}
}

// bundles translates every object.
func (w *world) bundles() map[topology.Owner]topology.Bundle {
	bundles := make(map[topology.Owner]topology.Bundle, len(w.networks)+len(w.subnets)+len(w.ports)+len(w.groups))
	for id, n := range w.networks {
		bundles[topology.Owner{Kind: "network", ID: id}] = translate.Network(n)
	}
	dhcp := w.dhcpPorts()
	for id, s := range w.subnets {
		bundles[topology.Owner{Kind: "subnet", ID: id}] = translate.Subnet(s, w.networks[s.NetworkID], dhcp[id])
	}
	for id, p := range w.ports {
		bundles[topology.Owner{Kind: "port", ID: id}] = translate.Port(p, w.networks[p.NetworkID], w.groupsOf(p))
	}
	for id, g := range w.groups {
		bundles[topology.Owner{Kind: "security-group", ID: id}] = translate.SecurityGroup(g)
	}
	return bundles
}

// topology is the linked view of all that is there.
func (w *world) topology() *topology.View {
	hosts := make([]topology.Host, 0, len(w.hosts))
	for _, h := range w.hosts {
		hosts = append(hosts, *h)
	}
	return topology.Link(slices.Collect(maps.Values(w.bundles())), hosts, nil)
}

// dhcpPorts are the ports that serve DHCP, by subnet.
func (w *world) dhcpPorts() map[string][]*neutron.Port {
	bySubnet := map[string][]*neutron.Port{}
	for _, p := range w.ports {
		if translate.ClassOf(p.DeviceOwner) != translate.DHCP {
			continue
		}
		for _, subnet := range subnetsOf(p) {
			bySubnet[subnet] = append(bySubnet[subnet], p)
		}
	}
	return bySubnet
}

// subnetsOf are the ids of the subnets on which the port has addresses, each once.
func subnetsOf(p *neutron.Port) []string {
	var ids []string
	seen := map[string]bool{}
	for _, f := range p.FixedIPs {
		if !seen[f.SubnetID] {
			seen[f.SubnetID] = true
			ids = append(ids, f.SubnetID)
		}
	}
	return ids
}

func (w *world) groupsOf(p *neutron.Port) []*neutron.SecurityGroup {
	groups := make([]*neutron.SecurityGroup, len(p.SecurityGroups))
	for i, id := range p.SecurityGroups {
		groups[i] = w.groups[id]
	}
	return groups
}

// first is the object of lowest id that is wanted, nil if there is none: messages name the same one every time.
func first[T any](objects map[string]*T, wanted func(*T) bool) *T {
	lowest := ""
	for id, o := range objects {
		if (lowest == "" || id < lowest) && wanted(o) {
			lowest = id
		}
	}
	return objects[lowest]
}

// portsOn are the ports of a network.
func (w *world) portsOn(network string) []*neutron.Port {
	var ports []*neutron.Port
	for _, p := range w.ports {
		if p.NetworkID == network {
			ports = append(ports, p)
		}
	}
	return ports
}
