package flowstate

import (
	"bytes"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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
	got, err := (&State{Conns: []flow.ConnKey{k}}).Messages(hostA)
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
	good, err := (&State{Conns: []flow.ConnKey{key4(1), key4(2)}}).Messages(hostA)
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
		{"too many", change(1, 21), "says it holds 21"},
		{"too many translations", change(1, 0x80|16), "says it holds 16"},
		{"of the other kind", change(1, 0x80|2), "says it holds 2 of 72"},
		{"version", change(0, 2), "version 2"},
		{"flags", change(headerSize, 0x80), "unknown flags 0x80"},
		{"behind an IPv4 address", change(headerSize+10, 1), "something behind"},
	} {
		if _, err := ParseMessage(c.b); err == nil || !strings.Contains(err.Error(), c.wants) {
			t.Errorf("%s: got error %v, want one with %q", c.name, err, c.wants)
		}
	}
	if _, err := (&State{Conns: []flow.ConnKey{key4(1)}}).Messages("host one"); err == nil {
		t.Error("a sender that is no UUID was accepted")
	}
	for _, bad := range []flow.ConnKey{{}, {Src: key4(1).Src, Dst: netip.MustParseAddr("2001:db8::1"), Device: net1}, {Src: key4(1).Src, Dst: key4(1).Dst, Device: "net one"}} {
		if _, err := (&State{Conns: []flow.ConnKey{bad}}).Messages(hostA); err == nil {
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

func drawNAT(t *rapid.T) flow.NATEntry {
	k := drawKey(t)
	e := flow.NATEntry{NATKey: flow.NATKey{Kind: rapid.SampledFrom([]flow.NATKind{flow.ForwardSNAT, flow.ForwardDNAT}).Draw(t, "kind"),
		Src: k.Src, Dst: k.Dst, SrcPort: k.SrcPort, DstPort: k.DstPort, Proto: k.Proto, Device: k.Device},
		NATBinding: flow.NATBinding{Addr: drawAddr(t, k.Src.Is6(), "to"), Port: rapid.Uint16().Draw(t, "port")}}
	if isICMP(e.Proto) {
		e.DstPort = e.SrcPort
	}
	return e
}

func TestMessagesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := State{Conns: rapid.SliceOfN(rapid.Custom(drawKey), 0, 3*MaxKeys).Draw(t, "keys"), NATs: rapid.SliceOfN(rapid.Custom(drawNAT), 0, 3*MaxTranslations).Draw(t, "translations")}
		messages, err := want.Messages(hostA)
		if err != nil {
			t.Fatal(err)
		}
		var back State
		for _, b := range messages {
			if len(b)+EnvelopeSize > 1200 {
				t.Fatalf("a message of %d bytes", len(b))
			}
			m, err := ParseMessage(b)
			if err != nil {
				t.Fatal(err)
			}
			if m.Sender != hostA {
				t.Fatalf("sender %s", m.Sender)
			}
			back.Conns, back.NATs = append(back.Conns, m.Conns...), append(back.NATs, m.NATs...)
		}
		if !slices.Equal(back.Conns, want.Conns) || !slices.Equal(back.NATs, want.NATs) {
			t.Fatalf("got %v, want %v", back, want)
		}
	})
}

// FuzzParseMessage: no bytes crash the parser, and what it accepts it would have written the same.
func FuzzParseMessage(f *testing.F) {
	v6 := key4(3)
	v6.Src, v6.Dst = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	seeds, err := (&State{Conns: []flow.ConnKey{key4(1), v6}}).Messages(hostA)
	if err != nil {
		f.Fatal(err)
	}
	nats, err := (&State{NATs: []flow.NATEntry{snat4(1, 2000), dnat4(1)}}).Messages(hostA)
	if err != nil {
		f.Fatal(err)
	}
	ports, err := (&State{Ports: []string{portA}}).Messages(hostA)
	if err != nil {
		f.Fatal(err)
	}
	ends, err := (&State{Ends: []End{{dnat4(1), FIN | RST, 9 * second}, {dnat4(2), Anew, 0}}}).Messages(hostA)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ends[0])
	f.Add(ports[0])
	f.Add(nats[0])
	f.Add(seeds[0])
	f.Add(seeds[0][:30])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMessage(b)
		if err != nil {
			return
		}
		again, err := m.State.Messages(m.Sender)
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
	want2 := State{Conns: []flow.ConnKey{key4(1), key4(2)}}
	bodies, err := want2.Bodies()
	if err != nil || len(bodies) != 1 {
		t.Fatal(bodies, err)
	}
	body := bodies[0]
	if back, err := ParseBody(body); err != nil || !reflect.DeepEqual(back, want2) {
		t.Errorf("read back %v, %v", back, err)
	}
	for name, bad := range map[string][]byte{"empty": nil, "none": {0}, "no translations": {0x80}, "cut": body[:len(body)-1], "more": append(bytes.Clone(body), 0), "count": append([]byte{3}, body[1:]...)} {
		if _, err := ParseBody(bad); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}

func snat4(n byte, port uint16) flow.NATEntry {
	k := key4(n)
	return flow.NATEntry{NATKey: flow.NATKey{Kind: flow.ForwardSNAT, Src: k.Src, Dst: k.Dst, SrcPort: k.SrcPort, DstPort: k.DstPort, Proto: k.Proto, Device: k.Device},
		NATBinding: flow.NATBinding{Addr: netip.MustParseAddr("203.0.113.1"), Port: port}}
}

func dnat4(n byte) flow.NATEntry {
	e := snat4(n, 8080)
	e.Kind = flow.ForwardDNAT
	return e
}

func TestTranslationBytes(t *testing.T) {
	s := State{NATs: []flow.NATEntry{dnat4(1)}}
	bodies, err := s.Bodies()
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Concat(
		[]byte{0x81},              // one translation
		[]byte{2, 6},              // IPv4, of the destination; TCP
		[]byte{0x03, 0xe8, 0, 80}, // ports
		[]byte{192, 0, 2, 1}, make([]byte, 12),
		[]byte{198, 51, 100, 2}, make([]byte, 12),
		bytes.Repeat([]byte{0x11}, 6), []byte{0x41, 0x11, 0x81}, bytes.Repeat([]byte{0x11}, 7), // device
		[]byte{0x1f, 0x90}, // translated port
		[]byte{203, 0, 113, 1}, make([]byte, 12),
	)
	if len(bodies) != 1 || !bytes.Equal(bodies[0], want) {
		t.Fatalf("got\n% x\nwant\n% x", bodies, want)
	}
	for name, change := range map[string]func([]byte){"flags": func(b []byte) { b[1] = 8 }, "behind the address": func(b []byte) { b[72] = 1 },
		"two ids": func(b []byte) { b[2] = 1 }} {
		b := bytes.Clone(want)
		change(b)
		if got, err := ParseBody(b); err == nil {
			t.Errorf("%s: was read as %+v", name, got)
		}
	}
	noAddr, reverse, mixed, device := dnat4(1), dnat4(1).Reverse(), dnat4(1), dnat4(1)
	noAddr.Addr, mixed.Addr, device.Device = netip.Addr{}, netip.MustParseAddr("2001:db8::1"), "net one"
	for _, bad := range []flow.NATEntry{{}, noAddr, reverse, mixed, device} {
		s := State{NATs: []flow.NATEntry{bad}}
		if _, err := s.Bodies(); err == nil {
			t.Errorf("%+v was written", bad)
		}
	}
}

// TestStickyBytes: the member for a client has messages of its own, with its life in place of the
// client's port.
func TestStickyBytes(t *testing.T) {
	e := sticky4(1, 300)
	bodies, err := (&State{NATs: []flow.NATEntry{e, dnat4(1)}}).Bodies()
	if err != nil || len(bodies) != 2 {
		t.Fatalf("%d bodies, %v", len(bodies), err)
	}
	b := bodies[1]
	if b[0] != 0x21 || b[1] != 4 || !bytes.Equal(b[3:7], []byte{1, 44, 0, 80}) || len(b) != 1+TranslationSize {
		t.Errorf("got % x", b)
	}
	if s, err := ParseBody(b); err != nil || !slices.Equal(s.NATs, []flow.NATEntry{e}) {
		t.Errorf("read %+v, %v", s, err)
	}
	for name, change := range map[string]func(b []byte){"among other translations": func(b []byte) { b[0] = 0x81 }, "another translation": func(b []byte) { b[1] = 2 },
		"two kinds": func(b []byte) { b[1] = 6 }, "no life": func(b []byte) { b[3], b[4] = 0, 0 }} {
		bad := bytes.Clone(b)
		change(bad)
		if s, err := ParseBody(bad); err == nil {
			t.Errorf("%s: was read as %+v", name, s)
		}
	}
	for _, bad := range []func(*flow.NATEntry){func(e *flow.NATEntry) { e.Life = 0 }, func(e *flow.NATEntry) { e.SrcPort = 7 }} {
		e := sticky4(1, 300)
		bad(&e)
		if _, err := AppendTranslation(nil, e); err == nil {
			t.Errorf("%+v was written", e)
		}
	}
}

// sticky4 is the member for a client.
func sticky4(i byte, life uint16) flow.NATEntry {
	e := dnat4(i)
	e.Kind, e.SrcPort, e.Life = flow.ForwardSticky, 0, life
	return e
}

// TestPortsBytes: the ports of a message follow all state, which may concern them.
func TestPortsBytes(t *testing.T) {
	bodies, err := (&State{Conns: []flow.ConnKey{key4(1)}, Ports: []string{portA}}).Bodies()
	if err != nil || len(bodies) != 2 {
		t.Fatalf("%d bodies, %v", len(bodies), err)
	}
	want := slices.Concat([]byte{0x40 | 1}, bytes.Repeat([]byte{0x22}, 6), []byte{0x42, 0x22, 0x82}, bytes.Repeat([]byte{0x22}, 7))
	if !bytes.Equal(bodies[1], want) {
		t.Errorf("got % x, want % x", bodies[1], want)
	}
	s, err := ParseBody(bodies[1])
	if err != nil || !slices.Equal(s.Ports, []string{portA}) {
		t.Errorf("read %+v, %v", s, err)
	}
	for _, bad := range [][]byte{want[:len(want)-1], append(bytes.Clone(want), 0), append([]byte{0x40}, want[1:]...), append([]byte{0x42}, want[1:]...)} {
		if _, err := ParseBody(bad); err == nil {
			t.Errorf("% x was accepted", bad)
		}
	}
	if _, err := (&State{Ports: []string{"port one"}}).Bodies(); err == nil {
		t.Error("a port that is no UUID was accepted")
	}
}

// TestEarlierVersionsReject: an agent that knows no translations takes none for connections.
func TestEarlierVersionsReject(t *testing.T) {
	s := State{Conns: []flow.ConnKey{key4(1)}, NATs: []flow.NATEntry{snat4(1, 2000), sticky4(1, 300)}}
	bodies, err := s.Bodies()
	if err != nil || len(bodies) != 3 {
		t.Fatal(bodies, err)
	}
	if int(bodies[0][0]) <= MaxKeys || int(bodies[1][0]) <= MaxKeys || int(bodies[2][0]) > MaxKeys {
		t.Errorf("bodies begin with %d, %d and %d: only connections may look like up to %d of them", bodies[0][0], bodies[1][0], bodies[2][0], MaxKeys)
	}
}

// TestHelloBytes: a hello has one form, and what is shorter or longer is rejected.
func TestHelloBytes(t *testing.T) {
	want := Hello{Run: 1, Number: 2, Every: 1500 * time.Millisecond, EchoRun: 3, Echo: 4, Arrived: 5, Packets: 6, Bytes: 7}
	bodies, err := (&State{Hello: &want}).Bodies()
	if err != nil || len(bodies) != 1 {
		t.Fatalf("got %d bodies: %v", len(bodies), err)
	}
	b := bodies[0]
	if text := fmt.Sprintf("%x", b); text != "e1"+ // a hello
		"0000000100000002"+ // run, number
		"000005dc"+ // milliseconds
		"000000030000000400000005"+ // echo: run, number, arrived
		"0000000000000006"+"0000000000000007" { // packets, bytes
		t.Errorf("got %s", text)
	}
	if s, err := ParseBody(b); err != nil || s.Hello == nil || *s.Hello != want {
		t.Errorf("got %+v: %v", s.Hello, err)
	}
	for _, bad := range [][]byte{b[:len(b)-1], append(bytes.Clone(b), 0), {isHello}} {
		if _, err := ParseBody(bad); err == nil {
			t.Errorf("% x was accepted", bad)
		}
	}
}

// FuzzParseSealed: no bytes crash the parsers, and what they accept they would have written the
// same.
func FuzzParseSealed(f *testing.F) {
	seeds := State{Conns: []flow.ConnKey{key4(1), key4(2)}, NATs: []flow.NATEntry{snat4(1, 2000), sticky4(1, 300)},
		Hello: &Hello{Run: 1, Number: 2, Every: time.Second, EchoRun: 3, Echo: 4, Arrived: 5, Packets: 6, Bytes: 7}}
	bodies, err := seeds.Bodies()
	if err != nil {
		f.Fatal(err)
	}
	for _, body := range bodies {
		f.Add(append(Envelope{1, 2, 3, 4}.Append(nil), body...))
		f.Add(body)
	}
	f.Add([]byte{2, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, written, sealed, err := ParseEnvelope(b)
		if err != nil {
			sealed = b
		} else if !bytes.Equal(e.Append(nil), written) || len(written)+len(sealed) != len(b) {
			t.Errorf("% x is read as %+v, % x and % x", b, e, written, sealed)
		}
		state, err := ParseBody(sealed)
		if err != nil {
			return
		}
		if again, err := state.Bodies(); err != nil || len(again) != 1 || !bytes.Equal(again[0], sealed) {
			t.Errorf("accepted % x, writes % x (%v)", sealed, again, err)
		}
	})
}
