package simulate

import (
	"net/netip"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// noteConflicts notes which addresses at home here a packet from the LAN uses as if they were its
// sender's: a port's own MAC address, or an IP address that the network's table has. The LAN sends
// frames for such an address to its sender from now on, until it is announced again.
func (s *Simulator) noteConflicts(n *network) {
	f := &s.frame
	if n.seededAt(f.Src, s.here) {
		s.conflict(n, flow.Conflict{NetworkID: n.id, MAC: f.Src})
	}
	ip, mac, ok := f.Binding()
	if !ok || f.VLANs > 0 {
		return
	}
	if owner, ok := n.seeded(ip); ok && owner != mac && n.seededAt(owner, s.here) {
		s.conflict(n, flow.Conflict{NetworkID: n.id, MAC: owner, IP: ip})
	}
}

func (s *Simulator) conflict(n *network, c flow.Conflict) {
	s.dec.Conflicts = append(s.dec.Conflicts, c)
	if s.dec.explain {
		text := "conflict: on the LAN another speaks for "
		if c.IP.IsValid() {
			text += c.IP.String() + " at "
		}
		s.dec.say(n.id, flow.StepAnswer, text+c.MAC.String()+", which is announced again")
	}
}

// seededAt reports whether a MAC address is that of a router or of a port itself, and at home at a
// host. One that was only learned may have moved to the LAN.
func (n *network) seededAt(m packet.MAC, at *host) bool {
	to := n.behind(m)
	if to == nil || to.network != n || to.home == nil || to.home != at {
		return false
	}
	if n.routerPort(m) != nil {
		return true
	}
	return len(n.macs[keyOf(table, m)].seeds) > 0
}

// seeded returns the MAC address of ip on n if that is a router's, a port's or a floating IP's.
func (n *network) seeded(ip netip.Addr) (packet.MAC, bool) {
	if q := n.routerAt(ip); q != nil {
		return q.def.PortMAC, true
	}
	if e := n.neighbours[ip]; e != nil && len(e.seeds) > 0 {
		return *e.top, true
	}
	return packet.MAC{}, false
}

// OnLAN reports whether a network is on the LAN of a physical network.
func (w *World) OnLAN(networkID string) bool {
	n := w.networks[networkID]
	return n != nil && n.lan != nil
}

// SeededNeighbour returns the MAC address of ip on a network if that is a router's, a port's or a
// floating IP's.
func (w *World) SeededNeighbour(networkID string, ip netip.Addr) (packet.MAC, bool) {
	n := w.networks[networkID]
	if n == nil {
		return packet.MAC{}, false
	}
	return n.seeded(ip)
}
