package overlay

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/packet"
)

func drawKey(t *rapid.T) datapath.Key {
	bytes := func(n int, name string) []byte { return rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, name) }
	k := datapath.Key{Port: 7, SrcMAC: packet.MAC(bytes(6, "src mac")), DstMAC: packet.MAC(bytes(6, "dst mac")),
		Frag:  rapid.SampledFrom([]datapath.Frag{datapath.Whole, datapath.FirstFrag, datapath.LaterFrag}).Draw(t, "frag"),
		Proto: rapid.SampledFrom([]uint8{1, 6, 17, 33, 47, 50, 58, 103, 132, 136}).Draw(t, "proto")}
	if rapid.Bool().Draw(t, "tagged") {
		k.VLAN = vlanPresent | rapid.Uint16Range(0, 4095).Draw(t, "vlan")
	}
	if rapid.Bool().Draw(t, "v6") {
		k.Src, k.Dst = netip.AddrFrom16([16]byte(bytes(16, "src"))), netip.AddrFrom16([16]byte(bytes(16, "dst")))
	} else {
		k.Src, k.Dst = netip.AddrFrom4([4]byte(bytes(4, "src"))), netip.AddrFrom4([4]byte(bytes(4, "dst")))
	}
	if k.Frag != datapath.Whole {
		return k
	}
	switch k.Proto {
	case packet.ProtoICMP:
		k.SrcPort, k.DstPort = rapid.Uint16().Draw(t, "id"), rapid.SampledFrom([]uint16{0, 8 << 8}).Draw(t, "type")
	case packet.ProtoICMPv6:
		k.SrcPort, k.DstPort = rapid.Uint16().Draw(t, "id"), rapid.SampledFrom([]uint16{128 << 8, 129 << 8}).Draw(t, "type")
	case 6, 17, 33, 132, 136:
		k.SrcPort, k.DstPort = rapid.Uint16().Draw(t, "sport"), rapid.Uint16().Draw(t, "dport")
	}
	return k
}

// TestExampleFrameHasItsKey: the frame made up for a key is one that the kernel would find that
// flow for, and one that decodes.
func TestExampleFrameHasItsKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t)
		frame := exampleFrame(nil, k)
		got, ok := datapath.KeyOf(k.Port, frame)
		if !ok || got != k {
			t.Fatalf("frame % x has key %+v, %v; want %+v", frame, got, ok, k)
		}
		var f packet.Frame
		if err := packet.Decode(frame, &f); err != nil {
			t.Fatalf("frame % x of %+v: %v", frame, k, err)
		}
	})
}
