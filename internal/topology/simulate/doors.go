package simulate

import (
	"heddle/internal/topology/packet"
)

// Door is a way into the virtual network from outside: by a LAN, or by the uplink of a router.
type Door struct {
	PortID    string // by which packets come in
	NetworkID string // of the LAN, "" of an uplink
	HostID    string // where they come in
	MAC       packet.MAC
}

// Doors returns the ways in to routers, in no order. Where no live host carries the LAN there is
// none.
func (w *World) Doors() (all []Door) {
	for _, n := range w.networks {
		if n.lan == nil {
			continue
		}
		for _, q := range n.routers.all {
			if d, ok := w.LANDoor(n.id, q.def.PortMAC); ok {
				all = append(all, d)
			}
		}
	}
	for _, r := range w.routers {
		for _, p := range r.ports {
			if p.isUplink() {
				all = append(all, Door{PortID: p.id, HostID: p.server().id, MAC: p.def.PortMAC})
			}
		}
	}
	return all
}

// LANDoor returns the way in from a network's LAN to a MAC address.
func (w *World) LANDoor(networkID string, m packet.MAC) (Door, bool) {
	host, ok := w.Home(networkID, m)
	if !ok {
		return Door{}, false
	}
	return Door{PortID: w.networks[networkID].localnets[0].id, NetworkID: networkID, HostID: host, MAC: m}, true
}

// HasLAN reports whether a network reaches to a LAN.
func (w *World) HasLAN(networkID string) bool {
	n := w.networks[networkID]
	return n != nil && n.lan != nil
}

// LeadsOutside reports whether what leaves by a port leaves the virtual network for no machine of
// its own.
func (w *World) LeadsOutside(portID string) bool {
	p := w.ports[portID]
	return p != nil && p.def != nil && (p.isLocalnet() || p.isUplink())
}

// isUplink reports whether the port is a router's and leads out of a host.
func (p *port) isUplink() bool {
	return p.def != nil && p.router != nil && p.def.Exterior() && !p.toContainer() && !p.def.VTEP() && p.server() != nil
}
