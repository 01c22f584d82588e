package simulate

import (
	"net/netip"
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
	unicast := threeV6().send("p1", packet.NeighborSolicit(mac(2), mac(1), addr6(1), addr6(2), addr6(2)))
	expect(t, unicast, flow.Forward, "p2")
	if unicast.Cacheable {
		t.Error("neighbour discovery must not be kept: it is decided by its target")
	}
}
