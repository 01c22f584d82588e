package translate

import (
	"strings"

	"heddle/internal/neutron"
)

// Class is the purpose of a port, by its device_owner (midonet-translations §4 H2).
type Class uint8

const (
	VIF             Class = iota + 1 // a machine's interface, or any owner not listed
	DHCP                             // an agent that serves DHCP
	FloatingAddress                  // holds a floating address; has no topology
	Gateway                          // a router's link to its external network
	RouterIface                      // a router's link to a tenant network
	VIPv1                            // address of a v1 load balancer
	VIPv2                            // address of a v2 load balancer
	Remote                           // a machine behind a layer-2 gateway; has no port of its own
	Service                          // any other network:* owner: a trusted plain port
)

// ClassOf sorts a device_owner.
func ClassOf(deviceOwner string) Class {
	switch deviceOwner {
	case "network:dhcp":
		return DHCP
	case "network:floatingip":
		return FloatingAddress
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

// Trusted reports whether ports of the class are not filtered (H3).
func (c Class) Trusted() bool { return c != VIF && c != VIPv1 && c != VIPv2 }

// seeded reports whether addresses of the class are in the network's tables (H4).
func (c Class) seeded() bool { return c != FloatingAddress && c != VIPv1 }

// Uplink reports whether a network links an edge router to the outside; it has no bridge (H1).
func Uplink(n *neutron.Network) bool { return strings.EqualFold(n.NetworkType, "uplink") }

// bridgeless reports whether the virtual topology has nothing of a network: an uplink belongs to
// its router, a routed network to the policy agents (Endpoint, Profile and DHCPSubnet).
func bridgeless(n *neutron.Network) bool { return Uplink(n) || n.Routed() }

// ProfileInterface returns the interface that the port's binding:profile names; "" if none.
func ProfileInterface(p *neutron.Port) string {
	name, _ := p.Profile["interface_name"].(string)
	return name
}

// InterfaceName returns the interface of the port once its host is known: the profile's, or for a
// VIF port "tap" and the first eleven characters of its id; "" if there is none (§7.1).
func InterfaceName(p *neutron.Port) string {
	if name := ProfileInterface(p); name != "" {
		return name
	}
	if ClassOf(p.DeviceOwner) != VIF || len(p.ID) < 11 {
		return ""
	}
	return "tap" + p.ID[:11]
}
