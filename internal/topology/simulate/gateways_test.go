package simulate

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

var farMAC = packet.MAC{0xfa, 0x16, 0x3e, 0xff, 0, 1}

// connection returns the bundle of the connection of a network (midonet-translations §19).
func connection(network string, gateway topology.Port) *topology.Bundle {
	gateway.ID, gateway.AdminStateUp = network+"/g", true
	return &topology.Bundle{Ports: []topology.Port{{ID: network + "/n", NetworkID: network, AdminStateUp: true, PeerID: gateway.ID}, gateway}}
}

// vtepLab has machine 1 on network "net", which a VTEP of router "r" joins with VNI 77; the uplink
// is on host h2, where its neighbour 192.0.2.9 is the other VTEP.
func vtepLab() *lab {
	l := newLab()
	l.network("net")
	l.host("h1")
	l.host("h2")
	l.group("sg")
	l.port(machine(1, "sg"))
	l.port(machine(2, "sg"))
	l.router("r")
	up := prefix("192.0.2.1/24")
	l.Apply(owner("router-interface", "up"), &topology.Bundle{
		Ports: []topology.Port{{ID: "up", RouterID: "r", AdminStateUp: true, HostID: "h2", InterfaceName: "eth1", TunnelKey: 30,
			PortAddress: up.Addr(), PortSubnet: []netip.Prefix{up}, PortMAC: routerMAC(1)}},
		Routes: []topology.Route{
			{ID: "up/local", SrcSubnet: anywhere(up.Addr()), DstSubnet: *only(up.Addr()), NextHop: topology.HopLocal, NextHopPortID: "up", Weight: 100},
			{ID: "up/rif", SrcSubnet: anywhere(up.Addr()), DstSubnet: up.Masked(), NextHop: topology.HopPort, NextHopPortID: "up", Weight: 100},
		},
	})
	l.LearnNeighbour(topology.LearnedNeighbour{HostID: "h2", NetworkID: "r", IP: ip("192.0.2.9"), MAC: packet.MAC{2, 0, 0, 0, 0, 9}}, 1)
	l.Apply(owner("l2-gateway-connection", "c"), connection("net", topology.Port{RouterID: "r", VNI: 77, TunnelIP: ip("192.0.2.1")}))
	return l
}

func (l *lab) remote(id string, m packet.MAC) []string {
	return l.Apply(owner("remote-mac-entry", id), &topology.Bundle{RemoteMacEntries: []topology.RemoteMacEntry{
		{ID: id, DeviceID: "d", RouterID: "r", VNI: 77, MAC: m, VTEP: ip("192.0.2.9")}}})
}

// farMachine seeds the far machine's addresses, as a port of owner network:remote_site does.
func (l *lab) farMachine() {
	l.Apply(owner("port", "far"), &topology.Bundle{
		MACs:       []topology.MACEntry{{NetworkID: "net", MAC: farMAC, PortID: "net/n"}},
		Neighbours: []topology.NeighbourEntry{{NetworkID: "net", IP: addr(50), MAC: farMAC}},
	})
}

func udpFrame(src, dst packet.MAC, from, to int, sport, dport uint16, payload string) []byte {
	b := packet.Ethernet{Dst: dst, Src: src, Type: packet.TypeIPv4}.Append(nil)
	b = packet.IPv4{TTL: 64, Proto: packet.ProtoUDP, Src: addr(from), Dst: addr(to)}.Append(b, 8+len(payload))
	return packet.UDP{SrcPort: sport, DstPort: dport}.Append(b, addr(from), addr(to), []byte(payload))
}

// fromVTEP is a VXLAN packet of the other VTEP around a frame.
func fromVTEP(vni uint32, inner []byte) []byte {
	h := packet.VXLAN{VNI: vni, Dst: routerMAC(1), Src: packet.MAC{2, 0, 0, 0, 0, 9}, From: ip("192.0.2.9"), To: ip("192.0.2.1"), SrcPort: 50000, DstPort: packet.VXLANPort, TTL: 64}
	return h.Append(nil, inner)
}

// leaves returns the frame that leaves by an output of a decision.
func leaves(t *testing.T, frame []byte, d *flow.Decision, o *flow.Output) []byte {
	t.Helper()
	if o.Inner {
		frame = frame[d.Decap.Offset:]
	}
	frame = bytes.Clone(frame)
	if d.Rewrite != nil {
		if err := d.Rewrite.Apply(frame, false); err != nil {
			t.Fatal(err)
		}
	}
	return o.Wrap(frame)
}

// TestVTEPEncapsulates: frames to a far machine leave by the uplink inside VXLAN packets, and the
// replies come in by it into the network, past the security group of the machine that asked.
func TestVTEPEncapsulates(t *testing.T) {
	t.Parallel()
	l := vtepLab()
	l.farMachine()
	frame := udpFrame(mac(1), farMAC, 1, 50, 1000, 53, "question")
	d := l.send("p1", frame)
	if d.Verdict != flow.Drop || !strings.Contains(d.Reason, "VTEP: the peering table of VNI 77 has no entry for MAC fa:16:3e:ff:00:01") {
		t.Fatalf("without an entry: %v, %s", d.Verdict, d.Reason)
	}
	if affected := l.remote("e", farMAC); len(affected) == 0 {
		t.Error("an entry of the peering table affects nothing")
	}
	d = l.send("p1", frame)
	if d.Verdict != flow.Forward || len(d.Outputs) != 1 || d.Outputs[0].PortID != "up" || d.Outputs[0].HostID != "h2" || d.Outputs[0].Encap == nil {
		t.Fatalf("%v %s: %+v", d.Verdict, d.Reason, d.Outputs)
	}
	if !d.Cacheable {
		t.Error("the flow of an encapsulated connection is not cacheable")
	}
	out := leaves(t, frame, d, &d.Outputs[0])
	var outer packet.Frame
	if err := packet.Decode(out, &outer); err != nil {
		t.Fatal(err)
	}
	vni, inner, err := packet.ParseVXLAN(out[42:])
	switch e := d.Outputs[0].Encap; {
	case err != nil || vni != 77 || !bytes.Equal(inner, frame):
		t.Errorf("inside: VNI %d, %x, %v", vni, inner, err)
	case outer.SrcIP != ip("192.0.2.1") || outer.DstIP != ip("192.0.2.9") || outer.TTL != 64 || outer.TpDst != 4789 || outer.TpSrc < 49152 || outer.TpSrc != e.SrcPort:
		t.Errorf("outside: %+v", outer)
	case outer.Src != routerMAC(1) || outer.Dst != (packet.MAC{2, 0, 0, 0, 0, 9}):
		t.Errorf("outside: from %v to %v", outer.Src, outer.Dst)
	case out[40] != 0 || out[41] != 0:
		t.Error("the packet has a UDP checksum")
	}

	reply := fromVTEP(77, udpFrame(farMAC, mac(1), 50, 1, 53, 1000, "answer"))
	d = l.send("up", reply)
	if d.Verdict != flow.Forward || len(d.Outputs) != 1 || d.Outputs[0].PortID != "p1" || !d.Outputs[0].Inner || d.Decap == nil {
		t.Fatalf("reply: %v %s: %+v", d.Verdict, d.Reason, d.Outputs)
	}
	if got := leaves(t, reply, d, &d.Outputs[0]); !bytes.Equal(got, reply[50:]) {
		t.Errorf("the machine gets %x", got)
	}
	if c := d.Decap; c.PortID != "net/g" || c.VNI != 77 || c.Offset != 50 || !c.Cacheable || !d.Cacheable {
		t.Errorf("decapsulation %+v, cacheable %v", c, d.Cacheable)
	}
	if other := fromVTEP(77, udpFrame(farMAC, mac(1), 50, 1, 54, 1000, "not asked")); l.send("up", other).Verdict != flow.Drop {
		t.Error("the security group lets in an unsolicited packet")
	}
}

// TestVTEPLearns: a far machine's address is learned behind the network's port, and floods reach
// far machines by the entry of the broadcast address alone.
func TestVTEPLearns(t *testing.T) {
	t.Parallel()
	l := vtepLab()
	hello := fromVTEP(77, udpFrame(farMAC, packet.Broadcast, 50, 255, 1, 2, "hello"))
	d := l.send("up", hello)
	if d.Learn == nil || *d.Learn != (flow.Learned{NetworkID: "net", MAC: farMAC, PortID: "net/n"}) {
		t.Fatalf("learned %+v", d.Learn)
	}
	l.LearnMAC(topology.LearnedMAC{HostID: "h2", NetworkID: "net", MAC: farMAC, PortID: "net/n"}, 1)
	l.remote("e", farMAC)
	if d = l.send("p1", udpFrame(mac(1), farMAC, 1, 50, 5, 6, "x")); len(d.Outputs) != 1 || d.Outputs[0].Encap == nil {
		t.Errorf("to a learned address: %v %s %+v", d.Verdict, d.Reason, d.Outputs)
	}
	flood := udpFrame(mac(1), packet.Broadcast, 1, 255, 5, 6, "to all")
	ports := func(d *flow.Decision) (all string) {
		for _, o := range d.Outputs {
			all += o.PortID + " "
		}
		return all
	}
	l.port(portSpec{id: "p3", network: "net", host: "h1", mac: mac(3), open: true})
	if got := ports(l.send("p1", flood)); got != "p3 " {
		t.Errorf("without an entry for many a flood goes to %q", got)
	}
	l.remote("many", packet.Broadcast)
	d = l.send("p1", flood)
	if got := ports(d); got != "up p3 " {
		t.Fatalf("a flood goes to %q", got)
	}
	for i := range d.Outputs {
		o := &d.Outputs[i]
		out := leaves(t, flood, d, o)
		if o.PortID == "up" {
			out = out[50:]
		}
		if !bytes.Equal(out, flood) {
			t.Errorf("port %s gets %x", o.PortID, out)
		}
	}
	if affected := l.Apply(owner("remote-mac-entry", "many"), nil); len(affected) == 0 {
		t.Error("the end of an entry affects nothing")
	}
}

// TestVTEPAnswersARP: the network's table answers a far machine through the tunnel.
func TestVTEPAnswersARP(t *testing.T) {
	t.Parallel()
	l := vtepLab()
	l.remote("e", farMAC)
	d := l.send("up", fromVTEP(77, packet.ARPRequestFor(addr(1), farMAC, addr(50))))
	if d.Verdict != flow.Consumed || len(d.Emit) != 1 || d.Emit[0].PortID != "up" {
		t.Fatalf("%v %s: %+v", d.Verdict, d.Reason, d.Emit)
	}
	vni, inner, err := packet.ParseVXLAN(d.Emit[0].Frame[42:])
	var f packet.Frame
	if err != nil || vni != 77 || packet.Decode(inner, &f) != nil || f.ARPOp != packet.ARPReply || f.SHA != mac(1) || f.Dst != farMAC {
		t.Errorf("answer: VNI %d, %+v, %v", vni, f, err)
	}
}

// TestVTEPRefuses: what is no VXLAN packet for a VTEP of the router is dropped, and says why.
func TestVTEPRefuses(t *testing.T) {
	t.Parallel()
	l := vtepLab()
	inner := udpFrame(farMAC, mac(1), 50, 1, 53, 1000, "x")
	change := func(f func(b []byte)) []byte {
		b := fromVTEP(77, inner)
		f(b)
		return b
	}
	fragment := packet.Ethernet{Dst: routerMAC(1), Src: packet.MAC{2, 0, 0, 0, 0, 9}, Type: packet.TypeIPv4}.Append(nil)
	fragment = packet.IPv4{TTL: 64, Proto: packet.ProtoUDP, Src: ip("192.0.2.9"), Dst: ip("192.0.2.1"), MoreFragments: true}.Append(fragment, 16)
	fragment = append(fragment, 0xc0, 0, 0x12, 0xb5, 0, 16, 0, 0, 8, 0, 0, 0, 0, 0, 77, 0)
	tagged := packet.Ethernet{Dst: mac(1), Src: farMAC, Tagged: true, VLAN: 5, Type: packet.TypeIPv4}.Append(nil)
	tagged = append(tagged, inner[14:]...)
	d := l.send("up", fromVTEP(77, tagged))
	if want := "VTEP: the frame inside has a VLAN tag"; d.Verdict != flow.Drop || d.Reason != want {
		t.Errorf("a tag inside: %v %q, want %q", d.Verdict, d.Reason, want)
	}
	l.remote("many", packet.Broadcast)
	outgoing := udpFrame(mac(1), farMAC, 1, 50, 1000, 53, "x")
	if d := l.send("p1", outgoing); d.Verdict != flow.Forward {
		t.Errorf("without a tag towards the VTEP: %v %q", d.Verdict, d.Reason)
	}
	tagged = packet.Ethernet{Dst: farMAC, Src: mac(1), Tagged: true, VLAN: 5, Type: packet.TypeIPv4}.Append(nil)
	if d := l.send("p1", append(tagged, outgoing[14:]...)); d.Verdict != flow.Drop {
		t.Errorf("a tag towards the VTEP: %v, %+v", d.Verdict, d.Outputs)
	}
	for _, c := range []struct {
		name  string
		frame []byte
		want  string
	}{
		{"another VNI", fromVTEP(78, inner), "VTEP: no network has VNI 78"},
		{"flags", change(func(b []byte) { b[42] = 0x0c }), "VTEP: malformed VXLAN: flags other than that of a valid VNI"},
		{"reserved", change(func(b []byte) { b[49] = 1 }), "VTEP: malformed VXLAN: reserved bits are set"},
		{"runt", fromVTEP(77, inner[:10]), "VTEP: the frame inside: malformed Ethernet: shorter than its header"},
		{"fragment", fragment, "VTEP: fragments of VXLAN packets are not put together"},
	} {
		d := l.send("up", c.frame)
		if d.Verdict != flow.Drop || d.Reason != c.want || d.Decap != nil || d.Cacheable && c.name != "fragment" {
			t.Errorf("%s: %v %q, cacheable %v", c.name, d.Verdict, d.Reason, d.Cacheable)
		}
	}
}

// vlanLab has networks "net" and "other" with VLANs 10 and 20 in "trunk", whose ports t1 and t2 are
// open; machines 1 and 4 are in the networks.
func vlanLab() *lab {
	l := newLab()
	l.network("net")
	l.network("other")
	l.network("trunk")
	l.host("h1")
	for _, p := range []portSpec{
		{id: "t1", network: "trunk", host: "h1", mac: mac(21), open: true}, {id: "t2", network: "trunk", host: "h1", mac: mac(22), open: true},
		{id: "p1", network: "net", host: "h1", mac: mac(1), ips: []netip.Addr{addr(1)}, open: true},
		{id: "p4", network: "other", host: "h1", mac: mac(4), ips: []netip.Addr{addr(4)}, open: true},
	} {
		l.port(p)
	}
	l.Apply(owner("l2-gateway-connection", "a"), connection("net", topology.Port{NetworkID: "trunk", VlanID: 10}))
	l.Apply(owner("l2-gateway-connection", "b"), connection("other", topology.Port{NetworkID: "trunk", VlanID: 20}))
	return l
}

// TestVLANGateway: networks have their VLAN on the trunk, and nothing else crosses it.
func TestVLANGateway(t *testing.T) {
	t.Parallel()
	far := farMAC
	for _, c := range []struct {
		name, port string
		frame      []byte
		want       string // port/outer VLAN of each frame that leaves
	}{
		{"to the VLAN's network", "t1", packet.PushVLAN(udpFrame(far, mac(1), 50, 1, 1, 2, "x"), 10), "p1/0 "},
		{"of another VLAN", "t1", packet.PushVLAN(udpFrame(far, mac(1), 50, 1, 1, 2, "x"), 20), "p4/0 "}, // flooded there
		{"of no VLAN", "t1", udpFrame(far, mac(1), 50, 1, 1, 2, "x"), ""},
		{"of a VLAN that is no network's", "t1", packet.PushVLAN(udpFrame(far, mac(1), 50, 1, 1, 2, "x"), 30), ""},
		{"to many", "t1", packet.PushVLAN(udpFrame(far, packet.Broadcast, 50, 255, 1, 2, "x"), 10), "p1/0 t2/10 "},
		{"to many, untagged", "t1", udpFrame(far, packet.Broadcast, 50, 255, 1, 2, "x"), "t2/0 "},
		{"from a network, unknown", "p1", udpFrame(mac(1), far, 1, 50, 1, 2, "x"), "t1/10 t2/10 "},
		{"from a network, to many", "p4", udpFrame(mac(4), packet.Broadcast, 4, 255, 1, 2, "x"), "t1/20 t2/20 "},
	} {
		l := vlanLab()
		d := l.send(c.port, c.frame)
		got := ""
		for i := range d.Outputs {
			var f packet.Frame
			if err := packet.Decode(leaves(t, c.frame, d, &d.Outputs[i]), &f); err != nil {
				t.Fatal(err)
			}
			got += d.Outputs[i].PortID + "/" + string(rune('0'+f.VLAN/10)) + strings.Repeat("0", min(1, int(f.VLAN))) + " "
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q (%v %s)", c.name, got, c.want, d.Verdict, d.Reason)
		}
	}
}

// TestVLANGatewayLearns: a machine on the trunk is learned in its VLAN, and frames to it go there
// alone; its ARP requests are answered with the tag.
func TestVLANGatewayLearns(t *testing.T) {
	t.Parallel()
	l := vlanLab()
	d := l.send("t1", packet.PushVLAN(packet.ARPRequestFor(addr(1), farMAC, addr(50)), 10))
	if d.Learn == nil || *d.Learn != (flow.Learned{NetworkID: "trunk", VLAN: 10, MAC: farMAC, PortID: "t1"}) {
		t.Fatalf("learned %+v", d.Learn)
	}
	var f packet.Frame
	if len(d.Outputs) != 1 || d.Outputs[0].PortID != "t2" || len(d.Emit) != 1 || d.Emit[0].PortID != "t1" || packet.Decode(d.Emit[0].Frame, &f) != nil || f.VLAN != 10 || f.SHA != mac(1) {
		t.Fatalf("answer: %v %s %+v: %+v", d.Verdict, d.Reason, d.Emit, f)
	}
	l.LearnMAC(topology.LearnedMAC{HostID: "h1", NetworkID: "trunk", VLAN: 10, MAC: farMAC, PortID: "t1"}, 1)
	d = l.send("p1", udpFrame(mac(1), farMAC, 1, 50, 1, 2, "x"))
	if len(d.Outputs) != 1 || d.Outputs[0].PortID != "t1" || d.Outputs[0].PushVLAN != 10 || !d.Cacheable {
		t.Errorf("%v %s %+v, cacheable %v", d.Verdict, d.Reason, d.Outputs, d.Cacheable)
	}
	if affected := l.Apply(owner("l2-gateway-connection", "a"), nil); len(affected) == 0 {
		t.Error("the end of a connection affects nothing")
	}
	if d = l.send("p1", udpFrame(mac(1), farMAC, 1, 50, 1, 2, "x")); len(d.Outputs) != 0 {
		t.Errorf("after the connection went: %+v", d.Outputs)
	}
}

// TestGatewaysLeaveNoReferences: a world from which all has been taken is empty.
func TestGatewaysLeaveNoReferences(t *testing.T) {
	t.Parallel()
	for _, l := range []*lab{vtepLab(), vlanLab()} {
		l.remote("e", farMAC)
		x := topology.LearnedRemote{HolderID: topology.RemoteHolder, PortID: "net/g", NetworkID: "net", BehindID: "net/n", MAC: mac(9), VTEP: ip("192.0.2.9"), IP: addr(9)}
		l.LearnRemote(x, 1)
		l.LearnRemote(x, 2)
		if m, ok := l.MACPort("net", mac(9)); !ok || m != "net/n" {
			t.Errorf("a machine that a VTEP's database has is behind %q", m)
		}
		l.ForgetRemote(x)
		for o := range l.owners {
			l.Apply(o, nil)
		}
		l.ForgetNeighbour(topology.LearnedNeighbour{HostID: "h2", NetworkID: "r", IP: ip("192.0.2.9")})
		for _, h := range []string{"h1", "h2"} {
			l.ApplyHost(h, nil)
			l.ApplyHostState(h, nil)
		}
		if !l.Empty() {
			t.Errorf("the world keeps %d ports, %d routers, %d networks", len(l.ports), len(l.routers), len(l.networks))
		}
	}
}

// TestMTUBehindGateway: networks that a gateway joins have room for what it adds to their frames,
// another VXLAN packet's headers or a tag.
func TestMTUBehindGateway(t *testing.T) {
	t.Parallel()
	vlanLab := func() *lab {
		l := newLab()
		l.network("net")
		l.network("trunk")
		l.Apply(owner("l2-gateway-connection", "c"), connection("net", topology.Port{NetworkID: "trunk", VlanID: 101}))
		return l
	}
	for _, c := range []struct {
		name                string
		lab                 func() *lab
		underlay, own, want int
	}{
		{"VTEP", vtepLab, 0, 0, 1400},
		{"VTEP", vtepLab, 1500, 0, 1400},
		{"VTEP", vtepLab, 9000, 0, 1500},
		{"VTEP", vtepLab, 1500, 1300, 1300},
		{"VLAN", vlanLab, 0, 0, 1446},
		{"VLAN", vlanLab, 1500, 0, 1446},
		{"VLAN", vlanLab, 9000, 0, 1500},
		{"VLAN", vlanLab, 1500, 1300, 1300},
	} {
		l := c.lab()
		if c.underlay != 0 {
			l.ApplyHostState("h1", &topology.HostState{HostID: "h1", MTU: c.underlay})
		}
		if got := l.mtuOn("net", c.own); got != c.want {
			t.Errorf("%s, underlay %d, subnet's own %d: MTU %d, want %d", c.name, c.underlay, c.own, got, c.want)
		}
		l.Apply(owner("l2-gateway-connection", "c"), nil)
		if got, want := l.mtuOn("net", c.own), l.mtu(c.own); got != want {
			t.Errorf("%s, underlay %d, subnet's own %d: MTU %d without the gateway, want %d", c.name, c.underlay, c.own, got, want)
		}
	}
}

// FuzzVTEP: whatever a VXLAN packet has inside, the simulator does not panic, and what comes of it
// are whole frames of the network.
func FuzzVTEP(f *testing.F) {
	inner := udpFrame(farMAC, mac(2), 50, 2, 53, 1000, "x")
	whole := fromVTEP(77, inner)
	f.Add(whole[42:])
	f.Add(fromVTEP(77, packet.ARPRequestFor(addr(1), farMAC, addr(50)))[42:])
	f.Add(fromVTEP(77, fromVTEP(77, inner))[42:])
	f.Add(fromVTEP(77, packet.PushVLAN(inner, 5))[42:])
	f.Add(whole[42:60])
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) > 60000 {
			return
		}
		l := vtepLab()
		l.remote("e", farMAC)
		l.port(portSpec{id: "p3", network: "net", host: "h1", mac: mac(3), open: true})
		frame := whole[:42:42]
		frame = append(frame, payload...)
		frame[16], frame[17] = byte((len(frame)-14)>>8), byte(len(frame)-14)
		frame[38], frame[39] = byte((len(frame)-34)>>8), byte(len(frame)-34)
		d := l.send("up", frame)
		for i := range d.Outputs {
			if out := leaves(t, frame, d, &d.Outputs[i]); d.Decap == nil || len(out) < 14 {
				t.Fatalf("%x left\n%s", out, walk(d))
			}
		}
	})
}
