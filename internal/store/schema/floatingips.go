package schema

import (
	"net/netip"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// FloatingIPs have a port that holds their address. A fixed address has at most one of a network.
// The ports and the router in use cannot be deleted.
var FloatingIPs = records.NewTable("floating-ip", NeutronPrefix+"floatingips/", func(f *neutron.FloatingIP) string { return f.ID },
	records.Ref("floating_port", Ports, func(f *neutron.FloatingIP) []string { return []string{f.FloatingPortID} }, records.Refuse()),
	records.Ref("port", Ports, func(f *neutron.FloatingIP) []string { return []string{f.PortID} }, records.Refuse()),
	records.Ref("served_by", RouterPorts, func(f *neutron.FloatingIP) []string { return []string{f.ServedBy} }, records.Refuse()),
	records.Ref("router", Routers, func(f *neutron.FloatingIP) []string { return []string{f.RouterID} }, records.Refuse()),
	records.Ref("qos_policy", QoSPolicies, func(f *neutron.FloatingIP) []string { return []string{f.QoSPolicyID} }, records.Refuse()),
	records.Unique("fixed_ip", func(f *neutron.FloatingIP) []string {
		if f.PortID == "" {
			return nil
		}
		return []string{FloatingFixedIP(f.FloatingNetworkID, f.PortID, f.FixedIPAddress)}
	}),
	records.Index("project", func(f *neutron.FloatingIP) []string { return []string{f.ProjectID} }),
	records.Index("floating_network", func(f *neutron.FloatingIP) []string { return []string{f.FloatingNetworkID} }),
	records.Index("ip_address", func(f *neutron.FloatingIP) []string { return []string{f.FloatingIPAddress.String()} }),
)

// FloatingFixedIP returns the unique key "fixed_ip" of a floating IP.
func FloatingFixedIP(networkID, portID string, fixed netip.Addr) string {
	return networkID + "/" + portID + "/" + fixed.String()
}

// PortForwardings keep their floating IP and their port from being deleted.
var PortForwardings = records.NewTable("port-forwarding", NeutronPrefix+"port-forwardings/", func(f *neutron.PortForwarding) string { return f.ID },
	records.Ref("floating_ip", FloatingIPs, func(f *neutron.PortForwarding) []string { return []string{f.FloatingIPID} }, records.Refuse()),
	records.Ref("internal_port", Ports, func(f *neutron.PortForwarding) []string { return []string{f.InternalPortID} }, records.Refuse()),
)
