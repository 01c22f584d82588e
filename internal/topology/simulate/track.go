package simulate

import (
	"fmt"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// recollection is what the first fragment of a datagram told about the later one at hand.
type recollection struct {
	known        bool
	hasTp        bool
	tpSrc, tpDst uint16 // as conditions see them
	src, dst     uint16 // as connections see them
}

// isReturn says whether the packet is a reply of a tracked connection (midonet-simulation §5). The question is put
// once for a packet, on the headers with which it came in.
func (s *Simulator) isReturn() bool {
	if s.generated {
		return true
	}
	if !s.answered {
		s.answered = true
		s.track()
	}
	return s.dec.Return
}

func (s *Simulator) track() {
	f, d := &s.frame, &s.dec
	switch {
	case !f.IsIP() || f.IsND():
		return // counts as forward, and opens nothing
	case f.IsICMPError():
		s.trackRelated()
	default:
		d.Tracked, d.Asked = true, s.connKey()
		d.Return = s.conn(d.Asked)
		// A later fragment opens nothing: the first one did.
		s.register = !d.Return && f.Frag != packet.FragLater
	}
	if s.in.Explain {
		s.say(s.ingress.network.id, trackText(d))
	}
}

func trackText(d *flow.Decision) string {
	switch {
	case !d.Tracked:
		return "connection: an ICMP error that quotes no connection: not a reply"
	case d.Return:
		return fmt.Sprintf("connection: reply of a known one (%s)", keyText(d.Asked))
	}
	return fmt.Sprintf("connection: no reply of a known one (%s)", keyText(d.Asked))
}

func keyText(k flow.ConnKey) string {
	return fmt.Sprintf("%v:%d → %v:%d protocol %d", k.Src, k.SrcPort, k.Dst, k.DstPort, k.Proto)
}

func (s *Simulator) conn(k flow.ConnKey) bool { return s.in.State != nil && s.in.State.Conn(k) }

// connKey is the key of the packet as it came in, in the scope of the network it entered.
func (s *Simulator) connKey() flow.ConnKey {
	f := &s.frame
	k := flow.ConnKey{Src: f.SrcIP, Dst: f.DstIP, Proto: f.Proto, Device: s.ingress.network.id}
	switch {
	case f.Frag == packet.FragLater:
		if s.remembers() {
			k.SrcPort, k.DstPort = s.recall.src, s.recall.dst
		}
	case f.Echo:
		k.SrcPort, k.DstPort = f.EchoID, f.EchoID
	case packet.HasPorts(f.Proto):
		k.SrcPort, k.DstPort = f.TpSrc, f.TpDst
	}
	return k
}

// trackRelated asks whether the packet that an ICMP error quotes belongs to a connection of this network, in either
// direction. The error must be addressed to who sent the quoted packet: otherwise any quote that names somebody else's
// connection would open the filter.
func (s *Simulator) trackRelated() {
	f, d := &s.frame, &s.dec
	q := &f.Quote
	if !q.Valid || q.Src != f.DstIP {
		return
	}
	d.Tracked = true
	d.Asked = flow.ConnKey{Src: q.Dst, Dst: q.Src, SrcPort: q.DstPort, DstPort: q.SrcPort, Proto: q.Proto, Device: s.ingress.network.id}
	if d.Return = s.conn(d.Asked); !d.Return {
		ingress := d.Asked
		ingress.Ingress = true
		d.Return = s.conn(ingress)
	}
}

// remembers says whether the first fragment of the later one at hand passed, and if so fills recall.
func (s *Simulator) remembers() bool {
	s.usedPorts = true
	if s.recalled {
		return s.recall.known
	}
	s.recalled = true
	s.recall = recollection{}
	if s.in.State == nil || s.generated {
		return false
	}
	f := &s.frame
	ports, ok := s.in.State.Frag(s.fragKey())
	if !ok {
		return false
	}
	r := recollection{known: true}
	switch {
	case packet.HasPorts(f.Proto):
		r.hasTp = true
		r.tpSrc, r.tpDst, r.src, r.dst = ports[0], ports[1], ports[0], ports[1]
	case f.Proto == packet.ProtoICMP || f.Proto == packet.ProtoICMPv6:
		r.hasTp = true
		r.tpSrc, r.tpDst, r.src, r.dst = ports[1]>>8, ports[1]&0xff, ports[0], ports[0]
	}
	s.recall = r
	if s.in.Explain {
		s.say(s.ingress.network.id, fmt.Sprintf("fragment: the first of datagram %d passed, its ports were %d and %d", f.FragID, ports[0], ports[1]))
	}
	return true
}

func (s *Simulator) fragKey() flow.FragKey {
	f := &s.frame
	return flow.FragKey{Src: f.SrcIP, Dst: f.DstIP, Proto: f.FragProto, ID: f.FragID, Device: s.ingress.network.id}
}

// remember names what a packet that goes out leaves behind: the keys of its connection, the ports of its datagram.
func (s *Simulator) remember() {
	d, f := &s.dec, &s.frame
	if f.Frag == packet.FragFirst {
		s.firstFrag = s.fragKey()
		d.FirstFrag = &s.firstFrag
		switch {
		case packet.HasPorts(f.Proto):
			d.FragPorts = [2]uint16{f.TpSrc, f.TpDst}
		case f.HasTp:
			d.FragPorts = [2]uint16{f.EchoID, f.TpSrc<<8 | f.TpDst}
		}
	}
	if !s.register {
		return
	}
	in := d.Asked
	// Headers are not rewritten within a network, and all outputs are in the network of the ingress port: one reply key.
	reply := flow.ConnKey{Src: in.Dst, Dst: in.Src, SrcPort: in.DstPort, DstPort: in.SrcPort, Proto: in.Proto, Device: in.Device}
	in.Ingress = true
	d.NewConns = append(d.NewConns, reply, in)
	if s.in.Explain {
		s.say(in.Device, "connection: remembered, its replies will pass")
	}
}
