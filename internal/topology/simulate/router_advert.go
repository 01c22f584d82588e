package simulate

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// subnet6 is an IPv6 subnet of a network.
type subnet6 struct {
	object
	claims  claims[topology.DhcpV6]
	def     *topology.DhcpV6 // nil while it is only referred to
	network *network
	hosts   dhcpHosts
}

// linkSubnet6 follows a definition. No cacheable decision rests on a subnet.
func (w *World) linkSubnet6(s *subnet6) {
	def := s.claims.top()
	if def == s.def {
		return
	}
	old := s.network
	if old != nil {
		old.subnets6 = slices.DeleteFunc(old.subnets6, func(x *subnet6) bool { return x == s })
	}
	s.def, s.network = def, nil
	if def != nil {
		s.network = hold(w.networks, def.NetworkID)
		i, _ := slices.BinarySearchFunc(s.network.subnets6, s.id, func(s *subnet6, id string) int { return cmp.Compare(s.id, id) })
		s.network.subnets6 = slices.Insert(s.network.subnets6, i, s)
	}
	if old != nil {
		release(w.networks, old)
	}
}

// routerSolicitation answers a machine's question for routers before any filter, and reports
// whether it is done with the packet (midonet-simulation §18).
func (s *Simulator) routerSolicitation(p *port) (done bool) {
	f := &s.frame
	if !f.IsND() || f.TpSrc != uint16(packet.ICMPv6RouterSolicit) {
		return false
	}
	s.unkeyed = true // what becomes of it rests on the subnets
	if f.TTL != 255 || f.TpDst != 0 || f.VLANs > 0 || !p.def.AdminStateUp {
		return false
	}
	frame, ok := s.world.advertisement(p, f.Src, f.SrcIP)
	if !ok {
		return false
	}
	if s.dec.explain {
		s.dec.say(p.network.id, "advertises the network's IPv6 subnets to "+f.Src.String())
	}
	s.dec.Emit = append(s.dec.Emit, flow.Emission{Output: flow.Output{PortID: p.id, HostID: p.server().id}, Frame: frame})
	return true
}

// Advertisement returns the router advertisement for all machines behind a port; false if its
// network advertises nothing. What is no longer advertised is not in it.
func (w *World) Advertisement(portID string) (frame []byte, ok bool) {
	p := w.ports[portID]
	if p == nil || p.def == nil || p.network == nil || !p.def.AdminStateUp {
		return nil, false
	}
	return w.advertisement(p, packet.MulticastMAC(allNodes), netip.IPv6Unspecified())
}

// Times of advertisements, in seconds (midonet-simulation §18).
const (
	routerLifetime    = 1800
	validLifetime     = 86400
	preferredLifetime = 14400
)

// advertisement builds the advertisement of a port's network, to one machine or to all.
func (w *World) advertisement(p *port, to packet.MAC, dst netip.Addr) ([]byte, bool) {
	n := p.network
	if n.def == nil || !n.def.AdminStateUp {
		return nil, false
	}
	a := packet.RouterAdvert{DNSLifetime: routerLifetime}
	for _, s := range n.subnets6 {
		if s.def.Enabled && s.def.RAMode != "" {
			if mtu := uint32(w.mtu(s.def.InterfaceMTU)); a.MTU == 0 || mtu < a.MTU {
				a.MTU = mtu
			}
			addSubnet(&a, s.def)
		}
	}
	if len(a.Prefixes) == 0 {
		return nil, false
	}
	mac := responderMAC
	if q := n.ipv6Router(); q != nil {
		mac, a.Lifetime = q.def.PortMAC, routerLifetime
	}
	if dst.IsUnspecified() {
		to, dst = packet.MulticastMAC(allNodes), allNodes
	}
	return a.Frame(to, mac, dst), true
}

// addSubnet adds what is to be said about a subnet. RAMode is slaac, dhcpv6-stateless or
// dhcpv6-stateful.
func addSubnet(a *packet.RouterAdvert, net *topology.DhcpV6) {
	stateful := strings.HasSuffix(net.RAMode, "stateful")
	a.Managed = a.Managed || stateful
	a.Other = a.Other || stateful || strings.HasSuffix(net.RAMode, "stateless")
	a.Prefixes = append(a.Prefixes, packet.AdvertPrefix{Prefix: net.SubnetAddress, Autonomous: !stateful, Valid: validLifetime, Preferred: preferredLifetime})
	for _, d := range net.DNSServerAddress {
		if d.Is6() && !slices.Contains(a.DNS, d) {
			a.DNS = append(a.DNS, d)
		}
	}
}

// ipv6Router returns the port of a router that has an IPv6 address on the network.
func (n *network) ipv6Router() *port {
	for _, q := range n.routers {
		if !q.up() || q.router.def == nil || !q.router.def.AdminStateUp {
			continue
		}
		for _, s := range q.def.PortSubnet {
			if s.Addr().Is6() {
				return q
			}
		}
	}
	return nil
}
