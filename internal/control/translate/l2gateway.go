package translate

import (
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// GatewayDevice translates a gateway device (midonet-translations §17). Packets meet the ports of
// its connections alone.
func GatewayDevice(d *neutron.GatewayDevice) topology.Bundle {
	t := topology.GatewayDevice{
		ID: d.ID, Type: topology.RouterVTEP, ResourceID: d.ResourceID, TunnelIPs: d.TunnelIPs,
		ManagementIP: d.ManagementIP, ManagementPort: uint16(d.ManagementPort),
	}
	if d.Type == neutron.GatewayNetworkVLAN {
		t.Type = topology.NetworkVLAN
	}
	if d.ManagementIP.IsValid() {
		t.ManagementProtocol = strings.ToUpper(d.ManagementProtocol)
	}
	return topology.Bundle{GatewayDevices: []topology.GatewayDevice{t}}
}

// RemoteMACEntry translates a remote MAC entry of a device (§18). It names the router and the VNI,
// so that connections concern no entry.
func RemoteMACEntry(e *neutron.RemoteMACEntry, d *neutron.GatewayDevice) topology.Bundle {
	return topology.Bundle{RemoteMacEntries: []topology.RemoteMacEntry{{
		ID: e.ID, DeviceID: d.ID, RouterID: d.ResourceID, VNI: uint32(e.SegmentationID), MAC: e.MACAddress, VTEP: e.VTEPAddress,
	}}}
}

// L2GatewayConnection translates the connection of a network to a device into two ports that are
// linked (§19): one of the network, and one of the device's router or network.
func L2GatewayConnection(c *neutron.L2GatewayConnection, d *neutron.GatewayDevice) topology.Bundle {
	gateway := topology.Port{ID: Derive(roleL2GWPort, c.NetworkID), AdminStateUp: true}
	if d.Type == neutron.GatewayNetworkVLAN {
		gateway.NetworkID, gateway.VlanID = d.ResourceID, uint16(c.Segment)
	} else {
		gateway.RouterID, gateway.VNI = d.ResourceID, uint32(c.Segment)
		if len(d.TunnelIPs) > 0 {
			gateway.TunnelIP = d.TunnelIPs[0]
		}
	}
	network := topology.Port{ID: Derive(roleL2GWNetPort, c.NetworkID), NetworkID: c.NetworkID, AdminStateUp: true, PeerID: gateway.ID}
	return topology.Bundle{Ports: []topology.Port{network, gateway}}
}
