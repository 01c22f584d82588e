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
		w.advertisementChanged(old)
		old.subnets6 = slices.DeleteFunc(old.subnets6, func(x *subnet6) bool { return x == s })
	}
	s.def, s.network = def, nil
	if def != nil {
		s.network = hold(w.networks, def.NetworkID)
		i, _ := slices.BinarySearchFunc(s.network.subnets6, s.id, func(s *subnet6, id string) int { return cmp.Compare(s.id, id) })
		s.network.subnets6 = slices.Insert(s.network.subnets6, i, s)
		w.advertisementChanged(s.network)
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
	if f.TTL != 255 || f.TpDst != 0 || f.VLANs > 0 || !p.def.AdminStateUp || p.def.PhysicalNetwork != "" {
		return false
	}
	a, ok := p.network.advertisement(s.world)
	if !ok {
		return false
	}
	to, dst := f.Src, f.SrcIP
	if dst.IsUnspecified() {
		to, dst = packet.MulticastMAC(allNodes), allNodes
	}
	if s.dec.explain {
		s.dec.say(p.network.id, flow.StepAnswer, "advertises the network's IPv6 subnets to "+f.Src.String())
	}
	s.dec.Emit = append(s.dec.Emit, flow.Emission{Output: flow.Output{PortID: p.id, HostID: p.server().id}, Frame: a.Frame(to, a.Router, dst)})
	return true
}

// Advertisement is a description of a network's IPv6 subnets and router, for its machines.
type Advertisement struct {
	Router packet.MAC // the source; of no router if Lifetime is 0
	packet.RouterAdvert
}

// ToAll returns the advertisement as a frame for all machines.
func (a *Advertisement) ToAll() []byte {
	return a.Frame(packet.MulticastMAC(allNodes), a.Router, allNodes)
}

// Farewell returns the advertisement that ends what a machine knows by a, but not by next, as zero
// for nothing; false if it still holds. It is sent before next (RFC 4861 §6.2.5, RFC 8106 §5.1).
func (a *Advertisement) Farewell(next Advertisement) (end Advertisement, needed bool) {
	end = *a
	end.Managed, end.Other, end.DNSLifetime = next.Managed, next.Other, 0
	end.Prefixes, end.DNS = nil, nil
	sameRouter := a.Router == next.Router
	if end.Lifetime = next.Lifetime; !sameRouter {
		end.Lifetime = 0
	}
	for _, p := range a.Prefixes {
		if !slices.ContainsFunc(next.Prefixes, func(q packet.AdvertPrefix) bool { return q.Prefix == p.Prefix && q.Autonomous == p.Autonomous }) {
			p.Valid, p.Preferred = 0, 0
			end.Prefixes = append(end.Prefixes, p)
		}
	}
	for _, d := range a.DNS {
		if !sameRouter || !slices.Contains(next.DNS, d) {
			end.DNS = append(end.DNS, d)
		}
	}
	routerGone := a.Lifetime > 0 && end.Lifetime == 0
	return end, routerGone || len(end.Prefixes)+len(end.DNS) > 0
}

// Advertisement returns what a network advertises; false for nothing.
func (w *World) Advertisement(networkID string) (a Advertisement, ok bool) {
	n := w.networks[networkID]
	if n == nil {
		return Advertisement{}, false
	}
	return n.advertisement(w)
}

// advertisementChanged notes that a network may advertise something else.
func (w *World) advertisementChanged(n *network) {
	if w.advertChanged != nil && len(n.subnets6) > 0 {
		w.advertChanged(n.id)
	}
}

// Times of advertisements, in seconds (midonet-simulation §18).
const (
	routerLifetime    = 1800
	validLifetime     = 86400
	preferredLifetime = 14400
)

// advertisement returns what the network advertises, in the name of its router if it has one.
func (n *network) advertisement(w *World) (a Advertisement, ok bool) {
	if n.def == nil || !n.def.AdminStateUp {
		return a, false
	}
	a = Advertisement{Router: responderMAC, RouterAdvert: packet.RouterAdvert{DNSLifetime: routerLifetime}}
	for _, s := range n.subnets6 {
		if s.def.Enabled && s.def.RAMode != "" {
			if mtu := uint32(w.mtuOn(s.def.NetworkID, s.def.InterfaceMTU)); a.MTU == 0 || mtu < a.MTU {
				a.MTU = mtu
			}
			addSubnet(&a.RouterAdvert, s.def)
		}
	}
	if len(a.Prefixes) == 0 {
		return Advertisement{}, false
	}
	if q := n.ipv6Router(); q != nil {
		a.Router, a.Lifetime = q.def.PortMAC, routerLifetime
	}
	return a, true
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

// ipv6Router returns the port of the router that is the default one of the network's machines, nil
// if there is none: of several that with the gateway address of an advertised subnet. A router
// whose own default route leads by the port, such as one with its gateway here, is none, nor is
// another project's without such an address.
func (n *network) ipv6Router() (best *port) {
	for _, q := range n.routers.all {
		switch {
		case !q.up() || q.router.def == nil || !q.router.def.AdminStateUp || !q.hasIPv6() || q.leadsOut():
		case n.isGateway(q):
			return q
		case best == nil && !q.def.Guest:
			best = q
		}
	}
	return best
}

func (n *network) isGateway(q *port) bool {
	return slices.ContainsFunc(n.subnets6, func(s *subnet6) bool {
		return s.def.Enabled && s.def.RAMode != "" && s.def.DefaultGateway != nil && q.has(*s.def.DefaultGateway)
	})
}

func (p *port) hasIPv6() bool {
	return slices.ContainsFunc(p.def.PortSubnet, func(s netip.Prefix) bool { return s.Addr().Is6() })
}

// leadsOut reports whether the IPv6 default route of a router leads by its port.
func (p *port) leadsOut() bool {
	return slices.ContainsFunc(p.routes, func(r *route) bool { return r.def != nil && r.isDefault6() })
}

func (r *route) isDefault6() bool {
	return r.def.NextHop == topology.HopPort && r.def.DstSubnet.Bits() == 0 && r.def.DstSubnet.Addr().Is6()
}
