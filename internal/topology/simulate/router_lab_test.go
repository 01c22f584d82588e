package simulate

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func only(a netip.Addr) *netip.Prefix { return ptr(netip.PrefixFrom(a, a.BitLen())) }

func anywhere(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return prefix("0.0.0.0/0")
	}
	return prefix("::/0")
}

// router adds a router as translated (midonet-translations §8.1).
func (l *lab) router(r string) []string { return l.Apply(owner("router", r), routerBundle(r)) }

func routerBundle(r string) *topology.Bundle {
	skip := literal(r+"/skip/rest", topology.Accept, topology.Condition{MatchNwDstRewritten: true, ConjunctionInv: true})
	return &topology.Bundle{
		Routers: []topology.Router{{ID: r, AdminStateUp: true, InboundFilterID: r + "/pre", OutboundFilterID: r + "/post", ForwardChainID: r + "/fwd"}},
		Chains: []topology.Chain{
			{ID: r + "/pre", Name: "OS_PRE_ROUTING_" + r},
			{ID: r + "/post", Name: "OS_POST_ROUTING_" + r, Rules: []topology.Rule{jumpTo(r+"/1", r+"/skip"), jumpTo(r+"/2", r+"/exact"), jumpTo(r+"/3", r+"/float")}},
			{ID: r + "/fwd"}, {ID: r + "/skip", Rules: []topology.Rule{skip}}, {ID: r + "/exact"}, {ID: r + "/float"},
		},
		PortGroups: []topology.PortGroup{{ID: r + "/rifs"}},
	}
}

// routerMAC is the MAC address of a router's n-th port.
func routerMAC(n int) packet.MAC { return packet.MAC{0xfa, 0x16, 0x3f, 0, 0, byte(n)} }

// link is a router's port on a network: ports "b-ID" and "q-ID".
type link struct {
	id, router, network string
	n                   int // of its MAC address
	at                  netip.Prefix
	via                 netip.Addr // of a gateway
	snat                bool
}

// neutronPort is the link's end in the network.
func (k link) neutronPort() *topology.Bundle {
	return &topology.Bundle{
		Ports:      []topology.Port{{ID: "b-" + k.id, NetworkID: k.network, AdminStateUp: true, TunnelKey: 9}},
		MACs:       []topology.MACEntry{{NetworkID: k.network, MAC: routerMAC(k.n), PortID: "b-" + k.id}},
		Neighbours: []topology.NeighbourEntry{{NetworkID: k.network, IP: k.at.Addr(), MAC: routerMAC(k.n)}},
	}
}

func (k link) port() topology.Port {
	return topology.Port{ID: "q-" + k.id, RouterID: k.router, AdminStateUp: true, PeerID: "b-" + k.id,
		PortAddress: k.at.Addr(), PortSubnet: []netip.Prefix{k.at}, PortMAC: routerMAC(k.n)}
}

func (k link) routes() []topology.Route {
	q, a := "q-"+k.id, k.at.Addr()
	rs := []topology.Route{{ID: q + "/local", SrcSubnet: anywhere(a), DstSubnet: *only(a), NextHop: topology.HopLocal, NextHopPortID: q, Weight: 100}}
	if k.via.IsValid() {
		return append(rs, topology.Route{ID: q + "/default", SrcSubnet: anywhere(a), DstSubnet: anywhere(a), NextHop: topology.HopPort, NextHopPortID: q, NextHopGateway: k.via, Weight: 100})
	}
	return append(rs, topology.Route{ID: q + "/rif", SrcSubnet: anywhere(a), DstSubnet: k.at.Masked(), NextHop: topology.HopPort, NextHopPortID: q, Weight: 100})
}

func natTo(a netip.Addr, dynamic bool) []topology.NatTarget {
	t := topology.NatTarget{NwStart: a, NwEnd: a}
	if dynamic {
		t.TpStart, t.TpEnd = 1024, 65535
	}
	return []topology.NatTarget{t}
}

func nat(r topology.Rule) topology.Rule {
	r.Type = topology.NAT
	if r.Condition.FragmentPolicy == "" {
		r.Condition.FragmentPolicy = topology.FragUnfragmented
	}
	r.Action = topology.Accept
	return r
}

// entries are the link's rules in the router's chains (§3.2, §3.3).
func (k link) entries() []topology.RuleEntry {
	q, r, a := "q-"+k.id, k.router, k.at.Addr()
	in := func(place int, chain string, rule topology.Rule) topology.RuleEntry {
		return topology.RuleEntry{ChainID: r + "/" + chain, Place: place, Rule: rule}
	}
	cond := func(c topology.Condition) *topology.Condition { return &c }
	switch {
	case !k.via.IsValid() && a.Is4():
		metadata := prefix("169.254.169.254/32")
		return []topology.RuleEntry{
			in(40, "pre", nat(topology.Rule{ID: q + "/same/rev", Reverse: true, Condition: cond(topology.Condition{InPortIDs: []string{q}, NwDstIP: only(a), MatchReturnFlow: true})})),
			in(50, "post", nat(topology.Rule{ID: q + "/same", NatTargets: natTo(a, true), Condition: cond(topology.Condition{
				InPortIDs: []string{q}, OutPortIDs: []string{q}, MatchForwardFlow: true, NwDstIP: &metadata, NwDstInv: true})})),
		}
	case !k.snat:
		return nil
	}
	return []topology.RuleEntry{
		in(20, "pre", nat(topology.Rule{ID: q + "/rev", Reverse: true, Condition: cond(topology.Condition{NwDstIP: only(a)})})),
		in(30, "pre", literal(q+"/wrong", topology.Drop, topology.Condition{NwDstIP: only(a), NwProto: ptr(packet.ProtoICMP), NwProtoInv: true, FragmentPolicy: topology.FragUnfragmented})),
		in(-30, "skip", literal(q+"/skip/out", topology.Return, topology.Condition{OutPortIDs: []string{q}})),
		in(-10, "skip", literal(q+"/skip/in", topology.Accept, topology.Condition{InPortIDs: []string{q}})),
		in(20, "post", nat(topology.Rule{ID: q + "/snat", NatTargets: natTo(a, true), Condition: cond(topology.Condition{OutPortIDs: []string{q}, NwSrcIP: only(a), NwSrcInv: true})})),
		in(30, "post", nat(topology.Rule{ID: q + "/rewritten", NatTargets: natTo(a, true), Condition: cond(topology.Condition{MatchNwDstRewritten: true})})),
		in(40, "post", literal(q+"/frag", topology.Drop, topology.Condition{OutPortIDs: []string{q}, NwSrcIP: only(a), NwSrcInv: true})),
	}
}

func (k link) owner() topology.Owner {
	if k.via.IsValid() {
		return owner("router-gateway", k.id)
	}
	return owner("router-interface", k.id)
}

func (k link) bundle() *topology.Bundle {
	p := k.port()
	if !k.via.IsValid() {
		p.PortGroupIDs = []string{k.router + "/rifs"}
	}
	return &topology.Bundle{Ports: []topology.Port{p}, Routes: k.routes(), Rules: k.entries()}
}

func (l *lab) link(k link) []string {
	return append(l.Apply(owner("port", "b-"+k.id), k.neutronPort()), l.Apply(k.owner(), k.bundle())...)
}

// floating is a floating IP served by a link of the router.
type floating struct {
	id           string
	by           link
	outer, fixed netip.Addr
}

func (f floating) bundle() *topology.Bundle {
	q, r := "q-"+f.by.id, f.by.router
	in := func(place int, chain string, rule topology.Rule) topology.RuleEntry {
		return topology.RuleEntry{ChainID: r + "/" + chain, Place: place, Rule: rule}
	}
	static := func(id string, dnat bool, to netip.Addr, c topology.Condition) topology.Rule {
		c.FragmentPolicy = topology.FragAny
		return nat(topology.Rule{ID: f.id + id, Dnat: dnat, NatTargets: natTo(to, false), Condition: &c})
	}
	place := 20
	if f.by.via.IsValid() {
		place = 10
	}
	return &topology.Bundle{
		Rules: []topology.RuleEntry{
			in(10, "pre", static("/dnat", true, f.fixed, topology.Condition{NwDstIP: only(f.outer)})),
			in(-40, "skip", literal(f.id+"/skip/out", topology.Return, topology.Condition{OutPortIDs: []string{q}})),
			in(-20, "skip", literal(f.id+"/skip/in", topology.Accept, topology.Condition{InPortIDs: []string{q}})),
			in(10, "exact", static("/exact", false, f.outer, topology.Condition{OutPortIDs: []string{q}, NwSrcIP: only(f.fixed)})),
			in(place, "float", static("/float", false, f.outer, topology.Condition{NwSrcIP: only(f.fixed)})),
		},
		Neighbours: []topology.NeighbourEntry{{NetworkID: f.by.network, IP: f.outer, MAC: routerMAC(f.by.n)}},
	}
}

func (l *lab) floating(f floating) []string {
	return l.Apply(owner("floating-ip", f.id), f.bundle())
}

// station is a machine without port security: port "p-ID" of a network.
func (l *lab) station(id, network string, n int, ips ...netip.Addr) {
	l.port(portSpec{id: "p-" + id, network: network, host: "h1", mac: mac(n), ips: ips, open: true})
}

// The addresses of the worked example in midonet-translations §3.5.
var (
	ipX, ipY, ipZ = ip("10.1.0.5"), ip("10.2.0.5"), ip("10.3.0.5")
	ipUp          = ip("172.16.0.1") // the gateway's next hop
	ipGW          = ip("172.16.0.2")
	ipOut         = ip("198.51.100.7") // beyond
	fipA, fipB    = ip("172.16.0.50"), ip("10.3.0.100")

	gw = link{id: "gw", router: "r", network: "net4", n: 4, at: prefix("172.16.0.2/24"), via: ipUp, snat: true}
	r3 = link{id: "r3", router: "r", network: "net3", n: 3, at: prefix("10.3.0.1/24")}
	r2 = link{id: "r2", router: "r", network: "net2", n: 2, at: prefix("10.2.0.1/24")}
	r1 = link{id: "r1", router: "r", network: "net1", n: 1, at: prefix("10.1.0.1/24")}
)

// example is the topology of the seed's interesting cases: X, Y, Z behind one router.
func example() *lab {
	l := newLab()
	for i := 1; i <= 4; i++ {
		l.network(fmt.Sprint("net", i))
	}
	l.router("r")
	for _, k := range []link{r1, r2, r3, gw} {
		l.link(k)
	}
	l.station("x", "net1", 1, ipX)
	l.station("y", "net2", 2, ipY)
	l.station("z", "net3", 3, ipZ)
	l.station("up", "net4", 4, ipUp)
	l.floating(floating{"A", gw, fipA, ipX})
	l.floating(floating{"B", r3, fipB, ipX})
	return l
}

// frameSpec is a packet: n is the machine whose MAC address it has, to the router's port.
type frameSpec struct {
	n, to    int // numbers of MAC addresses: of a machine, of a router's port
	src, dst netip.Addr
	ttl      uint8
	h        packet.IPv4
}

func (s frameSpec) ip(proto uint8, transport []byte) []byte {
	b := packet.Ethernet{Dst: routerMAC(s.to), Src: mac(s.n), Type: packet.TypeIPv4}.Append(nil)
	h := s.h
	h.Src, h.Dst, h.Proto, h.TTL = s.src, s.dst, proto, s.ttl
	if h.TTL == 0 {
		h.TTL = 64
	}
	return append(h.Append(b, len(transport)), transport...)
}

func (s frameSpec) tcp(sport, dport uint16) []byte {
	return s.ip(packet.ProtoTCP, packet.TCP{SrcPort: sport, DstPort: dport, Flags: packet.TCPSyn}.Append(nil, s.src, s.dst, nil))
}

func (s frameSpec) udp(sport, dport uint16) []byte {
	return s.ip(packet.ProtoUDP, packet.UDP{SrcPort: sport, DstPort: dport}.Append(nil, s.src, s.dst, []byte("hello")))
}

func (s frameSpec) echo(typ uint8, id uint16) []byte {
	return s.ip(packet.ProtoICMP, packet.ICMP{Type: typ, Rest: packet.EchoRest(id, 1)}.Append(nil, []byte("hello")))
}

// icmpError is an error that quotes a packet from its network header on.
func (s frameSpec) icmpError(typ, code uint8, quoted []byte) []byte {
	return s.ip(packet.ProtoICMP, packet.ICMP{Type: typ, Code: code}.Append(nil, quoted[14:]))
}

// delivered returns the frame as the outputs of d get it, nil without any.
func delivered(t *testing.T, d *flow.Decision, frame []byte) []byte {
	t.Helper()
	if len(d.Outputs) == 0 {
		return nil
	}
	frame = bytes.Clone(frame)
	if d.Rewrite != nil {
		if err := d.Rewrite.Apply(frame, false); err != nil {
			t.Errorf("cannot rewrite: %v\n%s", err, walk(d))
		}
	}
	if err := packet.VerifyChecksums(frame); err != nil {
		t.Errorf("delivered with a wrong checksum: %v\n%s", err, walk(d))
	}
	return frame
}

// headers describes addresses and ports of a frame.
func headers(frame []byte) string {
	var f packet.Frame
	if err := packet.Decode(frame, &f); err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("%v→%v", f.SrcIP, f.DstIP)
	switch src, dst := connPorts(&f); {
	case f.Echo:
		text += fmt.Sprintf(" echo %d id %d", f.TpSrc, f.EchoID)
	case f.IsICMPError():
		q := f.Quote
		text += fmt.Sprintf(" ICMP %d/%d of %v:%d→%v:%d", f.TpSrc, f.TpDst, q.Src, q.SrcPort, q.Dst, q.DstPort)
	case src+dst > 0:
		text = fmt.Sprintf("%v:%d→%v:%d", f.SrcIP, src, f.DstIP, dst)
	}
	return text
}

// expectAt sends a frame and checks who gets it and with which headers; "" for nobody.
func (l *lab) expectAt(t *testing.T, from string, frame []byte, to, want string) []byte {
	t.Helper()
	d := l.send(from, frame)
	got := delivered(t, d, frame)
	if to == "" {
		if got != nil {
			t.Errorf("want nothing delivered, got\n%s", walk(d))
		}
		return nil
	}
	if fmt.Sprint(outs(d)) != "["+to+"]" || headers(got) != want {
		text := "nothing"
		if got != nil {
			text = headers(got)
		}
		t.Errorf("got %s at %v, want %s at %s\n%s", text, outs(d), want, to, walk(d))
	}
	return got
}

// replyTo is the packet with which the receiver of a frame answers, through the router.
func replyTo(frame []byte, payload func(s frameSpec, f *packet.Frame) []byte) []byte {
	var f packet.Frame
	if packet.Decode(frame, &f) != nil {
		return nil
	}
	return payload(frameSpec{n: int(f.Dst[5]), to: int(f.Src[5]), src: f.DstIP, dst: f.SrcIP}, &f)
}

func tcpReply(frame []byte) []byte {
	return replyTo(frame, func(s frameSpec, f *packet.Frame) []byte { return s.tcp(f.TpDst, f.TpSrc) })
}
