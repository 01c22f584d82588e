package simulate

import (
	"net/netip"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// arp handles an ARP message (midonet-simulation §7.3), and reports whether it is done with it. A
// request for an address in the table, to everybody or to its owner, is answered in the owner's
// name. A gratuitous message is learned from if it is to everybody; an answer to it would report a
// duplicate address. The table is that of untagged frames.
func (s *Simulator) arp(n *network) (done bool) {
	f := s.filters.now
	switch {
	case s.filters.generated: // the table has no answer, or a router would not ask
		return false
	case f.Dst != packet.Broadcast:
		return !f.Dst.IsMulticast() && f.SrcIP != f.DstIP && f.ARPOp == packet.ARPRequest && s.answerARP(n)
	case f.SrcIP == f.DstIP:
		s.learnBinding(n, f.SrcIP, f.SHA)
		return false
	}
	return f.ARPOp == packet.ARPRequest && s.answerARP(n)
}

// answerARP answers a request if the table has its target.
func (s *Simulator) answerARP(n *network) (done bool) {
	f := s.filters.now
	return s.answerFor(n, f.DstIP, f.SHA, func(mac packet.MAC) []byte { return packet.ARPReplyTo(f, mac) })
}

// answerFor answers a question about target in the name of its owner, if the table has one.
func (s *Simulator) answerFor(n *network, target netip.Addr, asker packet.MAC, frame func(mac packet.MAC) []byte) (done bool) {
	mac, ok := s.owner(n, target, asker)
	if !ok {
		return false
	}
	if s.fromLAN(n) {
		if answers, known := s.answersLAN(n, mac); !answers {
			return known
		}
	}
	if s.dec.explain {
		s.dec.say(n.id, flow.StepAnswer, "answer: "+target.String()+" is at "+mac.String())
	}
	s.noteAsker(n, asker, target)
	s.reply(n, frame(mac))
	return true
}

// owner returns the MAC address that the network's table has for ip, or of a local IP that of the
// port that this host has for it, unless the sender probes for a duplicate of its own address, or
// one machine for the address of another.
func (s *Simulator) owner(n *network, ip netip.Addr, asker packet.MAC) (packet.MAC, bool) {
	if s.asking {
		return anyNeighbour, true
	}
	mac, ok := n.resolve(ip)
	if x := s.localPort(n, ip); x != nil {
		mac, ok = x.def.MAC, true
	}
	f := s.filters.now
	if !ok || mac == asker || !f.Dst.IsMulticast() && (f.Dst != mac || f.Dst == f.Src) {
		return packet.MAC{}, false
	}
	return mac, true
}

// noteAsker notes the sender if it would get an answer about any other neighbour too. The question
// has passed its filters; those of the answer are still to come.
func (s *Simulator) noteAsker(n *network, source packet.MAC, target netip.Addr) {
	if source == s.frame.Src && !s.ingress.isLocalnet() && s.filters.read&(onDstIP|onDstGroup|onDstMAC|onTOS|onTarget) == 0 {
		s.asker = flow.Asker{NetworkID: n.id, MAC: source, IP: s.frame.SrcIP, Target: target}
		s.dec.Asker = &s.asker
	}
}

// Any neighbour of an asker, by documentation's addresses.
var (
	anyNeighbour = packet.MAC{0x00, 0x00, 0x5e, 0x00, 0x53, 0x01}
	anyTarget4   = netip.MustParseAddr("192.0.2.1")
	anyTarget6   = netip.MustParseAddr("2001:db8::1")
)

// CanAsk reports whether a machine behind a port, with this MAC and IP address, gets answers about
// all neighbours in its network's table, and returns the network. Then anyone with the table can
// answer, until a decision of the port may change. Such questions leave nothing to learn.
func (s *Simulator) CanAsk(portID string, mac packet.MAC, ip netip.Addr) (networkID string, ok bool) {
	var frame []byte
	if ip.Is4() {
		frame = packet.ARPRequestFor(anyTarget4, mac, ip)
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
// What it says to all on the LAN is noted at one host.
func (s *Simulator) learnBinding(n *network, ip netip.Addr, mac packet.MAC) {
	if s.fromLAN(n) && (s.arrival.from != nil || n.lan.home != s.here) {
		return
	}
	e := n.neighbours[ip]
	if mac.IsMulticast() || ip.IsUnspecified() || e != nil && (len(e.seeds) > 0 || *e.top == mac) {
		return
	}
	s.learnNeighbour = flow.LearnedNeighbour{NetworkID: n.id, IP: ip, MAC: mac}
	s.dec.LearnNeighbour = &s.learnNeighbour
	if s.dec.explain {
		s.dec.say(n.id, flow.StepLearn, "learn: "+ip.String()+" is at "+mac.String())
	}
}

// allNodes is the multicast address of every host on a link.
var allNodes = netip.MustParseAddr("ff02::1")

// neighbourDiscovery handles a message, and reports whether it is done (midonet-simulation §18).
func (s *Simulator) neighbourDiscovery(n *network) (done bool) {
	f := s.filters.now
	if s.filters.generated || f.TTL != 255 || f.TpDst != 0 {
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

// solicitation answers for a target in the table. One without a source looks for duplicates, and is
// answered only for addresses that a router proxies: others are defended by their owners.
func (s *Simulator) solicitation(n *network) (done bool) {
	f := s.filters.now
	if f.SrcIP.IsUnspecified() {
		return s.defendProxied(n)
	}
	flags := packet.NDSolicited | packet.NDOverride
	if n.routerAt(f.NDTarget) != nil {
		flags |= packet.NDRouter // without it machines forget their default route (RFC 4861 §7.2.5)
	}
	return s.answerFor(n, f.NDTarget, f.Src, func(mac packet.MAC) []byte {
		return packet.NeighborAdvert(f.Src, mac, f.SrcIP, f.NDTarget, flags)
	})
}

// defendProxied answers all nodes for an address of another link that a router has in the table, as
// the kernel does for a proxied address (RFC 4861 §7.2.8): no machine on the link may take it.
func (s *Simulator) defendProxied(n *network) (done bool) {
	target := s.filters.now.NDTarget
	mac, ok := n.resolve(target)
	if !ok || n.routerAt(target) != nil || n.routerPort(mac) == nil {
		return false
	}
	if s.fromLAN(n) {
		if answers, known := s.answersLAN(n, mac); !answers {
			return known
		}
	}
	if s.dec.explain {
		s.dec.say(n.id, flow.StepAnswer, "answer to all: "+target.String()+" is at "+mac.String())
	}
	s.reply(n, packet.NeighborAdvert(packet.MulticastMAC(allNodes), mac, allNodes, target, 0))
	return true
}
