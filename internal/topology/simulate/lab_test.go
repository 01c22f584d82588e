package simulate

import (
	"fmt"
	"net/netip"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// lab is a world with its simulator and memory, made of the bundles that translation would make.
type lab struct {
	*World
	sim watched
	mem *Memory
}

func newLab() *lab {
	w := NewWorld(Options{})
	return &lab{w, watched{NewSimulator(w)}, NewMemory()}
}

func ptr[T any](v T) *T { return &v }

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func owner(kind, id string) topology.Owner { return topology.Owner{Kind: kind, ID: id} }

// mac and addr are those of machine i.
func mac(i int) packet.MAC { return packet.MAC{0xfa, 0x16, 0x3e, byte(i >> 16), byte(i >> 8), byte(i)} }
func addr(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}
func addr6(i int) netip.Addr {
	return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)})
}

func (l *lab) network(id string) {
	l.Apply(owner("network", id), &topology.Bundle{Networks: []topology.Network{{ID: id, AdminStateUp: true}}})
}

// portSpec is a VIF port with port security, unless it is open.
type portSpec struct {
	id, network, host string
	mac               packet.MAC
	ips               []netip.Addr
	groups            []string
	open, down        bool
	unbound           bool
}

func machine(i int, groups ...string) portSpec {
	return portSpec{id: fmt.Sprint("p", i), network: "net", host: "h1", mac: mac(i), ips: []netip.Addr{addr(i)}, groups: groups}
}

func (p portSpec) owner() topology.Owner { return owner("port", p.id) }

func literal(id, action string, c topology.Condition) topology.Rule {
	if c.FragmentPolicy == "" {
		c.FragmentPolicy = topology.FragAny
	}
	return topology.Rule{ID: id, Type: topology.Literal, Action: action, Condition: &c}
}

func jumpTo(id, chain string) topology.Rule {
	return topology.Rule{ID: id, Type: topology.Jump, Action: topology.Jump, JumpChainID: chain}
}

// bundle returns the port as translated (midonet-translations §3.1, §7.1).
func (p portSpec) bundle() *topology.Bundle {
	in, out, spoof := p.id+"/in", p.id+"/out", p.id+"/spoof"
	b := &topology.Bundle{}
	port := topology.Port{ID: p.id, NetworkID: p.network, AdminStateUp: !p.down, InboundFilterID: in, OutboundFilterID: out, TunnelKey: 7}
	if !p.unbound {
		port.HostID, port.InterfaceName = p.host, "tap-"+p.id
	}
	b.Ports = append(b.Ports, port)
	b.MACs = append(b.MACs, topology.MACEntry{NetworkID: p.network, MAC: p.mac, PortID: p.id})
	for _, a := range p.ips {
		b.Neighbours = append(b.Neighbours, topology.NeighbourEntry{NetworkID: p.network, IP: a, MAC: p.mac})
		for _, g := range p.groups {
			b.Memberships = append(b.Memberships, topology.Membership{GroupID: g, PortID: p.id, IPAddress: a.String()})
		}
	}
	if p.open {
		b.Chains = []topology.Chain{{ID: in}, {ID: out}, {ID: spoof}}
		return b
	}
	notARP := topology.Condition{DlType: packet.TypeARP, InvDlType: true}
	inRules := []topology.Rule{jumpTo(in+"/1", spoof), literal(in+"/2", topology.Accept, topology.Condition{MatchReturnFlow: true})}
	outRules := []topology.Rule{literal(out+"/1", topology.Accept, topology.Condition{MatchReturnFlow: true})}
	for _, g := range p.groups {
		inRules = append(inRules, jumpTo(in+"/"+g, g+"/egress"))
		outRules = append(outRules, jumpTo(out+"/"+g, g+"/ingress"))
	}
	inRules = append(inRules, literal(in+"/last", topology.Drop, notARP))
	outRules = append(outRules, literal(out+"/last", topology.Drop, notARP))
	spoofRules := []topology.Rule{literal(spoof+"/dhcp", topology.Return, topology.Condition{NwProto: ptr(packet.ProtoUDP),
		TpSrc: &topology.Range{Low: ptr(uint16(68)), High: ptr(uint16(68))}, TpDst: &topology.Range{Low: ptr(uint16(67)), High: ptr(uint16(67))}})}
	for i, a := range p.ips {
		prefix := netip.PrefixFrom(a, a.BitLen())
		if a.Is4() {
			spoofRules = append(spoofRules, literal(fmt.Sprint(spoof, "/arp", i), topology.Return, topology.Condition{DlType: packet.TypeARP, NwSrcIP: &prefix}))
		} else {
			spoofRules = append(spoofRules,
				literal(fmt.Sprint(spoof, "/na", i), topology.Return, topology.Condition{DlType: packet.TypeIPv6, NwProto: ptr(packet.ProtoICMPv6),
					TpSrc: &topology.Range{Low: ptr(uint16(136)), High: ptr(uint16(136))}, DlSrc: &p.mac, NdTargetIP: &prefix}),
				literal(fmt.Sprint(spoof, "/na-drop", i), topology.Drop, topology.Condition{DlType: packet.TypeIPv6, NwProto: ptr(packet.ProtoICMPv6),
					TpSrc: &topology.Range{Low: ptr(uint16(136)), High: ptr(uint16(136))}}))
		}
		spoofRules = append(spoofRules, literal(fmt.Sprint(spoof, "/ip", i), topology.Return, topology.Condition{NwSrcIP: &prefix, DlSrc: &p.mac}))
	}
	spoofRules = append(spoofRules, literal(spoof+"/last", topology.Drop, topology.Condition{}))
	b.Chains = []topology.Chain{
		{ID: in, Name: "OS_PORT_" + p.id + "_INBOUND", Purpose: topology.PurposePortFilter, Rules: inRules},
		{ID: out, Name: "OS_PORT_" + p.id + "_OUTBOUND", Purpose: topology.PurposePortFilter, Rules: outRules},
		{ID: spoof, Name: "OS_PORT_" + p.id + "_ANTI_SPOOF", Purpose: topology.PurposeAntiSpoof, Rules: spoofRules},
	}
	return b
}

func (l *lab) port(p portSpec) []string { return l.Apply(p.owner(), p.bundle()) }

// groupBundle is a security group that lets everything out and lets in what the rules accept.
func groupBundle(id string, ingress ...topology.Rule) *topology.Bundle {
	return &topology.Bundle{
		IPAddrGroups: []topology.IPAddrGroup{{ID: id}},
		Chains: []topology.Chain{
			{ID: id + "/egress", Name: "OS_SG_" + id + "_EGRESS", Purpose: topology.PurposeGroup, Rules: []topology.Rule{
				literal(id+"/any4", topology.Accept, topology.Condition{DlType: packet.TypeIPv4}),
				literal(id+"/any6", topology.Accept, topology.Condition{DlType: packet.TypeIPv6}),
			}},
			{ID: id + "/ingress", Name: "OS_SG_" + id + "_INGRESS", Purpose: topology.PurposeGroup, Rules: ingress},
		},
	}
}

func (l *lab) group(id string, ingress ...topology.Rule) []string {
	return l.Apply(owner("security-group", id), groupBundle(id, ingress...))
}

func allowPort(id string, proto uint8, port uint16) topology.Rule {
	return literal(id, topology.Accept, topology.Condition{DlType: packet.TypeIPv4, NwProto: &proto,
		TpDst: &topology.Range{Low: &port, High: &port}, FragmentPolicy: topology.FragHeader})
}

func allowFrom(id, group string, etherType uint16) topology.Rule {
	return literal(id, topology.Accept, topology.Condition{DlType: etherType, IPAddrGroupIDSrc: group})
}

// tcp is a TCP packet from machine i to machine j.
func tcp(i, j int, sport, dport uint16) []byte {
	t := packet.TCP{SrcPort: sport, DstPort: dport, Flags: packet.TCPSyn}.Append(nil, addr(i), addr(j), nil)
	return ipv4(i, j, packet.IPv4{Proto: packet.ProtoTCP}, t)
}

func ipv4(i, j int, h packet.IPv4, payload []byte) []byte {
	h.Src, h.Dst, h.TTL = addr(i), addr(j), 64
	b := packet.Ethernet{Dst: mac(j), Src: mac(i), Type: packet.TypeIPv4}.Append(nil)
	return append(h.Append(b, len(payload)), payload...)
}

func arp(dst packet.MAC, a packet.ARP) []byte {
	return a.Append(packet.Ethernet{Dst: dst, Src: a.SHA, Type: packet.TypeARP}.Append(nil))
}

// send runs a packet, commits what it leaves behind and returns the decision, explained.
func (l *lab) send(port string, frame []byte) *flow.Decision {
	d := l.sim.Run(Input{PortID: port, Frame: frame, State: l.mem, Explain: true})
	l.mem.Commit(d)
	return d
}

// outs are the ports a decision delivers to.
func outs(d *flow.Decision) []string {
	var ids []string
	for _, o := range d.Outputs {
		ids = append(ids, o.PortID)
	}
	return ids
}

func walk(d *flow.Decision) string {
	text := fmt.Sprintf("%v %s: %s\n", d.Verdict, d.Device, d.Reason)
	for _, s := range d.Walk {
		text += fmt.Sprintf("  %s %s %s: %s\n", s.Device, s.Chain, s.Rule, s.Text)
	}
	return text
}

// expect checks verdict and outputs.
func expect(t *testing.T, d *flow.Decision, v flow.Verdict, ports ...string) {
	t.Helper()
	if d.Verdict != v || fmt.Sprint(outs(d)) != fmt.Sprint(ports) {
		t.Errorf("got %v to %v, want %v to %v\n%s", d.Verdict, outs(d), v, ports, walk(d))
	}
}
