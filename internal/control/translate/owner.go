package translate

import (
	"strings"

	"heddle/internal/neutron"
)

// Class is what a port is for, by its device_owner (midonet-translations §4 H2).
type Class uint8

const (
	VIF         Class = iota + 1 // a machine's interface; also every owner nobody listed
	DHCP                         // an agent that serves DHCP
	FloatingIP                   // holds a floating address; has no topology
	Gateway                      // a router's link to its external network
	RouterIface                  // a router's link to a tenant network
	VIPv1                        // address of a v1 load balancer
	VIPv2                        // address of a v2 load balancer
	Remote                       // a machine behind a layer-2 gateway; has no port of its own
	Service                      // any other network:* owner: a trusted plain port
)

// ClassOf sorts a device_owner.
func ClassOf(deviceOwner string) Class {
	switch deviceOwner {
	case "network:dhcp":
		return DHCP
	case "network:floatingip":
		return FloatingIP
	case "network:router_gateway":
		return Gateway
	case "network:router_interface":
		return RouterIface
	case "neutron:LOADBALANCER":
		return VIPv1
	case "neutron:LOADBALANCERV2":
		return VIPv2
	case "network:remote_site":
		return Remote
	}
	if strings.HasPrefix(deviceOwner, "network:") {
		return Service
	}
	return VIF
}

// Trusted says that ports of the class are not filtered (H3).
func (c Class) Trusted() bool { return c != VIF && c != VIPv1 && c != VIPv2 }

// seeded says that the addresses of ports of the class stand in the network's tables (H4).
func (c Class) seeded() bool { return c != FloatingIP && c != VIPv1 }

// Uplink says that a network is the link of an edge router to the outside, which has no bridge in the topology (H1).
func Uplink(n *neutron.Network) bool { return strings.EqualFold(n.NetworkType, "uplink") }

// bridgeless says that nothing of a network or its ports and subnets is in the virtual topology: an uplink belongs to its
// router, and a routed network to the policy agents, for which it is translated by Endpoint, Profile and DHCPSubnet.
func bridgeless(n *neutron.Network) bool { return Uplink(n) || n.Routed() }

// ProfileInterface is the interface that the port's binding:profile names; "" if none.
func ProfileInterface(p *neutron.Port) string {
	name, _ := p.Profile["interface_name"].(string)
	return name
}

// InterfaceName is the name of the interface to which the port is bound once its host is known: the profile's, or for a
// VIF port "tap" and the first eleven characters of its id; "" says that the host alone does not bind it (§7.1).
func InterfaceName(p *neutron.Port) string {
	if name := ProfileInterface(p); name != "" {
		return name
	}
	if ClassOf(p.DeviceOwner) != VIF || len(p.ID) < 11 {
		return ""
	}
	return "tap" + p.ID[:11]
}
