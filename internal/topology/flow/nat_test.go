package flow

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func TestReverse(t *testing.T) {
	a, b, c, r := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1"), "router"
	entry := func(k NATKey, to netip.Addr, port uint16) NATEntry {
		return NATEntry{NATKey: k, NATBinding: NATBinding{Addr: to, Port: port}}
	}
	sticky := entry(NATKey{c, b, 0, 80, ForwardSticky, 6, r}, a, 8080)
	sticky.Life = 300
	for _, tt := range []struct{ e, want NATEntry }{
		{entry(NATKey{a, c, 1000, 80, ForwardSNAT, 6, r}, b, 2000), entry(NATKey{c, b, 80, 2000, ReverseSNAT, 6, r}, a, 1000)},
		{entry(NATKey{c, b, 1000, 80, ForwardDNAT, 6, r}, a, 8080), entry(NATKey{a, c, 8080, 1000, ReverseDNAT, 6, r}, b, 80)},
		{entry(NATKey{a, c, 7, 7, ForwardSNAT, 1, r}, b, 9), entry(NATKey{c, b, 9, 9, ReverseSNAT, 1, r}, a, 7)},
		{sticky, sticky},
	} {
		if got := tt.e.Reverse(); got != tt.want {
			t.Errorf("reverse of %+v\ngot  %+v\nwant %+v", tt.e, got, tt.want)
		}
	}
}

func TestReverseTwice(t *testing.T) {
	addr := rapid.Custom(func(t *rapid.T) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "addr")}) })
	rapid.Check(t, func(t *rapid.T) {
		port := rapid.Uint16()
		e := NATEntry{NATKey: NATKey{addr.Draw(t, "src"), addr.Draw(t, "dst"), port.Draw(t, "sport"), port.Draw(t, "dport"), NATKind(rapid.IntRange(1, 4).Draw(t, "kind")),
			rapid.SampledFrom([]uint8{1, 6, 17}).Draw(t, "proto"), "router"}, NATBinding: NATBinding{Addr: addr.Draw(t, "to"), Port: port.Draw(t, "port")}}
		if e.Proto == 1 {
			e.DstPort = e.SrcPort
		}
		back := e.Reverse()
		if back.Reverse() != e || back.IsForward() == e.IsForward() {
			t.Fatalf("%+v, reverse %+v, of that %+v", e, back, back.Reverse())
		}
	})
}
