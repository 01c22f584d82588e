package simulate

import (
	"net/netip"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// routerARP takes an ARP message to a router's port (midonet-simulation §8.2). A router answers for
// the address of its port alone: a network's table answers for floating IPs.
func (s *Simulator) routerARP(p *port) {
	f := s.filters.now
	gratuitous, ours := f.SrcIP == f.DstIP, p.has(f.DstIP)
	switch {
	case !p.onLink(f.SrcIP):
		s.dec.drop(p.id, flow.CodeNotForRouter, "ARP message from "+f.SrcIP.String()+", which is in no subnet of the port")
	case gratuitous || f.ARPOp == packet.ARPReply && ours:
		s.meet(p, f.SrcIP, f.SHA)
		s.dec.consume()
	case f.ARPOp == packet.ARPRequest && ours && !s.filters.generated:
		s.meet(p, f.SrcIP, f.SHA)
		s.originate(packet.ARPReplyTo(f, p.def.PortMAC), func() { s.egress(p) })
	default:
		s.dec.drop(p.id, flow.CodeNotForRouter, "the ARP message is not about an address of the router")
	}
}

// routerND takes a message of neighbour discovery to a router's port.
func (s *Simulator) routerND(p *port) {
	f := s.filters.now
	typ := uint8(f.TpSrc)
	switch {
	case f.TTL != 255 || f.TpDst != 0:
		s.dec.drop(p.id, flow.CodeNotForRouter, "the message of neighbour discovery comes from beyond the link")
	case typ == packet.ICMPv6NeighborAdvert && f.HasNDOpt && p.onLink(f.NDTarget):
		s.meet(p, f.NDTarget, f.NDLink)
		s.dec.consume()
	case typ == packet.ICMPv6NeighborSolicit && p.has(f.NDTarget) && !s.filters.generated:
		s.answerSolicitation(p)
	default:
		s.dec.drop(p.id, flow.CodeNotForRouter, "the message of neighbour discovery is not about an address of the router")
	}
}

// answerSolicitation answers for an address of a router's port. To one who looks for duplicates it
// answers everybody.
func (s *Simulator) answerSolicitation(p *port) {
	f := s.filters.now
	to, dst, flags := f.Src, f.SrcIP, packet.NDRouter|packet.NDOverride|packet.NDSolicited
	if dst.IsUnspecified() {
		to, dst, flags = packet.MulticastMAC(allNodes), allNodes, packet.NDRouter|packet.NDOverride
	} else if f.HasNDOpt {
		s.meet(p, f.SrcIP, f.NDLink)
	}
	s.originate(packet.NeighborAdvert(to, p.def.PortMAC, dst, f.NDTarget, flags), func() { s.egress(p) })
}

// meet notes the MAC address of a neighbour of a router's port, unless its network seeds another.
func (s *Simulator) meet(p *port, ip netip.Addr, mac packet.MAC) {
	id := p.router.id
	if peer := p.peer(); !p.def.Exterior() && peer != nil {
		if peer.network == nil {
			return // a router, of which the MAC address is known
		}
		id = peer.network.id
	}
	n := s.world.networks[id]
	if mac.IsMulticast() || mac.IsZero() || !isUnicast(ip) || p.has(ip) {
		return
	}
	if n != nil {
		if e := n.neighbours[ip]; e != nil && len(e.seeds) > 0 || n.routerAt(ip) != nil {
			return
		}
	}
	s.learnNeighbour = flow.LearnedNeighbour{NetworkID: id, IP: ip, MAC: mac}
	s.dec.LearnNeighbour = &s.learnNeighbour
	if s.dec.explain {
		s.dec.say(id, flow.StepLearn, "learn: "+ip.String()+" is at "+mac.String())
	}
}
