package translate

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"heddle/internal/neutron"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// site is the router of a golden file with machines on its networks, and packets on their way.
type site struct {
	*routerCase
	world  *simulate.World
	sim    *simulate.Simulator
	memory *simulate.Memory
	ports  map[string]*neutron.Port // of machines, by id
	last   conversation             // of the packet that was delivered last
}

// conversation is a UDP packet as its sender or its receiver sees it.
type conversation struct {
	at               string // id of the machine's port
	src, dst         netip.Addr
	srcPort, dstPort uint16
}

// newSite builds the world of a golden file. machines have a MAC address by their order.
func newSite(t *testing.T, file string, machines ...*neutron.Port) *site {
	t.Helper()
	c, _, _ := readCase(t, file)
	w := simulate.NewWorld(simulate.Options{})
	s := &site{routerCase: c, world: w, sim: simulate.NewSimulator(w), memory: simulate.NewMemory(), ports: map[string]*neutron.Port{}}
	for i, b := range append(c.bundles(), c.peers()...) {
		w.Apply(topology.Owner{Kind: "bundle", ID: fmt.Sprint(i)}, &b)
	}
	for i, p := range machines {
		p.AdminStateUp, p.BoundHostID, p.InterfaceName, p.MACAddress = true, "host", "tap"+p.ID, packet.MAC{2, 0, 0, 0, 0, byte(i + 1)}
		s.ports[p.ID] = p
		b := Port(p, &neutron.Network{}, nil)
		w.Apply(topology.Owner{Kind: "port", ID: p.ID}, &b)
	}
	return s
}

// apply sets one owner's part of the world.
func (s *site) apply(kind, id string, b topology.Bundle) {
	s.world.Apply(topology.Owner{Kind: kind, ID: id}, &b)
}

func machine(id, network, address string) *neutron.Port {
	p := &neutron.Port{NetworkID: network, FixedIPs: []neutron.FixedIP{{IPAddress: ip(address)}}}
	p.ID = id
	return p
}

// send sends a packet by the router, and returns how it arrives: "X 10.2.0.6:5000>10.1.0.5:80".
func (s *site) send(t *testing.T, c conversation) string {
	t.Helper()
	p := s.ports[c.at]
	var via packet.MAC
	for _, l := range append(s.Gateways, s.Interfaces...) {
		if l.Network.ID == p.NetworkID {
			via = l.Port.MACAddress
		}
	}
	d := s.sim.Run(simulate.Input{PortID: c.at, Frame: udpFrame(p.MACAddress, via, c), State: s.memory, Explain: true})
	if d.Verdict != flow.Forward {
		return d.Verdict.String()
	}
	s.memory.Commit(d)
	r := d.Rewrite
	s.last = conversation{d.Outputs[0].PortID, r.Src, r.Dst, r.SrcPort, r.DstPort}
	if got := s.ports[s.last.at].MACAddress; r.DstMAC != got || len(d.Outputs) != 1 {
		t.Errorf("%+v: %d outputs, to MAC %s; want one to %s", c, len(d.Outputs), r.DstMAC, got)
	}
	return fmt.Sprintf("%s %s>%s", s.last.at, netip.AddrPortFrom(r.Src, r.SrcPort), netip.AddrPortFrom(r.Dst, r.DstPort))
}

// reply answers the packet that was delivered last.
func (s *site) reply(t *testing.T) string {
	t.Helper()
	l := s.last
	return s.send(t, conversation{l.at, l.dst, l.src, l.dstPort, l.srcPort})
}

func udpFrame(src, dst packet.MAC, c conversation) []byte {
	datagram := packet.UDP{SrcPort: c.srcPort, DstPort: c.dstPort}.Append(nil, c.src, c.dst, []byte("hello"))
	if c.src.Is4() {
		b := packet.Ethernet{Dst: dst, Src: src, Type: packet.TypeIPv4}.Append(nil)
		return append(packet.IPv4{TTL: 64, Proto: packet.ProtoUDP, Src: c.src, Dst: c.dst}.Append(b, len(datagram)), datagram...)
	}
	b := packet.Ethernet{Dst: dst, Src: src, Type: packet.TypeIPv6}.Append(nil)
	return append(packet.IPv6{HopLimit: 64, Next: packet.ProtoUDP, Src: c.src, Dst: c.dst}.Append(b, len(datagram)), datagram...)
}

// packets sends packets "from src>dst/port: arrival; arrival of the reply", each from port 5000, to
// port 80 unless another is given.
func (s *site) packets(t *testing.T, lines string) {
	t.Helper()
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		what, want, _ := strings.Cut(strings.TrimSpace(line), ": ")
		from, way, _ := strings.Cut(what, " ")
		src, dst, _ := strings.Cut(way, ">")
		to, port := dst, 80
		if at := strings.IndexByte(dst, '/'); at >= 0 {
			to = dst[:at]
			if _, err := fmt.Sscan(dst[at+1:], &port); err != nil {
				t.Fatal(err)
			}
		}
		got := s.send(t, conversation{from, ip(src), ip(to), 5000, uint16(port)})
		if strings.Contains(want, ";") {
			got += "; " + s.reply(t)
		}
		if got != want {
			t.Errorf("%s: %s; want %s", what, got, want)
		}
	}
}

// The seed's interesting cases (midonet-translations §3.5): FIP-A is by the gateway, FIP-B by the
// interface to Z's network, and both are X's.
func TestInterestingCases(t *testing.T) {
	t.Parallel()
	machines := func() []*neutron.Port {
		return []*neutron.Port{machine("X", "net-if1", "10.1.0.5"), machine("Y", "net-if2", "10.2.0.6"), machine("Z", "net-if3", "10.3.0.9"),
			machine("up", "net-gw", "203.0.113.1")}
	}
	newSite(t, "testdata/routers/snat.txt", machines()...).packets(t, `
		Y 10.2.0.6>203.0.113.7: X 203.0.113.2:1024>10.1.0.5:80; Y 203.0.113.7:80>10.2.0.6:5000`)
	newSite(t, "testdata/routers/snat.txt", machines()...).packets(t, `
		Y 10.2.0.6>10.3.0.7: X 203.0.113.2:1024>10.1.0.5:80; Y 203.0.113.7:80>10.2.0.6:5000`)
	newSite(t, "testdata/routers/snat.txt", machines()...).packets(t, `
		Z 10.3.0.9>10.3.0.7: X 10.3.0.9:5000>10.1.0.5:80; Z 10.3.0.7:80>10.3.0.9:5000
		Z 10.3.0.9>203.0.113.7: X 10.3.0.9:5000>10.1.0.5:80; Z 10.3.0.7:80>10.3.0.9:5000
		X 10.1.0.5>10.3.0.9: Z 10.3.0.7:5000>10.3.0.9:80; X 10.3.0.9:80>10.1.0.5:5000
		X 10.1.0.5>10.2.0.6: Y 10.1.0.5:5000>10.2.0.6:80; X 10.2.0.6:80>10.1.0.5:5000
		X 10.1.0.5>192.0.2.50: up 203.0.113.7:5000>192.0.2.50:80; X 192.0.2.50:80>10.1.0.5:5000
		Y 10.2.0.6>192.0.2.50: up 203.0.113.2:1024>192.0.2.50:80; Y 192.0.2.50:80>10.2.0.6:5000
		up 192.0.2.50>203.0.113.7: X 192.0.2.50:5000>10.1.0.5:80; up 203.0.113.7:80>192.0.2.50:5000
		up 192.0.2.50>203.0.113.2: drop`)
}

// Without SNAT machines without a floating IP keep their addresses.
func TestWithoutSNAT(t *testing.T) {
	t.Parallel()
	newSite(t, "testdata/routers/no-snat.txt", machine("X", "net-if1", "10.1.0.5"), machine("W", "net-if1", "10.1.0.6"), machine("up", "net-gw", "203.0.113.1")).packets(t, `
		W 10.1.0.6>192.0.2.50: up 10.1.0.6:5000>192.0.2.50:80; W 192.0.2.50:80>10.1.0.6:5000
		X 10.1.0.5>192.0.2.50: up 203.0.113.7:5000>192.0.2.50:80; X 192.0.2.50:80>10.1.0.5:5000
		W 10.1.0.6>203.0.113.7: X 10.1.0.1:1024>10.1.0.5:80; W 203.0.113.7:80>10.1.0.6:5000`)
}

// IPv6 passes the gateway untranslated, beside the SNAT of IPv4.
func TestIPv6PassesSNAT(t *testing.T) {
	t.Parallel()
	newSite(t, "testdata/routers/ipv6.txt", machine("A", "net-if6", "2001:db8:1::a"), machine("up", "net-gw", "2001:db8:4::99")).packets(t, `
		A 2001:db8:1::a>2001:db8:4::99: up [2001:db8:1::a]:5000>[2001:db8:4::99]:80; A [2001:db8:4::99]:80>[2001:db8:1::a]:5000`)
}

// A firewall lets its rules' packets and their replies pass; one that is down lets none.
func TestFirewallPackets(t *testing.T) {
	t.Parallel()
	machines := func() []*neutron.Port {
		return []*neutron.Port{machine("X", "net-if1", "10.1.0.5"), machine("Y", "net-if2", "10.2.0.6"), machine("B", "net-if2", "10.2.0.66")}
	}
	newSite(t, "testdata/routers/firewall.txt", machines()...).packets(t, `
		X 10.1.0.5>10.2.0.6: Y 10.1.0.5:5000>10.2.0.6:80; X 10.2.0.6:80>10.1.0.5:5000
		X 10.1.0.5>10.2.0.6/91: drop
		Y 10.2.0.6>10.1.0.5/90: X 10.2.0.6:5000>10.1.0.5:90
		B 10.2.0.66>10.1.0.5: drop`)
	newSite(t, "testdata/routers/firewall-down.txt", machines()...).packets(t, `
		X 10.1.0.5>10.2.0.6: drop`)
}
