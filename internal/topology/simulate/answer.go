package simulate

import (
	"net/netip"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// arp handles an ARP message to everybody (midonet-simulation §7.3) and says whether it is done with it. A request
// for an address in the table is answered in the name of its owner. A gratuitous message is never answered, since its
// sender would take that for a duplicate of its address; it is learned from and goes to everybody. Tagged messages do
// not come here: the table is that of the network itself, not of what its machines do in VLANs of their own.
func (s *Simulator) arp(n *network) (done bool) {
	f := &s.frame
	if f.SrcIP == f.DstIP {
		s.learnBinding(n, f.SrcIP, f.SHA)
		return false
	}
	if f.ARPOp != packet.ARPRequest {
		return false
	}
	mac, ok := n.owner(f.DstIP, f.SHA)
	if !ok {
		return false
	}
	s.explainAnswer(n, f.DstIP, mac)
	b := packet.Ethernet{Dst: f.SHA, Src: mac, Type: packet.TypeARP}.Append(make([]byte, 0, 42))
	s.answer(s.inPort, packet.ARP{Op: packet.ARPReply, SHA: mac, SPA: f.DstIP, THA: f.SHA, TPA: f.SrcIP}.Append(b))
	return true
}

// owner is the MAC address that the network's table has for ip. Whoever asks for an address that is its own probes for
// duplicates and gets no answer.
func (n *network) owner(ip netip.Addr, asker packet.MAC) (packet.MAC, bool) {
	e := n.neighbours[ip]
	if e == nil || *e.top == asker {
		return packet.MAC{}, false
	}
	return *e.top, true
}

// learnBinding notes what a host says about its own address. What is seeded is not learned over.
func (s *Simulator) learnBinding(n *network, ip netip.Addr, mac packet.MAC) {
	e := n.neighbours[ip]
	if mac.IsMulticast() || ip.IsUnspecified() || e != nil && (len(e.seeds) > 0 || *e.top == mac) {
		return
	}
	s.learnNeighbour = flow.LearnedNeighbour{NetworkID: n.id, IP: ip, MAC: mac}
	s.dec.LearnNeighbour = &s.learnNeighbour
	if s.in.Explain {
		s.say(n.id, "learn: "+ip.String()+" is at "+mac.String())
	}
}

func (s *Simulator) explainAnswer(n *network, ip netip.Addr, mac packet.MAC) {
	if s.in.Explain {
		s.say(n.id, "answer: "+ip.String()+" is at "+mac.String())
	}
}

// allNodes is the multicast address of every host on a link.
var allNodes = netip.MustParseAddr("ff02::1")

// neighbourDiscovery handles neighbour discovery to many (midonet-simulation §18) and says whether it is done with it.
func (s *Simulator) neighbourDiscovery(n *network) (done bool) {
	f := &s.frame
	if f.TTL != 255 || f.TpDst != 0 {
		return false // from beyond the link, or no message of RFC 4861: hosts ignore it
	}
	switch uint8(f.TpSrc) {
	case packet.ICMPv6NeighborSolicit:
		return s.solicitation(n)
	case packet.ICMPv6NeighborAdvert:
		if f.DstIP == allNodes && f.HasNDOpt {
			s.learnBinding(n, f.NDTarget, f.NDLink)
		}
	}
	return false
}

// solicitation answers for a target in the table. A solicitation from nobody looks for duplicates and is not answered.
func (s *Simulator) solicitation(n *network) (done bool) {
	f := &s.frame
	if f.SrcIP.IsUnspecified() {
		return false
	}
	mac, ok := n.owner(f.NDTarget, f.Src)
	if !ok {
		return false
	}
	s.explainAnswer(n, f.NDTarget, mac)
	s.answer(s.inPort, packet.NeighborAdvert(f.Src, mac, f.SrcIP, f.NDTarget, packet.NDSolicited|packet.NDOverride))
	return true
}
