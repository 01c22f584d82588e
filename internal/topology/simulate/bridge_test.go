package simulate

import (
	"slices"
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

func open(i int) portSpec {
	p := machine(i)
	p.open = true
	return p
}

// threeOpen are p1, p2, p3 without port security.
func threeOpen() *lab {
	l := newLab()
	l.network("net")
	for i := 1; i <= 3; i++ {
		l.port(open(i))
	}
	return l
}

func toMAC(frame []byte, dst packet.MAC) []byte {
	copy(frame, dst[:])
	return frame
}

func fromMAC(frame []byte, src packet.MAC) []byte {
	copy(frame[6:], src[:])
	return frame
}

func TestForwarding(t *testing.T) {
	t.Parallel()
	unknown := packet.MAC{0x02, 0, 0, 0, 0, 9}
	for _, c := range []struct {
		name    string
		prepare func(*lab)
		frame   []byte
		verdict flow.Verdict
		to      []string
		cached  bool
		reason  string
	}{
		{name: "unicast", frame: tcp(1, 2, 1, 2), verdict: flow.Forward, to: []string{"p2"}, cached: true},
		{name: "unknown unicast", frame: toMAC(tcp(1, 2, 1, 2), unknown), verdict: flow.Forward, to: []string{"p2", "p3"}},
		{name: "broadcast", frame: toMAC(tcp(1, 2, 1, 2), packet.Broadcast), verdict: flow.Forward, to: []string{"p2", "p3"}},
		{name: "multicast", frame: toMAC(tcp(1, 2, 1, 2), packet.MAC{1, 0, 0x5e, 0, 0, 1}), verdict: flow.Forward, to: []string{"p2", "p3"}},
		{name: "multicast source", frame: fromMAC(tcp(1, 2, 1, 2), packet.Broadcast), verdict: flow.Drop, cached: true, reason: "multicast"},
		{name: "to itself", frame: toMAC(tcp(1, 2, 1, 2), mac(1)), verdict: flow.ErrorDrop, cached: true, reason: "the same"},
		{name: "back where it came from", frame: fromMAC(tcp(1, 1, 1, 2), unknown), verdict: flow.ErrorDrop, cached: true, reason: "came in"},
		{name: "network down", prepare: func(l *lab) {
			l.Apply(owner("network", "net"), &topology.Bundle{Networks: []topology.Network{{ID: "net"}}})
		}, frame: tcp(1, 2, 1, 2), verdict: flow.Drop, cached: true, reason: "administratively down"},
		{name: "network gone", prepare: func(l *lab) { l.Apply(owner("network", "net"), nil) }, frame: tcp(1, 2, 1, 2),
			verdict: flow.ErrorDrop, cached: true, reason: "not known"},
		{name: "ingress down", prepare: func(l *lab) { p := open(1); p.down = true; l.port(p) }, frame: tcp(1, 2, 1, 2),
			verdict: flow.Drop, cached: true, reason: "administratively down"},
		{name: "egress down", prepare: func(l *lab) { p := open(2); p.down = true; l.port(p) }, frame: tcp(1, 2, 1, 2),
			verdict: flow.Drop, cached: true, reason: "administratively down"},
		{name: "egress down in a flood", prepare: func(l *lab) { p := open(2); p.down = true; l.port(p) },
			frame: toMAC(tcp(1, 2, 1, 2), packet.Broadcast), verdict: flow.Forward, to: []string{"p3"}},
		{name: "egress unbound", prepare: func(l *lab) { p := open(2); p.unbound = true; l.port(p) }, frame: tcp(1, 2, 1, 2),
			verdict: flow.ErrorDrop, cached: true, reason: "not bound"},
		{name: "ingress unbound", prepare: func(l *lab) { p := open(1); p.unbound = true; l.port(p) }, frame: tcp(1, 2, 1, 2),
			verdict: flow.ErrorDrop, reason: "not bound"},
		{name: "seed of a port that is not there", prepare: func(l *lab) {
			l.Apply(owner("port", "p9"), &topology.Bundle{MACs: []topology.MACEntry{{NetworkID: "net", MAC: unknown, PortID: "p9"}}})
		}, frame: toMAC(tcp(1, 2, 1, 2), unknown), verdict: flow.ErrorDrop, cached: true, reason: "no such port"},
		{name: "seed of a port of another network", prepare: func(l *lab) {
			l.network("other")
			p := open(9)
			p.network = "other"
			b := p.bundle()
			b.MACs = append(b.MACs, topology.MACEntry{NetworkID: "net", MAC: unknown, PortID: "p9"})
			l.Apply(p.owner(), b)
		}, frame: toMAC(tcp(1, 2, 1, 2), unknown), verdict: flow.ErrorDrop, cached: true, reason: "no such port"},
		{name: "alone", prepare: func(l *lab) { l.Apply(owner("port", "p2"), nil); l.Apply(owner("port", "p3"), nil) },
			frame: toMAC(tcp(1, 2, 1, 2), packet.Broadcast), verdict: flow.Drop, reason: "no other bound port"},
		{name: "cut short", frame: tcp(1, 2, 1, 2)[:30], verdict: flow.Drop, reason: "malformed IPv4"},
	} {
		l := threeOpen()
		if c.prepare != nil {
			c.prepare(l)
		}
		d := l.send("p1", c.frame)
		t.Run(c.name, func(t *testing.T) {
			expect(t, d, c.verdict, c.to...)
			if d.Cacheable != c.cached || !strings.Contains(d.Reason, c.reason) || (d.Reason == "") != (c.verdict == flow.Forward) {
				t.Errorf("cacheable %v, want %v; reason %q, want %q", d.Cacheable, c.cached, d.Reason, c.reason)
			}
			if d.Touched[0] != "p1" {
				t.Errorf("touched %v", d.Touched)
			}
		})
	}
}

func TestUnknownPort(t *testing.T) {
	t.Parallel()
	d := newLab().send("nobody", tcp(1, 2, 1, 2))
	expect(t, d, flow.ErrorDrop)
	if d.Device != "nobody" || d.Cacheable {
		t.Errorf("got %+v", d)
	}
}

func TestLearning(t *testing.T) {
	t.Parallel()
	l := threeOpen()
	guest := packet.MAC{0x02, 0, 0, 0, 0, 5}
	d := l.send("p1", fromMAC(tcp(1, 2, 1, 2), guest))
	want := flow.Learned{NetworkID: "net", MAC: guest, PortID: "p1"}
	if d.Learn == nil || *d.Learn != want {
		t.Fatalf("learned %+v, want %+v", d.Learn, want)
	}
	if d := l.send("p1", tcp(1, 2, 1, 2)); d.Learn != nil {
		t.Errorf("a seeded address was learned: %+v", d.Learn)
	}
	if d := l.send("p3", tcp(1, 2, 1, 2)); d.Learn == nil {
		t.Error("an address seeded elsewhere takes no reference: it would be lost with the seed")
	}
	learn := func(host, port string, version uint64) []string {
		return l.LearnMAC(topology.LearnedMAC{HostID: host, NetworkID: "net", MAC: guest, PortID: port}, version)
	}
	if got := learn("h1", "p1", 5); got != nil {
		t.Errorf("a new address touched %v", got)
	}
	expect(t, l.send("p2", toMAC(tcp(2, 1, 1, 2), guest)), flow.Forward, "p1")
	if got := learn("h2", "p3", 7); len(got) != 1 || got[0] != "p1" {
		t.Errorf("the address moved from p1, touched %v", got)
	}
	expect(t, l.send("p2", toMAC(tcp(2, 1, 1, 2), guest)), flow.Forward, "p3")
	if got := learn("h1", "p1", 6); got != nil {
		t.Errorf("an older sighting touched %v", got)
	}
	if got := learn("h2", "p2", 6); got != nil {
		t.Errorf("an older sighting of the same host touched %v", got)
	}
	expect(t, l.send("p2", toMAC(tcp(2, 1, 1, 2), guest)), flow.Forward, "p3")
	seed := &topology.Bundle{MACs: []topology.MACEntry{{NetworkID: "net", MAC: guest, PortID: "p1"}}}
	if got := l.Apply(owner("port", "seed"), seed); len(got) != 1 || got[0] != "p3" {
		t.Errorf("a seed beats what was learned: touched %v, want p3", got)
	}
	expect(t, l.send("p2", toMAC(tcp(2, 1, 1, 2), guest)), flow.Forward, "p1")
	l.Apply(owner("port", "seed"), nil)
	l.ForgetMAC(topology.LearnedMAC{HostID: "h2", NetworkID: "net", MAC: guest})
	expect(t, l.send("p2", toMAC(tcp(2, 1, 1, 2), guest)), flow.Forward, "p1")
	l.ForgetMAC(topology.LearnedMAC{HostID: "h1", NetworkID: "net", MAC: guest})
	l.ForgetMAC(topology.LearnedMAC{HostID: "h1", NetworkID: "net", MAC: guest})
	expect(t, l.send("p2", toMAC(tcp(2, 1, 1, 2), guest)), flow.Forward, "p1", "p3")
}

func TestFloodThroughFilters(t *testing.T) {
	t.Parallel()
	l := twoMachines()
	l.port(open(3))
	d := l.send("p1", toMAC(tcp(1, 2, 1, 22), packet.Broadcast))
	expect(t, d, flow.Forward, "p3")
	if len(d.Drops) != 1 || d.Drops[0].Device != "p2" || len(d.Touched) != 3 || d.Cacheable {
		t.Errorf("got %+v", d)
	}
	l.Apply(owner("port", "p3"), nil)
	d = l.send("p1", toMAC(tcp(1, 2, 1, 22), packet.Broadcast))
	expect(t, d, flow.Drop)
	if d.Device != "net" || !strings.Contains(d.Reason, "OS_PORT_p2_OUTBOUND") || d.Cacheable {
		t.Errorf("got %+v", d)
	}
}

func TestNetworkFilters(t *testing.T) {
	t.Parallel()
	l := threeOpen()
	l.Apply(owner("network", "net"), &topology.Bundle{
		Networks: []topology.Network{{ID: "net", AdminStateUp: true, InboundFilterID: "nin", OutboundFilterID: "nout"}},
		Chains: []topology.Chain{
			{ID: "nin", Rules: []topology.Rule{literal("r1", topology.Drop, topology.Condition{InPortIDs: []string{"p3"}})}},
			{ID: "nout", Rules: []topology.Rule{literal("r2", topology.Drop, topology.Condition{OutPortIDs: []string{"p2"}})}},
		},
	})
	expect(t, l.send("p1", tcp(1, 3, 1, 2)), flow.Forward, "p3")
	expect(t, l.send("p1", tcp(1, 2, 1, 2)), flow.Drop)
	expect(t, l.send("p1", toMAC(tcp(1, 2, 1, 2), packet.Broadcast)), flow.Forward, "p2", "p3")
	guest := packet.MAC{0x02, 0, 0, 0, 0, 5}
	d := l.send("p3", fromMAC(tcp(3, 1, 1, 2), guest))
	expect(t, d, flow.Drop)
	if d.Learn == nil || d.Device != "net" {
		t.Errorf("what the network's own filter drops is learned from: %+v", d)
	}
	tagged := append(packet.Ethernet{Dst: mac(1), Src: mac(3), Tagged: true, VLAN: 5, Type: packet.TypeIPv4}.Append(nil), tcp(3, 1, 1, 2)[14:]...)
	expect(t, l.send("p3", tagged), flow.Forward, "p1")
}

func TestTunnels(t *testing.T) {
	t.Parallel()
	l := threeOpen()
	p := open(2)
	p.host = "h2"
	l.port(p)
	out := func() flow.Output { return l.send("p1", tcp(1, 2, 1, 2)).Outputs[0] }
	if o := out(); o.HostID != "h2" || o.TunnelKey != 7 || o.RemoteIP.IsValid() {
		t.Errorf("hosts not known: got %+v", o)
	}
	zone := func(z, a string) topology.HostTunnel { return topology.HostTunnel{ZoneID: z, IP: ip(a)} }
	l.ApplyHost("h1", &topology.Host{ID: "h1", Tunnels: []topology.HostTunnel{zone("z2", "198.51.100.1"), zone("z1", "192.0.2.1")}})
	if got := l.ApplyHost("h2", &topology.Host{ID: "h2", Tunnels: []topology.HostTunnel{zone("z1", "192.0.2.2"), zone("z2", "198.51.100.2")}}); len(got) != 1 || got[0] != "p2" {
		t.Errorf("touched %v, want p2", got)
	}
	if o := out(); o.LocalIP != ip("192.0.2.1") || o.RemoteIP != ip("192.0.2.2") {
		t.Errorf("got %+v", o)
	}
	l.ApplyHost("h2", &topology.Host{ID: "h2", Name: "two", Tunnels: []topology.HostTunnel{zone("z3", "192.0.2.2")}})
	d := l.send("p1", tcp(1, 2, 1, 2))
	expect(t, d, flow.ErrorDrop)
	if !strings.Contains(d.Reason, "hosts h1 and two share no tunnel zone") {
		t.Error(d.Reason)
	}
}

// TestTrunkTags: a frame with a tag neither reaches the parent of a trunk, whose machine would take
// it for a subport's, nor comes in by it. One with a priority alone does.
func TestTrunkTags(t *testing.T) {
	t.Parallel()
	l := newLab()
	l.network("net")
	for i := 1; i <= 3; i++ {
		p := machine(i)
		p.open = true
		b := p.bundle()
		b.Ports[0].Trunk = i == 1
		if i == 3 {
			b.Ports[0].VlanID = 7
		}
		l.Apply(p.owner(), b)
	}
	tagged := func(from, to int, vlan uint16) []byte {
		return append(packet.Ethernet{Dst: mac(to), Src: mac(from), Tagged: true, VLAN: vlan, Type: packet.TypeIPv4}.Append(nil), tcp(from, to, 1, 2)[14:]...)
	}
	const reason = "the port is the parent of a trunk, and VLAN 5 is no subport's"
	for _, d := range []*flow.Decision{l.send("p2", tagged(2, 1, 5)), l.send("p1", tagged(1, 2, 5))} {
		if d.Verdict != flow.Drop || d.Reason != reason || d.Device != "p1" {
			t.Errorf("with a tag\n%s", walk(d))
		}
	}
	hidden := slices.Insert(tagged(2, 1, 0), 12, 0x81, 0, 0, 0)
	hidden[19] = 5 // behind a tag of VLAN 0
	if d := l.send("p2", hidden); d.Verdict != flow.Drop || d.Reason != "the port is the parent of a trunk, and there is a tag behind that of VLAN 0" {
		t.Errorf("with a tag behind a priority\n%s", walk(d))
	}
	for _, flood := range [][]byte{tagged(2, 1, 5), hidden} {
		copy(flood, packet.Broadcast[:])
		if got := outs(l.send("p2", flood)); !slices.Equal(got, []string{"p3"}) {
			t.Errorf("a broadcast with a tag goes to %v", got)
		}
	}
	if text := walk(l.send("p2", tcp(2, 3, 1, 2))); !strings.Contains(text, "to tap-p3 in VLAN 7 on host h1") {
		t.Errorf("to a subport\n%s", text)
	}
	for _, d := range []*flow.Decision{l.send("p2", tagged(2, 1, 0)), l.send("p1", tagged(1, 2, 0)), l.send("p1", tcp(1, 2, 1, 2)), l.send("p2", tagged(2, 3, 5))} {
		if d.Verdict != flow.Forward {
			t.Errorf("without a tag of a VLAN, or beside the trunk\n%s", walk(d))
		}
	}
}
