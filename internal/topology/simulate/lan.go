package simulate

import (
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// arrival holds where a packet from the LAN was sent.
type arrival struct {
	from     *port // the exterior port of the network or, of a router, the one towards it; else nil
	stranger bool  // it is not known where
}

// fromLAN reports whether the packet at hand came into n from its LAN.
func (s *Simulator) fromLAN(n *network) bool {
	return n.lan != nil && s.filters.inPort == n.lan.port && s.ingress == n.lan.port
}

// arrive finds out by its source address where a packet from the LAN was sent.
func (s *Simulator) arrive(n *network) {
	a, src := &s.arrival, s.frame.Src
	*a = arrival{}
	s.noteConflicts(n)
	e := n.macs[keyOf(table, src)]
	switch q := n.routerPort(src); {
	case q != nil:
		a.from = q.peer()
		s.dec.touch(a.from.id, nil)
		return
	case e == nil:
		a.stranger = true
	case e.top != n.lan.port:
		s.dec.touch(e.top.id, nil)
		if e.top.network == n && e.top.def.Exterior() {
			a.from = e.top
		}
		return
	}
	s.learnOutside(n)
}

// comesIn decides by where a packet was sent whether it comes in from the LAN: what routers send,
// and machines to routers, goes there directly, and what this host sent has been here (decision
// 0016). A frame in the name of what is at home here is an error, whose flow ends soon: the next
// one is a conflict again.
func (s *Simulator) comesIn(n *network, toRouter bool) bool {
	switch from := s.arrival.from; {
	case from == nil:
		return true
	case from.home == s.here:
		s.dec.errorDrop(n.id, flow.CodeOtherWay, "it is from port "+from.id+", whose home this host is: it went out to the LAN here")
	case !from.def.Exterior():
		s.dec.drop(n.id, flow.CodeOtherWay, "it is from the router's port "+from.listed.port.id+", which the ports of the network hear directly")
	case toRouter:
		s.dec.drop(n.id, flow.CodeOtherWay, "it is from port "+from.id+", which routers hear directly")
	default:
		return true
	}
	return false
}

// learnOutside takes a reference to the address of a sender on the LAN, at one host: to-many frames
// come in at all of them.
func (s *Simulator) learnOutside(n *network) {
	at := n.lan.home
	if dst := s.frame.Dst; !dst.IsMulticast() {
		to := n.behind(dst)
		if to == nil {
			return
		}
		at = to.home
	}
	if at == s.here {
		s.learnAt(n, n.lan.port)
	}
}

// across returns the port by which a packet gets to a port of n: the localnet port if the LAN lies
// between; nil if the packet has come to its end.
func (s *Simulator) across(n *network, to *port) *port {
	l, in := n.lan, s.filters.inPort
	if to.def == nil || to.network != n {
		return to
	}
	exterior := to.def.Exterior()
	if !exterior && to.listed.port == nil && to != l.port { // bound nowhere: the machine is on the LAN
		s.dec.touch(to.id, nil)
		to = l.port
	}
	switch {
	case s.fromLAN(n):
		return s.inward(n, to)
	case exterior && in.def.Exterior() && to.home != in.home:
		s.dec.touch(to.id, nil)
		return l.port
	}
	return to
}

// inward is across for a packet from the LAN.
func (s *Simulator) inward(n *network, to *port) *port {
	if to == n.lan.port {
		s.dec.drop(n.id, flow.CodeOtherWay, "MAC "+s.frame.Dst.String()+" is on the LAN that the packet came from")
		return nil
	}
	s.dec.touch(to.id, nil)
	switch {
	case to.home == nil:
		s.dec.drop(n.id, flow.CodeOtherWay, "port "+to.id+" has no home on the LAN")
	case to.home != s.here:
		s.dec.drop(n.id, flow.CodeOtherWay, "the home of port "+to.id+" on the LAN is host "+hostName(to.home))
	case s.comesIn(n, !to.def.Exterior()):
		s.unkeyed = s.unkeyed || s.arrival.stranger // until it is learned where the sender is
		return to
	}
	return nil
}

// floods reports whether port p of n gets a copy of a flooded packet.
func (s *Simulator) floods(n *network, p *port) bool {
	in, l := s.filters.inPort, n.lan
	switch {
	case p == in:
		return false
	case l == nil:
		return p.def.Exterior()
	case p == l.port:
		return in.home != nil
	case !p.def.Exterior():
		return false
	case s.fromLAN(n):
		return p.home == s.here
	case in.def.Exterior():
		return p.home == in.home
	}
	return true // from a router
}

// answersLAN reports whether this host is to answer a question from the LAN about a MAC address,
// and whether it is known who is: else the machines here may be.
func (s *Simulator) answersLAN(n *network, m packet.MAC) (answers, known bool) {
	to := n.behind(m)
	if to == nil || to.network != n || to.home == nil {
		return false, false
	}
	if to.home != s.here {
		s.dec.drop(n.id, flow.CodeOtherWay, "host "+hostName(to.home)+" answers for "+m.String()+", behind port "+to.id)
		return false, true
	}
	return s.comesIn(n, !to.def.Exterior()), true
}

// noCarrier returns the reason why nothing gets to the LAN while no host carries it.
func (l *lan) noCarrier() string { return "no live host carries the physical network " + l.physical.id }

// emitLAN sends the packet out on the LAN, at the home of the port that it came from.
func (s *Simulator) emitLAN(l *lan) bool {
	p, home, standby := l.port, s.filters.inPort.home, s.filters.inPort.standby
	if home == nil {
		s.dec.errorDrop(p.id, flow.CodeNoCarrier, l.noCarrier())
		return false
	}
	text := ""
	if s.dec.explain {
		text = "to the LAN of " + l.physical.id + " at host " + hostName(home)
	}
	out := flow.Output{PortID: p.id, HostID: home.id, TunnelKey: p.def.TunnelKey}
	if standby != nil {
		out.StandbyID = standby.id
	}
	return s.deliver(out, p, home, text)
}
