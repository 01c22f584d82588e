package packet

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// parts are the headers of a frame: what is built of them decodes to them.
type parts struct {
	Ethernet
	v4      IPv4
	v6      IPv6
	proto   uint8
	a, b    uint16 // ports, or type<<8|code and id
	payload []byte
}

func genParts() *rapid.Generator[parts] {
	addr := func(t *rapid.T, n int, name string) netip.Addr {
		a, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, name))
		return a
	}
	return rapid.Custom(func(t *rapid.T) parts {
		mac := rapid.SliceOfN(rapid.Byte(), 6, 6)
		p := parts{
			Ethernet: Ethernet{Dst: MAC(mac.Draw(t, "dst")), Src: MAC(mac.Draw(t, "src")), Type: rapid.SampledFrom([]uint16{TypeIPv4, TypeIPv6}).Draw(t, "type")},
			proto:    rapid.SampledFrom([]uint8{ProtoTCP, ProtoUDP, ProtoICMP, ProtoICMPv6}).Draw(t, "proto"),
			a:        rapid.Uint16().Draw(t, "a"), b: rapid.Uint16().Draw(t, "b"),
			payload: rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "payload"),
		}
		if p.Tagged = rapid.Bool().Draw(t, "tagged"); p.Tagged {
			p.VLAN = rapid.Uint16Range(0, 4095).Draw(t, "vlan")
		}
		tos, ttl, more := rapid.Uint8().Draw(t, "tos"), rapid.Uint8().Draw(t, "ttl"), rapid.Bool().Draw(t, "more")
		offset, id := rapid.Uint16Range(0, 2).Draw(t, "offset"), rapid.Uint16().Draw(t, "id")
		p.v4 = IPv4{TOS: tos, TTL: ttl, Proto: p.proto, ID: id, MoreFragments: more, Offset: offset, Src: addr(t, 4, "src4"), Dst: addr(t, 4, "dst4")}
		p.v6 = IPv6{Class: tos, HopLimit: ttl, Next: p.proto, Fragment: rapid.Bool().Draw(t, "fragment"), MoreFragments: more, Offset: offset,
			ID: uint32(id), Src: addr(t, 16, "src6"), Dst: addr(t, 16, "dst6")}
		return p
	})
}

func (p parts) addrs() (src, dst netip.Addr) {
	if p.Type == TypeIPv4 {
		return p.v4.Src, p.v4.Dst
	}
	return p.v6.Src, p.v6.Dst
}

func (p parts) build() []byte {
	src, dst := p.addrs()
	var t []byte
	switch p.proto {
	case ProtoTCP:
		t = TCP{SrcPort: p.a, DstPort: p.b, Seq: 1, Ack: 2, Flags: TCPSyn | TCPAck, Window: 3}.Append(nil, src, dst, p.payload)
	case ProtoUDP:
		t = UDP{SrcPort: p.a, DstPort: p.b}.Append(nil, src, dst, p.payload)
	case ProtoICMP:
		t = ICMP{Type: ICMPEchoRequest, Rest: EchoRest(p.a, p.b)}.Append(nil, p.payload)
	case ProtoICMPv6:
		t = ICMP{Type: ICMPv6EchoReply, Rest: EchoRest(p.a, p.b)}.AppendV6(nil, src, dst, p.payload)
	}
	b := p.Ethernet.Append(nil)
	if p.Type == TypeIPv4 {
		b = p.v4.Append(b, len(t))
	} else {
		b = p.v6.Append(b, len(t))
	}
	return append(b, t...)
}

// kind is the fragment kind that the headers say.
func (p parts) kind() FragKind {
	switch {
	case p.Type == TypeIPv6 && !p.v6.Fragment:
		return FragNone
	case p.v4.Offset > 0:
		return FragLater
	case p.v4.MoreFragments:
		return FragFirst
	}
	return FragNone
}

func TestBuiltFramesDecode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := genParts().Draw(t, "frame")
		b := p.build()
		var f Frame
		if err := Decode(b, &f); err != nil {
			t.Fatal(err)
		}
		src, dst := p.addrs()
		if f.Dst != p.Dst || f.Src != p.Ethernet.Src || f.EtherType != p.Type || (f.VLANs == 1) != p.Tagged || f.VLAN != p.VLAN || f.End != len(b) ||
			f.SrcIP != src || f.DstIP != dst || f.Proto != p.proto || f.TOS != p.v4.TOS || f.TTL != p.v4.TTL || f.Frag != p.kind() {
			t.Fatalf("%+v\nbuilt of %+v", f, p)
		}
		if f.Frag != FragNone && (f.FragID != uint32(p.v4.ID) || f.FragProto != p.proto) {
			t.Fatalf("fragment %+v\nbuilt of %+v", f, p)
		}
		echo := p.proto == ProtoICMP && p.Type == TypeIPv4 || p.proto == ProtoICMPv6 && p.Type == TypeIPv6
		switch {
		case f.Frag == FragLater:
			if f.HasTp || f.L4 != 0 {
				t.Fatalf("a later fragment has ports: %+v", f)
			}
		case echo && (!f.Echo || f.EchoID != p.a), HasPorts(p.proto) && (f.TpSrc != p.a || f.TpDst != p.b):
			t.Fatalf("%+v\nbuilt of %+v", f, p)
		}
		if echo || HasPorts(p.proto) {
			if err := VerifyChecksums(b); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Summing 4 bytes at a time is summing 2 at a time.
func TestSum(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		var want uint32
		for i := 0; i+1 < len(b); i += 2 {
			want += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		if len(b)%2 == 1 {
			want += uint32(b[len(b)-1]) << 8
		}
		if got := Fold(Sum(0, b)); got != Fold(want) {
			t.Fatalf("%x: got %#04x, want %#04x", b, got, Fold(want))
		}
	})
}

func TestUDPChecksumIsNeverNone(t *testing.T) {
	t.Parallel()
	for seed := range 0x10000 {
		payload := binary.BigEndian.AppendUint16(nil, uint16(seed))
		b := UDP{SrcPort: 1, DstPort: 2}.Append(nil, ipA, ipB, payload)
		if binary.BigEndian.Uint16(b[6:]) == 0 {
			t.Fatalf("payload %x has checksum 0, which means that there is none", payload)
		}
	}
}

func TestMAC(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]MAC{
		"fa:16:3e:00:00:0a": macA, "FA-16-3E-00-00-0A": macA, "ff:ff:ff:ff:ff:ff": Broadcast,
	} {
		if got, err := ParseMAC(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "fa:16:3e:00:00", "fa:16:3e:00:00:0g", "fa.16.3e.00.00.0a", "fa:16:3e:00:00:0a:0b"} {
		var m MAC
		if err := m.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q accepted as %v", text, m)
		}
	}
	if b, _ := macA.MarshalText(); string(b) != "fa:16:3e:00:00:0a" {
		t.Errorf("printed %s", b)
	}
	if macA.IsMulticast() || macA.IsZero() || !Broadcast.IsMulticast() || !(MAC{}).IsZero() {
		t.Error("wrong kind of address")
	}
	if m := MulticastMAC(netip.MustParseAddr("224.129.2.3")); m != (MAC{1, 0, 0x5e, 1, 2, 3}) {
		t.Errorf("group address %v", m)
	}
}

func TestTooBigIsNotForAll(t *testing.T) {
	t.Parallel()
	many := udp4("x")
	copy(many, Broadcast[:])
	nobody := udp4("x")
	copy(nobody[26:30], []byte{0, 0, 0, 0})
	later := IPv4{Proto: ProtoUDP, Offset: 5, Src: ipA, Dst: ipB}.Append(eth(TypeIPv4).Append(nil), 8)
	later = append(later, make([]byte, 8)...)
	arp := ARP{Op: ARPRequest, SPA: ipA, TPA: ipB}.Append(eth(TypeARP).Append(nil))
	for name, b := range map[string][]byte{"to many": many, "from nobody": nobody, "later fragment": later, "ARP": arp, "cut": many[:20]} {
		if _, err := TooBig(b, 1400, ipB, macB); err == nil {
			t.Errorf("%s: answered", name)
		}
	}
	if _, err := TooBig(udp4("x"), 1400, ip6B, macB); err == nil {
		t.Error("answered from an address of the other family")
	}
}
