package overlay

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// bits are the datapath's: who may send to which port. A peer that is not there has none.
type bits map[datapath.Port]map[netip.Addr]bool

func (b bits) AllowSender(port datapath.Port, remote netip.Addr, allowed bool) {
	if b[port] == nil {
		b[port] = map[netip.Addr]bool{}
	}
	if b[port][remote] = true; !allowed {
		delete(b[port], remote)
	}
}

func (b bits) SetSenders(port datapath.Port, remotes map[netip.Addr]bool) {
	b[port] = map[netip.Addr]bool{}
	for a := range remotes {
		b[port][a] = true
	}
}

// TestSendersFollow: after any changes of ports, routers, floating IPs, hosts and attachments, the
// peers that may send to a port are those that decision 0018 names.
func TestSendersFollow(t *testing.T) {
	const self = "h0"
	own := func(p *topology.Port) bool { return p.HostID == self && p.Exterior() }
	rapid.Check(t, func(t *rapid.T) {
		b := bits{}
		s := newSenders(nil)
		s.dp = b
		bundles := map[topology.Owner]*topology.Bundle{}
		addrs := map[string][]netip.Addr{}
		attached := map[string]datapath.Port{}
		number := datapath.Port(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1, 2, 3:
				owner, after := drawBundle(t)
				before := bundles[owner]
				if before == nil {
					before = &topology.Bundle{}
				}
				s.change(owner, before, after, own)
				bundles[owner] = after
			case 4:
				host := fmt.Sprintf("h%d", rapid.IntRange(1, 3).Draw(t, "host"))
				delete(addrs, host)
				if last := rapid.IntRange(0, 3).Draw(t, "address"); last > 0 {
					addrs[host] = []netip.Addr{netip.AddrFrom4([4]byte{198, 51, 100, byte(10*int(host[1]) + last)})}
				}
				now := map[string][]netip.Addr{}
				peers := map[netip.Addr]bool{}
				for h, a := range addrs {
					now[h] = a
					for _, x := range a {
						peers[x] = true
					}
				}
				for _, of := range b { // a peer that goes takes its bits along
					for a := range of {
						if !peers[a] {
							delete(of, a)
						}
					}
				}
				s.setHosts(now)
			case 5:
				id := fmt.Sprintf("p%d-%d", rapid.IntRange(0, 5).Draw(t, "owner"), rapid.IntRange(0, 1).Draw(t, "port"))
				if attached[id] != 0 {
					s.gone(id)
					delete(b, attached[id])
					delete(attached, id)
				} else {
					number++
					attached[id] = number
					s.attached(id, number)
				}
			}
			checkSenders(t, b, bundles, addrs, attached, own)
		}
		for owner, had := range bundles {
			s.change(owner, had, &topology.Bundle{}, own)
		}
		s.setHosts(nil)
		x := &s.borders
		if len(s.devices)+len(s.hosts)+len(s.ports)+len(s.ends)+len(s.namedBy)+len(x.is)+len(x.gateways)+len(x.byMAC)+len(x.byRouter)+len(x.hops)+
			len(x.standing)+len(x.extra)+len(x.floats)+len(x.floatsOf)+len(x.floatsAt)+len(x.targets)+len(x.lans) != 0 {
			t.Fatalf("left: devices %v, hosts %v, ports %v, ends %v, %v, borders %+v", s.devices, s.hosts, s.ports, s.ends, s.namedBy, s.borders)
		}
	})
}

// drawBundle draws an owner and what it has.
func drawBundle(t *rapid.T) (topology.Owner, *topology.Bundle) {
	b := &topology.Bundle{}
	pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
	port := func(label string) string {
		return fmt.Sprintf("p%d-%d", rapid.IntRange(0, 5).Draw(t, label+"'s owner"), rapid.IntRange(0, 1).Draw(t, label))
	}
	mac := func() packet.MAC { return packet.MAC{2, byte(rapid.IntRange(0, 2).Draw(t, "mac"))} }
	addr := func(from byte) netip.Addr {
		return netip.AddrFrom4([4]byte{192, 0, 2, from + byte(rapid.IntRange(0, 2).Draw(t, "address"))})
	}
	hop := func(dst string) {
		if rapid.IntRange(0, 5).Draw(t, "hop") == 0 {
			b.Routes = append(b.Routes, topology.Route{NextHopGateway: addr(byte(10 * rapid.IntRange(0, 1).Draw(t, "floating"))), DstSubnet: netip.MustParsePrefix(dst)})
		}
	}
	empty := rapid.IntRange(0, 4).Draw(t, "empty") == 0
	switch kind := pick("kind", "port", "port", "port", "router-gateway", "router-gateway", "floating-ip", "router"); kind {
	case "router-gateway":
		i := rapid.IntRange(0, 2).Draw(t, "gateway")
		owner := topology.Owner{Kind: kind, ID: fmt.Sprint("g", i)}
		if empty {
			return owner, b
		}
		b.Ports = []topology.Port{{ID: fmt.Sprint("q", i), RouterID: pick("router", "r1", "r2"), PeerID: port("peer"), PortMAC: packet.MAC{2, byte(i)},
			PortSubnet: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 24)}}}
		if rapid.IntRange(0, 3).Draw(t, "SNAT") > 0 {
			b.Rules = []topology.RuleEntry{{Rule: topology.Rule{Type: topology.NAT}}}
		}
		hop("0.0.0.0/0")
		return owner, b
	case "floating-ip":
		i := rapid.IntRange(0, 1).Draw(t, "floating IP")
		owner := topology.Owner{Kind: kind, ID: fmt.Sprint("f", i)}
		if empty {
			return owner, b
		}
		b.Rules = []topology.RuleEntry{{Rule: topology.Rule{Type: topology.NAT, Dnat: true, FipPortID: port("port"),
			NatTargets: []topology.NatTarget{{NwStart: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}}}}}
		b.Neighbours = []topology.NeighbourEntry{{NetworkID: pick("network", "n1", "n2", "n3"), IP: netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)}), MAC: mac()}}
		return owner, b
	case "router":
		owner := topology.Owner{Kind: kind, ID: pick("router", "r1", "r2")}
		if !empty {
			hop(pick("destination", "0.0.0.0/0", "10.0.0.1/32", "203.0.113.0/24"))
		}
		return owner, b
	}
	i := rapid.IntRange(0, 5).Draw(t, "owner")
	for j := range rapid.IntRange(0, 2).Draw(t, "ports") {
		p := topology.Port{ID: fmt.Sprintf("p%d-%d", i, j)}
		if device := pick("device", "n1", "n2", "n3", "r1", "r2"); device[0] == 'n' {
			p.NetworkID = device
		} else {
			p.RouterID = device
		}
		if rapid.IntRange(0, 2).Draw(t, "linked") == 0 {
			p.PeerID = port("peer")
		} else if rapid.IntRange(0, 3).Draw(t, "bound") > 0 {
			p.HostID, p.InterfaceName = fmt.Sprintf("h%d", rapid.IntRange(0, 3).Draw(t, "host")), "tap"
		}
		if rapid.IntRange(0, 4).Draw(t, "seeded") > 0 {
			b.MACs = append(b.MACs, topology.MACEntry{PortID: p.ID})
			b.Neighbours = []topology.NeighbourEntry{{}}
		}
		b.Ports = append(b.Ports, p)
	}
	return topology.Owner{Kind: "port", ID: fmt.Sprint(i)}, b
}

func checkSenders(t *rapid.T, b bits, bundles map[topology.Owner]*topology.Bundle, addrs map[string][]netip.Addr, attached map[string]datapath.Port, own func(*topology.Port) bool) {
	t.Helper()
	want := bits{}
	for _, n := range attached {
		want[n] = map[netip.Addr]bool{}
	}
	m := newSenderModel(bundles)
	for _, x := range bundles {
		for i := range x.Ports {
			n := attached[x.Ports[i].ID]
			if n == 0 || !own(&x.Ports[i]) {
				continue
			}
			for host, all := range addrs {
				if m.maySend(&x.Ports[i], host) {
					for _, a := range all {
						want[n][a] = true
					}
				}
			}
		}
	}
	if fmt.Sprint(b) != fmt.Sprint(want) {
		t.Fatalf("may send: %v, want %v", b, want)
	}
}

// senderModel finds who may send to a port from scratch, by the words of decision 0018.
type senderModel struct {
	ports  map[string]*topology.Port
	areas  map[string]string          // the smallest id of the devices that links lead to, by device
	above  map[string]map[string]bool // areas that are above an area, itself among them
	seeded map[string]bool
	floats []*senderFloat
}

func newSenderModel(bundles map[topology.Owner]*topology.Bundle) *senderModel {
	m := &senderModel{ports: map[string]*topology.Port{}, areas: map[string]string{}, above: map[string]map[string]bool{}}
	m.seeded = map[string]bool{}
	var hops []netip.Addr
	for owner, b := range bundles {
		for i := range b.Ports {
			m.ports[b.Ports[i].ID] = &b.Ports[i]
			m.areas[deviceOf(&b.Ports[i])] = deviceOf(&b.Ports[i])
			m.seeded[b.Ports[i].ID] = hasSeeds(b, &b.Ports[i])
		}
		for i := range b.Routes {
			hops = append(hops, b.Routes[i].NextHopGateway)
		}
		if owner.Kind == "floating-ip" && len(b.Rules) > 0 {
			m.floats = append(m.floats, floatOf(b))
			if n := b.Neighbours[0].NetworkID; m.areas[n] == "" {
				m.areas[n] = n
			}
		}
	}
	border := map[string]bool{}
	for owner, b := range bundles {
		if owner.Kind != "router-gateway" || len(b.Rules) == 0 {
			continue
		}
		q := &b.Ports[0]
		border[q.ID] = !slices.Contains(hops, q.PortSubnet[0].Addr())
		for _, f := range m.floats {
			routed := false
			if router := bundles[topology.Owner{Kind: "router", ID: q.RouterID}]; router != nil {
				routed = slices.ContainsFunc(router.Routes, func(r topology.Route) bool { return r.DstSubnet.Bits() > 0 && r.DstSubnet.Contains(f.fixed) })
			}
			if f.mac == q.PortMAC && (slices.Contains(hops, f.addr) || routed || !m.seeded[f.port]) {
				border[q.ID] = false
			}
		}
	}
	var borders [][2]string
	for range m.areas { // as many passes as a link can be far away
		borders = nil
		for _, p := range m.ports {
			q := m.ports[p.PeerID]
			if q == nil || p.Exterior() || q.Exterior() {
				continue
			}
			a, b := deviceOf(p), deviceOf(q)
			if border[p.ID] {
				borders = append(borders, [2]string{a, b})
				continue
			}
			m.areas[a], m.areas[b] = min(m.areas[a], m.areas[b]), min(m.areas[a], m.areas[b])
		}
	}
	for _, a := range m.areas {
		m.above[a] = map[string]bool{a: true}
	}
	for range m.areas {
		for _, up := range m.above {
			for _, b := range borders {
				if up[m.areas[b[0]]] {
					up[m.areas[b[1]]] = true
				}
			}
		}
	}
	return m
}

// maySend reports whether a host may send to a port.
func (m *senderModel) maySend(p *topology.Port, host string) bool {
	at := m.areas[deviceOf(p)]
	for _, other := range m.ports {
		if other.HostID != host || !other.Exterior() {
			continue
		}
		from := m.areas[deviceOf(other)]
		if m.above[at][from] || m.above[from][at] {
			return true
		}
		for _, f := range m.floats {
			network := m.areas[f.network]
			if f.port == p.ID && m.above[from][network] || f.port == other.ID && other.NetworkID != "" && m.above[at][network] && m.seeded[f.port] {
				return true
			}
		}
	}
	return false
}

// BenchmarkSenders measures one change where many tenants' routers are on one external network,
// each with machines on two hosts and a floating IP; 20 ports are this host's. A tenant's machine
// moves, its floating IP comes and goes, and its gateway does.
func BenchmarkSenders(b *testing.B) {
	for _, routers := range []int{100, 1000} {
		b.Run(fmt.Sprint("routers=", routers), func(b *testing.B) {
			s := newSenders(nil)
			s.dp = bits{}
			own := func(p *topology.Port) bool { return p.HostID == "h0" }
			put := func(kind string, i int, before, after *topology.Bundle) {
				s.change(topology.Owner{Kind: kind, ID: fmt.Sprint(kind, i)}, before, after, own)
			}
			none := &topology.Bundle{}
			addrs := map[string][]netip.Addr{}
			for i := range 1000 {
				addrs[fmt.Sprint("h", i+1)] = []netip.Addr{netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)})}
			}
			s.setHosts(addrs)
			machine := func(i, on int) *topology.Bundle {
				p := topology.Port{ID: fmt.Sprint("m", i), NetworkID: fmt.Sprint("n", i), HostID: fmt.Sprint("h", on), InterfaceName: "tap"}
				return &topology.Bundle{Ports: []topology.Port{p}, MACs: []topology.MACEntry{{PortID: p.ID}}, Neighbours: []topology.NeighbourEntry{{}}}
			}
			gateway := func(i int) *topology.Bundle {
				addr := netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
				return &topology.Bundle{Ports: []topology.Port{{ID: fmt.Sprint("q", i), RouterID: fmt.Sprint("r", i), PeerID: fmt.Sprint("e", i), PortMAC: packet.MAC{2, 0, byte(i >> 8), byte(i)},
					PortSubnet: []netip.Prefix{netip.PrefixFrom(addr, 16)}}},
					Rules: []topology.RuleEntry{{Rule: topology.Rule{Type: topology.NAT}}}, Routes: []topology.Route{{NextHopGateway: netip.MustParseAddr("192.0.255.1")}}}
			}
			floating := func(i int) *topology.Bundle {
				return &topology.Bundle{Rules: []topology.RuleEntry{{Rule: topology.Rule{Type: topology.NAT, Dnat: true, FipPortID: fmt.Sprint("m", i), NatTargets: make([]topology.NatTarget, 1)}}},
					Neighbours: []topology.NeighbourEntry{{NetworkID: "ext", IP: netip.AddrFrom4([4]byte{192, 1, byte(i >> 8), byte(i)}), MAC: packet.MAC{2, 0, byte(i >> 8), byte(i)}}}}
			}
			for i := range routers {
				put("external", i, none, &topology.Bundle{Ports: []topology.Port{{ID: fmt.Sprint("e", i), NetworkID: "ext"}}})
				put("inside", i, none, &topology.Bundle{Ports: []topology.Port{{ID: fmt.Sprint("i", i), NetworkID: fmt.Sprint("n", i)}, {ID: fmt.Sprint("j", i), RouterID: fmt.Sprint("r", i), PeerID: fmt.Sprint("i", i)}}})
				put("router-gateway", i, none, gateway(i))
				put("floating-ip", i, none, floating(i))
				put("port", i, none, machine(i, 1+i))
				put("second port", i, none, &topology.Bundle{Ports: []topology.Port{{ID: fmt.Sprint("s", i), NetworkID: fmt.Sprint("n", i), HostID: fmt.Sprint("h", max(0, i-19)), InterfaceName: "tap"}}})
			}
			for i := range 20 { // this host's, whatever the number of routers
				s.attached(fmt.Sprint("s", i), datapath.Port(i+1))
			}
			step := func(name string, change func(i int)) {
				b.Run(name, func(b *testing.B) {
					for n := range b.N {
						change(n % routers)
					}
				})
			}
			step("machine moves", func(i int) {
				put("port", i, machine(i, 1+i), machine(i, 1+(i+7)%1000))
				put("port", i, machine(i, 1+(i+7)%1000), machine(i, 1+i))
			})
			step("floating IP", func(i int) {
				put("floating-ip", i, floating(i), none)
				put("floating-ip", i, none, floating(i))
			})
			step("gateway", func(i int) {
				put("router-gateway", i, gateway(i), none)
				put("router-gateway", i, none, gateway(i))
			})
		})
	}
}
