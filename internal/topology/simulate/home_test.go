package simulate

import (
	"fmt"
	"slices"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// watchedHomes is a network on the LAN of which the changes of homes are noted.
func watchedHomes() (l *lab, changed func() string) {
	var all []string
	w := NewWorld(Options{HomeChanged: func(network string, m packet.MAC) { all = append(all, fmt.Sprint(network, " ", m[5])) }})
	l = &lab{w, watched{NewSimulator(w)}, NewMemory()}
	return l, func() string {
		slices.Sort(all)
		text := fmt.Sprint(slices.Compact(all))
		all = nil
		return text
	}
}

func TestHomes(t *testing.T) {
	t.Parallel()
	l, changed := watchedHomes()
	at := func(i int, want string) {
		t.Helper()
		got, ok := l.Home("net", mac(i))
		if ok != (want != "") || got != want {
			t.Errorf("machine %d is at home at %q, want %q", i, got, want)
		}
	}
	hears := func(what, want string) {
		t.Helper()
		if got := changed(); got != want {
			t.Errorf("%s: homes of %s may have changed, want %s", what, got, want)
		}
	}
	l.network("net")
	l.network("other")
	l.port(on("h1", open(1)))
	l.port(on("h3", open(2)))
	foreign := on("h1", open(3))
	foreign.network = "other"
	l.port(foreign)
	l.host("h1", "physnet1")
	l.host("h3", "physnet2")
	hears("no localnet port", "[]")
	at(1, "")
	l.localnet("net")
	hears("a localnet port", "[net 1 net 2]")
	at(1, "h1")
	at(2, "h1")
	at(3, "")
	l.host("h1", "physnet1")
	hears("nothing new", "[]")
	l.port(on("h1", open(4)))
	hears("a new port", "[net 4]")
	l.ApplyHostState("h1", nil)
	hears("the only carrier dies", "[net 1 net 2 net 4]")
	at(1, "")
	l.host("h1", "physnet1")
	changed()
	l.port(on("h2", open(4)))
	hears("a port moves to a host that does not carry the LAN", "[net 4]")
	at(4, "h1")
	if affected := l.host("h2", "physnet1"); !slices.Contains(affected, "p4") || slices.Contains(affected, "p1") {
		t.Errorf("its host begins to carry it: affected %v", affected)
	}
	at(4, "h2")
	changed()
	l.LearnMAC(topology.LearnedMAC{HostID: "h1", NetworkID: "net", MAC: mac(7), PortID: "p1"}, 1)
	hears("an address is learned", "[net 7]")
	at(7, "h1")
	l.router("r")
	l.link(lanLink)
	hears("a router's port", fmt.Sprintf("[net %d]", routerMAC(7)[5])) // like machine 7's
	l.Apply(owner("network", "net/lan"), nil)
	hears("no localnet port any more", "[net 1 net 2 net 4 net 7]")
	at(1, "")
}

// Homes spread over hosts, and when one of them comes or goes only the ports that it takes or had
// get another.
func TestHomesOfRoutersSpread(t *testing.T) {
	t.Parallel()
	l := newLab()
	l.network("net")
	l.localnet("net")
	const hosts, routers = 5, 200
	for i := range hosts {
		l.host(fmt.Sprint("h", i), "physnet1")
	}
	for i := range routers {
		r := fmt.Sprint("r", i)
		l.router(r)
		l.link(link{id: r, router: r, network: "net", n: i, at: prefix("10.0.0.254/16")})
	}
	homes := func() (all []string) {
		for i := range routers {
			id, _ := l.Home("net", routerMAC(i))
			all = append(all, id)
		}
		return all
	}
	standbys := func() (all []string) {
		for i := range routers {
			all = append(all, l.networks["net"].behind(routerMAC(i)).standby.id)
		}
		return all
	}
	count := map[string]int{}
	before := homes()
	for _, h := range before {
		count[h]++
	}
	for i := range hosts {
		if n := count[fmt.Sprint("h", i)]; n < routers/hosts/2 || n > routers/hosts*2 {
			t.Errorf("homes by host: %v", count)
		}
	}
	second := standbys()
	l.ApplyHostState("h1", nil)
	for i, h := range homes() {
		if before[i] == "h1" && h != second[i] || before[i] != "h1" && h != before[i] {
			t.Errorf("router %d moves from %s to %s when h1 dies, its standby was %s", i, before[i], h, second[i])
		}
	}
	for i, h := range standbys() {
		if h == "h1" || before[i] != "h1" && second[i] != "h1" && h != second[i] {
			t.Errorf("the standby of router %d becomes %s in place of %s when h1 dies", i, h, second[i])
		}
	}
	l.ApplyHostState("h1", &topology.HostState{HostID: "h1"})
	if after := homes(); !slices.Equal(before, after) {
		t.Errorf("when h1 is back: %v, want %v", after, before)
	}
	if after := standbys(); !slices.Equal(second, after) {
		t.Errorf("standbys when h1 is back: %v, want %v", after, second)
	}
}

// A router's ports have no home at hosts from which it was taken, and keep theirs when such a host
// comes or goes.
func TestExcludedHomes(t *testing.T) {
	t.Parallel()
	l, changed := watchedHomes()
	l.network("net")
	l.localnet("net")
	for _, h := range []string{"h1", "h2", "h3"} {
		l.host(h, "physnet1")
	}
	l.router("r")
	l.link(lanLink)
	home := func() string {
		id, _ := l.Home("net", routerMAC(7))
		return id
	}
	first := home()
	exclude := func(hosts ...string) {
		b := routerBundle("r")
		b.Routers[0].ExcludedHostIDs = hosts
		l.Apply(owner("router", "r"), b)
	}
	changed()
	exclude(first)
	second := home()
	if got, want := changed(), fmt.Sprintf("[net %d]", routerMAC(7)[5]); second == first || second == "" || got != want {
		t.Errorf("taken from %s: at home at %q, changed %s, want %s", first, second, got, want)
	}
	exclude(first, second)
	third := home()
	if third == first || third == second || third == "" {
		t.Errorf("taken from %s and %s: at home at %q", first, second, third)
	}
	l.ApplyHostState(second, nil)
	l.host(second, "physnet1")
	if now := home(); now != third {
		t.Errorf("a host from which it was taken died and is back: at home at %q, before at %s", now, third)
	}
	l.ApplyHostState(third, nil)
	if now := home(); now != "" {
		t.Errorf("at home at %s, from which it was taken", now)
	}
	exclude()
	l.host(third, "physnet1")
	if now := home(); now != first {
		t.Errorf("taken from no host: at home at %q, at first at %s", now, first)
	}
}

func TestLocalnetPorts(t *testing.T) {
	t.Parallel()
	l := newLab()
	for _, n := range []string{"b", "a"} {
		l.network(n)
		l.localnet(n)
	}
	ports := l.LocalnetPorts("physnet1")
	if len(ports) != 2 || ports[0].ID != "lan-a" || ports[1].ID != "lan-b" || ports[0].VlanID != 5 {
		t.Errorf("got %v", ports)
	}
	if more := l.LocalnetPorts("physnet2"); more != nil {
		t.Errorf("got %v", more)
	}
	l.host("h1", "physnet1")
	l.host("h2")
	if !l.Bound("lan-a", "a", "h1") || l.Bound("lan-a", "a", "h2") || l.Bound("lan-a", "b", "h1") || l.Bound("lan-a", "a", "h9") {
		t.Error("a localnet port is bound to each host that carries its physical network, and to no other")
	}
}

// What is seen on the LAN is learned at one host, and never of a machine inside, in whatever order
// it is seen.
func TestLearnedFromLAN(t *testing.T) {
	t.Parallel()
	learned := func(d *flow.Decision) string {
		if d.Learn == nil {
			return ""
		}
		return d.Learn.PortID
	}
	shared := onLAN().home(t, mac(3))
	for _, c := range []struct {
		name, host string
		frame      []byte
		want       string
	}{
		{"to a machine, at its home", "h1", tcp(outsider, 1, 1, 2), "lan-net"},
		{"to a machine, elsewhere", "h2", tcp(outsider, 1, 1, 2), ""},
		{"to all, at the shared home", shared, request(outsider, addr(1)), "lan-net"},
		{"to all, elsewhere", other(shared), request(outsider, addr(1)), ""},
		{"to nobody known", "h1", tcp(outsider, outsider+1, 1, 2), ""},
		{"of a machine inside", "h2", tcp(1, 2, 1, 2), ""},
	} {
		if got := learned(onLAN().arrives("net", c.host, c.frame)); got != c.want {
			t.Errorf("%s: learned behind %q, want %q", c.name, got, c.want)
		}
	}
	l := onLAN()
	if d := l.arrives("net", "h1", tcp(outsider, 1, 1, 2)); d.Cacheable {
		t.Errorf("a flow from a sender of whom it is not known where it is\n%s", walk(d))
	}
	seen := topology.LearnedMAC{HostID: "h2", NetworkID: "net", MAC: mac(outsider), PortID: "lan-net"}
	l.LearnMAC(seen, 9)
	if d := l.arrives("net", "h1", tcp(outsider, 1, 1, 2)); !d.Cacheable {
		t.Errorf("no flow from a known sender\n%s", walk(d))
	}
	inside := topology.LearnedMAC{HostID: "h1", NetworkID: "net", MAC: mac(outsider), PortID: "p1"}
	wantAffected(t, "it turns out to be inside", l.LearnMAC(inside, 1), "lan-net")
	if port, _ := l.MACPort("net", mac(outsider)); port != "p1" {
		t.Errorf("behind %s", port)
	}
	wantAffected(t, "it is forgotten there", l.ForgetMAC(inside), "p1")
	if port, _ := l.MACPort("net", mac(outsider)); port != "lan-net" {
		t.Errorf("behind %s", port)
	}
}

// A machine behind a stateful filter speaks with one outside, and with one on another host: each
// home has its own view of the connection.
func TestConnectionsOverLAN(t *testing.T) {
	t.Parallel()
	l := newLab()
	l.network("net")
	l.localnet("net")
	l.group("out")
	l.group("web", allowPort("web/80", packet.ProtoTCP, 80))
	l.port(on("h1", machine(1, "out")))
	l.port(on("h2", machine(2, "web")))
	l.host("h1", "physnet1")
	l.host("h2", "physnet1")
	views := map[string]*Memory{"h1": NewMemory(), "h2": NewMemory()}
	run := func(port, host string, frame []byte) *flow.Decision {
		at := host
		if port != "lan-net" {
			host = ""
		}
		d := l.sim.Run(Input{PortID: port, HostID: host, Frame: frame, State: views[at], Explain: true})
		views[at].Commit(d)
		return d
	}
	expect(t, run("lan-net", "h1", tcp(2, 1, 80, 4000)), flow.Drop)
	expect(t, run("p1", "h1", tcp(1, 2, 4000, 80)), flow.Forward, "lan-net")
	expect(t, run("lan-net", "h2", tcp(1, 2, 4000, 80)), flow.Forward, "p2")
	expect(t, run("p2", "h2", tcp(2, 1, 80, 4000)), flow.Forward, "lan-net")
	expect(t, run("lan-net", "h1", tcp(2, 1, 80, 4000)), flow.Forward, "p1")
	expect(t, run("lan-net", "h2", tcp(1, 2, 4000, 22)), flow.Drop)
}

// lanExample is the worked example with its outer network on a LAN instead of a next hop's port.
func lanExample() *lab {
	l := example()
	l.Apply(owner("port", "p-up"), nil)
	l.localnet("net4")
	l.host("h1")
	l.host("h2", "physnet1")
	l.host("h3", "physnet1")
	l.LearnMAC(topology.LearnedMAC{HostID: "h2", NetworkID: "net4", MAC: mac(4), PortID: "lan-net4"}, 1)
	l.LearnNeighbour(topology.LearnedNeighbour{HostID: "h2", NetworkID: "net4", IP: ipUp, MAC: mac(4)}, 1)
	return l
}

// A machine opens a connection through SNAT to the outside, and the outside one to a floating IP,
// over the LAN at the home of the router's port alone.
func TestRoutedOverLAN(t *testing.T) {
	t.Parallel()
	l := lanExample()
	home, _ := l.Home("net4", routerMAC(4))
	away := map[string]string{"h2": "h3", "h3": "h2"}[home]
	out := frameSpec{n: 2, to: 2, src: ipY, dst: ipOut}.tcp(4000, 80)
	d := l.send("p-y", out)
	if got := places(d); got != "lan-net4@"+home || !d.Cacheable || !d.Outputs[0].RemoteIP.IsValid() || d.Outputs[0].TunnelKey != 77 {
		t.Fatalf("out to %s: %+v\n%s", got, d.Outputs, walk(d))
	}
	sent := delivered(t, d, out)
	reply := tcpReply(sent)
	if d := l.arrives("net4", away, reply); d.Verdict != flow.Drop || !d.Cacheable {
		t.Errorf("a reply at another host\n%s", walk(d))
	}
	d = l.arrives("net4", home, reply)
	if got := delivered(t, d, reply); places(d) != "p-y@h1" || headers(got) != "198.51.100.7:80→10.2.0.5:4000" || !d.Cacheable {
		t.Errorf("a reply\n%s", walk(d))
	}
	in := frameSpec{n: 4, to: 4, src: ipOut, dst: fipA}.tcp(4000, 80)
	d = l.arrives("net4", home, in)
	if got := delivered(t, d, in); places(d) != "p-x@h1" || headers(got) != "198.51.100.7:4000→10.1.0.5:80" {
		t.Errorf("to a floating IP\n%s", walk(d))
	}
	asks := arp(packet.Broadcast, packet.ARP{Op: packet.ARPRequest, SHA: mac(4), SPA: ipUp, TPA: fipA})
	if d := l.arrives("net4", home, asks); places(d) != "own:lan-net4@"+home || d.Asker != nil {
		t.Errorf("a question about a floating IP\n%s", walk(d))
	}
	if d := l.arrives("net4", away, asks); places(d) != "" {
		t.Errorf("a question about a floating IP at another host\n%s", walk(d))
	}
}

// A packet to the outside over a LAN, its source translated to the gateway's address.
func BenchmarkRoutedSNATOverLAN(b *testing.B) {
	l := lanExample()
	frame := frameSpec{n: 2, to: 2, src: ipY, dst: ipOut}.tcp(4000, 80)
	if d := l.send("p-y", frame); d.Verdict != flow.Forward || !d.Cacheable {
		b.Fatal(walk(d))
	}
	in := Input{PortID: "p-y", Frame: frame, State: l.mem}
	b.ReportAllocs()
	for b.Loop() {
		l.sim.Run(in)
	}
}

// The cost of a host that comes and goes follows the ports that get another home.
func BenchmarkCarrierChanges(b *testing.B) {
	for _, hosts := range []int{10, 1000} {
		b.Run(fmt.Sprint("hosts=", hosts), func(b *testing.B) {
			l := newLab()
			l.network("net")
			l.localnet("net")
			for i := range hosts {
				h := fmt.Sprint("h", i)
				l.host(h, "physnet1")
				l.port(on(h, open(i+1)))
			}
			for b.Loop() {
				l.ApplyHostState("h5", nil)
				l.ApplyHostState("h5", &topology.HostState{HostID: "h5"})
			}
		})
	}
}
