package simulate

import (
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// A router takes no packet from an address that belongs behind another of its ports.
func TestSourcesFromElsewhere(t *testing.T) {
	t.Parallel()
	l := example6()
	l.Apply(owner("extra-route", "vpn"), &topology.Bundle{Routes: []topology.Route{{ID: "vpn", SrcSubnet: prefix("0.0.0.0/0"), DstSubnet: prefix("10.5.0.0/16"),
		NextHop: topology.HopPort, NextHopPortID: "q-r1", NextHopGateway: ipX, Weight: 100}}})
	l.link(link{id: "r1b", router: "r", network: "net1", n: 5, at: prefix("10.11.0.1/24")})
	l.network("net5")
	l.link(link{id: "gw2", router: "r", network: "net5", n: 6, at: prefix("172.17.0.2/24"), via: ip("172.17.0.1")})
	l.Apply(owner("route", "gw2"), &topology.Bundle{Routes: []topology.Route{{ID: "gw2", SrcSubnet: prefix("0.0.0.0/0"), DstSubnet: prefix("172.17.0.0/24"),
		NextHop: topology.HopPort, NextHopPortID: "q-gw2", Weight: 100}}})
	vpn, second, neighbour := ip("10.5.0.9"), ip("10.11.0.9"), ip("172.17.0.9")
	for _, c := range []struct {
		name, from string
		frame      []byte
		belongs    string // the port behind which the source belongs, if that is not where it comes in
	}{
		{"inside address from outside", "p-up", frameSpec{n: 4, to: 4, src: ipX, dst: ipY}.tcp(1, 2), "q-r1"},
		{"the same to a floating IP", "p-up", frameSpec{n: 4, to: 4, src: ipY, dst: fipA}.tcp(1, 2), "q-r2"},
		{"address behind an extra route from outside", "p-up", frameSpec{n: 4, to: 4, src: vpn, dst: ipY}.tcp(1, 2), "q-r1"},
		{"the router's own address", "p-up", frameSpec{n: 4, to: 4, src: r2.at.Addr(), dst: ipX}.tcp(1, 2), "q-r2"},
		{"inside address from another inside network", "p-y", frameSpec{n: 2, to: 2, src: ipX, dst: ipZ}.tcp(1, 2), "q-r1"},
		{"IPv6", "p-up", routedTCP6(4, 14, ip6X, ip6Y, 64), "q-r61"},

		{"outside", "p-up", frameSpec{n: 4, to: 4, src: ipOut, dst: fipA}.tcp(1, 2), ""},
		{"neighbour outside", "p-up", frameSpec{n: 4, to: 4, src: ip("172.16.0.9"), dst: fipA}.tcp(1, 2), ""},
		{"neighbour of the second gateway by the first", "p-up", frameSpec{n: 4, to: 4, src: neighbour, dst: fipA}.tcp(1, 2), ""},
		{"extra route", "p-x", frameSpec{n: 1, to: 1, src: vpn, dst: ipY}.tcp(1, 2), ""},
		{"second subnet of the network", "p-x", frameSpec{n: 1, to: 1, src: second, dst: ipY}.tcp(1, 2), ""},
		{"IPv6 outside", "p-up", routedTCP6(4, 14, ip("2001:db8:ffff::1"), ip6Y, 64), ""},
	} {
		d := l.send(c.from, c.frame)
		switch {
		case c.belongs == "" && d.Verdict != flow.Forward:
			t.Errorf("%s: not delivered\n%s", c.name, walk(d))
		case c.belongs != "" && (d.Verdict != flow.Drop || len(d.Emit) > 0 || !d.Cacheable || !strings.Contains(d.Reason, "come in by the router's port "+c.belongs+",")):
			t.Errorf("%s: not dropped, by a flow, for it belongs behind %s: %s\n%s", c.name, c.belongs, d.Reason, walk(d))
		}
	}
}

// What a router sends to an address at its own MAC comes back to it, from whatever source.
func TestOwnPacketsTurn(t *testing.T) {
	t.Parallel()
	l := example()
	plain := gw
	plain.snat = false
	l.Apply(gw.owner(), plain.bundle())
	left := ip("172.16.0.77") // by a floating IP of another router, say
	l.Apply(owner("neighbour", "left"), &topology.Bundle{Neighbours: []topology.NeighbourEntry{{NetworkID: "net4", IP: left, MAC: routerMAC(4)}}})
	d := l.send("p-y", frameSpec{n: 2, to: 2, src: ipY, dst: left}.tcp(1, 2))
	if d.Verdict != flow.ErrorDrop || strings.Count(walk(d), "in filter OS_PRE_ROUTING_r") < 2 {
		t.Errorf("the packet did not turn\n%s", walk(d))
	}
}
