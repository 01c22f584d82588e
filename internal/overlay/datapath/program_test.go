package datapath

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"heddle/internal/topology/packet"
)

func compare(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// frameOf builds a frame from hex, spaces ignored, behind an Ethernet header of the type.
func frameOf(t testing.TB, etherType uint16, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(text), []byte(" "), nil)))
	if err != nil {
		t.Fatal(err)
	}
	return append(packet.Ethernet{Dst: macB, Src: macA, Type: etherType}.Append(nil), b...)
}

func ipv4(header packet.IPv4, payload []byte) []byte {
	header.Src, header.Dst, header.TTL = ipA, ipB, 64
	b := packet.Ethernet{Dst: macB, Src: macA, Type: packet.TypeIPv4}.Append(nil)
	return append(header.Append(b, len(payload)), payload...)
}

func ipv6(next uint8, payload []byte) []byte {
	b := packet.Ethernet{Dst: macB, Src: macA, Type: packet.TypeIPv6}.Append(nil)
	return append(packet.IPv6{Src: ip6A, Dst: ip6B, Next: next, HopLimit: 64}.Append(b, len(payload)), payload...)
}

// Headers of 8 bytes and more, as they stand behind IP.
var (
	udpBytes  = []byte{3, 232, 7, 208, 0, 8, 1, 1}                                                // 1000 → 2000
	tcpBytes  = []byte{3, 232, 7, 208, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0, 1, 1, 1, 0, 0}         // the same ports
	hopByHop  = []byte{0, 0, 1, 4, 0, 0, 0, 0}                                                    // next header to be set
	routing16 = []byte{0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}                            // two units
	ah        = []byte{0, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12} // 24 bytes
	wholePart = []byte{0, 0, 0, 0, 0, 0, 0, 7}                                                    // offset 0, no more
	firstPart = []byte{0, 0, 0, 1, 0, 0, 0, 7}                                                    // offset 0, more
	laterPart = []byte{0, 0, 0, 8, 0, 0, 0, 7}                                                    // offset 8
)

// badTCP returns tcpBytes with a data offset, in words, that is wrong unless it is 5.
func badTCP(words byte) []byte {
	b := bytes.Clone(tcpBytes)
	b[12] = words << 4
	return b
}

// chain joins extension headers, each naming the next.
func chain(last uint8, types []uint8, headers ...[]byte) (first uint8, b []byte) {
	for i, h := range headers {
		next := last
		if i+1 < len(types) {
			next = types[i+1]
		}
		b = append(append(b, next), h[1:]...)
	}
	return types[0], b
}

func extended(types []uint8, last uint8, payload []byte, headers ...[]byte) []byte {
	first, b := chain(last, types, headers...)
	return ipv6(first, append(b, payload...))
}

// TestKeys checks the key of each shape of frame three ways: what it should be, what KeyOf says,
// and that the program hits a flow with that key and no other.
func TestKeys(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	v4 := Key{Port: l.in, SrcMAC: macA, DstMAC: macB, Src: ipA, Dst: ipB}
	v6 := Key{Port: l.in, SrcMAC: macA, DstMAC: macB, Src: ip6A, Dst: ip6B}
	with := func(k Key, proto uint8, sport, dport uint16, frag Frag) Key {
		k.Proto, k.SrcPort, k.DstPort, k.Frag = proto, sport, dport, frag
		return k
	}
	options := frameOf(t, packet.TypeIPv4, "46000020 00000000 40110000 c0000201 c0000202 01010101 03e807d0 00080101")
	for name, c := range map[string]struct {
		frame []byte
		want  Key
	}{
		"udp":             {udp4([]byte("hello")), with(v4, 17, 1000, 2000, Whole)},
		"tcp":             {ipv4(packet.IPv4{Proto: 6}, tcpBytes), with(v4, 6, 1000, 2000, Whole)},
		"sctp":            {ipv4(packet.IPv4{Proto: 132}, tcpBytes), with(v4, 132, 1000, 2000, Whole)},
		"gre":             {ipv4(packet.IPv4{Proto: 47}, udpBytes), with(v4, 47, 0, 0, Whole)},
		"no payload":      {ipv4(packet.IPv4{Proto: 59}, nil), with(v4, 59, 0, 0, Whole)},
		"options":         {options, with(v4, 17, 1000, 2000, Whole)},
		"echo request":    {ipv4(packet.IPv4{Proto: 1}, []byte{8, 0, 0, 0, 0x12, 0x34, 0, 1}), with(v4, 1, 0x1234, 0x0800, Whole)},
		"echo reply":      {ipv4(packet.IPv4{Proto: 1}, []byte{0, 0, 0, 0, 0x12, 0x34, 0, 1}), with(v4, 1, 0x1234, 0, Whole)},
		"first fragment":  {ipv4(packet.IPv4{Proto: 17, MoreFragments: true}, udpBytes), with(v4, 17, 0, 0, FirstFrag)},
		"later fragment":  {ipv4(packet.IPv4{Proto: 17, Offset: 3}, udpBytes), with(v4, 17, 0, 0, LaterFrag)},
		"middle fragment": {ipv4(packet.IPv4{Proto: 17, Offset: 3, MoreFragments: true}, []byte{1}), with(v4, 17, 0, 0, LaterFrag)},
		"padded":          {append(udp4(nil), make([]byte, 18)...), with(v4, 17, 1000, 2000, Whole)},
		"udp6":            {udp6([]byte("hello")), with(v6, 17, 1000, 2000, Whole)},
		"tcp6":            {ipv6(6, tcpBytes), with(v6, 6, 1000, 2000, Whole)},
		"echo request 6":  {ipv6(58, []byte{128, 0, 0, 0, 0x12, 0x34, 0, 1}), with(v6, 58, 0x1234, 128<<8, Whole)},
		"hop by hop":      {extended([]uint8{0}, 17, udpBytes, hopByHop), with(v6, 17, 1000, 2000, Whole)},
		"three headers":   {extended([]uint8{0, 43, 60}, 6, tcpBytes, hopByHop, routing16, hopByHop), with(v6, 6, 1000, 2000, Whole)},
		"six headers": {extended([]uint8{0, 43, 60, 60, 60, 60}, 6, tcpBytes, hopByHop, routing16, hopByHop, hopByHop, hopByHop, hopByHop),
			with(v6, 6, 1000, 2000, Whole)},
		"authentication":   {extended([]uint8{51}, 6, tcpBytes, ah), with(v6, 6, 1000, 2000, Whole)},
		"atomic fragment":  {extended([]uint8{44}, 17, udpBytes, wholePart), with(v6, 17, 1000, 2000, Whole)},
		"first fragment 6": {extended([]uint8{44}, 17, udpBytes, firstPart), with(v6, 17, 0, 0, FirstFrag)},
		"later fragment 6": {extended([]uint8{44}, 17, udpBytes, laterPart), with(v6, 17, 0, 0, LaterFrag)},
		"later of headers": {extended([]uint8{44}, 60, udpBytes, laterPart), with(v6, 60, 0, 0, LaterFrag)},
		"esp":              {ipv6(50, udpBytes), with(v6, 50, 0, 0, Whole)},
	} {
		got, ok := KeyOf(l.in, c.frame)
		if !ok {
			t.Errorf("%s: KeyOf finds no key", name)
			continue
		}
		compare(t, name+": KeyOf", got, c.want)
		before := l.counters().Upcalls
		l.workload(c.frame)
		if after := l.counters().Upcalls; after != before+1 {
			t.Errorf("%s: without a flow %d frames went up, want 1", name, after-before)
		}
		l.install(Flow{Key: c.want, Out: Output{Port: l.out}})
		if verdict, _ := l.workload(c.frame); verdict != tcxRedirect {
			t.Errorf("%s: with its flow the program answers %d, want redirect", name, verdict)
		}
		if s, ok, err := l.Lookup(c.want); err != nil || !ok || s.Packets != 1 {
			t.Errorf("%s: its flow is %+v, %v, %v; want one packet", name, s, ok, err)
		}
		if err := l.Delete(c.want); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoKey lists frames that never match a flow, and what they go up as.
func TestNoKey(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	long := udp4(make([]byte, 100))
	binary.BigEndian.PutUint16(long[16:], 9000) // says that it is longer than it is
	short := udp4(make([]byte, 100))
	binary.BigEndian.PutUint16(short[16:], 24) // no room for a UDP header
	for name, c := range map[string]struct {
		frame []byte
		want  Reason
	}{
		"arp":                 {frameOf(t, packet.TypeARP, "0001080006040001 020000000000 c0000201 000000000000 c0000202"), NoKey},
		"unknown type":        {frameOf(t, 0x1234, "00112233"), NoKey},
		"tag in place":        {append(append(append([]byte{}, udp4(nil)[:12]...), 0x81, 0, 0, 5), udp4(nil)[12:]...), NoKey},
		"icmp error":          {ipv4(packet.IPv4{Proto: 1}, []byte{3, 3, 0, 0, 0, 0, 0, 0}), NoKey},
		"neighbour solicit":   {ipv6(58, []byte{135, 0, 0, 0, 0, 0, 0, 0}), NoKey},
		"wrong version":       {frameOf(t, packet.TypeIPv4, "65000014 00000000 40110000 c0000201 c0000202"), Malformed},
		"short header length": {frameOf(t, packet.TypeIPv4, "44000014 00000000 40110000 c0000201 c0000202"), Malformed},
		"cut in udp":          {udp4(nil)[:14+20+4], Malformed},
		"longer than it is":   {long, Malformed},
		"shorter than udp":    {short, Malformed},
		"tcp offset too low":  {ipv4(packet.IPv4{Proto: 6}, badTCP(4)), Malformed},
		"tcp offset too high": {ipv4(packet.IPv4{Proto: 6}, badTCP(6)), Malformed},
		"tcp6 offset too low": {ipv6(6, badTCP(4)), Malformed},
		"tcp6 behind headers": {extended([]uint8{0}, 6, badTCP(6), hopByHop), Malformed},
		"cut in tcp":          {ipv4(packet.IPv4{Proto: 6}, tcpBytes[:12]), Malformed},
		"cut in udp6":         {udp6(nil)[:14+40+7], Malformed},
		"extension cut":       {ipv6(0, []byte{17, 0, 0, 0}), Malformed},
		"extension too long":  {ipv6(0, []byte{17, 9, 0, 0, 0, 0, 0, 0}), Malformed},
		"seven headers": {extended([]uint8{0, 43, 60, 60, 60, 60, 60}, 6, tcpBytes, hopByHop, routing16, hopByHop, hopByHop,
			hopByHop, hopByHop, hopByHop), Malformed},
	} {
		if k, ok := KeyOf(l.in, c.frame); ok && c.want != NoKey {
			t.Errorf("%s: KeyOf finds %+v, want none", name, k)
		}
		verdict, _ := l.workload(c.frame)
		u := l.upcall()
		if verdict != tcxDrop || u == nil {
			t.Errorf("%s: verdict %d, upcall %v; want drop and an upcall", name, verdict, u)
			continue
		}
		if u.Reason != c.want || u.Port != l.in || u.Length != len(c.frame) || !bytes.Equal(u.Frame, c.frame) {
			t.Errorf("%s: went up as %s from port %#x, %d bytes %x; want %s from %#x, %d bytes %x",
				name, u.Reason, u.Port, u.Length, u.Frame, c.want, l.in, len(c.frame), c.frame)
		}
	}
}

func TestHitCountsAndDrops(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	frame := udp4([]byte("hello"))
	key := l.keyOf(frame)
	l.install(Flow{Key: key, Cookie: 42})
	for range 3 {
		if verdict, _ := l.workload(frame); verdict != tcxDrop {
			t.Fatalf("verdict %d, want drop", verdict)
		}
	}
	if u := l.upcall(); u != nil {
		t.Fatalf("a flow that drops sent %+v up", u)
	}
	s, ok, err := l.Lookup(key)
	if err != nil || !ok {
		t.Fatalf("look up the flow: %v, %v", ok, err)
	}
	s.Idle = 0
	compare(t, "flow", s, FlowState{Flow: Flow{Key: key, Cookie: 42}, Packets: 3, Bytes: uint64(3 * len(frame))})
	c := l.counters()
	if c.Drops["the flow says so"] != 3 || c.Upcalls != 0 {
		t.Errorf("counters %+v, want 3 drops by flow and no upcall", c)
	}
}

// TestEpochs checks that every tag is looked at, and only what carries a tag stops.
func TestEpochs(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	frame := ipv4(packet.IPv4{Proto: protoTCP}, tcpBytes)
	slots := []Slot{SlotOf("a"), SlotOf("b"), SlotOf("c"), SlotOf("d"), SlotAll, 65535}
	for n := range len(slots) + 1 {
		f := Flow{Key: l.keyOf(frame), Out: Output{Port: l.out}, Tags: l.Tags(slots[:n]...)}
		l.install(f)
		if verdict, _ := l.workload(frame); verdict != tcxRedirect {
			t.Fatalf("%d tags: verdict %d, want redirect", n, verdict)
		}
		for i, s := range slots {
			l.install(Flow{Key: f.Key, Out: f.Out, Tags: l.Tags(slots[:n]...)})
			l.Bump(s)
			verdict, _ := l.workload(frame)
			u := l.upcall()
			if stale := i < n; stale && (verdict != tcxDrop || u == nil || u.Reason != Stale) {
				t.Errorf("%d tags, tag %d moved: verdict %d, upcall %+v; want stale", n, i, verdict, u)
			} else if !stale && verdict != tcxRedirect {
				t.Errorf("%d tags, another tag moved: verdict %d, want redirect", n, verdict)
			}
		}
		l.install(f)
		l.Bump(slots[:n]...)
		state, ok, err := l.Lookup(f.Key)
		if err != nil || !ok || state.Stale != (n > 0) {
			t.Errorf("%d tags: state %+v, %v, %v; want stale %v", n, state, ok, err, n > 0)
		}
	}
	if err := l.Install([]Flow{{Key: l.keyOf(frame), Tags: l.Tags(1, 2, 3, 4, 5, 6, 7)}}); err == nil {
		t.Error("a flow with 7 tags was installed")
	}
}

// TestInstallAfterChange is the race that epochs close: the tags were read, then something changed,
// then the flow came.
func TestInstallAfterChange(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	frame := ipv4(packet.IPv4{Proto: protoTCP}, tcpBytes)
	tags := l.Tags(SlotOf("port"))
	l.Bump(SlotOf("port"))
	l.install(Flow{Key: l.keyOf(frame), Out: Output{Port: l.out}, Tags: tags})
	if verdict, _ := l.workload(frame); verdict != tcxDrop {
		t.Fatalf("a flow decided before a change acts after it: verdict %d", verdict)
	}
}

func TestEncapsulate(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	for name, frame := range map[string][]byte{"ipv4": udp4([]byte("over")), "ipv6": udp6([]byte("over"))} {
		l.install(Flow{Key: l.keyOf(frame), Out: Output{Tunnel: l.tunnel, TunnelKey: testKey}})
		verdict, out := l.workload(frame)
		if verdict != tcxRedirect {
			t.Errorf("%s: verdict %d, want redirect", name, verdict)
			continue
		}
		var f packet.Frame
		if err := packet.Decode(out, &f); err != nil {
			t.Errorf("%s: outer packet: %v", name, err)
			continue
		}
		if len(out) != len(frame)+Overhead || f.SrcIP != hostIP || f.DstIP != farIP || f.TpDst != TunnelPort || f.TpSrc < 0x8000 {
			t.Errorf("%s: outer packet of %d bytes %+v", name, len(out), f)
		}
		if err := packet.VerifyChecksums(out); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if dst, src := packet.MAC(out[:6]), packet.MAC(out[6:12]); dst != farMAC || src != hostMAC {
			t.Errorf("%s: outer MACs %s → %s, want %s → %s", name, src, dst, hostMAC, farMAC)
		}
		if got := secretOf(out); got != secretOut {
			t.Errorf("%s: secret %#x, want %#x", name, got, uint32(secretOut))
		}
		out[43], out[44], out[45], out[49] = 0, 0, 0, 0
		flags, vni, inner := out[42], binary.BigEndian.Uint32(out[46:])>>8, out[50:]
		if flags != 0x08 || vni != testKey || !bytes.Equal(inner, frame) {
			t.Errorf("%s: VXLAN flags %#x, key %#x, inner frame %x; want key %#x and %x", name, flags, vni, inner, testKey, frame)
		}
		if udpLen := binary.BigEndian.Uint16(out[38:]); int(udpLen) != len(out)-34 {
			t.Errorf("%s: outer UDP length %d, want %d", name, udpLen, len(out)-34)
		}
	}
}

// outerFrame returns a frame as the far host would send it.
func outerFrame(key uint32, inner []byte) []byte { return outerFrameOf(farIP, secretIn, key, inner) }

// outerFrameOf is a tunnelled frame with that outer source and secret.
func outerFrameOf(src netip.Addr, secret, key uint32, inner []byte) []byte {
	payload := append([]byte{0x08, byte(secret >> 24), byte(secret >> 16), byte(secret >> 8), byte(key >> 16), byte(key >> 8), byte(key), byte(secret)}, inner...)
	b := packet.Ethernet{Dst: hostMAC, Src: farMAC, Type: packet.TypeIPv4}.Append(nil)
	b = packet.IPv4{Src: src, Dst: hostIP, Proto: protoUDP, TTL: 64, DontFragment: true}.Append(b, 8+len(payload))
	b = packet.UDP{SrcPort: 0x8001, DstPort: TunnelPort}.Append(b, src, hostIP, payload)
	b[40], b[41] = 0, 0 // no checksum
	return b
}

// secretOf is the secret in a tunnelled frame: the reserved bits behind the flags and those behind
// the key.
func secretOf(outer []byte) uint32 {
	return binary.BigEndian.Uint32(outer[42:])<<8 | uint32(outer[49])
}

func TestDecapsulate(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	arp := frameOf(t, packet.TypeARP, "0001080006040001 020000000000 c0000201 000000000000 c0000202")
	for name, frame := range map[string][]byte{"ipv4": udp4([]byte("over")), "ipv6": udp6([]byte("over")), "arp": arp} {
		verdict, inner := l.tunnelled(outerFrame(testKey, frame))
		if verdict != tcxRedirect || !bytes.Equal(inner, frame) {
			t.Errorf("%s: verdict %d, frame %x; want redirect and %x", name, verdict, inner, frame)
		}
	}
}

// TestUnderlayRefuses lists what comes in at the underlay and is no frame for a port.
func TestUnderlayRefuses(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	ours := outerFrame(testKey, udp4(nil))
	change := func(at int, b ...byte) []byte {
		f := bytes.Clone(ours)
		copy(f[at:], b)
		return f
	}
	for name, c := range map[string]struct {
		frame []byte
		want  int
		drop  string
	}{
		"another UDP port":    {change(36, 0x12, 0xb5), tcxNext, ""},
		"another address":     {change(30, 10), tcxNext, ""},
		"TCP":                 {change(23, 6), tcxNext, ""},
		"a fragment":          {change(20, 0x20, 0), tcxNext, ""},
		"IPv6":                {udp6(nil), tcxNext, ""},
		"ARP":                 {frameOf(t, packet.TypeARP, "0001080006040001"), tcxNext, ""},
		"no VXLAN flag":       {change(42, 0), tcxDrop, "bad tunnel header"},
		"cut in inner header": {ours[:60], tcxDrop, "bad tunnel header"},
		"cut in VXLAN":        {ours[:44], tcxDrop, "bad tunnel header"},
		"unknown key":         {outerFrame(77, udp4(nil)), tcxDrop, "unknown tunnel key"},
	} {
		before := l.counters()
		verdict, out := l.tunnelled(c.frame)
		if verdict != c.want || !bytes.Equal(out, c.frame) {
			t.Errorf("%s: verdict %d, frame %x; want %d and the frame untouched", name, verdict, out, c.want)
		}
		after := l.counters()
		if c.drop != "" && after.Drops[c.drop] != before.Drops[c.drop]+1 {
			t.Errorf("%s: drops %v, before %v; want one more for %q", name, after.Drops, before.Drops, c.drop)
		}
	}
	if u := l.upcall(); u != nil {
		t.Errorf("something went up from the underlay: %+v", u)
	}
}

func TestStateMessage(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	for _, n := range []int{1, 100, 1400} {
		message := bytes.Repeat([]byte{7}, n)
		inner := packet.Ethernet{Type: stateEtherType}.Append(nil)
		inner = append(append(inner, byte(n>>8), byte(n)), message...)
		if verdict, _ := l.tunnelled(outerFrame(StateKey, inner)); verdict != tcxDrop {
			t.Fatalf("verdict %d, want drop", verdict)
		}
		u := l.upcall()
		if u == nil || u.Reason != State || u.From != farIP || u.Port != 0 || !bytes.Equal(u.Frame, message) {
			t.Errorf("message of %d bytes went up as %+v", n, u)
		}
	}
}

// TestTooBig checks the largest packets that pass and the smallest that go up.
func TestTooBig(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{MTU: 1300})
	toPort, toTunnel := Output{Port: l.out}, Output{Tunnel: l.tunnel, TunnelKey: testKey}
	for name, c := range map[string]struct {
		out    Output
		ip     int // length of the IP packet
		reason Reason
	}{
		"fits the port":      {toPort, 1300, 0},
		"too big for port":   {toPort, 1301, TooBigPort},
		"fits the tunnel":    {toTunnel, 1450, 0},
		"too big for tunnel": {toTunnel, 1451, TooBigTunnel},
		"giant":              {toTunnel, 3000, TooBigTunnel},
	} {
		frame := udp4(make([]byte, c.ip-28))
		l.install(Flow{Key: l.keyOf(frame), Out: c.out})
		verdict, _ := l.workload(frame)
		u := l.upcall()
		if c.reason == 0 {
			if verdict != tcxRedirect || u != nil {
				t.Errorf("%s: verdict %d, upcall %+v; want redirect", name, verdict, u)
			}
			continue
		}
		if verdict != tcxDrop || u == nil || u.Reason != c.reason || u.Length != len(frame) ||
			!bytes.Equal(u.Frame, frame[:min(len(frame), UpcallBytes)]) {
			t.Errorf("%s: verdict %d, upcall %+v; want %s", name, verdict, u, c.reason)
			continue
		}
		if k, ok := u.Key(); !ok || k != l.keyOf(frame) {
			t.Errorf("%s: key of the upcall %+v, %v; want that of the frame", name, k, ok)
		}
	}
}

// TestNumbersAreNotReused checks that flows of a former owner of an index find nobody.
func TestNumbersAreNotReused(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	frame := ipv4(packet.IPv4{Proto: protoTCP}, tcpBytes)
	l.install(Flow{Key: l.keyOf(frame), Out: Output{Port: l.out}})
	if err := l.DetachPort("out"); err != nil {
		t.Fatal(err)
	}
	check := func(what string) {
		t.Helper()
		verdict, _ := l.workload(frame)
		if u := l.upcall(); verdict != tcxDrop || u == nil || u.Reason != Stale {
			t.Errorf("%s: verdict %d, upcall %+v; want stale", what, verdict, u)
		}
	}
	check("output gone")
	l.portSet.mu.Lock()
	again, err := l.newNumber()
	l.portSet.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if index(uint32(again)) != index(uint32(l.out)) || again == l.out {
		t.Fatalf("new number %#x after %#x: want the same index, another generation", again, l.out)
	}
	p := &portState{PortInfo: PortInfo{Name: "new", Port: again, Index: 9}}
	if err := l.writePort(p, bpfPort{Number: uint32(again), Out: 9}); err != nil {
		t.Fatal(err)
	}
	check("index has a new owner")

	l.install(Flow{Key: l.keyOf(frame), Out: Output{Tunnel: l.tunnel, TunnelKey: 1}})
	if err := l.RemoveTunnel(farIP); err != nil {
		t.Fatal(err)
	}
	check("tunnel gone")
}

// TestCredits checks that a port with too many upcalls waiting is stopped, others are not, and all
// go on after.
func TestCredits(t *testing.T) {
	t.Parallel()
	needRoot(t)
	l := newLab(t, PortOptions{})
	limit := l.opts.UpcallsPerPort
	frame := ipv4(packet.IPv4{Proto: protoTCP}, tcpBytes)
	for range limit + 10 {
		l.workload(frame)
	}
	c := l.counters()
	if got := c.Drops["too many upcalls of its port"]; c.Upcalls != uint64(limit) || got != 10 {
		t.Errorf("%d upcalls and %d drops, want %d and 10", c.Upcalls, got, limit)
	}
	for range limit {
		if u := l.upcall(); u == nil {
			t.Fatal("fewer upcalls in the ring than counted")
		}
	}
	l.workload(frame)
	if u := l.upcall(); u == nil {
		t.Error("no upcall after the handler has caught up")
	}
}

// TestMovedPort: frames for a port that has moved go on to its host with that host's secret, from
// those that may send to the port alone; workloads here reach it by the agent, until it is back.
func TestMovedPort(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	if _, err := l.ForwardPort("out", l.tunnel, PortOptions{}); err == nil {
		t.Error("a port without a tunnel key was forwarded")
	}
	number, err := l.ForwardPort("out", l.tunnel, PortOptions{TunnelKey: testKey})
	if err != nil || number != l.out {
		t.Fatalf("forward: port %#x, %v; want %#x", number, err, l.out)
	}
	for name, frame := range map[string][]byte{"ipv4": udp4([]byte("on")), "ipv6": udp6([]byte("on"))} {
		verdict, out := l.tunnelled(outerFrame(testKey, frame))
		if verdict != tcxRedirect || len(out) != Overhead+len(frame) || !bytes.Equal(out[Overhead:], frame) {
			t.Fatalf("%s: verdict %d, frame %x; want it in a tunnel", name, verdict, out)
		}
		if dst := netip.AddrFrom4([4]byte(out[30:])); dst != farIP || secretOf(out) != secretOut || binary.BigEndian.Uint32(out[46:])>>8 != testKey {
			t.Errorf("%s: to %s with secret %#x: %x", name, dst, secretOf(out), out[:Overhead])
		}
		if port := binary.BigEndian.Uint16(out[34:]); port != 0x8001 {
			t.Errorf("%s: UDP source %#x, want that of the frame that came", name, port)
		}
	}
	frame := tcp4(nil)
	l.install(Flow{Key: l.keyOf(frame), Out: Output{Port: l.out}})
	if verdict, _ := l.workload(frame); verdict != tcxDrop {
		t.Errorf("a flow to the moved port: verdict %d", verdict)
	}
	if u := l.upcall(); u == nil || u.Reason != Stale {
		t.Errorf("a flow to the moved port went up as %+v, want Stale", u)
	}
	l.AllowSender(l.out, farIP, false)
	if verdict, _ := l.tunnelled(outerFrame(testKey, frame)); verdict != tcxDrop {
		t.Errorf("by a host that may not send to the port: verdict %d", verdict)
	}
	if err := l.RemoveTunnel(farIP); err != nil {
		t.Fatal(err)
	}
	l.AllowSender(l.out, farIP, true)
	if verdict, _ := l.tunnelled(outerFrame(testKey, frame)); verdict != tcxDrop || l.counters().Drops["no such tunnel"] != 1 {
		t.Errorf("without the tunnel: verdict %d, drops %v", verdict, l.counters().Drops)
	}
}
