package topology

import (
	"net/netip"
	"slices"

	"heddle/internal/topology/packet"
)

// Types of gateway devices.
const (
	// RouterVTEP makes a router the end of VXLAN tunnels to other machines' VTEPs.
	RouterVTEP = "ROUTER_VTEP"
	// NetworkVLAN makes a network the trunk of others, each of which has a VLAN in it.
	NetworkVLAN = "NETWORK_VLAN"
)

// GatewayDevice is the router or network by which networks reach machines that no host of ours has
// (midonet-topology §7).
type GatewayDevice struct {
	ID         string       `json:"id"`
	Type       string       `json:"type"`       // RouterVTEP or NetworkVLAN
	ResourceID string       `json:"resourceId"` // of the router or the network
	TunnelIPs  []netip.Addr `json:"tunnelIps,omitempty"`

	// The OVSDB server of a switch that is the other end, if the device has one.
	ManagementIP       netip.Addr `json:"managementIp,omitzero"`
	ManagementPort     uint16     `json:"managementPort,omitempty"`
	ManagementProtocol string     `json:"managementProtocol,omitempty"` // OVSDB

	RemoteMacEntryIDs []string `json:"remoteMacEntryIds,omitempty"` // filled by Link only
}

// RemoteMacEntry is an entry of the peering tables of a router's ports with a VNI: frames to MAC go
// to the VTEP. That to the broadcast address has frames to many and to unknown addresses go there.
type RemoteMacEntry struct {
	ID       string     `json:"id"`
	DeviceID string     `json:"deviceId"`
	RouterID string     `json:"routerId"` // the device's resource
	VNI      uint32     `json:"segmentationId"`
	MAC      packet.MAC `json:"macAddress"`
	VTEP     netip.Addr `json:"vtepAddress"` // IPv4

	PortIDs []string `json:"portIds,omitempty"` // filled by Link only
}

// LearnedRemote is a MAC address behind a VTEP as the database of that VTEP has it, reported by the
// server that is connected to it. An entry of a client beats it.
type LearnedRemote struct {
	HolderID  string     `json:"holderId"`    // RemoteHolder
	PortID    string     `json:"portId"`      // router's port, which has the VNI
	NetworkID string     `json:"networkId"`   // that the port joins
	BehindID  string     `json:"behindId"`    // the network's port to the router
	MAC       packet.MAC `json:"mac"`         // the broadcast address for frames to unknown ones
	VTEP      netip.Addr `json:"vtep"`        // IPv4
	IP        netip.Addr `json:"ip,omitzero"` // of the machine, if the database has it
}

// RemoteHolder is the HolderID of what servers report. No host may write below it.
const RemoteHolder = "servers"

// VTEP reports whether the port is the end of VXLAN tunnels (midonet-topology §2.3).
func (p *Port) VTEP() bool { return p.RouterID != "" && p.VNI != 0 }

// InVLAN reports whether the port joins another network to a VLAN of its own (midonet-topology
// §2.3): its network is VLAN-aware.
func (p *Port) InVLAN() bool {
	return p.NetworkID != "" && p.VlanID != 0 && p.HostID == "" && p.PhysicalNetwork == ""
}

// linkGateways enters remote MAC entries into the tables of their routers' ports.
func (v *View) linkGateways(bundles []Bundle) {
	for i := range bundles {
		for _, d := range bundles[i].GatewayDevices {
			d.RemoteMacEntryIDs = nil
			v.GatewayDevices[d.ID] = &d
		}
	}
	type segment struct {
		router string
		vni    uint32
	}
	ports := map[segment][]*Port{}
	for _, p := range v.Ports {
		if p.VTEP() {
			at := segment{p.RouterID, p.VNI}
			ports[at] = append(ports[at], p)
		}
	}
	for i := range bundles {
		for _, e := range bundles[i].RemoteMacEntries {
			e.PortIDs = nil
			v.RemoteMacEntries[e.ID] = &e
			refer(v.GatewayDevices, e.DeviceID, func(d *GatewayDevice) *[]string { return &d.RemoteMacEntryIDs }, e.ID)
			for _, p := range ports[segment{e.RouterID, e.VNI}] {
				e.PortIDs = append(e.PortIDs, p.ID)
				p.RemoteMacEntryIDs = append(p.RemoteMacEntryIDs, e.ID)
				v.Tables.Peering[p.ID] = append(v.Tables.Peering[p.ID], [2]string{e.MAC.String(), e.VTEP.String()})
			}
		}
	}
	for _, entries := range v.Tables.Peering {
		slices.SortFunc(entries, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	}
}

// gatewayLists returns the lists that linkGateways fills.
func (v *View) gatewayLists() (lists [][]string) {
	for _, d := range v.GatewayDevices {
		lists = append(lists, d.RemoteMacEntryIDs)
	}
	for _, e := range v.RemoteMacEntries {
		lists = append(lists, e.PortIDs)
	}
	for _, p := range v.Ports {
		lists = append(lists, p.RemoteMacEntryIDs)
	}
	return lists
}
