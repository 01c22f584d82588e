package simulate

import (
	"fmt"
	"net/netip"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// metadata handles what a workload sends to the metadata service of its host, before anything else
// sees it (midonet-simulation §11, decision 0040), and reports whether it is done with the packet.
// The source must be one of the port's own; security groups do not apply.
//
//	workload ─▶ anti-spoofing ─▶ TCP port 80? ─▶ source := the host's address for it ─▶ proxy
//	workload ◀─ destination := the source's own ◀───────────────────────────────────── proxy
func (s *Simulator) metadata(p *port) (done bool) {
	f := &s.frame
	if f.VLANs > 0 || !p.def.AdminStateUp || p.toContainer() {
		return false
	}
	switch {
	case f.ARPOp == packet.ARPRequest && f.DstIP == flow.MetadataIPv4:
		return s.answerMetadata(p, packet.ARPReplyTo(f, flow.MetadataMAC))
	case f.IsND() && f.TpSrc == uint16(packet.ICMPv6NeighborSolicit) && f.NDTarget == flow.MetadataIPv6:
		return s.answerMetadata(p, metadataAdvert(f))
	case f.IsIP() && isMetadata(f.DstIP):
		s.toMetadata(p)
		return true
	}
	return false
}

func isMetadata(a netip.Addr) bool { return a == flow.MetadataIPv4 || a == flow.MetadataIPv6 }

// metadataAdvert answers a solicitation for the service's address: to all nodes if its sender looks
// for duplicates.
func metadataAdvert(f *packet.Frame) []byte {
	if f.SrcIP.IsUnspecified() {
		return packet.NeighborAdvert(packet.MulticastMAC(allNodes), flow.MetadataMAC, allNodes, flow.MetadataIPv6, packet.NDOverride)
	}
	return packet.NeighborAdvert(f.Src, flow.MetadataMAC, f.SrcIP, flow.MetadataIPv6, packet.NDSolicited|packet.NDOverride)
}

// answerMetadata answers a question for the service's MAC address.
func (s *Simulator) answerMetadata(p *port, frame []byte) (done bool) {
	if !s.hasOwnSource(p) {
		return true
	}
	if s.dec.explain {
		s.dec.say(p.id, flow.StepMetadata, "metadata: the service is at "+flow.MetadataMAC.String())
	}
	s.dec.Emit = append(s.dec.Emit, flow.Emission{Output: flow.Output{PortID: p.id, HostID: s.here.id}, Frame: frame})
	return true
}

// hasOwnSource reports whether the packet's source is one that the port may use, else drops it. The
// anti-spoofing chain comes first in a port's filter (midonet-translations §3.1); a port without
// port security has none. Without an IPv6 address of the port it lets no IPv6 pass, but the
// metadata service takes that from the link-local address of the port's MAC address all the same.
func (s *Simulator) hasOwnSource(p *port) bool {
	if s.fromLinkLocal(p) {
		return true
	}
	if p.in == nil || p.in.def != nil && (len(p.in.rules) == 0 || p.in.rules[0].verb != jump) {
		return true
	}
	if p.in.def == nil {
		s.dec.errorDrop(p.id, flow.CodeBadObject, "in filter: chain "+p.in.id+" is not known")
		return false
	}
	s.filters.enter(p)
	return s.filters.pass(p.id, "in", p.in.rules[0].target)
}

// fromLinkLocal reports whether the packet's source is the link-local address that a machine makes
// of the port's own MAC address.
func (s *Simulator) fromLinkLocal(p *port) bool {
	f := &s.frame
	e := p.network.macs[keyOf(table, f.Src)]
	return e != nil && e.top == p && len(e.seeds) > 0 && f.SrcIP == packet.LinkLocal(f.Src)
}

// toMetadata sends a packet to the proxy, as from the address that the host has for its source.
func (s *Simulator) toMetadata(p *port) {
	f := &s.frame
	switch {
	case !s.hasOwnSource(p):
		return
	case f.Proto != packet.ProtoTCP, f.Frag != packet.FragNone, f.TpDst != flow.MetadataTCPPort:
		s.dec.drop(p.id, flow.CodeMetadataOnly, fmt.Sprintf("metadata-only: of %s only TCP port %d can be reached, by packets in one piece", f.DstIP, flow.MetadataTCPPort))
		return
	}
	source, why := s.metadataSource(flow.MetadataClient{PortID: p.id, MAC: f.Src, IP: f.SrcIP, Via: f.Dst})
	if why != "" {
		s.dec.errorDrop(p.id, flow.CodeMetadataAway, "metadata: "+why)
		return
	}
	now := s.reroute()
	now.Src, now.Dst, now.SrcIP = flow.MetadataMAC, flow.MetadataMAC, source
	s.sendMetadata(flow.MetadataPort, "to the metadata service of host "+hostName(s.here))
}

// metadataSource returns the host's address for a client. Without state, as in a server's trace, it
// is the client's own.
func (s *Simulator) metadataSource(c flow.MetadataClient) (source netip.Addr, why string) {
	if s.in.State == nil {
		s.nat.unsure = true
		return c.IP, ""
	}
	return s.in.State.MetadataSource(c)
}

// fromMetadata sends an answer of the proxy to the client that the destination stands for.
func (s *Simulator) fromMetadata() {
	if err := packet.DecodeHead(s.in.Frame, s.in.WireLen, &s.frame); err != nil {
		s.unkeyed = true
		s.dec.drop(flow.MetadataPort, flow.CodeMalformed, err.Error())
		return
	}
	f := &s.frame
	s.filters.reset(f, nil)
	if s.here = s.world.hosts[s.in.HostID]; s.here == nil {
		s.unkeyed = true
		s.dec.errorDrop(flow.MetadataPort, flow.CodeBadObject, "host "+s.in.HostID+" is not known")
		return
	}
	if !f.IsIP() || f.Proto != packet.ProtoTCP || f.Frag != packet.FragNone || f.TpSrc != flow.MetadataTCPPort || s.in.State == nil {
		s.dec.drop(flow.MetadataPort, flow.CodeMetadataOnly, "no answer of the metadata service")
		return
	}
	c, ok := s.in.State.MetadataClient(f.DstIP)
	if !ok {
		s.dec.drop(flow.MetadataPort, flow.CodeMetadataOnly, "no client of the metadata service has address "+f.DstIP.String())
		return
	}
	p := s.world.ports[c.PortID]
	s.dec.Touched = append(s.dec.Touched, c.PortID)
	if p == nil || p.def == nil || !p.def.AdminStateUp || p.server() != s.here {
		s.dec.drop(flow.MetadataPort, flow.CodeNotBound, "port "+c.PortID+" of the client is down, or not bound to this host")
		return
	}
	now := s.reroute()
	now.Src, now.Dst, now.DstIP = c.Via, c.MAC, c.IP
	s.sendMetadata(c.PortID, "to "+p.def.InterfaceOn(s.here.id))
}

// reroute has the packet leave with headers of its own, which the caller changes.
func (s *Simulator) reroute() *packet.Frame {
	s.routed = s.frame
	s.filters.now, s.way.routed, s.filters.generated = &s.routed, true, false
	return &s.routed
}

// sendMetadata sends the packet out of a port of this host.
func (s *Simulator) sendMetadata(port, to string) {
	s.dec.Outputs = append(s.dec.Outputs, flow.Output{PortID: port, HostID: s.here.id})
	if s.dec.explain {
		s.dec.say(port, flow.StepOut, "out "+to+": "+Describe(s.filters.now))
	}
}
