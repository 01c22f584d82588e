package flowstate

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"heddle/internal/topology/flow"
)

const (
	hostA = "00000000-0000-4000-8000-00000000000a"
	net1  = "11111111-1111-4111-8111-111111111111"
	portA = "22222222-2222-4222-8222-222222222222"
)

func key4(n byte) flow.ConnKey {
	return flow.ConnKey{Src: netip.AddrFrom4([4]byte{192, 0, 2, n}), Dst: netip.MustParseAddr("198.51.100.2"), SrcPort: 1000, DstPort: 80, Proto: 6, Device: net1}
}

func TestMessageBytes(t *testing.T) {
	k := key4(1)
	k.Ingress = true
	got, err := AppendMessages(nil, hostA, []flow.ConnKey{k})
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Concat(
		[]byte{1, 1}, // version, connections
		[]byte{0, 0, 0, 0, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 0x0a}, // sender
		[]byte{2, 6},              // IPv4, ingress; TCP
		[]byte{0x03, 0xe8, 0, 80}, // ports
		[]byte{192, 0, 2, 1}, make([]byte, 12),
		[]byte{198, 51, 100, 2}, make([]byte, 12),
		bytes.Repeat([]byte{0x11}, 6), []byte{0x41, 0x11, 0x81}, bytes.Repeat([]byte{0x11}, 7), // device
	)
	if len(got) != 1 || !bytes.Equal(got[0], want) {
		t.Errorf("got\n% x\nwant\n% x", got, want)
	}
}

func TestMessagesRefuseBadBytes(t *testing.T) {
	good, err := AppendMessages(nil, hostA, []flow.ConnKey{key4(1), key4(2)})
	if err != nil {
		t.Fatal(err)
	}
	change := func(at int, to byte) []byte { b := bytes.Clone(good[0]); b[at] = to; return b }
	for _, c := range []struct {
		name  string
		b     []byte
		wants string
	}{
		{"empty", nil, "of 0 bytes"},
		{"short header", good[0][:headerSize-1], "of 17 bytes"},
		{"cut connection", good[0][:len(good[0])-1], "says it holds 2"},
		{"something behind", append(bytes.Clone(good[0]), 0), "says it holds 2"},
		{"no connections", change(1, 0), "says it holds 0"},
		{"too many", change(1, 200), "says it holds 200"},
		{"version", change(0, 2), "version 2"},
		{"flags", change(headerSize, 0x80), "unknown flags 0x80"},
		{"behind an IPv4 address", change(headerSize+10, 1), "something behind"},
	} {
		if _, err := ParseMessage(c.b); err == nil || !strings.Contains(err.Error(), c.wants) {
			t.Errorf("%s: got error %v, want one with %q", c.name, err, c.wants)
		}
	}
	if _, err := AppendMessages(nil, "host one", []flow.ConnKey{key4(1)}); err == nil {
		t.Error("a sender that is no UUID was accepted")
	}
	for _, bad := range []flow.ConnKey{{}, {Src: key4(1).Src, Dst: netip.MustParseAddr("2001:db8::1"), Device: net1}, {Src: key4(1).Src, Dst: key4(1).Dst, Device: "net one"}} {
		if _, err := AppendMessages(nil, hostA, []flow.ConnKey{bad}); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

func drawAddr(t *rapid.T, v6 bool, name string) netip.Addr {
	if v6 {
		return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name)))
	}
	return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, name)))
}

func drawKey(t *rapid.T) flow.ConnKey {
	v6 := rapid.Bool().Draw(t, "v6")
	return flow.ConnKey{Src: drawAddr(t, v6, "src"), Dst: drawAddr(t, v6, "dst"), SrcPort: rapid.Uint16().Draw(t, "sport"), DstPort: rapid.Uint16().Draw(t, "dport"),
		Proto: rapid.Byte().Draw(t, "proto"), Ingress: rapid.Bool().Draw(t, "ingress"), Device: rapid.SampledFrom([]string{hostA, net1}).Draw(t, "device")}
}

func TestMessagesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(rapid.Custom(drawKey), 0, 3*MaxKeys).Draw(t, "keys")
		messages, err := AppendMessages(nil, hostA, keys)
		if err != nil {
			t.Fatal(err)
		}
		var back []flow.ConnKey
		for _, b := range messages {
			if len(b) > 1400 {
				t.Fatalf("a message of %d bytes", len(b))
			}
			m, err := ParseMessage(b)
			if err != nil {
				t.Fatal(err)
			}
			if m.Sender != hostA {
				t.Fatalf("sender %s", m.Sender)
			}
			back = append(back, m.Keys...)
		}
		if !slices.Equal(back, keys) {
			t.Fatalf("got %v, want %v", back, keys)
		}
	})
}

// FuzzParseMessage: no bytes crash the parser, and what it accepts it would have written the same.
func FuzzParseMessage(f *testing.F) {
	v6 := key4(3)
	v6.Src, v6.Dst = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	seeds, err := AppendMessages(nil, hostA, []flow.ConnKey{key4(1), v6})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seeds[0])
	f.Add(seeds[0][:30])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMessage(b)
		if err != nil {
			return
		}
		again, err := AppendMessages(nil, m.Sender, m.Keys)
		if err != nil || len(again) != 1 || !bytes.Equal(again[0], b) {
			t.Errorf("accepted % x, writes % x (%v)", b, again, err)
		}
	})
}

func TestSealedBytes(t *testing.T) {
	e := Envelope{SenderKey: 0x01020304, ReceiverKey: 0x05060708, Session: 0x1112131415161718, Counter: 0x2122232425262728}
	b := append(e.Append(nil), "sealed"...)
	want := slices.Concat(
		[]byte{2, 0},                   // version
		[]byte{1, 2, 3, 4, 5, 6, 7, 8}, // keys
		[]byte{0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18}, // session
		[]byte{0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28}, // counter
		[]byte("sealed"),
	)
	if !bytes.Equal(b, want) {
		t.Fatalf("got % x, want % x", b, want)
	}
	back, written, sealed, err := ParseEnvelope(b)
	if err != nil || back != e || !bytes.Equal(written, b[:EnvelopeSize]) || string(sealed) != "sealed" {
		t.Errorf("read back %+v, % x, %q, %v", back, written, sealed, err)
	}
	for name, bad := range map[string][]byte{"empty": nil, "cut": b[:EnvelopeSize-1], "version 1": append([]byte{1}, b[1:]...), "version 3": append([]byte{3}, b[1:]...), "version 2.1": append([]byte{2, 1}, b[2:]...)} {
		if _, _, _, err := ParseEnvelope(bad); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	body, err := AppendBody(nil, []flow.ConnKey{key4(1), key4(2)})
	if err != nil {
		t.Fatal(err)
	}
	if keys, err := ParseBody(body); err != nil || !slices.Equal(keys, []flow.ConnKey{key4(1), key4(2)}) {
		t.Errorf("read back %v, %v", keys, err)
	}
	for name, bad := range map[string][]byte{"empty": nil, "none": {0}, "cut": body[:len(body)-1], "more": append(bytes.Clone(body), 0), "count": append([]byte{3}, body[1:]...)} {
		if _, err := ParseBody(bad); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	for name, keys := range map[string][]flow.ConnKey{"none": nil, "too many": make([]flow.ConnKey, MaxKeys+1), "bad": {{}}} {
		if _, err := AppendBody(nil, keys); err == nil {
			t.Errorf("%s were written", name)
		}
	}
}

// FuzzParseSealed: no bytes crash the parsers, and what they accept they would have written the
// same.
func FuzzParseSealed(f *testing.F) {
	body, err := AppendBody(nil, []flow.ConnKey{key4(1), key4(2)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(Envelope{1, 2, 3, 4}.Append(nil), body...))
	f.Add(body)
	f.Add([]byte{2, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, written, sealed, err := ParseEnvelope(b)
		if err != nil {
			sealed = b
		} else if !bytes.Equal(e.Append(nil), written) || len(written)+len(sealed) != len(b) {
			t.Errorf("% x is read as %+v, % x and % x", b, e, written, sealed)
		}
		keys, err := ParseBody(sealed)
		if err != nil {
			return
		}
		if again, err := AppendBody(nil, keys); err != nil || !bytes.Equal(again, sealed) {
			t.Errorf("accepted % x, writes % x (%v)", sealed, again, err)
		}
	})
}
