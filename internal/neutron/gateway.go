package neutron

import (
	"net/netip"

	"heddle/internal/topology/packet"
)

// Types of gateway devices.
const (
	GatewayHardwareVTEP = "hw_vtep" // refused: a router_vtep with a management address stands for it
	GatewayRouterVTEP   = "router_vtep"
	GatewayNetworkVLAN  = "network_vlan"
)

// ManagementOVSDB is the protocol of a switch's database.
const ManagementOVSDB = "ovsdb"

// GatewayDevice is a router or a network by which layer-2 gateways reach machines outside
// (extension gateway-device).
type GatewayDevice struct {
	Standard
	Type       string       `json:"type"`
	ResourceID string       `json:"resource_id"`
	TunnelIPs  []netip.Addr `json:"tunnel_ips,omitempty"` // one, of a router_vtep

	// Of a router_vtep whose other end is a switch with an OVSDB server.
	ManagementIP       netip.Addr `json:"management_ip,omitzero"`
	ManagementPort     int        `json:"management_port,omitempty"`
	ManagementProtocol string     `json:"management_protocol,omitempty"` // ovsdb
}

// Managed reports whether a switch's database is kept in step with the device.
func (d *GatewayDevice) Managed() bool {
	return d.Type == GatewayRouterVTEP && d.ManagementIP.IsValid() && d.ManagementPort != 0
}

// GatewayDeviceView is a gateway device with its remote MAC entries, by id.
type GatewayDeviceView struct {
	*GatewayDevice
	Entries []*RemoteMACEntry
}

// RemoteMACEntry is a machine behind another VTEP, or with the broadcast address the VTEP to which
// frames to many go.
type RemoteMACEntry struct {
	Standard
	DeviceID       string     `json:"device_id"`
	MACAddress     packet.MAC `json:"mac_address"`
	VTEPAddress    netip.Addr `json:"vtep_address"` // IPv4
	SegmentationID int        `json:"segmentation_id"`
}

// L2Gateway is the gateway device that connections use (extensions l2-gateway of MidoNet and of
// networking-l2gw).
type L2Gateway struct {
	Standard
	Device L2GatewayDevice `json:"device"`
}

// L2GatewayDevice names a gateway device in one of two spellings.
type L2GatewayDevice struct {
	ID       string `json:"id"`        // of this entry
	DeviceID string `json:"device_id"` // of the gateway device, in both spellings
	// SegmentationID is that of the gateway's connection, nil to leave it to the connection.
	SegmentationID *int `json:"segmentation_id,omitempty"`

	// DeviceName is the device's id or name in the request; "" in MidoNet's spelling, which has no
	// interfaces.
	DeviceName string               `json:"device_name,omitempty"`
	Interfaces []L2GatewayInterface `json:"interfaces,omitempty"`
}

// L2GatewayInterface is a port of a switch and the VLANs there, none to leave them to connections.
type L2GatewayInterface struct {
	Name  string `json:"name"`
	VLANs []int  `json:"segmentation_id,omitempty"`
}

// L2GatewayConnection joins a network to a layer-2 gateway.
type L2GatewayConnection struct {
	Standard
	L2GatewayID string `json:"l2_gateway_id"`
	NetworkID   string `json:"network_id"`
	// SegmentationID is the request's: a VLAN or a VNI, or for a gateway with interfaces the VLAN
	// at these; nil if the gateway has it.
	SegmentationID *int `json:"segmentation_id,omitempty"`

	// What follows from the gateway, which does not change.
	DeviceID string `json:"device_id"`
	Segment  int    `json:"segment"` // the VLAN in the trunk network, or the VNI
}
