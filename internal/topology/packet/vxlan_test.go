package packet

import (
	"bytes"
	"net/netip"
	"testing"
)

// FuzzVXLAN: any bytes are read as a VXLAN header or refused, and what is built is read back.
func FuzzVXLAN(f *testing.F) {
	inner := Ethernet{Dst: Broadcast, Src: MAC{2}, Type: TypeARP}.Append(nil)
	outer := VXLAN{VNI: 0xabcdef, Dst: MAC{2}, Src: MAC{4}, From: netip.MustParseAddr("192.0.2.1"), To: netip.MustParseAddr("192.0.2.2"), SrcPort: 50000, DstPort: VXLANPort, TTL: 64}
	whole := outer.Append(nil, inner)
	for _, seed := range [][]byte{whole[42:], whole[42:50], whole[42:49], {0x08, 0, 0, 1, 0, 0, 1, 0}, {0x0c, 0, 0, 0, 0, 0, 1, 0}, nil} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		vni, inner, err := ParseVXLAN(payload)
		if err != nil {
			return
		}
		h := outer
		h.VNI = vni
		b := h.Append(nil, inner)
		if !bytes.Equal(b[42:], payload) {
			t.Fatalf("%x is built as %x", payload, b[42:])
		}
		var decoded Frame
		if err := Decode(b, &decoded); len(b) < 1<<16 && (err != nil || decoded.TpDst != VXLANPort || decoded.SrcIP != h.From || VerifyChecksums(b) != nil) {
			t.Fatalf("the outside is %+v, %v", decoded, err)
		}
		// The frame inside is read whatever it is.
		_ = Decode(inner, &decoded)
		SecondVLAN(inner)
		if vlan := PushVLAN(inner, 7); len(inner) >= 14 && !bytes.Equal(PopVLAN(vlan), inner) {
			t.Fatalf("%x is not what it was after a tag came and went", inner)
		}
	})
}
