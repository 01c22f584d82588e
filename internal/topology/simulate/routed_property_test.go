package simulate

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"

	"pgregory.net/rapid"
)

// The pools of routed worlds: machines p1 on network a, p2 and p3 on b; router r on both, s on b
// with an uplink, q4.
var (
	routedOwners = []topology.Owner{{Kind: "base", ID: "0"}, {Kind: "floating-ip", ID: "1"}, {Kind: "port", ID: "1"}, {Kind: "router", ID: "1"}, {Kind: "router-interface", ID: "1"}}
	routedPorts  = []string{"p1", "p2", "p3", "b1", "b2", "b3", "q1", "q2", "q3", "q4"}
	// The first is in no table to begin with.
	routedAddrs = []netip.Addr{ip("10.0.1.9"), ip("10.0.0.1"), ip("10.0.1.2"), ip("10.0.1.3"), ip("10.0.0.254"), ip("10.0.1.254"), ip("10.0.1.253"), ip("10.0.0.100")}
	routedDsts  = []netip.Prefix{prefix("10.0.0.0/24"), prefix("10.0.1.0/24"), prefix("0.0.0.0/0"), prefix("10.0.1.2/32"), prefix("10.0.0.254/32")}
)

// routedPort is the port as it is to begin with.
func routedPort(id string) topology.Port {
	p := topology.Port{ID: id, AdminStateUp: true}
	n := int(id[1] - '0')
	switch id[0] {
	case 'p':
		p.NetworkID, p.HostID, p.InterfaceName = []string{"a", "b", "b"}[n-1], "h1", "tap"
	case 'b':
		p.NetworkID = []string{"a", "b", "b"}[n-1]
	case 'q':
		p.RouterID, p.PortMAC = []string{"r", "r", "s", "s"}[n-1], routerMAC(n)
		at := []string{"10.0.0.254/24", "10.0.1.254/24", "10.0.1.253/24", "10.0.2.254/24"}[n-1]
		p.PortSubnet = []netip.Prefix{prefix(at)}
		p.PortAddress = p.PortSubnet[0].Addr()
		if n == 4 {
			p.HostID, p.InterfaceName = "h2", "eth"
		} else {
			p.PeerID = fmt.Sprint("b", n)
		}
	}
	return p
}

func routedRoute(id int, dst netip.Prefix, hop, port string, via netip.Addr) topology.Route {
	return topology.Route{ID: fmt.Sprint("route", id), SrcSubnet: prefix("0.0.0.0/0"), DstSubnet: dst, NextHop: hop, NextHopPortID: port, NextHopGateway: via, Weight: 100}
}

// routedWorld is a working world of the pools.
func routedWorld(t *rapid.T) *World {
	b := &topology.Bundle{
		Networks: []topology.Network{{ID: "a", AdminStateUp: true}, {ID: "b", AdminStateUp: true}},
		Routers:  []topology.Router{{ID: "r", AdminStateUp: true, InboundFilterID: "a", OutboundFilterID: "b", ForwardChainID: "c"}, {ID: "s", AdminStateUp: true}},
		Chains:   []topology.Chain{{ID: "a"}, {ID: "b"}, {ID: "c"}},
		Routes: []topology.Route{
			routedRoute(1, routedDsts[0], topology.HopPort, "q1", netip.Addr{}),
			routedRoute(2, routedDsts[1], topology.HopPort, "q2", netip.Addr{}),
			routedRoute(3, routedDsts[2], topology.HopPort, "q2", ip("10.0.1.253")),
			routedRoute(4, routedDsts[1], topology.HopPort, "q3", netip.Addr{}),
			routedRoute(5, routedDsts[2], topology.HopPort, "q4", netip.Addr{}),
			routedRoute(6, routedDsts[4], topology.HopLocal, "q1", netip.Addr{}),
			routedRoute(7, routedDsts[0], topology.HopPort, "q3", ip("10.0.1.254")),
		},
	}
	for _, id := range routedPorts {
		b.Ports = append(b.Ports, routedPort(id))
	}
	for i := 1; i <= 3; i++ {
		n := b.Ports[i-1].NetworkID
		b.MACs = append(b.MACs, topology.MACEntry{NetworkID: n, MAC: mac(i), PortID: fmt.Sprint("p", i)})
		b.Neighbours = append(b.Neighbours, topology.NeighbourEntry{NetworkID: n, IP: routedAddrs[i], MAC: mac(i)})
	}
	b.Neighbours = append(b.Neighbours, topology.NeighbourEntry{NetworkID: "s", IP: routedAddrs[1], MAC: mac(9)})
	b.Rules = rapid.SliceOfN(genEntry(), 0, 6).Draw(t, "entries")
	w := NewWorld(Options{})
	w.Apply(owner("base", "0"), b)
	return w
}

// genEntry makes rules of NAT and others in chains a, b and c.
func genEntry() *rapid.Generator[topology.RuleEntry] {
	return rapid.Custom(func(t *rapid.T) topology.RuleEntry {
		rarely := func(name string) bool { return rapid.IntRange(0, 3).Draw(t, name) == 0 }
		address := rapid.SampledFrom(routedAddrs)
		r := genRule().Draw(t, "rule")
		if r.Condition == nil {
			r.Condition = &topology.Condition{FragmentPolicy: topology.FragAny}
		}
		if rapid.Bool().Draw(t, "of router") {
			r.Condition = &topology.Condition{FragmentPolicy: topology.FragAny}
			if rarely("dst") {
				r.Condition.NwDstIP = only(address.Draw(t, "nwdst"))
			}
			if rarely("src") {
				r.Condition.NwSrcIP = only(address.Draw(t, "nwsrc"))
			}
			if rarely("in") {
				r.Condition.InPortIDs = []string{rapid.SampledFrom(routedPorts).Draw(t, "inport")}
			}
			if rarely("out") {
				r.Condition.OutPortIDs = []string{rapid.SampledFrom(routedPorts).Draw(t, "outport")}
			}
			if rarely("ingroup") {
				r.Condition.InPortGroupID, r.Condition.InvInPortGroup = "g", rarely("inv")
			}
			if rarely("group") {
				r.Condition.PortGroupID = "g"
			}
			r.Condition.MatchNwDstRewritten, r.Condition.ConjunctionInv = rarely("rewritten"), rarely("not")
		}
		if rapid.Bool().Draw(t, "nat") {
			r.Type, r.Action, r.JumpChainID = topology.NAT, rapid.SampledFrom([]string{topology.Accept, topology.Continue, topology.Return}).Draw(t, "then"), ""
			r.Dnat, r.Reverse = rapid.Bool().Draw(t, "dnat"), rarely("reverse")
			if !r.Reverse {
				r.NatTargets = natTo(address.Draw(t, "target"), rarely("dynamic"))
			}
		}
		return topology.RuleEntry{ChainID: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "chain"), Place: rapid.IntRange(-1, 1).Draw(t, "place"), Rule: r}
	})
}

func genRoutedBundle() *rapid.Generator[*topology.Bundle] {
	return rapid.Custom(func(t *rapid.T) *topology.Bundle {
		seldom := func(name string) bool { return rapid.IntRange(0, 5).Draw(t, name) == 0 }
		few := func(n int, make func()) {
			for range rapid.IntRange(0, n).Draw(t, "n") {
				make()
			}
		}
		net := rapid.SampledFrom([]string{"a", "b"})
		router := rapid.SampledFrom([]string{"r", "s"})
		port := rapid.SampledFrom(routedPorts)
		address := rapid.SampledFrom(routedAddrs)
		b := &topology.Bundle{}
		few(1, func() {
			b.Networks = append(b.Networks, topology.Network{ID: net.Draw(t, "net"), AdminStateUp: !seldom("netdown")})
		})
		few(1, func() {
			b.Routers = append(b.Routers, topology.Router{ID: router.Draw(t, "router"), AdminStateUp: !seldom("routerdown"), InboundFilterID: "a", OutboundFilterID: "c"})
		})
		few(2, func() {
			p := routedPort(port.Draw(t, "port"))
			p.AdminStateUp = !seldom("portdown")
			if seldom("relinked") {
				p.PeerID = port.Draw(t, "peer")
			}
			if seldom("moved") && p.RouterID != "" {
				p.RouterID = router.Draw(t, "to")
			}
			if seldom("other MAC") && p.RouterID != "" {
				p.PortMAC = rapid.SampledFrom([]packet.MAC{mac(2), mac(3), routerMAC(2), routerMAC(3)}).Draw(t, "routermac")
			}
			if seldom("other address") && p.RouterID != "" {
				p.PortAddress = address.Draw(t, "at")
				p.PortSubnet = []netip.Prefix{netip.PrefixFrom(p.PortAddress, 24)}
			}
			if seldom("grouped") {
				p.PortGroupIDs = []string{"g"}
			}
			if seldom("unbound") {
				p.InterfaceName = ""
			}
			b.Ports = append(b.Ports, p)
		})
		few(1, func() { b.PortGroups = append(b.PortGroups, topology.PortGroup{ID: "g"}) })
		few(2, func() {
			r := routedRoute(rapid.IntRange(1, 9).Draw(t, "route"), rapid.SampledFrom(routedDsts).Draw(t, "dst"),
				rapid.SampledFrom([]string{topology.HopPort, topology.HopPort, topology.HopLocal, topology.HopBlackhole, "?"}).Draw(t, "hop"),
				port.Draw(t, "by"), netip.Addr{})
			if seldom("own") {
				r.NextHopPortID, r.RouterID = "", router.Draw(t, "of")
			}
			if seldom("via") {
				r.NextHopGateway = address.Draw(t, "gateway")
			}
			if seldom("weight") {
				r.Weight = rapid.IntRange(99, 101).Draw(t, "weight")
			}
			b.Routes = append(b.Routes, r)
		})
		few(1, func() {
			b.Chains = append(b.Chains, topology.Chain{ID: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "chain"), Rules: rapid.SliceOfN(genRule(), 0, 3).Draw(t, "rules")})
		})
		b.Rules = rapid.SliceOfN(genEntry(), 0, 3).Draw(t, "entries")
		few(2, func() {
			b.MACs = append(b.MACs, topology.MACEntry{NetworkID: net.Draw(t, "macnet"),
				MAC: rapid.SampledFrom([]packet.MAC{mac(1), mac(2), mac(3), routerMAC(1), routerMAC(2)}).Draw(t, "seed"), PortID: port.Draw(t, "macport")})
		})
		few(2, func() {
			b.Neighbours = append(b.Neighbours, topology.NeighbourEntry{NetworkID: rapid.SampledFrom([]string{"a", "b", "s"}).Draw(t, "nnet"), IP: address.Draw(t, "nip"),
				MAC: rapid.SampledFrom([]packet.MAC{mac(1), mac(2), mac(3), routerMAC(1), routerMAC(2)}).Draw(t, "nmac")})
		})
		return b
	})
}

func genRoutedChange() *rapid.Generator[change] {
	return rapid.Custom(func(t *rapid.T) change {
		o := rapid.SampledFrom(routedOwners).Draw(t, "owner")
		if o.Kind == "base" {
			o = routedOwners[1] // the base stays, mostly
		}
		switch rapid.IntRange(0, 6).Draw(t, "kind") {
		case 0:
			l := topology.LearnedNeighbour{HostID: rapid.SampledFrom([]string{"h1", "h2"}).Draw(t, "host"), NetworkID: rapid.SampledFrom([]string{"a", "b", "s"}).Draw(t, "net"),
				IP: rapid.SampledFrom(routedAddrs[1:4]).Draw(t, "ip"), MAC: genMAC().Draw(t, "mac")}
			version := rapid.Uint64Range(1, 5).Draw(t, "version")
			return change{fmt.Sprintf("learn %+v", l), func(w *World) []string { return w.LearnNeighbour(l, version) }}
		case 1:
			l := topology.LearnedNeighbour{HostID: "h1", NetworkID: rapid.SampledFrom([]string{"a", "b", "s"}).Draw(t, "net"), IP: rapid.SampledFrom(routedAddrs[1:4]).Draw(t, "ip")}
			return change{fmt.Sprintf("forget %+v", l), func(w *World) []string { return w.ForgetNeighbour(l) }}
		case 2:
			return change{fmt.Sprintf("%v gone", o), func(w *World) []string { return w.Apply(o, nil) }}
		}
		b := genRoutedBundle().Draw(t, "bundle")
		return change{fmt.Sprintf("%v %+v", o, *b), func(w *World) []string { return w.Apply(o, b) }}
	})
}

func routedProbes() map[string][]byte {
	all := map[string][]byte{}
	for n, src := range map[int]netip.Addr{1: routedAddrs[1], 2: routedAddrs[2]} {
		for i, dst := range append([]netip.Addr{ip("192.0.2.1")}, routedAddrs...) {
			s := frameSpec{n: n, to: n, src: src, dst: dst}
			all[fmt.Sprint("tcp ", n, " ", i)] = s.tcp(4000, 80)
		}
		s := frameSpec{n: n, to: n, src: src, dst: routedAddrs[3-n]}
		all[fmt.Sprint("echo ", n)] = s.echo(8, 7)
		s.h = packet.IPv4{ID: 9, Offset: 2}
		all[fmt.Sprint("later ", n)] = s.ip(packet.ProtoUDP, make([]byte, 8))
		all[fmt.Sprint("bridged ", n)] = toMAC(s.tcp(1, 2), mac(3))
	}
	all["up"] = frameSpec{to: 4, src: routedAddrs[0], dst: routedAddrs[1]}.tcp(4000, 80)
	return all
}

// An indexed chain decides as one whose rules are tried one by one.
func TestIndexDecidesAsTheList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := routedWorld(t)
		w.Apply(owner("rules", "1"), &topology.Bundle{Rules: rapid.SliceOfN(genEntry(), 0, 40).Draw(t, "rules")})
		s := NewSimulator(w)
		run := func() map[string]string {
			all := map[string]string{}
			for name, frame := range routedProbes() {
				for _, port := range []string{"p1", "p2", "q4"} {
					d := s.Run(Input{PortID: port, Frame: frame})
					text := fingerprint(d)
					if d.Cacheable { // less may have been read
						text = fmt.Sprint(text, d.Touched)
					}
					all[name+" at "+port] = text
				}
			}
			return all
		}
		indexed := run()
		for _, c := range w.chains {
			c.index = ruleIndex{}
		}
		for name, want := range run() {
			got := indexed[name]
			if strings.HasPrefix(name, "later") && strings.HasPrefix(strings.Replace(got, "cacheable true", "cacheable false", 1), want) {
				continue // an index passes rules over whose ports the list reads: fewer decisions need them
			}
			if got != want {
				t.Fatalf("%s\nby index: %s\nby list:  %s", name, got, want)
			}
		}
	})
}

// A decision that may be kept is that of every packet with the headers of its key, whatever else
// differs.
func TestCacheableRestsOnTheKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := routedWorld(t)
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			genRoutedChange().Draw(t, "change").apply(w)
		}
		s := NewSimulator(w)
		for name, frame := range routedProbes() {
			d := s.Run(Input{PortID: "p1", Frame: frame})
			if !d.Cacheable {
				continue
			}
			effect := func(d *flow.Decision) string {
				if len(d.Outputs) == 0 {
					return "nothing goes out"
				}
				return fmt.Sprintf("%v %+v %v %v", d.Outputs, *d.Rewrite, d.NewConns, d.NewNATs)
			}
			if d.Rewrite == nil {
				d.Rewrite = &flow.Rewrite{}
			}
			want, hops := effect(d), d.Rewrite.Hops
			other := append([]byte(nil), frame...)
			other[14+8] = rapid.Uint8Range(hops+1, 255).Draw(t, "ttl")
			other[14+1] = rapid.Byte().Draw(t, "tos")
			other[14+5]++ // the identification
			other = append(other, rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "padding")...)
			d = s.Run(Input{PortID: "p1", Frame: other})
			if d.Rewrite == nil {
				d.Rewrite = &flow.Rewrite{}
			}
			if got := effect(d); got != want {
				t.Fatalf("%s\none:   %s\nother: %s", name, want, got)
			}
		}
	})
}
