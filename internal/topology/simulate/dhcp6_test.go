package simulate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

const (
	stateful1 = "11111111-0000-4000-8000-000000000001"
	stateful2 = "11111111-0000-4000-8000-000000000002"
	stateless = "11111111-0000-4000-8000-000000000003"
	slaacOnly = "11111111-0000-4000-8000-000000000004"
)

// subnets6Lab has a network of four IPv6 subnets, and machine 1 with an address in those named.
func subnets6Lab(extra []topology.DhcpOpt, in ...string) *lab {
	l := newLab()
	l.network("net")
	l.group("none")
	for i, s := range []topology.DhcpV6{
		{ID: stateful1, AddressMode: "dhcpv6-stateful", DNSServerAddress: []netip.Addr{ip("2001:db8::53")}},
		{ID: stateful2, AddressMode: "dhcpv6-stateful", DNSServerAddress: []netip.Addr{ip("2001:db8::53"), ip("192.0.2.53")}},
		{ID: stateless, AddressMode: "dhcpv6-stateless", DNSServerAddress: []netip.Addr{ip("2001:db8::54")}},
		{ID: slaacOnly, AddressMode: "slaac"},
	} {
		s.NetworkID, s.Enabled = "net", true
		s.SubnetAddress = netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 7: byte(i + 1)}), 64)
		l.Apply(owner("subnet", s.ID), &topology.Bundle{DhcpV6s: []topology.DhcpV6{s}})
	}
	p := machine(1, "none")
	b := p.bundle()
	for _, id := range in {
		a := netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 7: id[len(id)-1] - '0', 15: 1})
		b.DhcpHosts = append(b.DhcpHosts, topology.DhcpHost{SubnetID: id, PortID: p.id,
			DhcpHostEntry: topology.DhcpHostEntry{MAC: p.mac, IPAddress: a, ExtraDhcpOpts: extra}})
	}
	l.Apply(p.owner(), b)
	l.port(machine(2))
	return l
}

// client6 returns a message with the options of a client, by default from machine 1.
func client6(typ uint8, options ...packet.DHCPv6Option) *packet.DHCPv6 {
	d := &packet.DHCPv6{Type: typ, XID: 0x123456}
	d.Add(packet.Opt6ClientID, []byte("\x00\x03\x00\x01client"))
	d.Options = append(d.Options, options...)
	return d
}

func frame6(i int, d *packet.DHCPv6) []byte {
	src := packet.LinkLocal(mac(i))
	u := packet.UDP{SrcPort: 546, DstPort: 547}.Append(nil, src, allDHCPServers, d.Append(nil))
	b := packet.Ethernet{Dst: packet.MulticastMAC(allDHCPServers), Src: mac(i), Type: packet.TypeIPv6}.Append(nil)
	b = packet.IPv6{HopLimit: 1, Next: packet.ProtoUDP, Src: src, Dst: allDHCPServers}.Append(b, len(u))
	return append(b, u...)
}

// answer6 returns the message in the one answer of a decision.
func answer6(t *testing.T, d *flow.Decision) *packet.DHCPv6 {
	t.Helper()
	if d.Verdict != flow.Consumed || len(d.Emit) != 1 || d.Emit[0].PortID != "p1" || d.Cacheable {
		t.Fatalf("no answer\n%s", walk(d))
	}
	b := d.Emit[0].Frame
	if err := packet.VerifyChecksums(b); err != nil {
		t.Error(err)
	}
	var f packet.Frame
	if err := packet.Decode(b, &f); err != nil {
		t.Fatal(err)
	}
	if f.Src != responderMAC || f.SrcIP != ip("fe80::a8:9cff:fede:3927") || f.Dst != mac(1) || f.DstIP != packet.LinkLocal(mac(1)) || f.TpSrc != 547 || f.TpDst != 546 {
		t.Errorf("headers %+v", f)
	}
	reply, err := packet.ParseDHCPv6(b[f.L4+8 : f.End])
	if err != nil {
		t.Fatal(err)
	}
	client, _ := reply.Option(packet.Opt6ClientID)
	server, _ := reply.Option(packet.Opt6ServerID)
	if reply.XID != 0x123456 || string(client) != "\x00\x03\x00\x01client" || len(server) != 18 {
		t.Errorf("got %+v", reply)
	}
	return reply
}

// text6 writes the identity associations and the status of a message.
func text6(d *packet.DHCPv6) string {
	var parts []string
	status := func(v []byte) string {
		if len(v) < 2 {
			return ""
		}
		return fmt.Sprintf(" status %d", v[1])
	}
	for _, o := range d.Options {
		switch o.Code {
		case packet.Opt6IANA:
			ia, err := packet.ParseIANA(o.Value)
			if err != nil {
				return err.Error()
			}
			text := fmt.Sprintf("NA %d %d/%d", ia.IAID, ia.T1, ia.T2)
			for _, a := range ia.Addrs {
				text += fmt.Sprintf(" %v %d/%d", a.Addr, a.Preferred, a.Valid)
			}
			parts = append(parts, text+status(ia.Status))
		case packet.Opt6IATA:
			parts = append(parts, "TA"+status(o.Value[8:]))
		case packet.Opt6IAPD:
			parts = append(parts, "PD"+status(o.Value[16:]))
		case packet.Opt6StatusCode:
			parts = append(parts, strings.TrimSpace(status(o.Value)))
		}
	}
	return packet.DHCPv6TypeName(d.Type) + ": " + strings.Join(parts, ", ")
}

func associate(id uint32, addrs ...string) packet.DHCPv6Option {
	ia := packet.IANA{IAID: id}
	for _, a := range addrs {
		ia.Addrs = append(ia.Addrs, packet.IAAddr{Addr: ip(a), Preferred: 60, Valid: 60})
	}
	return packet.DHCPv6Option{Code: packet.Opt6IANA, Value: ia.Value()}
}

func TestDHCPv6(t *testing.T) {
	t.Parallel()
	server := packet.DHCPv6Option{Code: packet.Opt6ServerID, Value: packet.DUIDUUID(stateful1)}
	other := packet.DHCPv6Option{Code: packet.Opt6ServerID, Value: packet.DUIDUUID(slaacOnly)}
	rapid := packet.DHCPv6Option{Code: packet.Opt6RapidCommit}
	temporary := packet.DHCPv6Option{Code: packet.Opt6IATA, Value: make([]byte, 4)}
	prefixes := packet.DHCPv6Option{Code: packet.Opt6IAPD, Value: make([]byte, 12)}
	l := subnets6Lab(nil, stateful2, stateful1, stateless, slaacOnly)
	const given = " 2001:db8:0:2::1 86400/86400 2001:db8:0:1::1 86400/86400" // in the order of the fixed IPs
	for _, c := range []struct {
		name    string
		message *packet.DHCPv6
		want    string // "drop: " and a reason for one without answer
	}{
		{"solicit", client6(packet.DHCPv6Solicit, associate(7)), "advertise: NA 7 43200/69120" + given},
		{"solicit with a wish", client6(packet.DHCPv6Solicit, associate(7, "2001:db8:0:1::9")), "advertise: NA 7 43200/69120" + given},
		{"rapid commit", client6(packet.DHCPv6Solicit, rapid, associate(7)), "reply: NA 7 43200/69120" + given},
		{"request", client6(packet.DHCPv6Request, server, associate(7)), "reply: NA 7 43200/69120" + given},
		{"renew", client6(packet.DHCPv6Renew, server, associate(7, "2001:db8:0:1::1")), "reply: NA 7 43200/69120" + given},
		{"rebind with a foreign address", client6(packet.DHCPv6Rebind, associate(7, "2001:db8:0:1::9")), "reply: NA 7 43200/69120" + given + " 2001:db8:0:1::9 0/0"},
		{"more associations", client6(packet.DHCPv6Request, server, temporary, associate(7), associate(8, "2001:db8:0:1::1"), prefixes),
			"reply: TA status 2, NA 7 43200/69120" + given + ", NA 8 0/0 2001:db8:0:1::1 0/0 status 2, PD status 6"},
		{"confirm", client6(packet.DHCPv6Confirm, associate(7, "2001:db8:0:1::9")), "reply: status 0"},
		{"confirm elsewhere", client6(packet.DHCPv6Confirm, associate(7, "2001:db8:0:9::1")), "reply: status 4"},
		{"release", client6(packet.DHCPv6Release, server, associate(7, "2001:db8:0:1::1")), "reply: status 0"},
		{"decline", client6(packet.DHCPv6Decline, server, associate(7, "2001:db8:0:1::1")), "reply: status 0"},
		{"information", client6(packet.DHCPv6InformationRequest), "reply: "},
		{"information from this server", client6(packet.DHCPv6InformationRequest, server), "reply: "},

		{"solicit of a server", client6(packet.DHCPv6Solicit, server), "drop: DHCPv6 message solicit names a server"},
		{"request without a server", client6(packet.DHCPv6Request, associate(7)), "drop: DHCPv6 message request names no server"},
		{"request of another server", client6(packet.DHCPv6Request, other, associate(7)), "drop: DHCPv6 message request is for another server"},
		{"no client", &packet.DHCPv6{Type: packet.DHCPv6Solicit}, "drop: DHCPv6 message solicit names no client"},
		{"confirm of nothing", client6(packet.DHCPv6Confirm, associate(7)), "drop: DHCPv6 message confirm names no address"},
		{"information and addresses", client6(packet.DHCPv6InformationRequest, associate(7)), "drop: DHCPv6 message information-request asks for addresses"},
		{"advertise", client6(packet.DHCPv6Advertise), "drop: DHCPv6 message of type advertise needs no answer"},
		{"relay", client6(packet.DHCPv6RelayForward), "drop: malformed DHCPv6: a relay's message"},
	} {
		d := l.send("p1", frame6(1, c.message))
		if why, isDrop := strings.CutPrefix(c.want, "drop: "); isDrop {
			if d.Verdict != flow.Drop || d.Reason != why || len(d.Emit) > 0 {
				t.Errorf("%s: %v %q, want %q", c.name, d.Verdict, d.Reason, why)
			}
			continue
		}
		reply := answer6(t, d)
		if got := text6(reply); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
		_, isRapid := reply.Option(packet.Opt6RapidCommit)
		if isRapid != (c.name == "rapid commit") {
			t.Errorf("%s: rapid commit %v", c.name, isRapid)
		}
		if warned := len(d.Warnings) > 0; warned != (c.name == "decline") {
			t.Errorf("%s: warnings %q", c.name, d.Warnings)
		}
	}
}

// A machine with many identity associations gets an answer of bounded size.
func TestDHCPv6Bound(t *testing.T) {
	t.Parallel()
	l := subnets6Lab(nil, stateful1)
	m := client6(packet.DHCPv6Solicit)
	for i := range uint32(60) {
		m.Options = append(m.Options, associate(i))
	}
	reply := answer6(t, l.send("p1", frame6(1, m)))
	if got := len(slices.Collect(reply.All(packet.Opt6IANA))); got != mostAssociations {
		t.Errorf("%d associations in the answer", got)
	}
	var addrs []string
	for i := range 40 {
		addrs = append(addrs, fmt.Sprintf("2001:db8:9::%x", i))
	}
	reply = answer6(t, l.send("p1", frame6(1, client6(packet.DHCPv6Rebind, associate(7, addrs...)))))
	v, _ := reply.Option(packet.Opt6IANA)
	if ia, err := packet.ParseIANA(v); err != nil || len(ia.Addrs) != 1+mostForeign {
		t.Errorf("%+v %v", ia, err)
	}
	m = &packet.DHCPv6{Type: packet.DHCPv6Solicit}
	m.Add(packet.Opt6ClientID, make([]byte, longestDUID+1))
	if d := l.send("p1", frame6(1, m)); d.Verdict != flow.Drop || len(d.Emit) > 0 {
		t.Errorf("a client identifier of %d bytes is answered\n%s", longestDUID+1, walk(d))
	}
}

// TestDHCPv6Domain: machines search names in their own domain, unless their port says otherwise.
func TestDHCPv6Domain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		extra []topology.DhcpOpt
		want  string
	}{{nil, "\x07example\x03org\x00"}, {[]topology.DhcpOpt{{Name: "domain-search", Value: "example.com"}}, "\x07example\x03com\x00"}} {
		l := subnets6Lab(tt.extra, stateless)
		l.Apply(owner("subnet", stateless), &topology.Bundle{DhcpV6s: []topology.DhcpV6{{ID: stateless, NetworkID: "net", Enabled: true,
			AddressMode: "dhcpv6-stateless", SubnetAddress: netip.MustParsePrefix("2001:db8:0:3::/64"), DomainName: "example.org"}}})
		reply := answer6(t, l.send("p1", frame6(1, client6(packet.DHCPv6InformationRequest))))
		if v, _ := reply.Option(packet.Opt6DomainSearch); string(v) != tt.want {
			t.Errorf("domains %q, want %q", v, tt.want)
		}
	}
}

// Options come from all subnets of the machine's addresses, and from its port.
func TestDHCPv6Options(t *testing.T) {
	t.Parallel()
	extra := []topology.DhcpOpt{{Name: "domain-search", Value: "example.org"}, {Name: "ntp-server", Value: "2001:db8::123"}, {Name: "no-such-option", Value: "x"}}
	l := subnets6Lab(extra, stateless)
	d := l.send("p1", frame6(1, client6(packet.DHCPv6InformationRequest)))
	reply := answer6(t, d)
	for code, want := range map[uint16]string{packet.Opt6ServerID: string(packet.DUIDUUID(stateless)), packet.Opt6DNSServer: string(ip("2001:db8::54").AsSlice()),
		packet.Opt6DomainSearch: "\x07example\x03org\x00", packet.Opt6NTPServer: "\x00\x01\x00\x10" + string(ip("2001:db8::123").AsSlice())} {
		if v, _ := reply.Option(code); string(v) != want {
			t.Errorf("option %d is %q, want %q", code, v, want)
		}
	}
	if len(d.Warnings) != 1 || !strings.Contains(d.Warnings[0], "no-such-option") {
		t.Errorf("warnings %q", d.Warnings)
	}
	if got := text6(answer6(t, l.send("p1", frame6(1, client6(packet.DHCPv6Solicit, associate(7)))))); got != "advertise: NA 7 0/0 status 2" {
		t.Errorf("a machine that makes its address itself gets %s", got)
	}
	l = subnets6Lab([]topology.DhcpOpt{{Name: "dns-server", Value: "2001:db8::99"}}, stateful1, stateless)
	reply = answer6(t, l.send("p1", frame6(1, client6(packet.DHCPv6InformationRequest))))
	if v, _ := reply.Option(packet.Opt6DNSServer); string(v) != string(ip("2001:db8::99").AsSlice()) {
		t.Errorf("a port's own servers are overridden: %x", v)
	}
	long := topology.DhcpOpt{Name: "1000", Value: strings.Repeat("x", 800)}
	l = subnets6Lab([]topology.DhcpOpt{long, {Name: "1001", Value: long.Value}}, stateless)
	d = l.send("p1", frame6(1, client6(packet.DHCPv6InformationRequest)))
	reply = answer6(t, d)
	if _, ok := reply.Option(1001); ok || len(d.Warnings) != 1 || len(d.Emit[0].Frame) > 14+1500 {
		t.Errorf("%d bytes, warnings %q", len(d.Emit[0].Frame), d.Warnings)
	}
}

// No machine hears of another's addresses, nor without DHCPv6 of its own.
func TestDHCPv6OfOthers(t *testing.T) {
	t.Parallel()
	solicit := client6(packet.DHCPv6Solicit, associate(7))
	l := subnets6Lab(nil, stateful1)
	for name, send := range map[string]func() *flow.Decision{
		"another machine by its own MAC":        func() *flow.Decision { return l.send("p2", frame6(2, solicit)) },
		"another machine by the machine's MAC":  func() *flow.Decision { return l.send("p2", frame6(1, solicit)) },
		"the machine by another's MAC":          func() *flow.Decision { return l.send("p1", frame6(2, solicit)) },
		"the machine, to another server's port": func() *flow.Decision { return l.send("p1", udp6(1, 546, 548)) },
	} {
		if d := send(); len(d.Emit) > 0 {
			t.Errorf("%s: answered\n%s", name, walk(d))
		}
	}
	l = subnets6Lab(nil, slaacOnly)
	if d := l.send("p1", frame6(1, solicit)); len(d.Emit) > 0 || d.Cacheable {
		t.Errorf("without DHCPv6: answered\n%s", walk(d))
	}
}

// Whatever a machine sends, it gets no other addresses than its own, in messages that fit its link.
func FuzzDHCPv6Answer(f *testing.F) {
	server := packet.DHCPv6Option{Code: packet.Opt6ServerID, Value: packet.DUIDUUID(stateful1)}
	f.Add(client6(packet.DHCPv6Solicit, associate(7)).Append(nil))
	f.Add(client6(packet.DHCPv6Renew, server, associate(7, "2001:db8:0:1::9"), associate(8)).Append(nil))
	f.Add(client6(packet.DHCPv6InformationRequest).Append(nil))
	l := subnets6Lab([]topology.DhcpOpt{{Name: "domain-search", Value: "example.org"}}, stateful1)
	f.Fuzz(func(t *testing.T, message []byte) {
		if len(message) > 1452 {
			return
		}
		src := packet.LinkLocal(mac(1))
		u := packet.UDP{SrcPort: 546, DstPort: 547}.Append(nil, src, allDHCPServers, message)
		b := packet.Ethernet{Dst: packet.MulticastMAC(allDHCPServers), Src: mac(1), Type: packet.TypeIPv6}.Append(nil)
		b = packet.IPv6{HopLimit: 1, Next: packet.ProtoUDP, Src: src, Dst: allDHCPServers}.Append(b, len(u))
		d := l.send("p1", append(b, u...))
		if len(d.Emit) == 0 {
			return
		}
		frame := d.Emit[0].Frame
		var f packet.Frame
		if err := packet.Decode(frame, &f); err != nil || len(frame) > 14+1500 {
			t.Fatalf("%d bytes: %v", len(frame), err)
		}
		reply, err := packet.ParseDHCPv6(frame[f.L4+8 : f.End])
		if err != nil {
			t.Fatal(err)
		}
		for v := range reply.All(packet.Opt6IANA) {
			ia, err := packet.ParseIANA(v)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range ia.Addrs {
				if a.Valid > 0 && a.Addr != ip("2001:db8:0:1::1") {
					t.Fatalf("given %v", a.Addr)
				}
			}
		}
	})
}

func udp6(i int, src, dst uint16) []byte {
	from := packet.LinkLocal(mac(i))
	u := packet.UDP{SrcPort: src, DstPort: dst}.Append(nil, from, allDHCPServers, client6(packet.DHCPv6Solicit).Append(nil))
	b := packet.Ethernet{Dst: packet.MulticastMAC(allDHCPServers), Src: mac(i), Type: packet.TypeIPv6}.Append(nil)
	return append(packet.IPv6{HopLimit: 1, Next: packet.ProtoUDP, Src: from, Dst: allDHCPServers}.Append(b, len(u)), u...)
}
