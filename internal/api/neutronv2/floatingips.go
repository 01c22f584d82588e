package neutronv2

import (
	"heddle/internal/neutron"
)

// floatingIPs is the part of floating IPs, which rests on that of routers.
func floatingIPs() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			register(on, &collection[*neutron.FloatingIPView]{h, h.tables.FloatingIPs, h.ops.FloatingIPs()})
			pools := &collection[*neutron.FloatingIPPool]{h, h.tables.FloatingIPPools, h.ops.FloatingIPPools()}
			register(on, pools)
			on("GET /v2.0/floatingip-pools", pools.list) // the reference has both
			h.portForwardings(on)
		},
		extensions: append(forwardingExtensions(), []extension{
			{"dns-integration", "DNS Integration", "2015-08-15T18:00:00-00:00",
				"Provides integration with DNS."},
			{"fip-port-details", "Floating IP Port Details Extension", "2018-04-09T10:00:00-00:00",
				"Add port_details attribute to Floating IP resource"},
			{"floatingip-pools", "Floating IP Pools Extension", "2018-03-21T10:00:00-00:00",
				"Provides a floating IP pools API."},
			{"router-interface-fip", "Router Interface FIP", "2015-05-11T10:00:00-00:00",
				"Allows floating IPs on networks that a router is on by an interface"},
		}...),
	}
}
