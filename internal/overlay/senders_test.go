package overlay

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology"
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

// senderTest is a senders under test, and what it was last given.
type senderTest struct {
	s        *senders
	bits     bits
	bundles  map[topology.Owner]*topology.Bundle
	addrs    map[string][]netip.Addr
	carriers map[string]bool // hosts that carry the physical network
	attached map[string]datapath.Port
	number   datapath.Port
}

const senderHostUnderTest = "h0"

func (x *senderTest) own(p *topology.Port) bool {
	return p.HostID == senderHostUnderTest && p.Exterior()
}

// TestSendersFollow: after any changes of ports, routers, floating IPs, hosts and attachments, the
// peers that may send to a port are those that decision 0018 names. It starts with a network behind
// a router's gateway with SNAT on another that is itself behind such a gateway.
func TestSendersFollow(t *testing.T) {
	for i := range 10 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, checkSendersFollow)
		})
	}
}

func checkSendersFollow(t *rapid.T) {
	nested := nestedNetworks()
	x := &senderTest{s: newSenders(nil), bits: bits{}, bundles: map[topology.Owner]*topology.Bundle{},
		addrs: map[string][]netip.Addr{}, carriers: map[string]bool{}, attached: map[string]datapath.Port{}}
	x.s.dp, x.s.mirrors.locate = x.bits, x.locate
	for i := range 8 {
		x.attach(fmt.Sprintf("p%d-1", i))
	}
	for i := range 3 {
		x.setHost(i+1, 1)
	}
	for _, n := range nested {
		x.put(n.owner, n.bundle)
	}
	x.check(t)
	for range rapid.IntRange(10, 80).Draw(t, "steps") {
		switch what := rapid.IntRange(0, 9).Draw(t, "what"); what {
		case 0, 1, 2, 3:
			x.put(drawBundle(t))
		case 4, 5, 6:
			n := rapid.SampledFrom(nested).Draw(t, "nested")
			if after := n.bundle; rapid.IntRange(0, 2).Draw(t, "there") > 0 {
				x.put(n.owner, after)
			} else {
				x.put(n.owner, &topology.Bundle{})
			}
		case 7:
			x.setHost(rapid.IntRange(1, 3).Draw(t, "host"), rapid.IntRange(0, 3).Draw(t, "address"))
		case 8:
			x.attach(drawPortID(t, "port"))
		case 9:
			host := fmt.Sprintf("h%d", rapid.IntRange(0, 3).Draw(t, "carrier"))
			if x.carriers[host] = !x.carriers[host]; x.carriers[host] {
				x.s.carry(host, []string{"lan"})
			} else {
				x.s.carry(host, nil)
			}
		}
		x.check(t)
	}
	x.checkEmptied(t)
}

// locate returns the device of a port.
func (x *senderTest) locate(port string) string {
	for _, b := range x.bundles {
		for i := range b.Ports {
			if b.Ports[i].ID == port {
				return deviceOf(&b.Ports[i])
			}
		}
	}
	return ""
}

func (x *senderTest) put(owner topology.Owner, after *topology.Bundle) {
	before := x.bundles[owner]
	if before == nil {
		before = &topology.Bundle{}
	}
	x.bundles[owner] = after
	x.s.change(owner, before, after, x.own)
}

// attach attaches a port, or detaches it if it is.
func (x *senderTest) attach(id string) {
	if n := x.attached[id]; n != 0 {
		x.s.gone(id)
		delete(x.bits, n)
		delete(x.attached, id)
		return
	}
	x.number++
	x.attached[id] = x.number
	x.s.attached(id, x.number)
}

// setHost gives a host one of three addresses, or none. A peer that goes takes its bits along.
func (x *senderTest) setHost(i, address int) {
	host := fmt.Sprint("h", i)
	delete(x.addrs, host)
	if address > 0 {
		x.addrs[host] = []netip.Addr{netip.AddrFrom4([4]byte{198, 51, 100, byte(10*i + address)})}
	}
	peers := map[netip.Addr]bool{}
	for _, all := range x.addrs {
		for _, a := range all {
			peers[a] = true
		}
	}
	for _, of := range x.bits {
		maps.DeleteFunc(of, func(a netip.Addr, _ bool) bool { return !peers[a] })
	}
	x.s.setHosts(maps.Clone(x.addrs))
}

func (x *senderTest) check(t *rapid.T) {
	t.Helper()
	want := bits{}
	for _, n := range x.attached {
		want[n] = map[netip.Addr]bool{}
	}
	m := newSenderModel(x.bundles, x.carriers)
	for id, p := range m.ports {
		n := x.attached[id]
		if n == 0 || !x.own(p) {
			continue
		}
		for host, all := range x.addrs {
			if m.maySend(p, host) {
				for _, a := range all {
					want[n][a] = true
				}
			}
		}
	}
	if fmt.Sprint(x.bits) != fmt.Sprint(want) {
		t.Fatalf("may send: %v, want %v", x.bits, want)
	}
}

// renewals counts the ports whose senders are all set anew.
type renewals struct {
	bits
	n int
}

func (r *renewals) SetSenders(port datapath.Port, remotes map[netip.Addr]bool) {
	r.n++
	r.bits.SetSenders(port, remotes)
}

// TestSendersOfOthersStay: where a tenant's gateway, on an external network with those of many
// others, stops being a border and is one again, only this tenant's ports are renewed.
func TestSendersOfOthersStay(t *testing.T) {
	t.Parallel()
	const routers = 50
	x := &senderTest{s: newSenders(nil), bundles: map[topology.Owner]*topology.Bundle{}, attached: map[string]datapath.Port{}}
	dp := &renewals{bits: bits{}}
	x.s.dp = dp
	for i := range routers {
		network, router := fmt.Sprint("n", i), fmt.Sprint("r", i)
		x.put(topology.Owner{Kind: "router-interface", ID: router}, &topology.Bundle{Ports: []topology.Port{
			{ID: "outside " + router, NetworkID: "external"}, {ID: "inside " + router, NetworkID: network},
			{ID: "interface " + router, RouterID: router, PeerID: "inside " + router},
			{ID: network, NetworkID: network, HostID: senderHostUnderTest, InterfaceName: "tap"}}})
		gateway := gatewayBundle(i, router, "outside "+router)
		x.put(topology.Owner{Kind: "router-gateway", ID: router}, &gateway)
		x.attach(network)
	}
	router := topology.Owner{Kind: "router", ID: "r0"}
	for _, routes := range [][]topology.Route{{{NextHopPortID: "q0", NextHopGateway: senderAddr(1)}}, nil} {
		dp.n = 0
		x.put(router, &topology.Bundle{Routes: routes})
		if dp.n != 1 {
			t.Errorf("routes %v: renewed %d ports, want that of the router with the next hop", routes, dp.n)
		}
	}
}

// checkEmptied removes all, and checks that nothing of it is kept.
func (x *senderTest) checkEmptied(t *rapid.T) {
	t.Helper()
	for owner := range x.bundles {
		x.put(owner, &topology.Bundle{})
	}
	for host := range x.carriers {
		x.s.carry(host, nil)
	}
	x.s.setHosts(nil)
	s, b, m := x.s, &x.s.borders, &x.s.mirrors
	if len(m.targets)+len(m.to)+len(m.at)+len(m.tapped)+len(m.watched)+len(m.watchers) != 0 {
		t.Fatalf("left: mirrors %+v", m)
	}
	if len(s.devices)+len(s.hosts)+len(s.ports)+len(s.ends)+len(s.namedBy)+len(s.lans.carriers)+len(s.lans.networks) != 0 {
		t.Fatalf("left: devices %v, hosts %v, ports %v, ends %v, %v, LANs %v", s.devices, s.hosts, s.ports, s.ends, s.namedBy, s.lans)
	}
	if len(b.is)+len(b.gateways)+len(b.gatewaysAt)+len(b.leads)+len(b.hops)+len(b.hopsAt)+len(b.openings)+len(b.doubtful)+len(b.floats)+len(b.floatsAt)+
		len(b.floatsOf)+len(b.floatsTo)+len(b.floatsIn)+len(b.targets)+len(b.extra)+len(b.lans)+len(b.doubtfulFloats) != 0 {
		t.Fatalf("left: borders %+v", b)
	}
}
