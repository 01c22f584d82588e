package control

import "slices"

// Device owners that rules of ports turn on (neutron-api §3–5).
const (
	ownerDHCP           = "network:dhcp"
	ownerDistributed    = "network:distributed"
	ownerAgentGateway   = "network:floatingip_agent_gateway"
	ownerRouterGateway  = "network:router_gateway"
	ownerFloatingIP     = "network:floatingip"
	ownerNetworkPrefix  = "network:"
	ownerRouterIface    = "network:router_interface"
	ownerRouterIfaceHA  = "network:ha_router_replicated_interface"
	ownerRouterIfaceDVR = "network:router_interface_distributed"
	ownerRouterSNAT     = "network:router_centralized_snat"
	ownerLocalIP        = "network:local_ip"
	ownerRemoteSite     = "network:remote_site"
	ownerSubport        = "trunk:subport"
	ownerVIP            = "neutron:LOADBALANCER"   // of LBaaS v1
	ownerLoadBalancer   = "neutron:LOADBALANCERV2" // of any later API
)

// goesWithNetwork reports whether a port is the server's own, deleted with its network.
func goesWithNetwork(owner string) bool {
	return owner == ownerDHCP || owner == ownerDistributed || owner == ownerAgentGateway
}

// routerInterface reports whether a port is a router's on a tenant network.
func routerInterface(owner string) bool {
	return slices.Contains([]string{ownerRouterIface, ownerRouterIfaceHA, ownerRouterIfaceDVR, ownerRouterSNAT}, owner)
}
