package simulate

import (
	"fmt"
	"net/netip"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// rules10 are ten rules of which the last accepts a TCP port.
func rules10(group string, port uint16) []topology.Rule {
	var rules []topology.Rule
	for i := range 8 {
		rules = append(rules, allowPort(fmt.Sprint(group, "/r", i), packet.ProtoTCP, uint16(1000+i)))
	}
	from := netip.MustParsePrefix("192.0.2.0/24")
	return append(rules,
		literal(group+"/r8", topology.Accept, topology.Condition{DlType: packet.TypeIPv4, NwSrcIP: &from}),
		allowPort(group+"/r9", packet.ProtoTCP, port))
}

// populate makes a network with n ports in two groups each, and others beside it.
func populate(l *lab, n, networks int) {
	for g, port := range map[string]uint16{"g1": 443, "g2": 80} { // the second group's last rule accepts
		b := groupBundle(g, rules10(g, port)...)
		egress := &b.Chains[0]
		egress.Rules = rules10(g+"/e", port)
		l.Apply(owner("security-group", g), b)
	}
	l.network("net")
	for i := range n {
		l.port(machine(i, "g1", "g2"))
	}
	for i := range networks {
		id := fmt.Sprint("other", i)
		l.network(id)
		p := machine(i)
		p.id, p.network = fmt.Sprint("q", i), id
		l.port(p)
	}
}

type noState struct{}

func (noState) Conn(flow.ConnKey) bool                       { return false }
func (noState) Frag(flow.FragKey) (p [2]uint16, ok bool)     { return p, false }
func (noState) NAT(flow.NATKey) (b flow.NATBinding, ok bool) { return b, false }
func (noState) NATSource(flow.NATRequest) (b flow.NATBinding, a flow.NATAnswer) {
	return b, flow.NATExhausted
}
func (noState) Seed() uint64                  { return 0 }
func (noState) OwnConns(flow.Endpoint) int    { return 0 }
func (noState) MemberConns(flow.Endpoint) int { return 0 }
func (noState) MetadataSource(flow.MetadataClient) (a netip.Addr, why string) {
	return a, "no state"
}
func (noState) MetadataClient(netip.Addr) (c flow.MetadataClient, ok bool) { return c, false }

func BenchmarkL2UnicastTwoGroups(b *testing.B) {
	for _, c := range []struct{ ports, networks int }{{10, 1}, {1000, 1}, {10000, 1}, {10, 1000}, {10, 10000}} {
		b.Run(fmt.Sprintf("ports=%d/networks=%d", c.ports, c.networks), func(b *testing.B) {
			l := newLab()
			populate(l, c.ports, c.networks)
			in := Input{PortID: "p1", Frame: tcp(1, 2, 4000, 80), State: noState{}}
			if d := l.sim.Run(in); d.Verdict != flow.Forward || !d.Cacheable || len(d.NewConns) != 2 {
				b.Fatal(walk(l.send("p1", in.Frame)))
			}
			b.ReportAllocs()
			for b.Loop() {
				l.sim.Run(in)
			}
		})
	}
}

func BenchmarkDropByGroup(b *testing.B) {
	l := newLab()
	populate(l, 10, 1)
	in := Input{PortID: "p1", Frame: tcp(1, 2, 4000, 22), State: noState{}}
	b.ReportAllocs()
	for b.Loop() {
		l.sim.Run(in)
	}
}

// crowd is the example with n floating IPs more, and as many machines.
func crowd(n int) *lab {
	l := example()
	for i := range n {
		a := netip.AddrFrom4([4]byte{10, 1, byte(16 + i>>8), byte(i)})
		outer := netip.AddrFrom4([4]byte{172, 17, byte(i >> 8), byte(i)})
		l.floating(floating{fmt.Sprint("F", i), gw, outer, a})
	}
	return l
}

func benchmarkRouted(b *testing.B, port string, frame []byte) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprint("floatingips=", n), func(b *testing.B) {
			l := crowd(n)
			if d := l.send(port, frame); d.Verdict != flow.Forward || !d.Cacheable {
				b.Fatal(walk(d))
			}
			in := Input{PortID: port, Frame: frame, State: l.mem}
			b.ReportAllocs()
			for b.Loop() {
				l.sim.Run(in)
			}
		})
	}
}

// A packet to the outside, its source translated to the gateway's address.
func BenchmarkRoutedSNAT(b *testing.B) {
	benchmarkRouted(b, "p-y", frameSpec{n: 2, to: 2, src: ipY, dst: ipOut}.tcp(4000, 80))
}

// A packet of a machine with a floating IP.
func BenchmarkRoutedFloatingIP(b *testing.B) {
	benchmarkRouted(b, "p-x", frameSpec{n: 1, to: 1, src: ipX, dst: ipOut}.tcp(4000, 80))
}

// A packet to a floating IP.
func BenchmarkRoutedToFloatingIP(b *testing.B) {
	benchmarkRouted(b, "p-up", frameSpec{n: 4, to: 4, src: ipOut, dst: fipA}.tcp(4000, 80))
}

func BenchmarkRoutedBetweenNetworks(b *testing.B) {
	benchmarkRouted(b, "p-y", frameSpec{n: 2, to: 2, src: ipY, dst: ipX}.tcp(4000, 80))
}

// The cost of one floating IP does not follow the number there are.
func BenchmarkApplyFloatingIP(b *testing.B) {
	for _, n := range []int{10, 1000, 5000} {
		b.Run(fmt.Sprint("floatingips=", n), func(b *testing.B) {
			l := crowd(n)
			f := floating{"one", gw, ip("172.16.9.9"), ip("10.1.9.9")}
			bundle := f.bundle()
			b.ReportAllocs()
			for b.Loop() {
				l.Apply(owner("floating-ip", "one"), bundle)
				l.Apply(owner("floating-ip", "one"), nil)
			}
		})
	}
}
