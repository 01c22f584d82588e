package simulate

import (
	"slices"
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// localnet is the localnet port "lan-NETWORK" of a network.
func (l *lab) localnet(network string) []string {
	return l.Apply(owner("network", network+"/lan"), &topology.Bundle{Ports: []topology.Port{{
		ID: "lan-" + network, NetworkID: network, AdminStateUp: true, TunnelKey: 77, PhysicalNetwork: "physnet1", VlanID: 5}}})
}

// host makes a live host that carries the physical networks.
func (l *lab) host(id string, physical ...string) []string {
	tunnels := []topology.HostTunnel{{ZoneID: topology.DefaultTunnelZone, IP: addr(int(hashID(id) & 0xffff))}}
	affected := l.ApplyHost(id, &topology.Host{ID: id, Name: "name-" + id, Tunnels: tunnels, PhysicalNetworks: physical})
	return append(affected, l.ApplyHostState(id, &topology.HostState{HostID: id})...)
}

func on(host string, p portSpec) portSpec {
	p.host = host
	return p
}

// outsider is the number of a machine on the LAN.
const outsider = 9

// onLAN has machines 1 and 4 on h1, 2 on h2, which both carry the LAN; 3 on h3, which does not. The
// network's router has port 7, of which the MAC address is routerMAC(7).
func onLAN() *lab {
	l := newLab()
	l.network("net")
	l.localnet("net")
	for i, host := range []string{"h1", "h2", "h3", "h1"} {
		l.port(on(host, open(i+1)))
	}
	l.host("h1", "physnet1")
	l.host("h2", "physnet1")
	l.host("h3")
	l.router("r")
	l.link(lanLink)
	return l
}

var lanLink = link{id: "lan", router: "r", network: "net", n: 7, at: prefix("10.0.0.254/16")}

// arrives simulates a frame that comes in from the LAN at a host.
func (l *lab) arrives(network, host string, frame []byte) *flow.Decision {
	d := l.sim.Run(Input{PortID: "lan-" + network, HostID: host, Frame: frame, State: l.mem, Explain: true})
	l.mem.Commit(d)
	return d
}

// places are the outputs of a decision, with hosts.
func places(d *flow.Decision) string {
	var all []string
	for _, o := range d.Outputs {
		all = append(all, o.PortID+"@"+o.HostID)
	}
	for _, e := range d.Emit {
		all = append(all, "own:"+e.PortID+"@"+e.HostID)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// home returns the home of a MAC address of the network, which must have one.
func (l *lab) home(t *testing.T, m packet.MAC) string {
	t.Helper()
	id, ok := l.Home("net", m)
	if !ok {
		t.Fatalf("%v has no home", m)
	}
	return id
}

// other is the carrier that is not h.
func other(h string) string { return map[string]string{"h1": "h2", "h2": "h1"}[h] }

// The table of decision 0016.
func TestLAN(t *testing.T) {
	t.Parallel()
	shared := onLAN().home(t, mac(3))
	router := onLAN().home(t, routerMAC(7))
	alone := map[string]string{"h1": "p1", "h2": "p2"} // one machine of each carrier
	number := map[string]int{"h1": 1, "h2": 2}
	lan := func(host string) string { return "lan-net@" + host }
	for _, c := range []struct {
		name  string
		at    string // a port; or "lan:HOST"
		frame []byte
		want  string
		from  int // of the outsider, if it has been learned
	}{
		{name: "ports of one home", at: "p1", frame: tcp(1, 4, 1, 2), want: "p4@h1"},
		{name: "ports of two homes", at: "p1", frame: tcp(1, 2, 1, 2), want: lan("h1")},
		{name: "the same at the other home", at: "lan:h2", frame: tcp(1, 2, 1, 2), want: "p2@h2"},
		{name: "the same at the sender's home", at: "lan:h1", frame: tcp(1, 2, 1, 2)},
		{name: "from a host without the LAN", at: "p3", frame: tcp(3, number[other(shared)], 1, 2), want: lan(shared)},
		{name: "from a host without the LAN to its home", at: "p3", frame: tcp(3, number[shared], 1, 2), want: alone[shared] + "@" + shared},
		{name: "to a host without the LAN from its home", at: alone[shared], frame: tcp(number[shared], 3, 1, 2), want: "p3@h3"},
		{name: "to a host without the LAN from elsewhere", at: alone[other(shared)], frame: tcp(number[other(shared)], 3, 1, 2), want: lan(other(shared))},
		{name: "the same at the home", at: "lan:" + shared, frame: tcp(number[other(shared)], 3, 1, 2), want: "p3@h3"},
		{name: "the same at another host", at: "lan:" + other(shared), frame: tcp(outsider, 3, 1, 2)},
		{name: "unknown address", at: "p1", frame: tcp(1, outsider, 1, 2), want: strings.Join(append(atHome(shared, "h1", "p1@h1"), lan("h1")), " ")},
		{name: "learned address", at: "p1", frame: tcp(1, outsider, 1, 2), want: lan("h1"), from: outsider},
		{name: "learned address from a host without the LAN", at: "p3", frame: tcp(3, outsider, 1, 2), want: lan(shared), from: outsider},
		{name: "from outside", at: "lan:h1", frame: tcp(outsider, 1, 1, 2), want: "p1@h1"},
		{name: "from outside at another host", at: "lan:h2", frame: tcp(outsider, 1, 1, 2)},
		{name: "from outside to outside", at: "lan:h1", frame: tcp(outsider+1, outsider, 1, 2), from: outsider},
		{name: "broadcast", at: "p1", frame: toMAC(tcp(1, 2, 1, 2), packet.Broadcast), want: strings.Join(append(atHome(shared, "h1", "p1@h1"), lan("h1")), " ")},
		{name: "the same at the other home", at: "lan:h2", frame: toMAC(tcp(1, 2, 1, 2), packet.Broadcast), want: strings.Join(atHome(shared, "h2", ""), " ")},
		{name: "the same at its own home", at: "lan:h1", frame: toMAC(tcp(1, 2, 1, 2), packet.Broadcast)},
		{name: "broadcast from outside", at: "lan:h2", frame: toMAC(tcp(outsider, 2, 1, 2), packet.Broadcast), want: strings.Join(atHome(shared, "h2", ""), " ")},
		{name: "DHCP from outside is for the machines", at: "lan:h2", frame: dhcpFrame(outsider, packet.DHCPDiscover, nil), want: strings.Join(atHome(shared, "h2", ""), " ")},
		{name: "question from outside", at: "lan:h1", frame: request(outsider, addr(1)), want: "own:" + lan("h1")},
		{name: "question from outside at another host", at: "lan:h2", frame: request(outsider, addr(1))},
		{name: "question from outside about the router", at: "lan:" + router, frame: request(outsider, ip("10.0.0.254")), want: "own:" + lan(router)},
		{name: "the same at another host", at: "lan:" + other(router), frame: request(outsider, ip("10.0.0.254"))},
		{name: "question inside", at: "p1", frame: request(1, addr(2)), want: "own:p1@h1"},
		{name: "question about an outsider", at: "p1", frame: request(1, addr(outsider)), want: strings.Join(append(atHome(shared, "h1", "p1@h1"), lan("h1")), " ")},
		{name: "question from outside about an outsider", at: "lan:h2", frame: request(outsider, addr(outsider+1)), want: strings.Join(atHome(shared, "h2", ""), " ")},
		{name: "ping of the router from outside", at: "lan:" + router, frame: toMAC(pingTo(outsider, "10.0.0.254"), routerMAC(7)), want: "own:" + lan(router), from: outsider},
		{name: "ping of the router from outside at another host", at: "lan:" + other(router), frame: toMAC(pingTo(outsider, "10.0.0.254"), routerMAC(7)), from: outsider},
		{name: "ping of the router from a machine", at: "p1", frame: toMAC(pingTo(1, "10.0.0.254"), routerMAC(7)), want: "own:p1@h1"},
		{name: "a router's frame on the LAN", at: "lan:h2", frame: fromMAC(toMAC(tcp(1, 2, 1, 2), packet.Broadcast), routerMAC(7))},
		{name: "a machine's frame to the router on the LAN", at: "lan:" + router, frame: toMAC(pingTo(number[other(router)], "10.0.0.254"), routerMAC(7))},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := onLAN()
			if c.from != 0 {
				l.LearnMAC(topology.LearnedMAC{HostID: "h1", NetworkID: "net", MAC: mac(c.from), PortID: "lan-net"}, 1)
				l.LearnNeighbour(topology.LearnedNeighbour{HostID: "h1", NetworkID: "net", IP: addr(c.from), MAC: mac(c.from)}, 1)
			}
			var d *flow.Decision
			if host, ok := strings.CutPrefix(c.at, "lan:"); ok {
				d = l.arrives("net", host, c.frame)
			} else {
				d = l.send(c.at, c.frame)
			}
			want := strings.Fields(c.want)
			slices.Sort(want)
			if got := places(d); got != strings.Join(want, " ") {
				t.Errorf("got %q, want %q\n%s", got, c.want, walk(d))
			}
		})
	}
}

func pingTo(i int, to string) []byte {
	return frameSpec{n: i, to: 7, src: addr(i), dst: ip(to)}.echo(packet.ICMPEchoRequest, 3)
}

// atHome are the machines whose home is a host, without one of them.
func atHome(shared, host, without string) []string {
	all := map[string][]string{"h1": {"p1@h1", "p4@h1"}, "h2": {"p2@h2"}}[host]
	if host == shared {
		all = append(all, "p3@h3")
	}
	return slices.DeleteFunc(all, func(p string) bool { return p == without })
}
