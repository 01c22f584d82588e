package simulate

import (
	"fmt"

	"heddle/internal/topology/flow"
)

// bridge is the way of a packet through a network (midonet-simulation §7).
func (s *Simulator) bridge(n *network) {
	f := s.filters.now
	switch {
	case f.Src.IsMulticast():
		s.dec.drop(n.id, flow.CodeBadSourceMAC, "source MAC "+f.Src.String()+" is a multicast address")
		return
	case !n.def.AdminStateUp:
		s.dec.drop(n.id, flow.CodeNetworkDown, "the network is administratively down")
		return
	}
	if s.fromLAN(n) {
		s.arrive(n)
	} else {
		s.learnSource(n)
	}
	if !s.bridgeFilter(n, "in", n.in) {
		return
	}
	switch {
	case len(n.vlans) > 0:
		s.trunk(n)
	case f.ARPOp != 0 && f.VLANs == 0 && s.arp(n):
	case f.IsND() && f.VLANs == 0 && s.neighbourDiscovery(n):
	case s.localIP(n):
	case f.Dst.IsMulticast():
		s.flood(n, "to many")
	default:
		s.unicast(n)
	}
}

// bridgeFilter applies a filter of the network itself, which tagged frames skip.
func (s *Simulator) bridgeFilter(n *network, direction string, c *chain) bool {
	return s.filters.now.VLANs > 0 || s.filters.pass(n.id, direction, c)
}

// table is the VLAN of the MAC table in use: only interior ports with a VLAN have other tables.
const table = 0

// learnSource takes a reference to the source address, unless that is seeded at this very port or a
// router's.
func (s *Simulator) learnSource(n *network) {
	p := s.filters.inPort
	switch {
	case s.filters.generated:
		return
	case s.way.wrap.inner:
		if g, ok := p.joins(); !ok || !g.def.VTEP() || s.way.routed {
			return
		}
	case p != s.ingress:
		return // from a router
	}
	e := n.macs[keyOf(s.tableOf(n), s.origin.Src)]
	if e != nil && e.top == p && len(e.seeds) > 0 || n.routerPort(s.origin.Src) != nil {
		return
	}
	s.learnAt(n, p)
}

// learnAt notes that the source address is behind a port.
func (s *Simulator) learnAt(n *network, p *port) {
	s.learn = flow.Learned{NetworkID: n.id, VLAN: s.tableOf(n), MAC: s.origin.Src, PortID: p.id}
	s.dec.Learn = &s.learn
	if s.dec.explain {
		s.dec.say(n.id, flow.StepLearn, "learn: "+s.origin.Src.String()+" is behind port "+p.id)
	}
}

func (s *Simulator) unicast(n *network) {
	f := s.filters.now
	if f.Dst == f.Src {
		s.dec.errorDrop(n.id, flow.CodeHairpin, "source and destination MAC are the same")
		return
	}
	to := n.behind(f.Dst)
	if to == nil {
		s.flood(n, "MAC "+f.Dst.String()+" is not known")
		return
	}
	if to == s.filters.inPort {
		s.dec.errorDrop(n.id, flow.CodeHairpin, "MAC "+f.Dst.String()+" is behind the port by which the packet came in")
		return
	}
	if s.dec.explain {
		s.dec.say(n.id, flow.StepPath, "MAC "+f.Dst.String()+" is behind port "+to.id)
	}
	if n.lan != nil {
		if to = s.across(n, to); to == nil {
			return
		}
	}
	s.head(to)
	if s.bridgeFilter(n, "out", n.out) {
		s.leave(n)
	}
}

// flood gives a copy to every exterior port but the ingress, each through its own out filters; on a
// network with a localnet port, to those that the LAN does not lie between, and to the LAN.
func (s *Simulator) flood(n *network, why string) {
	s.unkeyed = true // it rests on every port of the network, and on an address not being known
	s.filters.outPort = nil
	if s.dec.explain {
		s.dec.say(n.id, flow.StepFlood, "flood: "+why)
	}
	if s.fromLAN(n) && !s.comesIn(n, false) {
		return
	}
	if !s.bridgeFilter(n, "out", n.out) {
		return
	}
	cutOff := ""
	if n.lan != nil && n.lan.home == nil && !s.fromLAN(n) {
		cutOff = ", and " + n.lan.noCarrier()
		if s.dec.explain {
			s.dec.say(n.id, flow.StepPath, n.lan.noCarrier()+": nothing goes to the LAN")
		}
	}
	copies, passed := 0, 0
	for _, p := range n.ports {
		if s.floodsJoint(n, p) {
			copies++
			before := len(s.dec.Outputs) + len(s.dec.Emit)
			s.branch(func() { s.head(p); s.leave(n) })
			if len(s.dec.Outputs)+len(s.dec.Emit) > before {
				passed++
			}
			continue
		}
		if !s.floods(n, p) {
			continue
		}
		copies++
		s.head(p)
		if s.leave(n) {
			passed++
		}
	}
	if copies == 0 {
		s.dec.drop(n.id, flow.CodeNoPath, "flooded ("+why+"), but the network has no other bound port"+cutOff)
	} else if d := &s.dec; passed == 0 && !d.aside && len(d.Drops) > 0 {
		d.Verdict, d.Device, d.Code = flow.Drop, n.id, d.Drops[0].Code
		d.Reason = fmt.Sprintf("flooded (%s), but none of %d ports took it; the first: port %s: %s", why, copies, d.Drops[0].Device, d.Drops[0].Reason)
	}
}
