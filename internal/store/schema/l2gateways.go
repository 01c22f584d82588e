package schema

import (
	"strconv"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// Layer-2 gateways: devices with their remote MAC entries, gateways that name a device, and
// connections of networks to gateways. The operations check what these references refuse.
var (
	// GatewayDevices have different resources, tunnel addresses and management addresses.
	GatewayDevices = records.NewTable("gateway-device", NeutronPrefix+"gateway-devices/", func(d *neutron.GatewayDevice) string { return d.ID },
		records.Ref("router", Routers, func(d *neutron.GatewayDevice) []string { return resourceOf(d, neutron.GatewayRouterVTEP) }, records.Refuse()),
		records.Ref("network", Networks, func(d *neutron.GatewayDevice) []string { return resourceOf(d, neutron.GatewayNetworkVLAN) }, records.Refuse()),
		records.Unique("resource", func(d *neutron.GatewayDevice) []string { return []string{d.ResourceID} }),
		records.Unique("tunnel_ip", func(d *neutron.GatewayDevice) (ips []string) {
			for _, ip := range d.TunnelIPs {
				ips = append(ips, ip.String())
			}
			return ips
		}),
		records.Unique("management_ip", func(d *neutron.GatewayDevice) []string {
			if !d.ManagementIP.IsValid() {
				return nil
			}
			return []string{d.ManagementIP.String()}
		}),
		records.Index("project", func(d *neutron.GatewayDevice) []string { return []string{d.ProjectID} }),
		records.Index("name", func(d *neutron.GatewayDevice) []string { return []string{d.Name} }),
	)

	// RemoteMACEntries are deleted with their device, which has one for each MAC address.
	RemoteMACEntries = records.NewTable("remote-mac-entry", NeutronPrefix+"remote-mac-entries/", func(e *neutron.RemoteMACEntry) string { return e.ID },
		records.Ref("device", GatewayDevices, func(e *neutron.RemoteMACEntry) []string { return []string{e.DeviceID} }, records.Cascade()),
		records.Unique("mac_address", func(e *neutron.RemoteMACEntry) []string { return []string{RemoteMAC(e.DeviceID, e.MACAddress)} }),
		records.Index("project", func(e *neutron.RemoteMACEntry) []string { return []string{e.ProjectID} }),
	)

	// L2Gateways name a device each.
	L2Gateways = records.NewTable("l2-gateway", NeutronPrefix+"l2-gateways/", func(g *neutron.L2Gateway) string { return g.ID },
		records.Ref("device", GatewayDevices, func(g *neutron.L2Gateway) []string { return []string{g.Device.DeviceID} }, records.Refuse()),
		records.Index("project", func(g *neutron.L2Gateway) []string { return []string{g.ProjectID} }),
	)

	// L2GatewayConnections are the only ones of their network, gateway and segment of a device.
	L2GatewayConnections = records.NewTable("l2-gateway-connection", NeutronPrefix+"l2-gateway-connections/", func(c *neutron.L2GatewayConnection) string { return c.ID },
		records.Ref("l2_gateway", L2Gateways, func(c *neutron.L2GatewayConnection) []string { return []string{c.L2GatewayID} }, records.Refuse()),
		records.Ref("network", Networks, func(c *neutron.L2GatewayConnection) []string { return []string{c.NetworkID} }, records.Refuse()),
		records.Unique("only_of_gateway", func(c *neutron.L2GatewayConnection) []string { return []string{c.L2GatewayID} }),
		records.Unique("only_of_network", func(c *neutron.L2GatewayConnection) []string { return []string{c.NetworkID} }),
		records.Unique("segment", func(c *neutron.L2GatewayConnection) []string { return []string{DeviceSegment(c.DeviceID, c.Segment)} }),
		records.Index("device", func(c *neutron.L2GatewayConnection) []string { return []string{c.DeviceID} }),
		records.Index("project", func(c *neutron.L2GatewayConnection) []string { return []string{c.ProjectID} }),
	)

	// LearnedRemotes are the MAC addresses in the databases of other VTEPs, each
	// "servers/<router's port>/<mac>", under the lease of the server that is connected.
	LearnedRemotes = records.NewDerivedTable("learned-remote", StatePrefix+"*/vtep/",
		func(r *topology.LearnedRemote) string { return r.HolderID + "/" + r.PortID + "/" + r.MAC.String() },
		records.Index("port", func(r *topology.LearnedRemote) []string { return []string{r.PortID} }))
)

// DeviceSegment returns the unique key of a segment of a gateway device: a VLAN of its network, or
// a VNI of its router.
func DeviceSegment(deviceID string, segment int) string {
	return deviceID + "/" + strconv.Itoa(segment)
}

// RemoteMAC returns the unique key of a MAC address of a gateway device.
func RemoteMAC(deviceID string, mac packet.MAC) string { return deviceID + "/" + mac.String() }

func resourceOf(d *neutron.GatewayDevice, typ string) []string {
	if d.Type != typ {
		return nil
	}
	return []string{d.ResourceID}
}
