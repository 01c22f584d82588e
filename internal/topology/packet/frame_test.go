package packet

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

var (
	macA = MAC{0xfa, 0x16, 0x3e, 0, 0, 0xa}
	macB = MAC{0xfa, 0x16, 0x3e, 0, 0, 0xb}
	ipA  = netip.MustParseAddr("192.0.2.10")
	ipB  = netip.MustParseAddr("192.0.2.11")
	ip6A = netip.MustParseAddr("2001:db8::a")
	ip6B = netip.MustParseAddr("2001:db8::b")
)

// raw reads hex with spaces and #-comments, one header a line.
func raw(t testing.TB, lines string) []byte {
	t.Helper()
	var digits strings.Builder
	for line := range strings.Lines(lines) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func eth(typ uint16) Ethernet { return Ethernet{Dst: macB, Src: macA, Type: typ} }

func udp4(payload string) []byte {
	t := UDP{SrcPort: 4000, DstPort: 53}.Append(nil, ipA, ipB, []byte(payload))
	b := eth(TypeIPv4).Append(nil)
	b = IPv4{TTL: 64, Proto: ProtoUDP, Src: ipA, Dst: ipB}.Append(b, len(t))
	return append(b, t...)
}

func tcp6() []byte {
	t := TCP{SrcPort: 4000, DstPort: 80, Flags: TCPSyn}.Append(nil, ip6A, ip6B, nil)
	b := eth(TypeIPv6).Append(nil)
	b = IPv6{HopLimit: 64, Next: ProtoTCP, Src: ip6A, Dst: ip6B}.Append(b, len(t))
	return append(b, t...)
}

func TestDecodeARP(t *testing.T) {
	b := raw(t, `
		ffffffffffff fa163e00000a 0806
		0001 0800 06 04 0001          # Ethernet, IPv4, request
		fa163e00000a c000020a         # sender
		000000000000 c000020b         # target
		0000000000000000              # padding`)
	var f Frame
	if err := Decode(b, &f); err != nil {
		t.Fatal(err)
	}
	want := Frame{Dst: Broadcast, Src: macA, EtherType: TypeARP, SrcIP: ipA, DstIP: ipB, ARPOp: ARPRequest, SHA: macA, L3: 14, End: 42}
	if f != want {
		t.Errorf("got  %+v\nwant %+v", f, want)
	}
	built := Ethernet{Dst: Broadcast, Src: macA, Type: TypeARP}.Append(nil)
	built = ARP{Op: ARPRequest, SHA: macA, SPA: ipA, TPA: ipB}.Append(built)
	if string(built) != string(b[:42]) {
		t.Errorf("built %x, want %x", built, b[:42])
	}
}

func TestDecodeUDP(t *testing.T) {
	b := udp4("hello")
	var f Frame
	if err := Decode(append(b, 0, 0, 0), &f); err != nil {
		t.Fatal(err)
	}
	want := Frame{Dst: macB, Src: macA, EtherType: TypeIPv4, SrcIP: ipA, DstIP: ipB, Proto: ProtoUDP, FragProto: ProtoUDP, TTL: 64,
		HasTp: true, TpSrc: 4000, TpDst: 53, L3: 14, L4: 34, End: 47}
	if f != want {
		t.Errorf("got  %+v\nwant %+v", f, want)
	}
}

func TestDecodeTags(t *testing.T) {
	b := raw(t, `fa163e00000b fa163e00000a 88a8 2064 8100 0065 88cc 0001`)
	var f Frame
	if err := Decode(b, &f); err != nil {
		t.Fatal(err)
	}
	if f.VLANs != 2 || f.VLAN != 100 || f.EtherType != 0x88cc || f.L3 != 22 {
		t.Errorf("got %+v", f)
	}
}

func TestDecodeFragments(t *testing.T) {
	for _, c := range []struct {
		name   string
		header IPv4
		kind   FragKind
		ports  bool
	}{
		{"whole", IPv4{ID: 7}, FragNone, true},
		{"first", IPv4{ID: 7, MoreFragments: true}, FragFirst, true},
		{"later", IPv4{ID: 7, MoreFragments: true, Offset: 2}, FragLater, false},
		{"last", IPv4{ID: 7, Offset: 185}, FragLater, false},
	} {
		h := c.header
		h.TTL, h.Proto, h.Src, h.Dst = 64, ProtoTCP, ipA, ipB
		b := h.Append(eth(TypeIPv4).Append(nil), 20)
		b = TCP{}.Append(b, ipA, ipB, nil)
		var f Frame
		if err := Decode(b, &f); err != nil {
			t.Fatal(c.name, err)
		}
		if f.Frag != c.kind || f.HasTp != c.ports || (c.kind != FragNone) != (f.FragID == 7) {
			t.Errorf("%s: got %+v", c.name, f)
		}
	}
}

func TestDecodeIPv6Extensions(t *testing.T) {
	for _, c := range []struct {
		name string
		next uint8
		ext  string
		kind FragKind
		tp   uint16
		err  error
	}{
		{name: "hop-by-hop", next: 0, ext: "06 00 050200000000", tp: 80},
		{name: "three in a row", next: 0, ext: "2b00000000000000 3c00000000000000 0600000000000000", tp: 80},
		{name: "authentication", next: 51, ext: "06 01 0000 00000000 00000000", tp: 80},
		{name: "atomic fragment", next: 44, ext: "06 00 0000 00000009", tp: 80},
		{name: "first fragment", next: 44, ext: "06 00 0001 00000009", kind: FragFirst, tp: 80},
		{name: "later fragment", next: 44, ext: "06 00 0010 00000009", kind: FragLater},
		{name: "two fragment headers", next: 44, ext: "2c00000100000009 0600000100000009", err: errV6Frag},
		{name: "eight", next: 60, ext: strings.Repeat("3c00000000000000", 7) + "0600000000000000", tp: 80},
		{name: "nine", next: 60, ext: strings.Repeat("3c00000000000000", 8) + "0600000000000000", err: errV6ExtMany},
		{name: "length past the end", next: 60, ext: "06ff000000000000", err: errV6Ext},
	} {
		ext := raw(t, c.ext)
		tcp := TCP{SrcPort: 4000, DstPort: 80}.Append(nil, ip6A, ip6B, nil)
		b := IPv6{HopLimit: 64, Next: c.next, Src: ip6A, Dst: ip6B}.Append(eth(TypeIPv6).Append(nil), len(ext)+len(tcp))
		b = append(append(b, ext...), tcp...)
		var f Frame
		err := Decode(b, &f)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.err)
			continue
		}
		if err == nil && (f.Proto != ProtoTCP || f.Frag != c.kind || f.TpDst != c.tp) {
			t.Errorf("%s: got %+v", c.name, f)
		}
	}
}

func TestDecodeMalformed(t *testing.T) {
	udp, tcp := udp4("hello"), tcp6()
	change := func(b []byte, at int, v byte) []byte {
		b = append([]byte(nil), b...)
		b[at] = v
		return b
	}
	ns := NeighborSolicit(Broadcast, macA, ip6A, ip6B, ip6B)
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"empty", nil, errEthShort},
		{"tag cut", udp[:12:12], errEthShort},
		{"IPv4 cut", udp[:30], errV4Short},
		{"IPv4 version", change(udp, 14, 0x65), errV4Version},
		{"IPv4 header length", change(udp, 14, 0x44), errV4Length},
		{"IPv4 total length", change(udp, 17, 0xff), errV4Length},
		{"IPv4 total length below header", change(udp, 17, 19), errV4Length},
		{"IPv4 without ports", change(udp, 17, 23), errPorts},
		{"UDP cut behind its ports", change(udp, 17, 27), errPorts},
		{"IPv6 cut", tcp[:50], errV6Short},
		{"IPv6 version", change(tcp, 14, 0x40), errV6Version},
		{"IPv6 payload length", change(tcp, 19, 0xff), errV6Length},
		{"IPv6 without ports", change(tcp, 19, 3), errPorts},
		{"ICMP cut", change(change(udp, 23, ProtoICMP), 17, 27), errICMP},
		{"ARP cut", change(udp, 13, 0x06)[:40], errARPShort},
		{"ARP of another kind", change(udp, 13, 0x06), errARPKind},
		{"TCP cut", change(tcp, 19, 19), errTCPShort},
		{"TCP data offset in the header", change(tcp, 66, 4<<4), errTCPOffset},
		{"TCP data offset past the end", change(tcp, 66, 15<<4), errTCPOffset},
		{"TCP header in two fragments", change(change(change(udp, 23, ProtoTCP), 17, 28), 20, 0x20), errTCPShort},
		{"ND option of length 0", change(ns, len(ns)-7, 0), errNDOption},
		{"ND option cut", change(ns, len(ns)-7, 2), errNDOption},
	} {
		var f Frame
		err := Decode(c.b, &f)
		var m *Malformed
		if !errors.Is(err, c.want) || !errors.As(err, &m) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
	}
}

// TestDecodeNoForward: source routes and broken options are found wherever they are among the
// options, and nothing else is taken for them.
func TestDecodeNoForward(t *testing.T) {
	for _, c := range []struct{ options, want string }{
		{"", ""},
		{"94040000", ""},             // router alert
		{"07 07 04 00000000 00", ""}, // record route
		{"83 07 04 c0000263 00", SourceRouteOption}, // loose
		{"89 07 04 c0000263 00", SourceRouteOption}, // strict
		{"01 01 01 01 94040000 83 07 04 c0000263 01", SourceRouteOption},
		{"00 83 07 04 c0000263", ""}, // behind the end of the options
		{"94 00 0000", BadIPv4Option},
		{"94 01 0000", BadIPv4Option},
		{"07 09 04 00000000 00", BadIPv4Option},
		{"01 01 01 83", BadIPv4Option},
	} {
		o := raw(t, c.options)
		b := IPv4{TTL: 64, Proto: ProtoUDP, Src: ipA, Dst: ipB}.Append(eth(TypeIPv4).Append(nil), len(o)+8)
		b[14] += byte(len(o) / 4)
		b = UDP{SrcPort: 1000, DstPort: 53}.Append(append(b, o...), ipA, ipB, nil)
		var f Frame
		if err := Decode(b, &f); err != nil || f.NoForward != c.want || f.TpDst != 53 {
			t.Errorf("options %s: %q to port %d, %v; want %q", c.options, f.NoForward, f.TpDst, err, c.want)
		}
	}
	for _, c := range []struct {
		next      uint8
		ext, want string
	}{
		{43, "06 02 00 01 00000000 20010db8000000000000000000000063", RoutingHeader0},
		{0, "2b00000000000000 06 00 00 00 00000000", RoutingHeader0},
		{43, "06 02 04 01 00000000 20010db8000000000000000000000063", ""}, // segment routing
		{60, "06 00 00 00 00000000", ""},
	} {
		ext := raw(t, c.ext)
		tcp := TCP{SrcPort: 4000, DstPort: 80}.Append(nil, ip6A, ip6B, nil)
		b := IPv6{HopLimit: 64, Next: c.next, Src: ip6A, Dst: ip6B}.Append(eth(TypeIPv6).Append(nil), len(ext)+len(tcp))
		var f Frame
		if err := Decode(append(append(b, ext...), tcp...), &f); err != nil || f.NoForward != c.want || f.TpDst != 80 {
			t.Errorf("header %d %s: %q to port %d, %v; want %q", c.next, c.ext, f.NoForward, f.TpDst, err, c.want)
		}
	}
}

// TestNoAdvertisementInFragments: no first fragment of a router advertisement decodes, whatever
// headers precede it and wherever it is cut (RFC 6980, RFC 7112): none is ever reassembled.
func TestNoAdvertisementInFragments(t *testing.T) {
	ra := ICMP{Type: ICMPv6RouterAdvert, Rest: 0x40000708}.AppendV6(nil, ip6A, ip6B, make([]byte, 56))
	padding := func(next uint8, size int) []byte {
		return append([]byte{next, byte(size/8 - 1), 1, 4}, make([]byte, size-4)...)
	}
	authentication := func(next uint8) []byte { return append([]byte{next, 2}, make([]byte, 14)...) }
	for name, c := range map[string]struct {
		next uint8
		part []byte
	}{
		"alone":                  {ProtoICMPv6, ra},
		"destination options":    {60, slices.Concat(padding(ProtoICMPv6, 8), ra)},
		"long options":           {60, slices.Concat(padding(ProtoICMPv6, 1280), ra)},
		"options twice":          {60, slices.Concat(padding(60, 8), padding(ProtoICMPv6, 16), ra)},
		"authentication":         {51, slices.Concat(authentication(ProtoICMPv6), ra)},
		"routing and mobility":   {43, slices.Concat(padding(135, 24), padding(ProtoICMPv6, 8), ra)},
		"hop-by-hop and options": {0, slices.Concat(padding(60, 8), padding(ProtoICMPv6, 8), ra)},
	} {
		for cut := 0; cut <= len(c.part); cut += 8 { // the last is an atomic fragment
			h := IPv6{HopLimit: 255, Next: c.next, Src: ip6A, Dst: ip6B, Fragment: true, MoreFragments: cut < len(c.part), ID: 7}
			var f Frame
			if Decode(append(h.Append(eth(TypeIPv6).Append(nil), cut), c.part[:cut]...), &f) == nil {
				t.Errorf("%s, cut at %d of %d bytes: %+v", name, cut, len(c.part), f)
			}
		}
	}
}

func TestDecodeHead(t *testing.T) {
	b := udp4(strings.Repeat("x", 1000))
	var f Frame
	if err := DecodeHead(b[:64], len(b), &f); err != nil {
		t.Fatal(err)
	}
	if f.TpDst != 53 || f.End != len(b) {
		t.Errorf("got %+v", f)
	}
	if err := Decode(b[:64], &f); !errors.Is(err, errV4Length) {
		t.Errorf("cut frame decoded with error %v, want %v", err, errV4Length)
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	frames := [][]byte{udp4("hello"), tcp6(), NeighborSolicit(Broadcast, macA, ip6A, ip6B, ip6B), udp4("x")[:20]}
	var f Frame
	if n := testing.AllocsPerRun(100, func() {
		for _, b := range frames {
			_ = Decode(b, &f)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func TestICMPErrorQuotes(t *testing.T) {
	for _, c := range []struct {
		frame []byte
		src   netip.Addr
		head  int
	}{{udp4(strings.Repeat("x", 2000)), ipB, 128}, {tcp6(), ip6B, 70}} {
		if b, err := TooBig(c.frame[:c.head], 1400, c.src, macB); err != nil || VerifyChecksums(b) != nil {
			t.Errorf("of a head: %v", err)
		}
		b, err := TooBig(c.frame, 1400, c.src, macB)
		if err != nil {
			t.Fatal(err)
		}
		if err := VerifyChecksums(b); err != nil {
			t.Error(err)
		}
		var f, about Frame
		if err := Decode(b, &f); err != nil {
			t.Fatal(err)
		}
		if err := Decode(c.frame, &about); err != nil {
			t.Fatal(err)
		}
		want := Quote{Valid: true, Src: about.SrcIP, Dst: about.DstIP, Proto: about.Proto, SrcPort: about.TpSrc, DstPort: about.TpDst}
		if !f.IsICMPError() || f.Quote != want || f.Dst != macA {
			t.Errorf("got %+v, want quote %+v", f, want)
		}
		if _, err := TooBig(b, 1400, c.src, macB); err == nil {
			t.Error("an ICMP error was answered with another")
		}
	}
}

func TestNeighborDiscovery(t *testing.T) {
	na := NeighborAdvert(macA, macB, ip6A, ip6B, NDSolicited|NDOverride)
	var f Frame
	if err := Decode(na, &f); err != nil {
		t.Fatal(err)
	}
	if !f.IsND() || f.NDTarget != ip6B || f.NDLink != macB || f.NDFlags != NDSolicited|NDOverride || f.TTL != 255 || f.SrcIP != ip6B {
		t.Errorf("got %+v", f)
	}
	dad := NeighborSolicit(MulticastMAC(SolicitedNode(ip6A)), macA, netip.IPv6Unspecified(), SolicitedNode(ip6A), ip6A)
	if err := Decode(dad, &f); err != nil {
		t.Fatal(err)
	}
	if f.HasNDOpt || f.Dst != (MAC{0x33, 0x33, 0xff, 0, 0, 0xa}) || f.DstIP.String() != "ff02::1:ff00:a" {
		t.Errorf("got %+v", f)
	}
	for _, b := range [][]byte{na, dad} {
		if err := VerifyChecksums(b); err != nil {
			t.Error(err)
		}
	}
}

func TestVerifyChecksums(t *testing.T) {
	b := udp4("hello")
	for _, at := range []int{24, 40, len(b) - 1} { // header checksum, transport checksum, payload
		bad := append([]byte(nil), b...)
		bad[at] ^= 0x10
		if VerifyChecksums(bad) == nil {
			t.Errorf("byte %d changed, and no error", at)
		}
	}
	if err := VerifyChecksums(b); err != nil {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(udp4("hello"))
	f.Add(tcp6())
	f.Add(NeighborAdvert(macA, macB, ip6A, ip6B, NDSolicited))
	big, _ := TooBig(tcp6(), 1400, ip6B, macB)
	f.Add(big)
	f.Fuzz(func(t *testing.T, b []byte) {
		var fr Frame
		if err := Decode(b, &fr); err != nil {
			return
		}
		if fr.End > len(b) || fr.L4 > fr.End || fr.L3 > len(b) {
			t.Fatalf("offsets beyond %d bytes: %+v", len(b), fr)
		}
		if fr.IsIP() && (!fr.SrcIP.IsValid() || !fr.DstIP.IsValid()) {
			t.Fatalf("IP without addresses: %+v", fr)
		}
		_ = VerifyChecksums(b)
		if answer, err := TooBig(b, 1280, fr.DstIP, macB); err == nil {
			var a Frame
			if err := Decode(answer, &a); err != nil || VerifyChecksums(answer) != nil {
				t.Fatalf("built %x: %v", answer, err)
			}
		}
	})
}

// An advertisement is that of RFC 4861 §4.2, byte by byte.
func TestRouterAdvert(t *testing.T) {
	t.Parallel()
	a := RouterAdvert{Managed: true, Lifetime: 1800, MTU: 1400, Prefixes: []AdvertPrefix{{Prefix: netip.MustParsePrefix("2001:db8::/64"), Autonomous: true, Valid: 86400, Preferred: 14400}},
		DNS: []netip.Addr{netip.MustParseAddr("2001:db8::53")}, DNSLifetime: 60}
	mac := MAC{2, 0, 0, 0, 0, 9}
	b := a.Frame(MAC{0x33, 0x33, 0, 0, 0, 1}, mac, netip.MustParseAddr("ff02::1"))
	if err := VerifyChecksums(b); err != nil {
		t.Fatal(err)
	}
	want := "8600" + fmt.Sprintf("%04x", binary.BigEndian.Uint16(b[56:])) + // type, code, checksum
		"40800708" + "0000000000000000" + // hop limit, M, lifetime, timers
		"0101020000000009" + "0501000000000578" + // source, MTU
		"030440c0" + "00015180" + "00003840" + "00000000" + "20010db8000000000000000000000000" + // prefix
		"1903000000" + "00003c" + "20010db8000000000000000000000053" // DNS
	if got := fmt.Sprintf("%x", b[54:]); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
