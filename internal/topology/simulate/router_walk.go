package simulate

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// limitedBroadcast is the address of all hosts on a link (RFC 919 §7).
var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// router is the way of a packet into a router (midonet-simulation §8).
func (s *Simulator) router(p *port) {
	r := p.router
	if p.def.VTEP() {
		s.encapsulate(p)
		return
	}
	var from *port
	if s.way.devices > 1 {
		from = p.peer()
	}
	s.dec.touch(r.id, from)
	if s.in.Reads != nil {
		s.in.Reads.noteRouter(r)
	}
	f := s.filters.now
	if r.def != nil && len(r.vteps) > 0 && f.VLANs == 0 && f.Dst == p.def.PortMAC && p.def.AdminStateUp && r.def.AdminStateUp && s.decapsulate(p) {
		return
	}
	s.changeHeaders()
	f = s.filters.now
	s.way.came, s.nat.device = s.comingHeaders(), r.id
	switch {
	case r.def == nil:
		s.dec.errorDrop(r.id, flow.CodeBadObject, "the router is not known")
	case f.VLANs > 0:
		s.dec.drop(p.id, flow.CodeVLAN, "the router takes no tagged frames")
	case f.ARPOp == 0 && !f.IsIP():
		s.dec.drop(p.id, flow.CodeNotForRouter, fmt.Sprintf("the router takes no frames of EtherType %#04x", f.EtherType))
	case f.Dst != p.def.PortMAC && !(f.Dst.IsMulticast() && (f.ARPOp != 0 || f.IsND())):
		s.dec.drop(p.id, flow.CodeNotForRouter, "MAC "+f.Dst.String()+" is not that of the router's port")
	case !p.def.AdminStateUp:
		s.dec.drop(p.id, flow.CodePortDown, "the port is administratively down")
		s.complain(prohibited)
	case !s.routerFilter(p.id, "in", p.in):
	case !r.def.AdminStateUp:
		s.dec.drop(r.id, flow.CodeRouterDown, "the router is administratively down")
		s.complain(prohibited)
	case f.ARPOp != 0:
		s.routerARP(p)
	case f.IsND():
		s.routerND(p)
	case f.NoForward != "":
		s.unkeyed = true // flows hold for packets with and without such a header
		s.dec.drop(r.id, flow.CodeNoForward, "the router forwards no packets with "+f.NoForward)
	default:
		s.preRouting(p)
	}
}

// changeHeaders notes that the packet may leave with other headers than it came in with.
func (s *Simulator) changeHeaders() {
	if s.way.wrap.encap != nil {
		return // the VXLAN packet is made as it leaves
	}
	if !s.filters.generated && !s.way.routed {
		s.change()
	}
	s.way.routed = true
}

// comingHeaders are those with which the packet comes into a router.
func (s *Simulator) comingHeaders() flow.Rewrite {
	if s.way.wrap.encap == nil {
		return s.headers()
	}
	f := s.filters.now
	return flow.Rewrite{SrcMAC: f.Src, DstMAC: f.Dst, Src: f.SrcIP, Dst: f.DstIP, SrcPort: f.TpSrc, DstPort: f.TpDst}
}

// routerFilter applies a filter of a router or of its port, which answers what it rejects.
func (s *Simulator) routerFilter(device, direction string, c *chain) bool {
	v := s.filters.apply(device, direction, c)
	if v == reject {
		s.complain(prohibited)
	}
	return v == accept
}

// preRouting has the router's load balancer, or else its inbound filter, look at the packet, and
// finds the route. The sender of the first
// fragment of a datagram that is dropped here hears that it should not fragment, for translations
// need whole packets.
func (s *Simulator) preRouting(p *port) {
	r, f := p.router, s.filters.now
	if !s.way.turned && !s.isWayBack(p, f.SrcIP) {
		return
	}
	s.way.turned = false
	v := accept
	switch s.balance(r) {
	case stopped:
		return
	case untouched:
		if s.redirected(r) {
			return
		}
		v = s.filters.apply(r.id, "in", r.in)
	}
	switch {
	case v == reject:
		s.complain(prohibited)
	case v == drop && f.Frag == packet.FragFirst && f.EtherType == packet.TypeIPv4:
		s.complain(fragmented)
	case v != accept:
	case !isUnicast(f.DstIP) || !isUnicast(f.SrcIP):
		s.dec.drop(r.id, flow.CodeNotForRouter, fmt.Sprintf("the router takes no packets from %v to %v", f.SrcIP, f.DstIP))
	case f.DstIP.IsLinkLocalUnicast() && f.DstIP.Is6() && p.has(f.DstIP):
		s.local(r)
	case f.DstIP.Is6() && (f.DstIP.IsLinkLocalUnicast() || f.SrcIP.IsLinkLocalUnicast()):
		s.dec.drop(r.id, flow.CodeLinkScope, fmt.Sprintf("packets from %v to %v do not leave their link", f.SrcIP, f.DstIP))
	default:
		s.take(r, s.routeOf(r))
	}
}

// isWayBack reports whether a packet may come into a router by port p from source, and drops it if
// its source belongs behind another port: a machine outside or on another network would pose as one
// inside, past the rules that trust its address (RFC 1812 §5.3.8, RFC 3704 §2.3).
//
// The program in a service container is the router's own, and speaks with its addresses.
func (s *Simulator) isWayBack(p *port, source netip.Addr) bool {
	if p.toContainer() {
		return true
	}
	q := p.router.routes.home(source, p)
	if q == nil {
		return true
	}
	s.dec.drop(p.id, flow.CodeOtherWay, fmt.Sprintf("packets from %v come in by the router's port %s, not here", source, q.id))
	return false
}

// isUnicast reports whether an address is that of one machine: not those of RFC 1812 §5.3.7, of
// which RFC 6890 keeps "this network" and class E, with the limited broadcast address, from being
// forwarded.
func isUnicast(a netip.Addr) bool {
	if a.Is4() {
		b := a.As4()
		return b[0] != 0 && b[0] != 127 && b[0] < 224
	}
	return !a.IsMulticast() && !a.IsUnspecified() && !a.IsLoopback()
}

// take sends the packet on its route.
func (s *Simulator) take(r *router, rt *route) {
	f := s.filters.now
	if rt == nil {
		var others []flow.RouteChoice
		if s.dec.explain {
			others = s.sayOtherRoutes(r, nil)
		}
		s.dec.errorDrop(r.id, flow.CodeNoRoute, "no route to "+f.DstIP.String())
		if s.dec.explain {
			s.dec.last().Routes = others
		}
		s.complain(unreachable)
		return
	}
	if s.dec.explain {
		s.sayRoutes(r, rt)
	}
	switch rt.def.NextHop {
	case topology.HopPort:
		if rt.port == nil {
			s.dec.errorDrop(r.id, flow.CodeBadObject, "route "+rt.id+" names no port")
			return
		}
		s.postRouting(r, rt)
	case topology.HopLocal:
		s.local(r)
	case topology.HopBlackhole:
		s.dec.errorDrop(r.id, flow.CodeRouteBlackhole, "route "+rt.id+" to "+rt.dst.String()+" discards packets")
	case topology.HopReject:
		s.dec.errorDrop(r.id, flow.CodeRouteReject, "route "+rt.id+" to "+rt.dst.String()+" rejects packets")
		s.complain(prohibited)
	default:
		s.dec.errorDrop(r.id, flow.CodeBadObject, "route "+rt.id+": next hop "+rt.def.NextHop+" is not known to this version")
	}
}

// postRouting has the router's load balancer, or else the filters behind the routing, look at the
// packet, and finds the next hop.
func (s *Simulator) postRouting(r *router, rt *route) {
	f, q := s.filters.now, rt.port
	if p := s.filters.inPort; p != nil && !p.toContainer() && !q.toContainer() { // not the router's own
		if f.TTL <= 1 {
			s.unkeyed = true // flows hold for packets whatever their time to live is
			s.dec.errorDrop(r.id, flow.CodeTTLExceeded, "the time to live or hop limit is over")
			s.complain(expired)
			return
		}
		f.TTL--
		if s.way.wrap.encap == nil {
			s.way.hops++
		}
		if len(s.world.meters.all) > 0 {
			s.meter(r, p, q)
		}
	}
	if q.has(f.DstIP) {
		s.dec.drop(r.id, flow.CodeNoRoute, f.DstIP.String()+" is the address of port "+q.id+", but no route says so")
		return
	}
	s.filters.outPort = q
	switch s.unbalance(r) {
	case stopped:
		return
	case untouched:
		if !s.routerFilter(r.id, "forward", r.forward) || !s.routerFilter(r.id, "out", r.out) {
			return
		}
	}
	if s.mayCross(q) {
		s.nextHop(q, rt.gateway(f.DstIP))
	}
}

// mayCross reports whether a packet may leave its router by port q, and drops it if that is of
// another address scope than the port by which it came, and its addresses are as they came: what
// they mean there is not known. The program in a service container is the router's own, and knows.
func (s *Simulator) mayCross(q *port) bool {
	f, p, came := s.filters.now, s.filters.inPort, &s.way.came
	from, to := addressScope(p, f.DstIP), addressScope(q, f.DstIP)
	if p == nil || from == to || p.toContainer() || q.toContainer() || f.SrcIP != came.Src || f.DstIP != came.Dst {
		return true
	}
	s.dec.drop(q.router.id, flow.CodeAddressScope, fmt.Sprintf("packets from %s go to %s only if they are translated", scopeText(from), scopeText(to)))
	return false
}

func scopeText(scope string) string {
	if scope == "" {
		return "no address scope"
	}
	return "address scope " + scope
}

// nextHop finds the MAC address of a neighbour of port q, and sends the packet there.
func (s *Simulator) nextHop(q *port, hop netip.Addr) {
	n := s.world.networks[q.router.id]
	if q.toContainer() {
		s.sendTo(q, topology.ContainerMAC(q.def.PortMAC))
		return
	}
	if !q.def.Exterior() {
		peer := q.peer()
		if peer.router != nil {
			s.sendTo(q, peer.def.PortMAC)
			return
		}
		n = peer.network
	} else if !q.onLink(hop) {
		s.dec.errorDrop(q.id, flow.CodeNoNeighbour, "next hop "+hop.String()+" is in no subnet of the port")
		return
	}
	if n != nil {
		if s.in.Reads != nil {
			s.in.Reads.noteNetwork(n)
		}
		if mac, ok := n.resolve(hop); ok {
			s.sendTo(q, mac)
			return
		}
	}
	if !s.in.LANMAC.IsZero() && (q.isUplink() || n != nil && n.lan != nil) {
		s.sendTo(q, s.in.LANMAC)
		return
	}
	s.ask(q, hop)
}

// sendTo sends the packet out of port q to a neighbour.
func (s *Simulator) sendTo(q *port, mac packet.MAC) {
	f := s.filters.now
	before := s.dec.headers(f)
	f.Src, f.Dst = q.def.PortMAC, mac
	if s.dec.explain {
		s.dec.say(q.router.id, flow.StepNextHop, "next hop is at "+mac.String())
		s.dec.changed(before, f)
	}
	s.egress(q)
}

// egress is the way of a packet out of a router's port. One that is addressed to that very port
// comes in again: a machine of the router's own has the address.
func (s *Simulator) egress(q *port) {
	f := s.filters.now
	s.filters.outPort = q
	if q.def.Exterior() {
		s.dec.touch(q.id, nil)
	}
	peer := q.peer()
	switch {
	case !q.def.AdminStateUp && !s.filters.generated: // it answers all the same
		s.dec.drop(q.id, flow.CodePortDown, "the port is administratively down")
		s.complain(prohibited)
	case !s.routerFilter(q.id, "out", q.out):
	case f.Src == f.Dst:
		s.way.turned = true
		s.enter(q)
	case q.def.Exterior():
		s.emit(q)
	case peer == nil || peer.def == nil:
		s.dec.errorDrop(q.id, flow.CodeNotBound, "the port is neither bound to an interface of a host nor linked")
	default:
		s.enter(peer)
	}
}

// local takes a packet to one of the router's own addresses: it answers pings.
func (s *Simulator) local(r *router) {
	f, p := s.filters.now, s.filters.inPort
	if s.filters.generated || !f.Echo || f.Frag != packet.FragNone || f.TpSrc != uint16(packet.ICMPEchoRequest) && f.TpSrc != uint16(packet.ICMPv6EchoRequest) {
		s.dec.errorDrop(r.id, flow.CodeNotForRouter, f.DstIP.String()+" is an address of the router, which answers nothing but pings")
		return
	}
	if s.way.wrap.encap != nil {
		s.dec.errorDrop(r.id, flow.CodeNotForRouter, f.DstIP.String()+" is an address of the router, which is no VTEP there")
		return
	}
	request := bytes.Clone(s.way.raw)
	w := s.headers()
	if s.in.WireLen > len(s.in.Frame) || w.Apply(request, false) != nil {
		s.dec.errorDrop(r.id, flow.CodeMalformed, "the echo request is not at hand as a whole")
		return
	}
	how := s.framing()
	request = how.Wrap(request)
	if s.dec.explain {
		s.dec.say(r.id, flow.StepAnswer, "answers the echo request to "+f.DstIP.String())
	}
	from := f.Src
	s.originate(packet.EchoReply(request), func() {
		reply := s.filters.now
		s.nat.device, s.way.routed = r.id, true
		if p != nil && reply.DstIP.Is6() && reply.DstIP.IsLinkLocalUnicast() {
			s.sendTo(p, from)
			return
		}
		s.take(r, s.routeOf(r))
	})
}

// originate sends a packet of the virtual network's own on its way. What becomes of it is no part
// of the decision, if there is one already.
func (s *Simulator) originate(frame []byte, send func()) {
	touched, lookups, unkeyed, aside := slices.Clone(s.dec.Touched), s.dec.lookups, s.unkeyed, s.dec.aside
	if err := packet.Decode(frame, &s.own); err != nil {
		s.dec.errorDrop(s.dec.Device, flow.CodeMalformed, "built a wrong packet: "+err.Error())
		return
	}
	s.dec.aside = s.dec.Verdict != 0
	s.way = way{raw: frame, quote: s.own.Quote}
	s.filters.reset(&s.own, nil)
	send()
	s.dec.Touched, s.dec.lookups, s.unkeyed, s.dec.aside = append(s.dec.Touched[:0], touched...), lookups, unkeyed, aside
}

// ask asks the neighbours of port q for a MAC address; the packet waits for the answer.
func (s *Simulator) ask(q *port, target netip.Addr) {
	if s.in.Overdue {
		onLink := target == s.filters.now.DstIP
		s.dec.errorDrop(q.router.id, flow.CodeNoNeighbour, "the MAC address of "+target.String()+" has not been found")
		if onLink {
			s.complain(noNeighbour)
		} else {
			s.complain(unreachable)
		}
		return
	}
	device := q.router.id
	if peer := q.peer(); peer != nil && peer.network != nil && !q.def.Exterior() {
		device = peer.network.id
	}
	s.dec.postpone(flow.Wait{Device: device, Neighbour: target}, "the MAC address of "+target.String()+" is not known")
	source := q.addressFor(target)
	var frame []byte
	switch {
	case !source.IsValid():
		return
	case target.Is4():
		frame = packet.ARPRequestFor(target, q.def.PortMAC, source)
	default:
		group := packet.SolicitedNode(target)
		frame = packet.NeighborSolicit(packet.MulticastMAC(group), q.def.PortMAC, source, group, target)
	}
	s.originate(frame, func() { s.egress(q) })
}

// complaint is an ICMP error, and its like for IPv6.
type complaint struct{ v4, v6 packet.ICMP }

var (
	unreachable = complaint{packet.ICMP{Type: packet.ICMPUnreachable, Code: packet.ICMPNoNetwork}, packet.ICMP{Type: packet.ICMPv6Unreachable, Code: packet.ICMPv6NoRoute}}
	noNeighbour = complaint{packet.ICMP{Type: packet.ICMPUnreachable, Code: packet.ICMPNoHost}, packet.ICMP{Type: packet.ICMPv6Unreachable, Code: packet.ICMPv6NoAddress}}
	prohibited  = complaint{packet.ICMP{Type: packet.ICMPUnreachable, Code: packet.ICMPProhibited}, packet.ICMP{Type: packet.ICMPv6Unreachable, Code: packet.ICMPv6Prohibited}}
	expired     = complaint{packet.ICMP{Type: packet.ICMPTimeExceeded}, packet.ICMP{Type: packet.ICMPv6TimeExceeded}}
	fragmented  = complaint{v4: packet.ICMP{Type: packet.ICMPUnreachable, Code: packet.ICMPFragNeeded}}
)

// complain sends the sender of a packet that has been dropped an ICMP error about it, from the port
// by which it came into the router and as it came in there.
func (s *Simulator) complain(c complaint) {
	p := s.filters.inPort
	if s.filters.generated || s.way.wrap.encap != nil || p == nil || p.router == nil || p.isBroadcast(s.way.came.Dst) {
		return
	}
	h, source := c.v4, p.addressFor(s.way.came.Src)
	if s.way.came.Src.Is6() {
		h = c.v6
	}
	if !source.IsValid() {
		return
	}
	frame := bytes.Clone(s.way.raw)
	if s.way.came.Apply(frame, false) != nil {
		return
	}
	how := s.framing()
	answer, err := h.About(how.Wrap(frame), source, p.def.PortMAC)
	if err != nil {
		return // such a packet is not answered
	}
	if s.dec.explain {
		s.dec.say(p.router.id, flow.StepAnswer, fmt.Sprintf("answers with ICMP type %d code %d from %v", h.Type, h.Code, source))
	}
	s.originate(answer, func() { s.egress(p) })
}

// isBroadcast reports whether ip is the broadcast address of a subnet of the port.
func (p *port) isBroadcast(ip netip.Addr) bool {
	for _, s := range p.def.PortSubnet {
		if !s.Addr().Is4() || s.Bits() > 30 || !s.Contains(ip) {
			continue
		}
		b, mask := ip.As4(), packet.PrefixMask(s.Bits())
		host := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
		return host|mask == 0xffffffff
	}
	return false
}
