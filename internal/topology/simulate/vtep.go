package simulate

import (
	"encoding/binary"
	"fmt"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// encapsulation is the inside of a VXLAN packet that a router of ours has made. The packet's own
// headers are those of the filters.
type encapsulation struct {
	vni   uint32
	inner packet.Frame // as it was put inside
	hops  uint8
	now   *packet.Frame // where inner was
}

// Outer headers of VXLAN packets.
const (
	outerTTL       = 64
	firstOuterPort = 49152 // RFC 7348 §5: dynamic ports
)

// encapsulate puts a frame that comes into a router by port p, one of a VTEP, into a VXLAN packet,
// and sends that on its way (midonet-simulation §8.1, services §7.3). The packet is the router's
// own: the filters of others are not asked, and no ICMP error is sent if it is dropped.
func (s *Simulator) encapsulate(p *port) {
	r, f := p.router, s.filters.now
	s.dec.touch(r.id, p.peer())
	vtep, known := p.remote(f.Dst)
	if !known {
		vtep, known = p.remoteForMany()
	}
	switch {
	case r.def == nil:
		s.dec.errorDrop(r.id, flow.CodeBadObject, "the router is not known")
		return
	case !p.def.AdminStateUp:
		s.dec.drop(p.id, flow.CodePortDown, "the port is administratively down")
		return
	case !r.def.AdminStateUp:
		s.dec.drop(r.id, flow.CodeRouterDown, "the router is administratively down")
		return
	case s.way.wrap.encap != nil:
		s.dec.errorDrop(p.id, flow.CodeLoop, "VTEP: the frame is a VXLAN packet of ours: a VTEP is reached by another")
		return
	case !p.def.TunnelIP.Is4():
		s.dec.errorDrop(p.id, flow.CodeBadObject, "VTEP: the port has no tunnel address")
		return
	case f.VLANs > 0: // RFC 7348 §6.1
		s.dec.drop(p.id, flow.CodeVLAN, "VTEP: a frame with a VLAN tag does not leave the network")
		return
	case !known:
		s.dec.drop(p.id, flow.CodeVTEPNoPeer, fmt.Sprintf("VTEP: the peering table of VNI %d has no entry for MAC %v", p.def.VNI, f.Dst))
		return
	}
	s.way.wrap.encap = &encapsulation{vni: p.def.VNI, inner: *f, hops: s.way.hops, now: f}
	if n := p.joined(); n != nil {
		s.way.wrap.scope = n.id
	}
	s.outer = packet.Frame{
		EtherType: packet.TypeIPv4, SrcIP: p.def.TunnelIP, DstIP: vtep, Proto: packet.ProtoUDP, TTL: outerTTL,
		HasTp: true, TpSrc: outerPort(f), TpDst: packet.VXLANPort, L3: 14, L4: 34,
	}
	s.filters.now = &s.outer
	if s.dec.explain {
		s.dec.say(p.id, flow.StepVXLAN, fmt.Sprintf("VXLAN: put into a packet %v → %v, UDP %d → %d, VNI %d", p.def.TunnelIP, vtep, s.outer.TpSrc, s.outer.TpDst, p.def.VNI))
	}
	s.routeOuter(r)
}

// routeOuter sends a VXLAN packet of ours on the router's own route to the VTEP.
func (s *Simulator) routeOuter(r *router) {
	f, rt := s.filters.now, s.routeOf(r)
	switch {
	case rt == nil:
		s.dec.errorDrop(r.id, flow.CodeNoRoute, "VTEP: no route to "+f.DstIP.String())
		return
	case rt.def.NextHop != topology.HopPort || rt.port == nil || rt.port.def == nil || rt.port.has(f.DstIP):
		s.dec.errorDrop(r.id, flow.CodeNoRoute, "VTEP: route "+rt.id+" to "+rt.dst.String()+" leads to no other machine")
		return
	}
	if s.dec.explain {
		s.dec.say(r.id, flow.StepRoute, routeText(rt, f))
	}
	s.filters.outPort = rt.port
	s.nextHop(rt.port, rt.gateway(f.DstIP))
}

// outerPort returns the source port of the VXLAN packet around a frame: the same for all packets of
// a connection, so that the ways between VTEPs share the load (RFC 7348 §5).
func outerPort(f *packet.Frame) uint16 {
	const offset, prime = 2166136261, 16777619 // FNV-1a
	h := uint32(offset)
	add := func(b []byte) {
		for _, x := range b {
			h = (h ^ uint32(x)) * prime
		}
	}
	if f.IsIP() {
		src, dst := f.SrcIP.As16(), f.DstIP.As16()
		add(src[:])
		add(dst[:])
		a, b := connPorts(f)
		var ports [5]byte
		ports[0] = f.Proto
		binary.BigEndian.PutUint16(ports[1:], a)
		binary.BigEndian.PutUint16(ports[3:], b)
		add(ports[:])
	} else {
		add(f.Src[:])
		add(f.Dst[:])
	}
	return firstOuterPort + uint16((h^h>>16)&0x3fff)
}

// decapsulate takes the frame out of a VXLAN packet that came into a router by port p for one of
// its VTEPs, and sends it into the network that the VTEP joins. It reports whether the packet was
// one.
func (s *Simulator) decapsulate(p *port) (done bool) {
	f, r := s.filters.now, p.router
	if len(r.vteps) == 0 || f.EtherType != packet.TypeIPv4 || f.Proto != packet.ProtoUDP || !r.isTunnelIP(f) {
		return false
	}
	switch {
	case f.Frag != packet.FragNone:
		s.dec.drop(r.id, flow.CodeFragment, "VTEP: fragments of VXLAN packets are not put together")
		return true
	case !f.HasTp || f.TpDst != packet.VXLANPort:
		return false
	}
	if e := s.way.wrap.encap; e != nil { // made by another of our routers
		if g := s.vtepFor(r, e.vni); g != nil {
			*e.now = e.inner
			s.filters.now, s.way.hops, s.way.wrap.encap = e.now, e.hops, nil
			s.land(g)
		}
		return true
	}
	if s.way.wrap.inner {
		s.dec.drop(r.id, flow.CodeLoop, "VTEP: a VXLAN packet inside another")
		return true
	}
	at := s.frame.L4 + 8
	if at > len(s.way.raw) {
		s.dec.drop(r.id, flow.CodeMalformed, "VTEP: the VXLAN packet is not at hand as a whole")
		return true
	}
	vni, inner, err := packet.ParseVXLAN(s.way.raw[at:])
	if err != nil {
		s.unkeyed = true
		s.dec.drop(r.id, flow.CodeMalformed, "VTEP: "+err.Error())
		return true
	}
	g := s.vtepFor(r, vni)
	if g == nil {
		s.unkeyed = true // flows are not keyed by the VNI
		return true
	}
	offset := len(s.way.raw) - len(inner)
	wire := max(s.in.WireLen, len(s.in.Frame)) - offset
	if err := packet.DecodeHead(inner, wire, &s.carried); err != nil {
		s.unkeyed = true
		s.dec.drop(g.id, flow.CodeMalformed, "VTEP: the frame inside: "+err.Error())
		return true
	}
	s.unwrap(g, vni, offset, inner)
	s.land(g)
	return true
}

// unwrap goes on with the frame inside the packet.
func (s *Simulator) unwrap(g *port, vni uint32, offset int, inner []byte) {
	d := &s.dec
	for _, a := range d.lookups {
		d.touch(a.String(), nil)
	}
	d.lookups = d.lookups[:0]
	d.Decap = &flow.Decap{PortID: g.id, VNI: vni, Offset: offset, Hops: s.way.hops, Touched: slices.Clone(d.Touched),
		Cacheable: !s.unkeyed && !s.nat.unsure && !s.filters.usedTOS && !d.Tracked && len(d.NATs) == 0 && s.frame.VLANs < 2}
	d.Touched = append(d.Touched[:0], g.id)
	s.unkeyed = false
	s.tracker.answered, s.tracker.register, s.tracker.recalled = false, false, false
	d.Tracked, d.Return = false, false
	s.origin, s.tracker.frame = &s.carried, &s.carried
	s.way = way{raw: inner, quote: s.carried.Quote, devices: s.way.devices, wrap: wrapping{inner: true}}
	s.filters.now = &s.carried
	if n := g.joined(); n != nil {
		s.tracker.device = n.id
	}
	if d.explain {
		d.say(g.id, flow.StepVXLAN, fmt.Sprintf("VXLAN: VNI %d, inside: %s", vni, Describe(&s.carried)))
	}
}

// comeInside sends a frame into the network that a VTEP joins by its port g: what was inside a
// VXLAN packet that has been unpacked already. It goes where it would go from the packet.
func (s *Simulator) comeInside(g *port) {
	s.here, s.ingress = s.world.hosts[s.in.HostID], g
	if err := packet.DecodeHead(s.in.Frame, s.in.WireLen, &s.frame); err != nil {
		s.unkeyed = true
		s.dec.drop(g.id, flow.CodeMalformed, "VTEP: the frame inside: "+err.Error())
		return
	}
	if s.dec.explain {
		s.dec.say(g.id, flow.StepVXLAN, "inside a VXLAN packet: "+Describe(&s.frame))
	}
	s.filters.reset(&s.frame, g)
	s.way.quote, s.tracker.device = s.frame.Quote, g.id
	if n := g.joined(); n != nil {
		s.tracker.device = n.id
	}
	s.land(g)
}

// vtepFor returns the router's port with a VNI at the address that the packet is for, and drops it
// if there is none.
func (s *Simulator) vtepFor(r *router, vni uint32) *port {
	for _, g := range r.vteps {
		if g.def.VNI == vni && g.def.TunnelIP == s.filters.now.DstIP {
			return g
		}
	}
	s.dec.drop(r.id, flow.CodeVTEPNoNetwork, fmt.Sprintf("VTEP: no network has VNI %d", vni))
	return nil
}

// isTunnelIP reports whether a packet is addressed to a VTEP of the router.
func (r *router) isTunnelIP(f *packet.Frame) bool {
	return slices.ContainsFunc(r.vteps, func(g *port) bool { return g.def.TunnelIP == f.DstIP })
}

// land sends a frame from a VTEP into the network that it joins.
func (s *Simulator) land(g *port) {
	j := g.peer()
	switch {
	case !g.def.AdminStateUp:
		s.dec.drop(g.id, flow.CodePortDown, "the port is administratively down")
	case j == nil || j.def == nil || j.network == nil:
		s.dec.errorDrop(g.id, flow.CodeBadObject, "the port joins no network")
	case s.filters.now.VLANs > 0: // RFC 7348 §6.1
		s.dec.drop(g.id, flow.CodeVLAN, "VTEP: the frame inside has a VLAN tag")
	default:
		s.enter(j)
	}
}

// framing returns how the frame leaves, other than by its headers' rewrite.
func (s *Simulator) framing() flow.Framing {
	w := &s.way.wrap
	f := flow.Framing{Inner: w.inner, PopVLAN: w.pop, PushVLAN: w.push}
	if w.encap != nil {
		o := s.filters.now
		f.Encap = &flow.Encap{VNI: w.encap.vni, SrcMAC: o.Src, DstMAC: o.Dst, Src: o.SrcIP, Dst: o.DstIP, SrcPort: o.TpSrc, DstPort: o.TpDst, TTL: o.TTL}
	}
	return f
}

// content returns the packet that leaves, without the VXLAN packet that it is put into.
func (s *Simulator) content() (f *packet.Frame, hops uint8) {
	if e := s.way.wrap.encap; e != nil {
		return &e.inner, e.hops
	}
	return s.filters.now, s.way.hops
}
