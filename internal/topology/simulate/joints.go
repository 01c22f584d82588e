package simulate

import (
	"fmt"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// A joint is a port of a network that is linked to a layer-2 gateway: to a port of a network in a
// VLAN of that (midonet-simulation §7.6), or to a VTEP's port of a router (§8.1).

// wrapping is the difference of the frame on its way from the one that came in, in front of its
// network header: see flow.Framing.
type wrapping struct {
	inner bool
	pop   bool
	push  uint16
	encap *encapsulation
	// scope is the id of the network that a gateway joins by which the packet leaves: the scope of
	// its connection. "" = that of the port.
	scope string
}

// joint returns the joint of network n and the gateway's port at its other end, nil without one.
func (n *network) joint() (p, gateway *port) {
	for _, p := range n.joints {
		if g := p.names; g != nil && g.def != nil && g != p && (g.def.VTEP() || g.def.InVLAN() && g.network != n) {
			return p, g
		}
	}
	return nil, nil
}

// joins reports whether p is a joint, and returns its gateway's port.
func (p *port) joins() (gateway *port, ok bool) {
	if p.network == nil {
		return nil, false
	}
	j, g := p.network.joint()
	return g, j == p
}

// inVLAN returns the port by which network n, a trunk, leads to the network of a VLAN, or nil.
func (n *network) inVLAN(vlan uint16) *port {
	for _, g := range n.vlans {
		if g.def.VlanID == vlan {
			return g
		}
	}
	return nil
}

// joined returns the network at the other end of a gateway's port, or nil.
func (g *port) joined() *network {
	if j := g.peer(); j != nil && j.def != nil && j.network != nil {
		return j.network
	}
	return nil
}

// isLink reports whether p leads to another network by a VLAN.
func (p *port) isLink() bool {
	q := p.peer()
	return q != nil && q.def != nil && p.network != nil && q.network != nil && p.network != q.network && p.def.InVLAN() != q.def.InVLAN()
}

// tableOf returns the VLAN of the MAC table that a frame belongs to, in a network that it is in.
func (s *Simulator) tableOf(n *network) uint16 {
	switch {
	case len(n.vlans) == 0 || s.filters.now.VLANs == 0:
		return table
	}
	return s.filters.now.VLAN
}

// scopeAt returns the id of the network by which the connections of a frame that comes in by port p
// are told from others': in a trunk that of its VLAN.
func (s *Simulator) scopeAt(p *port) string {
	if p.network != nil && s.frame.VLANs > 0 {
		if g := p.network.inVLAN(s.frame.VLAN); g != nil && g.joined() != nil {
			return g.joined().id
		}
	}
	return p.deviceID()
}

// change makes the headers of the packet the simulator's own, to change them.
func (s *Simulator) change() *packet.Frame {
	if f := s.filters.now; f != &s.routed && f != &s.own {
		s.routed = *f
		s.filters.now = &s.routed
	}
	return s.filters.now
}

// pushTag puts the tag of a gateway's port in front of a frame that comes into its network by it.
func (s *Simulator) pushTag(g *port) {
	f, w := s.change(), &s.way.wrap
	f.VLANs++
	f.VLAN, w.push = g.def.VlanID, g.def.VlanID
	if n := g.joined(); n != nil {
		w.scope = n.id
	}
	if s.dec.explain {
		s.dec.say(g.id, flow.StepVLAN, fmt.Sprintf("the tag of VLAN %d is pushed", w.push))
	}
}

// popTag takes the outermost tag off a frame that leaves its trunk by a gateway's port.
func (s *Simulator) popTag(g *port) {
	f, w := s.change(), &s.way.wrap
	f.VLANs--
	f.VLAN, w.pop = 0, true
	if f.VLANs > 0 {
		f.VLAN = packet.SecondVLAN(s.way.raw)
	}
	if s.dec.explain {
		s.dec.say(g.id, flow.StepVLAN, fmt.Sprintf("the tag of VLAN %d is popped", g.def.VlanID))
	}
}

// cross takes a frame from one network to another, by the link of a VLAN.
func (s *Simulator) cross(p *port) {
	if p.def.InVLAN() {
		s.popTag(p)
	}
	s.enter(p.peer())
}

// trunk is the way of a frame through a network that others have VLANs of (midonet-simulation
// §7.6). It is between trunk ports and those networks alone.
func (s *Simulator) trunk(n *network) {
	f, p := s.filters.now, s.filters.inPort
	vlan := s.tableOf(n)
	g := n.inVLAN(f.VLAN)
	switch {
	case f.Dst.IsMulticast():
		s.flood(n, "to many")
		return
	case f.VLANs == 0:
		s.dec.drop(n.id, flow.CodeVLAN, "the network is the trunk of others, and takes no untagged frames to a MAC address")
		return
	case f.Dst == f.Src:
		s.dec.errorDrop(n.id, flow.CodeHairpin, "source and destination MAC are the same")
		return
	}
	if e := n.macs[keyOf(vlan, f.Dst)]; e != nil && e.top != p && e.top.def != nil && e.top.def.Exterior() {
		s.pass(n, e.top, fmt.Sprintf("MAC %v in VLAN %d is behind port %s", f.Dst, vlan, e.top.id))
		return
	}
	if l := s.dec.Learn; l != nil && l.NetworkID == n.id && l.VLAN == vlan && l.MAC == f.Dst && s.ingress != p {
		s.pass(n, s.ingress, "to the sender") // an answer
		return
	}
	switch {
	case p.def.InVLAN():
		s.flood(n, fmt.Sprintf("MAC %v is not known in VLAN %d", f.Dst, vlan))
	case g == nil:
		s.dec.drop(n.id, flow.CodeVLAN, fmt.Sprintf("VLAN %d is no network's", f.VLAN))
	default:
		s.pass(n, g, fmt.Sprintf("VLAN %d is that of port %s", f.VLAN, g.id))
	}
}

// pass sends a frame to one port of a trunk.
func (s *Simulator) pass(n *network, to *port, why string) {
	if s.dec.explain {
		s.dec.say(n.id, flow.StepPath, why)
	}
	s.head(to)
	s.leave(n)
}

// floodsJoint reports whether a flood in n goes to the interior port p: from a trunk port to the
// port of the frame's VLAN, and in other networks to the joint, unless it leads to a VTEP that none
// takes frames to many for.
func (s *Simulator) floodsJoint(n *network, p *port) bool {
	if p == s.filters.inPort || p.def.Exterior() {
		return false
	}
	if len(n.vlans) > 0 {
		return s.filters.now.VLANs > 0 && p.def.InVLAN() && p.def.VlanID == s.filters.now.VLAN && s.filters.inPort.def.Exterior()
	}
	g, ok := p.joins()
	if !ok {
		return false
	}
	if g.def.VTEP() {
		_, ok = g.remoteForMany()
	}
	return ok
}

// branch runs the way of one copy of a flooded frame, and returns to where the flood is.
func (s *Simulator) branch(run func()) {
	way, filters, routed := s.way, s.filters, s.routed
	run()
	s.way, s.filters, s.routed = way, filters, routed
}

// reply sends an own frame in answer to the packet, to the port of network n by which that came in.
func (s *Simulator) reply(n *network, frame []byte) {
	p := s.filters.inPort
	if p == s.ingress {
		s.answer(p, frame)
		return
	}
	s.dec.Asker = nil
	s.dec.consume()
	s.originate(frame, func() {
		s.filters.outPort = p
		s.leave(n)
	})
}
