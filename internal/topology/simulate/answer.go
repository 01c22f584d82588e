package simulate

import (
	"net/netip"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// arp handles an ARP message (midonet-simulation §7.3) and reports whether it is done with it. A request to everybody for
// an address in the table is answered in the name of its owner, and so is a probe addressed to the owner alone. A
// gratuitous message is never answered, since its sender would take that for a duplicate of its address; one to everybody
// is learned from and flooded. Tagged messages do not come here: the table is that of the network itself, not of what its
// machines do in VLANs of their own.
func (s *Simulator) arp(n *network) (done bool) {
	f := &s.frame
	if f.Dst != packet.Broadcast {
		return !f.Dst.IsMulticast() && f.SrcIP != f.DstIP && f.ARPOp == packet.ARPRequest && s.answerARP(n)
	}
	if f.SrcIP == f.DstIP {
		s.learnBinding(n, f.SrcIP, f.SHA)
		return false
	}
	return f.ARPOp == packet.ARPRequest && s.answerARP(n)
}

// answerARP answers a request if the table has its target.
func (s *Simulator) answerARP(n *network) (done bool) {
	f := &s.frame
	mac, ok := s.owner(n, f.DstIP, f.SHA)
	if !ok {
		return false
	}
	s.explainAnswer(n, f.DstIP, mac)
	s.noteAsker(n, f.SHA, f.DstIP)
	b := packet.Ethernet{Dst: f.SHA, Src: mac, Type: packet.TypeARP}.Append(make([]byte, 0, 42))
	s.answer(s.inPort, packet.ARP{Op: packet.ARPReply, SHA: mac, SPA: f.DstIP, THA: f.SHA, TPA: f.SrcIP}.Append(b))
	return true
}

// owner is the MAC address that the network's table has for ip. Whoever asks for an address that is its own probes for
// duplicates and gets no answer; neither does a probe addressed to one machine for the address of another.
func (s *Simulator) owner(n *network, ip netip.Addr, asker packet.MAC) (packet.MAC, bool) {
	if s.asking {
		return anyNeighbour, true
	}
	e := n.neighbours[ip]
	f := &s.frame
	if e == nil || *e.top == asker || !f.Dst.IsMulticast() && (f.Dst != *e.top || f.Dst == f.Src) {
		return packet.MAC{}, false
	}
	return *e.top, true
}

// noteAsker notes whether the sender would get an answer for any other neighbour too. It is called when the filters have
// passed the question; those that the answer meets are still to come.
func (s *Simulator) noteAsker(n *network, source packet.MAC, target netip.Addr) {
	if source == s.frame.Src && s.read&(onDstIP|onDstGroup|onDstMAC|onTOS|onTarget) == 0 {
		s.asker = flow.Asker{NetworkID: n.id, MAC: source, IP: s.frame.SrcIP, Target: target}
		s.dec.Asker = &s.asker
	}
}

// anyNeighbour and anyTarget4, anyTarget6 stand for any neighbour of the asker's. The addresses are documentation's.
var (
	anyNeighbour = packet.MAC{0x00, 0x00, 0x5e, 0x00, 0x53, 0x01}
	anyTarget4   = netip.MustParseAddr("192.0.2.1")
	anyTarget6   = netip.MustParseAddr("2001:db8::1")
)

// CanAsk reports whether the machine behind a port that sends with this MAC and IP address gets an answer about each
// neighbour in its network's table, whatever neighbour it asks for: then whoever holds the table can answer in the
// simulator's place until a decision of the port may change. Such a question leaves nothing to be learned. It returns the
// network.
func (s *Simulator) CanAsk(portID string, mac packet.MAC, ip netip.Addr) (networkID string, ok bool) {
	var frame []byte
	if ip.Is4() {
		frame = packet.Ethernet{Dst: packet.Broadcast, Src: mac, Type: packet.TypeARP}.Append(make([]byte, 0, 42))
		frame = packet.ARP{Op: packet.ARPRequest, SHA: mac, SPA: ip, TPA: anyTarget4}.Append(frame)
	} else {
		group := packet.SolicitedNode(anyTarget6)
		frame = packet.NeighborSolicit(packet.MulticastMAC(group), mac, ip, group, anyTarget6)
	}
	s.reset(Input{PortID: portID, Frame: frame})
	s.asking = true
	s.walk()
	if s.dec.Asker == nil {
		return "", false
	}
	return s.dec.Asker.NetworkID, true
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

// neighbourDiscovery handles neighbour discovery (midonet-simulation §18) and reports whether it is done with it.
func (s *Simulator) neighbourDiscovery(n *network) (done bool) {
	f := &s.frame
	if f.TTL != 255 || f.TpDst != 0 {
		return false // from beyond the link, or no message of RFC 4861: hosts ignore it
	}
	switch uint8(f.TpSrc) {
	case packet.ICMPv6NeighborSolicit:
		return s.solicitation(n)
	case packet.ICMPv6NeighborAdvert:
		if f.Dst.IsMulticast() && f.DstIP == allNodes && f.HasNDOpt {
			s.learnBinding(n, f.NDTarget, f.NDLink)
		}
	}
	return false
}

// solicitation answers for a target in the table, also a probe addressed to its owner alone. A solicitation from nobody
// looks for duplicates and is not answered.
func (s *Simulator) solicitation(n *network) (done bool) {
	f := &s.frame
	if f.SrcIP.IsUnspecified() {
		return false
	}
	mac, ok := s.owner(n, f.NDTarget, f.Src)
	if !ok {
		return false
	}
	s.explainAnswer(n, f.NDTarget, mac)
	s.noteAsker(n, f.Src, f.NDTarget)
	s.answer(s.inPort, packet.NeighborAdvert(f.Src, mac, f.SrcIP, f.NDTarget, packet.NDSolicited|packet.NDOverride))
	return true
}
