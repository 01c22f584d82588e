package vtep

import (
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// connectionBundle is the kind of owner of a connection's ports.
const connectionBundle = "l2-gateway-connection"

// remoteSite owns ports for machines behind gateways: those are the switch's to report.
const remoteSite = "network:remote_site"

// managedDevices returns the devices with a switch, by id.
func managedDevices(r records.Reader) map[string]*neutron.GatewayDevice {
	all := map[string]*neutron.GatewayDevice{}
	for d := range schema.GatewayDevices.All(r) {
		if d.Managed() && len(d.TunnelIPs) == 1 {
			all[d.ID] = d
		}
	}
	return all
}

// learnedBehind are the MAC addresses that hosts have seen, by network and then by MAC: the port
// that each is behind.
type learnedBehind map[string]map[packet.MAC]string

// readLearned returns what hosts have seen in some networks. The cost follows the number of
// addresses there.
func readLearned(r records.Reader, networks map[string]bool) learnedBehind {
	all := learnedBehind{}
	for network := range networks {
		all[network] = map[packet.MAC]string{}
		for m := range schema.LearnedMACs.By(r, "network", network) {
			if isBound(r, m) {
				all[network][m.MAC] = m.PortID
			}
		}
	}
	return all
}

// isBound reports whether a host may have seen an address where it says: behind a port that is
// bound to it, or on a LAN that it carries. Else a broken host could draw the frames to any machine
// behind the switch.
func isBound(r records.Reader, m *topology.LearnedMAC) bool {
	if p, ok := schema.Ports.Peek(r, m.PortID); ok {
		return p.NetworkID == m.NetworkID && (p.BoundHostID == m.HostID || p.PreviousHostID == m.HostID)
	}
	n, ok := schema.Networks.Peek(r, m.NetworkID)
	if !ok || n.PhysicalNetwork == "" {
		return false
	}
	u, ok := schema.Underlays.Peek(r, m.HostID)
	return ok && u.PhysicalNetworks[n.PhysicalNetwork] != ""
}

// segmentsOf returns the networks connected to a device, in order of their ids, with the seeded MAC
// addresses of each.
func segmentsOf(r records.Reader, d *neutron.GatewayDevice) (all []segment) {
	for c := range schema.L2GatewayConnections.By(r, "device", d.ID) {
		s := segment{networkID: c.NetworkID, vni: uint32(c.Segment), locator: d.TunnelIPs[0],
			macs: map[packet.MAC]netip.Addr{}, bindings: bindings(r, c)}
		b, ok := schema.Bundles.Peek(r, schema.BundleID(topology.Owner{Kind: connectionBundle, ID: c.ID}))
		if !ok {
			continue // being deleted
		}
		for i := range b.Bundle.Ports {
			if p := &b.Bundle.Ports[i]; p.VTEP() {
				s.portID = p.ID
			} else {
				s.behindID = p.ID
			}
		}
		for p := range schema.Ports.By(r, "network", c.NetworkID) {
			if p.DeviceOwner != remoteSite {
				s.macs[p.MACAddress] = firstIP(p)
			}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b segment) int { return strings.Compare(a.networkID, b.networkID) })
	return all
}

// bindings returns the VLANs to bind at the ports that a connection's gateway names.
func bindings(r records.Reader, c *neutron.L2GatewayConnection) map[string][]int {
	g, ok := schema.L2Gateways.Peek(r, c.L2GatewayID)
	if !ok || len(g.Device.Interfaces) == 0 {
		return nil
	}
	all := map[string][]int{}
	for _, i := range g.Device.Interfaces {
		switch {
		case len(i.VLANs) > 0:
			all[i.Name] = append(all[i.Name], i.VLANs...)
		case c.SegmentationID != nil:
			all[i.Name] = append(all[i.Name], *c.SegmentationID)
		default:
			all[i.Name] = append(all[i.Name], 0)
		}
	}
	return all
}

// firstIP returns a port's first IPv4 address, or else its first one.
func firstIP(p *neutron.Port) (ip netip.Addr) {
	for _, f := range p.FixedIPs {
		if !ip.IsValid() || !ip.Is4() && f.IPAddress.Is4() {
			ip = f.IPAddress
		}
	}
	return ip
}
