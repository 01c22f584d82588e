package simulate

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// dhcpLab is machine 1 with a host entry in subnet s of network net.
func dhcpLab(change func(*topology.Dhcp, *topology.DhcpHost)) *lab {
	l := newLab()
	l.network("net")
	l.group("none")
	d := topology.Dhcp{
		ID: "s", NetworkID: "net", SubnetAddress: netip.MustParsePrefix("10.0.0.0/24"), Enabled: true,
		ServerAddress: ptr(ip("10.0.0.2")), DefaultGateway: ptr(ip("10.0.0.254")), DNSServerAddress: []netip.Addr{ip("192.0.2.53"), ip("192.0.2.54")},
	}
	p := machine(1, "none")
	h := topology.DhcpHost{SubnetID: "s", PortID: p.id, DhcpHostEntry: topology.DhcpHostEntry{MAC: p.mac, IPAddress: addr(1)}}
	if change != nil {
		change(&d, &h)
	}
	l.Apply(owner("subnet", "s"), &topology.Bundle{Dhcps: []topology.Dhcp{d}})
	b := p.bundle()
	b.DhcpHosts = []topology.DhcpHost{h}
	l.Apply(p.owner(), b)
	l.port(machine(2))
	return l
}

// dhcpFrame is a broadcast DHCP message of machine i.
func dhcpFrame(i int, typ uint8, change func(*packet.DHCP)) []byte {
	d := &packet.DHCP{Op: packet.BootRequest, XID: 77, CHAddr: mac(i)}
	d.Set(packet.OptMessageType, []byte{typ})
	if change != nil {
		change(d)
	}
	src, dst := netip.IPv4Unspecified(), ip("255.255.255.255")
	u := packet.UDP{SrcPort: 68, DstPort: 67}.Append(nil, src, dst, d.Append(nil))
	b := packet.Ethernet{Dst: packet.Broadcast, Src: mac(i), Type: packet.TypeIPv4}.Append(nil)
	b = packet.IPv4{TTL: 64, Proto: packet.ProtoUDP, Src: src, Dst: dst}.Append(b, len(u))
	return append(b, u...)
}

// offered is the DHCP message in the one answer of a decision.
func offered(t *testing.T, d *flow.Decision) *packet.DHCP {
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
	if f.Src != responderMAC || f.Dst != mac(1) || f.DstIP != ip("255.255.255.255") || f.TpSrc != 67 || f.TpDst != 68 {
		t.Errorf("headers %+v", f)
	}
	reply, err := packet.ParseDHCP(b[f.L4+8 : f.End])
	if err != nil {
		t.Fatal(err)
	}
	if reply.XID != 77 || reply.CHAddr != mac(1) || reply.Op != packet.BootReply {
		t.Errorf("got %+v", reply)
	}
	return reply
}

// TestDHCPNames: the host name is the first label of the machine's name, the domain is the rest.
func TestDHCPNames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, domain, hostname, domainName string }{
		{"", "", "", ""},
		{"", "example.org", "host-10-0-0-1", "example.org"},
		{"vm", "example.org", "vm", "example.org"},
		{"vm.a", "example.org", "vm", "a.example.org"},
		{"vm.b.example.org.", "example.com", "vm", "b.example.org"},
		{"vm", "", "vm", ""},
	} {
		l := dhcpLab(func(d *topology.Dhcp, h *topology.DhcpHost) { d.DomainName, h.Name = tt.domain, tt.name })
		reply := offered(t, l.send("p1", dhcpFrame(1, packet.DHCPDiscover, nil)))
		hostname, _ := reply.Option(packet.OptHostName)
		domainName, _ := reply.Option(packet.OptDomainName)
		if string(hostname) != tt.hostname || string(domainName) != tt.domainName {
			t.Errorf("%q in %q: host name %q, domain %q", tt.name, tt.domain, hostname, domainName)
		}
	}
}

func wantOptions(t *testing.T, got *packet.DHCP, want map[uint8]string) {
	t.Helper()
	for code, value := range want {
		if v, _ := got.Option(code); string(v) != value {
			t.Errorf("option %d is %v, want %v", code, v, []byte(value))
		}
	}
	for _, o := range got.Options {
		if _, ok := want[o.Code]; !ok {
			t.Errorf("option %d = %v is there", o.Code, o.Value)
		}
	}
}

func TestDHCPOffer(t *testing.T) {
	t.Parallel()
	l := dhcpLab(nil)
	d := l.send("p1", dhcpFrame(1, packet.DHCPDiscover, nil))
	got := offered(t, d)
	if got.YIAddr != addr(1) || got.SIAddr != ip("10.0.0.2") {
		t.Errorf("yiaddr %v siaddr %v", got.YIAddr, got.SIAddr)
	}
	wantOptions(t, got, map[uint8]string{
		53: "\x02", 54: "\x0a\x00\x00\x02", 51: "\x00\x01\x51\x80", 1: "\xff\xff\xff\x00", 28: "\x0a\x00\x00\xff", 26: "\x05\xdc",
		3: "\x0a\x00\x00\xfe", 121: "\x20\xa9\xfe\xa9\xfe\x00\x00\x00\x00\x00\x0a\x00\x00\xfe", 6: "\xc0\x00\x02\x35\xc0\x00\x02\x36",
	})
}

func TestDHCPRequest(t *testing.T) {
	t.Parallel()
	l := dhcpLab(nil)
	for _, c := range []struct {
		name   string
		change func(*packet.DHCP)
		typ    uint8
	}{
		{"its own", func(d *packet.DHCP) { d.Set(packet.OptRequestedIP, addr(1).AsSlice()) }, packet.DHCPAck},
		{"another", func(d *packet.DHCP) { d.Set(packet.OptRequestedIP, addr(9).AsSlice()) }, packet.DHCPNak},
		{"any", nil, packet.DHCPAck},
		{"renewal", func(d *packet.DHCP) { d.CIAddr = addr(1) }, packet.DHCPAck},
		{"renewal of another", func(d *packet.DHCP) { d.CIAddr = addr(9) }, packet.DHCPNak},
	} {
		got := offered(t, l.send("p1", dhcpFrame(1, packet.DHCPRequest, c.change)))
		want := addr(1)
		if c.typ == packet.DHCPNak {
			want = netip.IPv4Unspecified()
			wantOptions(t, got, map[uint8]string{53: "\x06", 54: "\x0a\x00\x00\x02"})
		}
		if got.Type() != c.typ || got.YIAddr != want {
			t.Errorf("%s: type %d, address %v", c.name, got.Type(), got.YIAddr)
		}
	}
}

func TestDHCPInformAndRelease(t *testing.T) {
	t.Parallel()
	l := dhcpLab(nil)
	got := offered(t, l.send("p1", dhcpFrame(1, packet.DHCPInform, func(d *packet.DHCP) { d.CIAddr = addr(1) })))
	if _, lease := got.Option(packet.OptLeaseTime); lease || got.Type() != packet.DHCPAck || !got.YIAddr.IsUnspecified() || got.CIAddr != addr(1) {
		t.Errorf("inform: got %+v", got)
	}
	d := l.send("p1", dhcpFrame(1, packet.DHCPRelease, nil))
	expect(t, d, flow.Drop)
	if d.Cacheable || len(d.Warnings) != 1 {
		t.Errorf("release: got %+v", d)
	}
}

func TestDHCPRoutesAndExtraOptions(t *testing.T) {
	t.Parallel()
	l := dhcpLab(func(d *topology.Dhcp, h *topology.DhcpHost) {
		d.ServerAddress, d.DNSServerAddress, d.InterfaceMTU = nil, nil, 1400
		d.Opt121Routes = []topology.Opt121Route{{DstSubnet: netip.MustParsePrefix("169.254.169.254/32"), Gateway: ip("10.0.0.2")}}
		h.Name = "vm-1"
		h.ExtraDhcpOpts = []topology.DhcpOpt{
			{Name: "tftp-server", Value: "192.0.2.1"}, {Name: "mtu", Value: "1300"}, {Name: "router", Value: "10.0.0.253"},
			{Name: "no-such", Value: "x"}, {Name: "42", Value: "192.0.2.7"}, {Name: "server-ip-address", Value: "192.0.2.9"},
		}
	})
	d := l.send("p1", dhcpFrame(1, packet.DHCPDiscover, nil))
	got := offered(t, d)
	wantOptions(t, got, map[uint8]string{
		53: "\x02", 54: "\x0a\x00\x00\x02", 51: "\x00\x01\x51\x80", 1: "\xff\xff\xff\x00", 28: "\x0a\x00\x00\xff", 26: "\x05\x14",
		3: "\x0a\x00\x00\xfd", 12: "vm-1", 121: "\x20\xa9\xfe\xa9\xfe\x0a\x00\x00\x02\x00\x0a\x00\x00\xfd", 66: "192.0.2.1", 42: "\xc0\x00\x02\x07",
	})
	if got.SIAddr != ip("192.0.2.9") || len(d.Warnings) != 1 {
		t.Errorf("siaddr %v, warnings %q", got.SIAddr, d.Warnings)
	}
}

// TestDHCPMetadataRoute: each machine gets a route to the metadata service on its link, and with it
// the default route, under the number of the option that it asks for.
func TestDHCPMetadataRoute(t *testing.T) {
	t.Parallel()
	const service, route = "\x20\xa9\xfe\xa9\xfe\x00\x00\x00\x00", "\x00\x0a\x00\x00"
	for _, c := range []struct {
		name   string
		asks   string // the client's list of options
		change func(*topology.Dhcp, *topology.DhcpHost)
		want   map[uint8]string
	}{
		{"a client that asks for nothing", "", nil, map[uint8]string{121: service + route + "\xfe"}},
		{"a client that knows both", "\x01\x03\x79\xf9", nil, map[uint8]string{121: service + route + "\xfe"}},
		{"a client that knows Microsoft's", "\x01\x03\xf9", nil, map[uint8]string{249: service + route + "\xfe"}},
		{"no gateway", "", func(d *topology.Dhcp, _ *topology.DhcpHost) { d.DefaultGateway = nil }, map[uint8]string{121: service}},
		{"two routers of the machine's own", "", func(_ *topology.Dhcp, h *topology.DhcpHost) {
			h.ExtraDhcpOpts = []topology.DhcpOpt{{Name: "router", Value: "10.0.0.253,10.0.0.252"}}
		}, map[uint8]string{121: service + route + "\xfd"}},
		{"routes of the machine's own", "", func(_ *topology.Dhcp, h *topology.DhcpHost) {
			h.ExtraDhcpOpts = []topology.DhcpOpt{{Name: "classless-static-route", Value: "0.0.0.0/0,10.0.0.9"}}
		}, map[uint8]string{121: route + "\x09"}},
	} {
		l := dhcpLab(c.change)
		got := offered(t, l.send("p1", dhcpFrame(1, packet.DHCPDiscover, func(m *packet.DHCP) {
			if c.asks != "" {
				m.Set(packet.OptParameterList, []byte(c.asks))
			}
		})))
		for _, code := range []uint8{121, 249} {
			if v, _ := got.Option(code); string(v) != c.want[code] {
				t.Errorf("%s: option %d is %v, want %v", c.name, code, v, []byte(c.want[code]))
			}
		}
	}
}

// TestDHCPRoutesFitTheMessage: of 200 routes a machine is told as many as its message holds, and
// always the default route; the rest is named in a warning.
func TestDHCPRoutesFitTheMessage(t *testing.T) {
	t.Parallel()
	l := dhcpLab(func(d *topology.Dhcp, h *topology.DhcpHost) {
		for i := range 200 {
			d.Opt121Routes = append(d.Opt121Routes, topology.Opt121Route{DstSubnet: netip.MustParsePrefix(fmt.Sprintf("10.1.%d.0/24", i)), Gateway: ip("10.0.0.2")})
		}
	})
	told := 0
	for _, c := range []struct{ takes, longest int }{{0, 576 - 28}, {300, 576 - 28}, {1400, 1400 - 28}, {65535, 1500 - 28}} {
		d := l.send("p1", dhcpFrame(1, packet.DHCPDiscover, func(m *packet.DHCP) {
			if c.takes > 0 {
				m.Set(packet.OptMaxMessageSize, binary.BigEndian.AppendUint16(nil, uint16(c.takes)))
			}
		}))
		got := offered(t, d)
		value, _ := got.Option(packet.OptClasslessRoutes)
		routes, err := packet.ParseClasslessRoutes(value)
		if err != nil {
			t.Fatal(err)
		}
		size := len(got.Append(nil))
		if n := len(routes); n < 2 || n <= told && c.longest > 576 || routes[n-1].Dst.Bits() != 0 || size > c.longest || size < c.longest-10 {
			t.Errorf("client that takes %d: %d routes in a message of %d bytes, at most %d", c.takes, n, size, c.longest)
		}
		told = len(routes)
		const all = 202 // with those to the metadata service and the gateway
		if len(d.Warnings) == 0 != (told == all) || told < all && !strings.Contains(d.Warnings[0], fmt.Sprintf("%d of 200 routes", all-told)) {
			t.Errorf("client that takes %d: told %d routes, warned %q", c.takes, told, d.Warnings)
		}
	}
}

// TestDHCPServerAddress: without a server in the subnet's record the responder has the first
// address of the range that is not the client's, in the message as in the packet.
func TestDHCPServerAddress(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ subnet, client, want string }{
		{"10.0.0.0/24", "10.0.0.5", "10.0.0.1"}, {"10.0.0.7/24", "10.0.0.5", "10.0.0.1"},
		{"10.0.0.0/24", "10.0.0.1", "10.0.0.2"}, {"10.0.0.0/30", "10.0.0.1", "10.0.0.2"}, {"10.0.0.0/30", "10.0.0.2", "10.0.0.1"},
		{"10.0.0.4/31", "10.0.0.4", "10.0.0.5"}, {"10.0.0.4/31", "10.0.0.5", "10.0.0.4"}, {"10.0.0.4/32", "10.0.0.4", "10.0.0.4"},
	} {
		l := dhcpLab(func(d *topology.Dhcp, h *topology.DhcpHost) {
			d.ServerAddress, d.DefaultGateway = nil, nil
			d.SubnetAddress, h.IPAddress = netip.MustParsePrefix(tt.subnet), ip(tt.client)
		})
		d := l.send("p1", dhcpFrame(1, packet.DHCPDiscover, nil))
		got := offered(t, d)
		id, _ := got.Addr(packet.OptServerID)
		var f packet.Frame
		if err := packet.Decode(d.Emit[0].Frame, &f); err != nil {
			t.Fatal(err)
		}
		if id != ip(tt.want) || got.SIAddr != ip(tt.want) || f.SrcIP != ip(tt.want) {
			t.Errorf("%s, client %s: server id %v, siaddr %v, source %v, want %s", tt.subnet, tt.client, id, got.SIAddr, f.SrcIP, tt.want)
		}
	}
}

func TestDHCPMTUFollowsUnderlay(t *testing.T) {
	t.Parallel()
	l := dhcpLab(nil)
	mtu := func() string {
		v, _ := offered(t, l.send("p1", dhcpFrame(1, packet.DHCPDiscover, nil))).Option(packet.OptInterfaceMTU)
		return string(v)
	}
	l.ApplyHostState("h1", &topology.HostState{MTU: 9000, TunnelIP: ip("198.51.100.1")})
	if mtu() != "\x05\xdc" {
		t.Error("a wide underlay raised the MTU")
	}
	l.ApplyHostState("h2", &topology.HostState{MTU: 1500, TunnelIP: ip("198.51.100.2")})
	if mtu() != "\x05\xaa" || l.UnderlayMTU() != 1450 {
		t.Error("the narrowest underlay does not count")
	}
	l.ApplyHostState("h3", &topology.HostState{MTU: 1500, TunnelIP: ip("2001:db8::3")})
	if l.UnderlayMTU() != 1430 {
		t.Errorf("over IPv6 %d bytes, want 1430", l.UnderlayMTU())
	}
	l.ApplyHostState("h3", nil)
	l.ApplyHostState("h2", nil)
	if l.UnderlayMTU() != 8950 {
		t.Errorf("gone hosts count: %d", l.UnderlayMTU())
	}
}

func TestDHCPNotConsumed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*topology.Dhcp, *topology.DhcpHost)
	}{
		{"subnet disabled", func(d *topology.Dhcp, _ *topology.DhcpHost) { d.Enabled = false }},
		{"no entry for the MAC", func(_ *topology.Dhcp, h *topology.DhcpHost) { h.MAC = mac(9) }},
		{"no address", func(_ *topology.Dhcp, h *topology.DhcpHost) { h.IPAddress = netip.Addr{} }},
		{"another network", func(d *topology.Dhcp, _ *topology.DhcpHost) { d.NetworkID = "other" }},
	} {
		d := dhcpLab(c.change).send("p1", dhcpFrame(1, packet.DHCPDiscover, nil))
		if len(d.Emit) > 0 || d.Verdict == flow.Consumed || d.Cacheable {
			t.Errorf("%s\n%s", c.name, walk(d))
		}
	}
	l := dhcpLab(nil)
	if d := l.send("p2", dhcpFrame(1, packet.DHCPOffer, nil)[:60]); d.Verdict != flow.Drop || d.Cacheable {
		t.Errorf("a cut frame\n%s", walk(d))
	}
	p := machine(1, "none")
	p.down = true
	b := p.bundle()
	b.DhcpHosts = l.owners[p.owner()].DhcpHosts
	l.Apply(p.owner(), b)
	expect(t, l.send("p1", dhcpFrame(1, packet.DHCPDiscover, nil)), flow.Drop)
}

func TestDHCPFirstFixedIP(t *testing.T) {
	t.Parallel()
	l := dhcpLab(nil)
	l.Apply(owner("subnet", "s0"), &topology.Bundle{Dhcps: []topology.Dhcp{
		{ID: "s0", NetworkID: "net", SubnetAddress: netip.MustParsePrefix("10.1.0.0/24"), Enabled: true}}})
	p := machine(1, "none")
	b := p.bundle()
	b.DhcpHosts = slices.Clone(l.owners[p.owner()].DhcpHosts)
	b.DhcpHosts = append(b.DhcpHosts, topology.DhcpHost{SubnetID: "s0", PortID: p.id,
		DhcpHostEntry: topology.DhcpHostEntry{MAC: p.mac, IPAddress: ip("10.1.0.1")}})
	l.Apply(p.owner(), b)
	if got := offered(t, l.send("p1", dhcpFrame(1, packet.DHCPDiscover, nil))); got.YIAddr != addr(1) {
		t.Errorf("got %v, want the first fixed IP %v", got.YIAddr, addr(1))
	}
	other := machine(0) // claims the same MAC, and comes before p1
	b = other.bundle()
	b.DhcpHosts = []topology.DhcpHost{{SubnetID: "s0", PortID: other.id, DhcpHostEntry: topology.DhcpHostEntry{MAC: p.mac, IPAddress: ip("10.1.0.9")}}}
	l.Apply(other.owner(), b)
	if got := offered(t, l.send("p1", dhcpFrame(1, packet.DHCPDiscover, nil))); got.YIAddr != addr(1) {
		t.Errorf("got %v, want that of the port itself, %v", got.YIAddr, addr(1))
	}
}
