package simulate

import (
	"fmt"
	"net/netip"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"

	"pgregory.net/rapid"
)

// The pools of worlds with a LAN: machines p1, p2 and p3 on network a, each on a host of its own,
// of which h1 and h2 carry physnet1 to begin with; l is the network's localnet port. Router r is on
// it with port b1, and on network b with b2, where p4 is.
var (
	lanOwners = []topology.Owner{{Kind: "base", ID: "0"}, {Kind: "network", ID: "1"}, {Kind: "port", ID: "1"}, {Kind: "port", ID: "2"}, {Kind: "router-interface", ID: "1"}}
	lanPorts  = []string{"p1", "p2", "p3", "p4", "b1", "b2", "q1", "q2", "l", "l2"}
	lanHosts  = []string{"h1", "h2", "h3"}
	lanMACs   = []packet.MAC{mac(1), mac(2), mac(3), mac(9), routerMAC(1)}
)

// lanPort is the port as it is to begin with.
func lanPort(id string) topology.Port {
	p := topology.Port{ID: id, AdminStateUp: true, NetworkID: "a"}
	n := int(id[len(id)-1] - '0')
	switch id[0] {
	case 'p':
		p.HostID, p.InterfaceName = []string{"h1", "h2", "h3", "h3"}[n-1], "tap"
		if n == 4 {
			p.NetworkID = "b"
		}
	case 'b':
		p.NetworkID = []string{"a", "b"}[n-1]
	case 'q':
		p.NetworkID, p.RouterID, p.PortMAC, p.PeerID = "", "r", routerMAC(n), fmt.Sprint("b", n)
		p.PortSubnet = []netip.Prefix{prefix([]string{"10.0.0.254/24", "10.0.1.254/24"}[n-1])}
		p.PortAddress = p.PortSubnet[0].Addr()
	case 'l':
		p.PhysicalNetwork = "physnet1"
	}
	return p
}

func lanWorld(*rapid.T) *World {
	b := &topology.Bundle{
		Networks: []topology.Network{{ID: "a", AdminStateUp: true}, {ID: "b", AdminStateUp: true}},
		Routers:  []topology.Router{{ID: "r", AdminStateUp: true}},
		Routes: []topology.Route{
			routedRoute(1, prefix("10.0.0.0/24"), topology.HopPort, "q1", netip.Addr{}),
			routedRoute(2, prefix("10.0.1.0/24"), topology.HopPort, "q2", netip.Addr{}),
			routedRoute(3, prefix("10.0.0.254/32"), topology.HopLocal, "q1", netip.Addr{}),
		},
	}
	for _, id := range lanPorts[:9] {
		b.Ports = append(b.Ports, lanPort(id))
	}
	for i := 1; i <= 3; i++ {
		b.MACs = append(b.MACs, topology.MACEntry{NetworkID: "a", MAC: mac(i), PortID: fmt.Sprint("p", i)})
		b.Neighbours = append(b.Neighbours, topology.NeighbourEntry{NetworkID: "a", IP: ip(fmt.Sprint("10.0.0.", i)), MAC: mac(i)})
	}
	b.MACs = append(b.MACs, topology.MACEntry{NetworkID: "b", MAC: mac(4), PortID: "p4"})
	b.Neighbours = append(b.Neighbours, topology.NeighbourEntry{NetworkID: "b", IP: ip("10.0.1.4"), MAC: mac(4)},
		topology.NeighbourEntry{NetworkID: "a", IP: ip("10.0.0.9"), MAC: mac(9)})
	w := NewWorld(Options{})
	w.Apply(owner("base", "0"), b)
	begin(w)
	return w
}

// begin has all hosts alive.
func begin(w *World) {
	for i, h := range lanHosts {
		w.ApplyHostState(h, &topology.HostState{HostID: h})
		w.ApplyHost(h, lanHost(h, i < 2, "z"))
	}
}

func lanHost(id string, carries bool, zone string) *topology.Host {
	h := &topology.Host{ID: id, Tunnels: []topology.HostTunnel{{ZoneID: zone, IP: addr(int(id[1]))}}}
	if carries {
		h.PhysicalNetworks = []string{"physnet1"}
	}
	return h
}

func genLANBundle() *rapid.Generator[*topology.Bundle] {
	return rapid.Custom(func(t *rapid.T) *topology.Bundle {
		seldom := func(name string) bool { return rapid.IntRange(0, 4).Draw(t, name) == 0 }
		port := rapid.SampledFrom(lanPorts)
		b := &topology.Bundle{}
		if seldom("network") {
			b.Networks = []topology.Network{{ID: "a", AdminStateUp: !seldom("down")}}
		}
		if seldom("router") {
			excluded := rapid.SliceOfNDistinct(rapid.SampledFrom(lanHosts), 0, 2, rapid.ID).Draw(t, "excluded")
			b.Routers = []topology.Router{{ID: "r", AdminStateUp: true, ExcludedHostIDs: excluded}}
		}
		for range rapid.IntRange(0, 2).Draw(t, "ports") {
			p := lanPort(port.Draw(t, "port"))
			switch {
			case seldom("moved"):
				p.HostID = rapid.SampledFrom(lanHosts).Draw(t, "host")
			case seldom("unbound"):
				p.InterfaceName, p.PeerID = "", ""
			case seldom("relinked"):
				p.PeerID = port.Draw(t, "peer")
			case seldom("other MAC"):
				p.PortMAC = rapid.SampledFrom(lanMACs).Draw(t, "routermac")
			case seldom("other network"):
				p.NetworkID = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "net")
			case seldom("other physical network"):
				p.PhysicalNetwork = rapid.SampledFrom([]string{"", "physnet1", "physnet2"}).Draw(t, "physical")
			case seldom("tunnel key"):
				p.TunnelKey = 5
			}
			b.Ports = append(b.Ports, p)
		}
		for range rapid.IntRange(0, 1).Draw(t, "macs") {
			b.MACs = append(b.MACs, topology.MACEntry{NetworkID: "a", MAC: rapid.SampledFrom(lanMACs).Draw(t, "mac"), PortID: port.Draw(t, "behind")})
		}
		return b
	})
}

func genLANChange() *rapid.Generator[change] {
	return rapid.Custom(func(t *rapid.T) change {
		h := rapid.SampledFrom(lanHosts).Draw(t, "host")
		switch rapid.IntRange(0, 6).Draw(t, "kind") {
		case 0:
			var host *topology.Host
			if rapid.IntRange(0, 3).Draw(t, "gone") > 0 {
				host = lanHost(h, rapid.Bool().Draw(t, "carries"), rapid.SampledFrom([]string{"z", "z", "y"}).Draw(t, "zone"))
			}
			return change{fmt.Sprintf("host %s %+v", h, host), func(w *World) []string { return w.ApplyHost(h, host) }}
		case 1:
			var st *topology.HostState
			if rapid.Bool().Draw(t, "alive") {
				st = &topology.HostState{HostID: h}
			}
			return change{fmt.Sprintf("host %s alive %v", h, st != nil), func(w *World) []string { return w.ApplyHostState(h, st) }}
		case 2, 3:
			l := topology.LearnedMAC{HostID: h, NetworkID: "a", MAC: rapid.SampledFrom(lanMACs).Draw(t, "mac"), PortID: rapid.SampledFrom([]string{"l", "l", "p1", "p2", "l2"}).Draw(t, "at")}
			version := rapid.Uint64Range(1, 5).Draw(t, "version")
			return change{fmt.Sprintf("learn %+v", l), func(w *World) []string { return w.LearnMAC(l, version) }}
		case 4:
			l := topology.LearnedMAC{HostID: h, NetworkID: "a", MAC: rapid.SampledFrom(lanMACs).Draw(t, "mac")}
			return change{fmt.Sprintf("forget %+v", l), func(w *World) []string { return w.ForgetMAC(l) }}
		}
		o := rapid.SampledFrom(lanOwners[1:]).Draw(t, "owner") // the base stays
		b := genLANBundle().Draw(t, "bundle")
		return change{fmt.Sprintf("%v %+v", o, *b), func(w *World) []string { return w.Apply(o, b) }}
	})
}

// forged probes have the source address of a router. They are for LANs: that a machine's own are
// not learned is nothing that flows have to follow.
const forged = 99

func lanProbes() map[string][]byte {
	all := map[string][]byte{}
	for i, src := range lanMACs {
		if src == routerMAC(1) {
			i = forged
		}
		for j, dst := range append([]packet.MAC{packet.Broadcast}, lanMACs...) {
			all[fmt.Sprint("tcp ", i, " ", j)] = toMAC(fromMAC(tcp(1, 2, 1, 2), src), dst)
		}
		for _, dst := range []string{"10.0.1.4", "10.0.0.9", "10.0.0.254"} {
			s := frameSpec{to: 1, src: ip("10.0.0.77"), dst: ip(dst)}
			all[fmt.Sprint("routed ", i, " ", dst)] = fromMAC(s.tcp(1, 2), src)
		}
	}
	all["out"] = frameSpec{n: 4, to: 2, src: ip("10.0.1.4"), dst: ip("10.0.0.9")}.tcp(1, 2)
	all["in"] = frameSpec{n: 4, to: 2, src: ip("10.0.1.4"), dst: ip("10.0.0.3")}.tcp(1, 2)
	return all
}
