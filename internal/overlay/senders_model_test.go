package overlay

import (
	"fmt"
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"heddle/internal/topology"
)

// ownedBundle is a bundle with its owner.
type ownedBundle struct {
	owner  topology.Owner
	bundle *topology.Bundle
}

// nestedNetworks returns networks one behind the other, with machines on hosts 0 to 3 in each and
// floating IPs for some:
//
//	n1 ─ r1 ─SNAT─ n2 ─ r2 ─SNAT─ n3
//	n4 ─ r3 ─SNAT─ n2
func nestedNetworks() []ownedBundle {
	own := func(kind, id string, b topology.Bundle) ownedBundle {
		return ownedBundle{topology.Owner{Kind: kind, ID: id}, &b}
	}
	ports := func(i int, ps ...topology.Port) ownedBundle {
		b := topology.Bundle{Ports: ps}
		for j := range ps {
			seed(&b, ps[j].ID)
		}
		return own("port", fmt.Sprint(i), b)
	}
	network := func(id, network string) topology.Port { return topology.Port{ID: id, NetworkID: network} }
	router := func(id, router, peer string) topology.Port {
		return topology.Port{ID: id, RouterID: router, PeerID: peer}
	}
	machine := func(id, network, host string) topology.Port {
		return topology.Port{ID: id, NetworkID: network, HostID: host, InterfaceName: "tap"}
	}
	return []ownedBundle{
		ports(0, network("p0-0", "n1"), machine("p0-1", "n1", "h0")),
		ports(1, network("p1-0", "n2"), machine("p1-1", "n2", "h1")),
		ports(2, network("p2-0", "n3"), machine("p2-1", "n3", "h2")),
		ports(3, router("p3-0", "r1", "p0-0"), machine("p3-1", "n4", "h2")),
		ports(4, router("p4-0", "r2", "p5-0"), machine("p4-1", "n2", "h0")),
		ports(5, network("p5-0", "n2"), machine("p5-1", "n1", "h3")),
		ports(6, network("p6-0", "n2"), router("p6-1", "r3", "p7-0")),
		ports(7, network("p7-0", "n4"), machine("p7-1", "n4", "h0")),
		own("router-gateway", "g0", gatewayBundle(0, "r1", "p1-0")),
		own("router-gateway", "g1", gatewayBundle(1, "r2", "p2-0")),
		own("router-gateway", "g2", gatewayBundle(2, "r3", "p6-0")),
		own("floating-ip", "f0", floatBundle(0, "q0", "r1", "n2", "p5-1")),
		own("floating-ip", "f1", floatBundle(1, "q1", "r2", "n3", "p1-1")),
		own("floating-ip", "f2", floatBundle(2, "q2", "r3", "n2", "p7-1")),
	}
}

// seed gives a bundle the addresses of a port.
func seed(b *topology.Bundle, port string) {
	b.MACs = append(b.MACs, topology.MACEntry{PortID: port})
	b.Neighbours = []topology.NeighbourEntry{{}}
}

// senderAddr returns one of twelve addresses: the first are those of gateways, the next ones
// floating IPs.
func senderAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}) }

func gatewayBundle(i int, router, peer string) topology.Bundle {
	q := topology.Port{ID: fmt.Sprint("q", i), RouterID: router, PeerID: peer, PortSubnet: []netip.Prefix{netip.PrefixFrom(senderAddr(i), 24)}}
	return topology.Bundle{Ports: []topology.Port{q}, Rules: []topology.RuleEntry{{Rule: topology.Rule{Type: topology.NAT}}}}
}

func floatBundle(i int, gateway, router, network, port string) topology.Bundle {
	fixed := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
	rule := topology.Rule{Type: topology.NAT, Dnat: true, FipPortID: port, NatTargets: []topology.NatTarget{{NwStart: fixed}}}
	out := topology.Rule{FipPortID: port, Condition: &topology.Condition{OutPortIDs: []string{gateway}}}
	return topology.Bundle{Rules: []topology.RuleEntry{{ChainID: "in " + router, Rule: rule}, {Rule: out}},
		Neighbours: []topology.NeighbourEntry{{NetworkID: network, IP: senderAddr(3 + i)}}}
}

func drawPortID(t *rapid.T, label string) string {
	return fmt.Sprintf("p%d-%d", rapid.IntRange(0, 7).Draw(t, label+"'s owner"), rapid.IntRange(0, 1).Draw(t, label))
}

func pick(t *rapid.T, label string, from ...string) string {
	return rapid.SampledFrom(from).Draw(t, label)
}

// drawRoute draws a route by a gateway or another port.
func drawRoute(t *rapid.T, by ...string) topology.Route {
	return topology.Route{NextHopPortID: pick(t, "by", append(by, drawPortID(t, "by"))...), NextHopGateway: senderAddr(rapid.IntRange(0, 11).Draw(t, "next hop")),
		DstSubnet: netip.MustParsePrefix(pick(t, "destination", "0.0.0.0/0", "10.0.0.0/31", "203.0.113.0/24"))}
}

// drawBundle draws an owner and what it has.
func drawBundle(t *rapid.T) (topology.Owner, *topology.Bundle) {
	b := topology.Bundle{}
	empty := rapid.IntRange(0, 4).Draw(t, "empty") == 0
	kind, id := pick(t, "kind", "port", "port", "port", "router-gateway", "router-gateway", "floating-ip", "router", "network", "tap-service", "tap-flow", "tap-flow"), ""
	switch i := rapid.IntRange(0, 2).Draw(t, "which"); {
	case kind == "router-gateway":
		id = fmt.Sprint("g", i)
		if empty {
			break
		}
		b = gatewayBundle(i, pick(t, "router", "r1", "r2", "r3"), drawPortID(t, "peer"))
		if rapid.IntRange(0, 3).Draw(t, "SNAT") == 0 {
			b.Rules = nil
		}
		if rapid.IntRange(0, 3).Draw(t, "routed") == 0 {
			b.Routes = []topology.Route{drawRoute(t, b.Ports[0].ID)}
		}
	case kind == "floating-ip":
		id = fmt.Sprint("f", i)
		if !empty {
			b = floatBundle(i, pick(t, "gateway", "q0", "q1", "q2"), pick(t, "router", "r1", "r2", "r3"), pick(t, "network", "n1", "n2", "n3"), drawPortID(t, "port"))
		}
	case kind == "router":
		id = pick(t, "router", "r1", "r2", "r3")
		b.Routers = []topology.Router{{InboundFilterID: "in " + id}}
		for range rapid.IntRange(-2, 3).Draw(t, "routes") {
			b.Routes = append(b.Routes, drawRoute(t, "q0", "q1", "q2"))
		}
	case kind == "tap-service":
		if id = fmt.Sprint("m", i); !empty {
			b.Mirrors = []topology.Mirror{{ID: id, ToPortID: drawPortID(t, "monitor")}}
		}
	case kind == "tap-flow":
		id = fmt.Sprint("t", i)
		for range rapid.IntRange(0, 2).Draw(t, "entries") {
			b.MirrorEntries = append(b.MirrorEntries, topology.MirrorEntry{PortID: drawPortID(t, "tapped"), MirrorID: pick(t, "mirror", "m0", "m1", "m2")})
		}
	case kind == "network":
		id = pick(t, "network", "n1", "n2", "n3", "n4")
		if !empty {
			b.Ports = []topology.Port{{ID: "LAN of " + id, NetworkID: id, PhysicalNetwork: "lan"}}
		}
	default:
		id = fmt.Sprint(rapid.IntRange(0, 7).Draw(t, "owner"))
		if rapid.IntRange(0, 2).Draw(t, "interface") == 0 {
			b = drawInterface(t, id)
		} else {
			drawPorts(t, &b, id)
		}
	}
	return topology.Owner{Kind: kind, ID: id}, &b
}

// drawInterface draws the link of a router to a network, which either of its ports names, and a
// route by it.
func drawInterface(t *rapid.T, owner string) topology.Bundle {
	p := topology.Port{ID: "p" + owner + "-0", NetworkID: pick(t, "network", "n1", "n2", "n3", "n4")}
	q := topology.Port{ID: "p" + owner + "-1", RouterID: pick(t, "router", "r1", "r2", "r3")}
	if rapid.Bool().Draw(t, "the router's port names the other") {
		q.PeerID = p.ID
	} else {
		p.PeerID = q.ID
	}
	return topology.Bundle{Ports: []topology.Port{p, q}, Routes: []topology.Route{drawRoute(t, q.ID)}}
}

// drawPorts draws up to two ports of an owner.
func drawPorts(t *rapid.T, b *topology.Bundle, owner string) {
	for j := range rapid.IntRange(0, 2).Draw(t, "ports") {
		p := topology.Port{ID: fmt.Sprintf("p%s-%d", owner, j)}
		if device := pick(t, "device", "n1", "n2", "n3", "n4", "r1", "r2", "r3"); device[0] == 'n' {
			p.NetworkID = device
		} else {
			p.RouterID = device
		}
		switch pick(t, "role", "linked", "end", "end", "machine", "machine", "machine", "LAN") {
		case "linked":
			p.PeerID = drawPortID(t, "peer")
		case "machine":
			p.HostID, p.InterfaceName = fmt.Sprint("h", rapid.IntRange(0, 3).Draw(t, "host")), "tap"
			if rapid.IntRange(0, 3).Draw(t, "moving") == 0 {
				p.PreviousHostID = fmt.Sprint("h", rapid.IntRange(0, 3).Draw(t, "previous host"))
			}
		case "LAN":
			if p.NetworkID != "" {
				p.PhysicalNetwork = "lan"
			}
		}
		if rapid.IntRange(0, 4).Draw(t, "seeded") > 0 {
			seed(b, p.ID)
		}
		b.Ports = append(b.Ports, p)
	}
	if len(b.Ports) > 0 && rapid.IntRange(0, 2).Draw(t, "routed") == 0 {
		b.Routes = []topology.Route{drawRoute(t, b.Ports[0].ID)}
	}
}

// senderModel finds who may send to a port from scratch, by the words of decision 0018.
type senderModel struct {
	bundles  map[topology.Owner]*topology.Bundle
	carriers map[string]bool
	ports    map[string]*topology.Port
	seeded   map[string]bool
	lans     map[string]bool
	links    []portLink
	areas    map[string]string          // the smallest id of the devices that links lead to, by device
	above    map[string]map[string]bool // areas that are above an area, itself among them
	floats   []modelFloat
	mirrors  map[string]string          // their ports
	tapped   map[string]map[string]bool // ports that a mirror is attached to
}

type modelFloat struct {
	gateway, chain, network, port string
	addr, fixed                   netip.Addr
}

func newSenderModel(bundles map[topology.Owner]*topology.Bundle, carriers map[string]bool) *senderModel {
	m := &senderModel{bundles: bundles, carriers: carriers, ports: map[string]*topology.Port{}, seeded: map[string]bool{}, lans: map[string]bool{},
		areas: map[string]string{}, above: map[string]map[string]bool{}, mirrors: map[string]string{}, tapped: map[string]map[string]bool{}}
	for owner, b := range bundles {
		m.read(owner, b)
	}
	for _, p := range m.ports {
		q := m.ports[p.PeerID]
		if q != nil && !p.Exterior() && !q.Exterior() && deviceOf(p) != deviceOf(q) {
			m.links = append(m.links, portLink{portOfLink{p.ID, deviceOf(p)}, portOfLink{q.ID, deviceOf(q)}})
		}
	}
	border := map[string]bool{}
	for owner, b := range bundles {
		if owner.Kind == "router-gateway" && len(b.Rules) > 0 {
			border[b.Ports[0].ID] = m.isBorder(&b.Ports[0])
		}
	}
	m.partition(border)
	return m
}

// read takes in a bundle, other than its routes.
func (m *senderModel) read(owner topology.Owner, b *topology.Bundle) {
	for i := range b.Ports {
		p := &b.Ports[i]
		m.ports[p.ID] = p
		m.areas[deviceOf(p)] = deviceOf(p)
		m.seeded[p.ID] = p.NetworkID != "" && slices.ContainsFunc(b.MACs, func(e topology.MACEntry) bool { return e.PortID == p.ID })
		if p.PhysicalNetwork != "" {
			m.lans[p.NetworkID] = true
		}
	}
	for _, x := range b.Mirrors {
		m.mirrors[x.ID] = x.ToPortID
	}
	for _, e := range b.MirrorEntries {
		put(m.tapped, e.MirrorID, e.PortID, true)
	}
	if owner.Kind == "floating-ip" && len(b.Rules) > 0 {
		in, at := b.Rules[0], b.Neighbours[0]
		m.floats = append(m.floats, modelFloat{gateway: b.Rules[1].Rule.Condition.OutPortIDs[0], chain: in.ChainID, network: at.NetworkID,
			port: in.Rule.FipPortID, addr: at.IP, fixed: in.Rule.NatTargets[0].NwStart})
		if m.areas[at.NetworkID] == "" {
			m.areas[at.NetworkID] = at.NetworkID
		}
	}
}

// isBorder reports whether packets come in by a gateway with SNAT in no other way than as replies
// and to floating IPs.
func (m *senderModel) isBorder(q *topology.Port) bool {
	for _, device := range m.otherEnds(q.ID) {
		if m.routed(device, q.PortSubnet[0].Addr()) {
			return false
		}
	}
	for _, f := range m.floats {
		if f.gateway != q.ID {
			continue
		}
		if !m.seeded[f.port] || m.routed(f.network, f.addr) {
			return false
		}
		if target := m.ports[f.port]; !target.Exterior() && m.lans[target.NetworkID] {
			return false
		}
		for owner, b := range m.bundles {
			if owner.Kind != "router" || f.chain != "in "+owner.ID {
				continue
			}
			for _, r := range b.Routes {
				if r.DstSubnet.Bits() > 0 && r.DstSubnet.Contains(f.fixed) {
					return false
				}
			}
		}
	}
	return true
}

// routed reports whether the next hop of a route is an address of a device, by a port linked there.
func (m *senderModel) routed(device string, addr netip.Addr) bool {
	for _, b := range m.bundles {
		for _, r := range b.Routes {
			if r.NextHopGateway == addr && slices.Contains(m.otherEnds(r.NextHopPortID), device) {
				return true
			}
		}
	}
	return false
}

// otherEnds returns the devices that a port is linked to.
func (m *senderModel) otherEnds(port string) (devices []string) {
	for _, l := range m.links {
		switch port {
		case l.from.port:
			devices = append(devices, l.to.device)
		case l.to.port:
			devices = append(devices, l.from.device)
		}
	}
	return devices
}

// partition finds the areas, and which of them are above others.
func (m *senderModel) partition(border map[string]bool) {
	for range m.areas { // as many passes as a link can be far away
		for _, l := range m.links {
			if !border[l.from.port] {
				least := min(m.areas[l.from.device], m.areas[l.to.device])
				m.areas[l.from.device], m.areas[l.to.device] = least, least
			}
		}
	}
	for _, a := range m.areas {
		m.above[a] = map[string]bool{a: true}
	}
	for range m.areas {
		for _, l := range m.links {
			for _, up := range m.above {
				if border[l.from.port] && up[m.areas[l.from.device]] {
					up[m.areas[l.to.device]] = true
				}
			}
		}
	}
}

// maySend reports whether a host may send to a port: itself, or copies of what it may send to
// others.
func (m *senderModel) maySend(p *topology.Port, host string) bool {
	found := map[string]bool{p.ID: true}
	queue := []string{p.ID}
	for i := 0; i < len(queue); i++ {
		if q := m.ports[queue[i]]; q != nil && m.maySendItself(q, host) {
			return true
		}
		for mirror, to := range m.mirrors {
			for source := range m.tapped[mirror] {
				if to == queue[i] && !found[source] {
					found[source] = true
					queue = append(queue, source)
				}
			}
		}
	}
	return false
}

func (m *senderModel) maySendItself(p *topology.Port, host string) bool {
	at := m.areas[deviceOf(p)]
	for _, other := range m.ports {
		bound := slices.Contains(other.HostIDs(), host)
		if !bound && !(other.PhysicalNetwork != "" && m.carriers[host]) {
			continue
		}
		from := m.areas[deviceOf(other)]
		if m.above[at][from] || m.above[from][at] {
			return true
		}
		for _, f := range m.floats {
			network := m.areas[f.network]
			if f.port == p.ID && m.above[from][network] || f.port == other.ID && bound && m.above[at][network] && m.seeded[f.port] {
				return true
			}
		}
	}
	return false
}
