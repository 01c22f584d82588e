package simulate

import (
	"net/netip"
	"slices"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// answered decodes the one answer of a decision, which goes to port p1.
func answered(t *testing.T, d *flow.Decision) packet.Frame {
	t.Helper()
	var f packet.Frame
	if d.Verdict != flow.Consumed || len(d.Emit) != 1 || d.Emit[0].PortID != "p1" || d.Cacheable {
		t.Fatalf("no answer\n%s", walk(d))
	}
	if err := packet.Decode(d.Emit[0].Frame, &f); err != nil {
		t.Fatal(err)
	}
	if err := packet.VerifyChecksums(d.Emit[0].Frame); err != nil {
		t.Error(err)
	}
	return f
}

func request(i int, target netip.Addr) []byte {
	return arp(packet.Broadcast, packet.ARP{Op: packet.ARPRequest, SHA: mac(i), SPA: addr(i), TPA: target})
}

func TestARPAnswered(t *testing.T) {
	t.Parallel()
	f := answered(t, twoMachines().send("p1", request(1, addr(2))))
	if f.Dst != mac(1) || f.Src != mac(2) || f.ARPOp != packet.ARPReply || f.SHA != mac(2) || f.SrcIP != addr(2) || f.THA != mac(1) || f.DstIP != addr(1) {
		t.Errorf("got %+v", f)
	}
}

func TestARPFlooded(t *testing.T) {
	t.Parallel()
	unknown := addr(99)
	garp := func(op uint16, who int, a netip.Addr) []byte {
		return arp(packet.Broadcast, packet.ARP{Op: op, SHA: mac(who), SPA: a, THA: mac(who), TPA: a})
	}
	tagged := packet.Ethernet{Dst: packet.Broadcast, Src: mac(1), Tagged: true, VLAN: 9, Type: packet.TypeARP}.Append(nil)
	tagged = packet.ARP{Op: packet.ARPRequest, SHA: mac(1), SPA: addr(1), TPA: addr(2)}.Append(tagged)
	for _, c := range []struct {
		name   string
		frame  []byte
		learns *flow.LearnedNeighbour
	}{
		{"unknown target", request(1, unknown), nil},
		{"probe for its own address", arp(packet.Broadcast, packet.ARP{Op: packet.ARPRequest, SHA: mac(1), SPA: netip.IPv4Unspecified(), TPA: addr(1)}), nil},
		{"gratuitous request", garp(packet.ARPRequest, 1, unknown), &flow.LearnedNeighbour{NetworkID: "net", IP: unknown, MAC: mac(1)}},
		{"gratuitous reply", garp(packet.ARPReply, 1, unknown), &flow.LearnedNeighbour{NetworkID: "net", IP: unknown, MAC: mac(1)}},
		{"gratuitous for its own seed", garp(packet.ARPRequest, 1, addr(1)), nil},
		{"gratuitous for another's seed", garp(packet.ARPRequest, 1, addr(2)), nil},
		{"reply to everybody", arp(packet.Broadcast, packet.ARP{Op: packet.ARPReply, SHA: mac(1), SPA: addr(1), THA: mac(2), TPA: addr(2)}), nil},
		{"tagged", tagged, nil},
	} {
		d := threeOpen().send("p1", c.frame)
		expect(t, d, flow.Forward, "p2", "p3")
		if d.Cacheable || (d.LearnNeighbour == nil) != (c.learns == nil) || c.learns != nil && *d.LearnNeighbour != *c.learns {
			t.Errorf("%s: learns %+v, want %+v", c.name, d.LearnNeighbour, c.learns)
		}
	}
}

func TestNeighboursLearned(t *testing.T) {
	t.Parallel()
	l := threeOpen()
	a := addr(99)
	learn := func(host string, m packet.MAC, version uint64) {
		l.LearnNeighbour(topology.LearnedNeighbour{HostID: host, NetworkID: "net", IP: a, MAC: m}, version)
	}
	learn("h1", mac(2), 4)
	learn("h2", mac(3), 3)
	if f := answered(t, l.send("p1", request(1, a))); f.SHA != mac(2) {
		t.Errorf("got %v, want the newest", f.SHA)
	}
	l.ForgetNeighbour(topology.LearnedNeighbour{HostID: "h1", NetworkID: "net", IP: a})
	if f := answered(t, l.send("p1", request(1, a))); f.SHA != mac(3) {
		t.Errorf("got %v, want what is left", f.SHA)
	}
	l.Apply(owner("port", "x"), &topology.Bundle{Neighbours: []topology.NeighbourEntry{{NetworkID: "net", IP: a, MAC: mac(2)}}})
	learn("h2", mac(3), 9)
	if f := answered(t, l.send("p1", request(1, a))); f.SHA != mac(2) {
		t.Errorf("got %v, want the seed", f.SHA)
	}
}

func TestARPAnswerMeetsFilters(t *testing.T) {
	t.Parallel()
	l := twoMachines()
	b := machine(1, "web").bundle()
	b.Chains[1].Rules = []topology.Rule{literal("no-arp", topology.Drop, topology.Condition{DlType: packet.TypeARP, MatchForwardFlow: true})}
	l.Apply(machine(1).owner(), b)
	answered(t, l.send("p1", request(1, addr(2)))) // an answer is no forward flow
	b = machine(1, "web").bundle()
	b.Chains[1].Rules = []topology.Rule{literal("no-arp", topology.Drop, topology.Condition{DlType: packet.TypeARP})}
	l.Apply(machine(1).owner(), b)
	expect(t, l.send("p1", request(1, addr(2))), flow.Drop)
}

// threeV6 are p1, p2, p3 with an IPv6 address each and without port security.
func threeV6() *lab {
	l := newLab()
	l.network("net")
	for i := 1; i <= 3; i++ {
		p := open(i)
		p.ips = append(p.ips, addr6(i))
		l.port(p)
	}
	return l
}

func TestNDAnswered(t *testing.T) {
	t.Parallel()
	group := packet.SolicitedNode(addr6(2))
	f := answered(t, threeV6().send("p1", packet.NeighborSolicit(packet.MulticastMAC(group), mac(1), addr6(1), group, addr6(2))))
	if f.Dst != mac(1) || f.Src != mac(2) || f.SrcIP != addr6(2) || f.DstIP != addr6(1) || f.NDTarget != addr6(2) || f.NDLink != mac(2) ||
		f.NDFlags != packet.NDSolicited|packet.NDOverride || f.TTL != 255 {
		t.Errorf("got %+v", f)
	}
}

func TestNDFlooded(t *testing.T) {
	t.Parallel()
	group := packet.SolicitedNode(addr6(2))
	to := packet.MulticastMAC(group)
	every := packet.MulticastMAC(allNodes)
	beyond := packet.NeighborSolicit(to, mac(1), addr6(1), group, addr6(2))
	beyond[14+7] = 64
	for _, c := range []struct {
		name   string
		frame  []byte
		learns *flow.LearnedNeighbour
	}{
		{"duplicate address detection", packet.NeighborSolicit(to, mac(1), netip.IPv6Unspecified(), group, addr6(2)), nil},
		{"unknown target", packet.NeighborSolicit(to, mac(1), addr6(1), group, addr6(99)), nil},
		{"its own address", packet.NeighborSolicit(to, mac(1), addr6(1), group, addr6(1)), nil},
		{"from beyond the link", beyond, nil},
		{"unsolicited advertisement", packet.NeighborAdvert(every, mac(1), allNodes, addr6(99), packet.NDOverride),
			&flow.LearnedNeighbour{NetworkID: "net", IP: addr6(99), MAC: mac(1)}},
		{"advertisement of another's seed", packet.NeighborAdvert(every, mac(1), allNodes, addr6(2), packet.NDOverride), nil},
	} {
		d := threeV6().send("p1", c.frame)
		expect(t, d, flow.Forward, "p2", "p3")
		if d.Cacheable || (d.LearnNeighbour == nil) != (c.learns == nil) || c.learns != nil && *d.LearnNeighbour != *c.learns {
			t.Errorf("%s: learns %+v, want %+v", c.name, d.LearnNeighbour, c.learns)
		}
	}
	unicast := threeV6().send("p1", packet.NeighborSolicit(mac(2), mac(1), addr6(1), addr6(3), addr6(3)))
	expect(t, unicast, flow.Forward, "p2")
	if unicast.Cacheable {
		t.Error("neighbour discovery must not be kept: it is decided by its target")
	}
}

// TestProbesAnswered: hosts check a neighbour that they know by asking it alone. The table's owner
// is answered for; what is addressed to another machine goes to that one.
func TestProbesAnswered(t *testing.T) {
	t.Parallel()
	l := threeV6()
	ask := func(dst packet.MAC, target netip.Addr) []byte {
		return arp(dst, packet.ARP{Op: packet.ARPRequest, SHA: mac(1), SPA: addr(1), THA: dst, TPA: target})
	}
	if f := answered(t, l.send("p1", ask(mac(2), addr(2)))); f.SHA != mac(2) || f.SrcIP != addr(2) || f.Dst != mac(1) {
		t.Errorf("got %+v", f)
	}
	if f := answered(t, l.send("p1", packet.NeighborSolicit(mac(2), mac(1), addr6(1), addr6(2), addr6(2)))); f.NDLink != mac(2) || f.Dst != mac(1) {
		t.Errorf("got %+v", f)
	}
	expect(t, l.send("p1", ask(mac(3), addr(2))), flow.Forward, "p3")
	expect(t, l.send("p1", ask(mac(2), addr(99))), flow.Forward, "p2")
	expect(t, l.send("p1", ask(mac(1), addr(1))), flow.ErrorDrop)
	gratuitous := arp(mac(2), packet.ARP{Op: packet.ARPRequest, SHA: mac(1), SPA: addr(2), TPA: addr(2)})
	if d := l.send("p1", gratuitous); d.LearnNeighbour != nil || len(d.Emit) > 0 {
		t.Errorf("a gratuitous request to one machine: %s", walk(d))
	}
}

// TestAskers: who may ask is known before anyone has, unless it depends on whom they ask for.
func TestAskers(t *testing.T) {
	t.Parallel()
	v6 := machine(1, "web")
	v6.ips = append(v6.ips, addr6(1))
	target, src := netip.PrefixFrom(addr(2), 32), netip.PrefixFrom(addr(1), 32)
	for name, c := range map[string]struct {
		change func(*topology.Bundle)
		ip     netip.Addr
		mac    packet.MAC
		want   bool
	}{
		"its own address":             {nil, addr(1), mac(1), true},
		"another's address":           {nil, addr(2), mac(1), false},
		"another's MAC":               {nil, addr(1), mac(2), false}, // would be learned
		"its own IPv6 address":        {nil, addr6(1), mac(1), true},
		"another's IPv6 address":      {nil, addr6(2), mac(1), false},
		"IPv6 address of nobody":      {nil, netip.IPv6Unspecified(), mac(1), false},
		"port down":                   {func(b *topology.Bundle) { b.Ports[0].AdminStateUp = false }, addr(1), mac(1), false},
		"no port":                     {func(b *topology.Bundle) { b.Ports = nil }, addr(1), mac(1), false},
		"MAC not seeded":              {func(b *topology.Bundle) { b.MACs = nil }, addr(1), mac(1), false},
		"a rule on the target":        {prepend(0, topology.Condition{DlType: packet.TypeARP, NwDstIP: &target}), addr(1), mac(1), false},
		"a rule on the answer":        {prepend(1, topology.Condition{DlType: packet.TypeARP, NwSrcIP: &target}), addr(1), mac(1), false},
		"a rule on the asker":         {prepend(0, topology.Condition{DlType: packet.TypeARP, NwSrcIP: &src}), addr(1), mac(1), false},
		"a rule that the asker fails": {prepend(0, topology.Condition{DlType: packet.TypeARP, NwSrcIP: &target, NwDstIP: &target}), addr(1), mac(1), true},
	} {
		l := twoMachines()
		b := v6.bundle()
		if c.change != nil {
			c.change(b)
		}
		l.Apply(v6.owner(), b)
		if network, got := l.sim.CanAsk("p1", c.mac, c.ip); got != c.want || got && network != "net" {
			t.Errorf("%s: %v on network %q, want %v", name, got, network, c.want)
		}
		other := addr(2)
		frame := arp(packet.Broadcast, packet.ARP{Op: packet.ARPRequest, SHA: c.mac, SPA: c.ip, TPA: other})
		if c.ip.Is6() {
			continue
		}
		if d := l.send("p1", frame); (d.Asker != nil) != c.want {
			t.Errorf("%s: a question for another says %+v, want %v\n%s", name, d.Asker, c.want, walk(d))
		}
	}
}

// prepend puts a rule that drops in front of one of the port's chains.
func prepend(chain int, c topology.Condition) func(*topology.Bundle) {
	return func(b *topology.Bundle) {
		b.Chains[chain].Rules = append([]topology.Rule{literal("first", topology.Drop, c)}, b.Chains[chain].Rules...)
	}
}

func TestNeighbourChanges(t *testing.T) {
	t.Parallel()
	var changed []netip.Addr
	w := NewWorld(Options{NeighbourChanged: func(network string, ip netip.Addr) { changed = append(changed, ip) }})
	expectChange := func(what string, want ...netip.Addr) {
		t.Helper()
		if !slices.Equal(changed, want) {
			t.Errorf("%s: changed %v, want %v", what, changed, want)
		}
		changed = nil
	}
	seed := func(owner topology.Owner, m packet.MAC) {
		w.Apply(owner, &topology.Bundle{Neighbours: []topology.NeighbourEntry{{NetworkID: "net", IP: addr(1), MAC: m}}})
	}
	a, b := owner("port", "a"), owner("port", "b")
	seed(a, mac(1))
	expectChange("new", addr(1))
	seed(b, mac(2))
	expectChange("a lower owner's counts")
	if m, router, ok := w.Neighbour("net", addr(1)); !ok || router || m != mac(1) {
		t.Errorf("the table has %v, %v", m, ok)
	}
	seed(a, mac(3))
	expectChange("another MAC", addr(1))
	w.Apply(a, nil)
	expectChange("the next owner's counts", addr(1))
	if all := w.NeighbourAddrs("net"); !slices.Equal(all, []netip.Addr{addr(1)}) {
		t.Errorf("the table has %v", all)
	}
	w.Apply(b, nil)
	expectChange("gone", addr(1))
	if _, _, ok := w.Neighbour("net", addr(1)); ok || !w.Empty() {
		t.Error("something is left")
	}
	learnt := topology.LearnedNeighbour{HostID: "h", NetworkID: "net", IP: addr(1), MAC: mac(1)}
	w.LearnNeighbour(learnt, 1)
	expectChange("learned", addr(1))
	w.LearnNeighbour(learnt, 2)
	expectChange("learned again")
	w.ForgetNeighbour(learnt)
	expectChange("forgotten", addr(1))
}
