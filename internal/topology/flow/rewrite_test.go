package flow

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"heddle/internal/topology/packet"

	"pgregory.net/rapid"
)

var (
	macA, macB, macC, macD = packet.MAC{2, 0, 0, 0, 0, 1}, packet.MAC{2, 0, 0, 0, 0, 2}, packet.MAC{2, 0, 0, 0, 0, 3}, packet.MAC{2, 0, 0, 0, 0, 4}
	addrA, addrB           = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("192.0.2.1")
	addrC, addrD           = netip.MustParseAddr("198.51.100.77"), netip.MustParseAddr("203.0.113.250")
	addr6A, addr6B         = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8:1::2")
)

func ipv4(h packet.IPv4, payload []byte) []byte {
	h.Src, h.Dst, h.TTL = addrA, addrB, 64
	b := packet.Ethernet{Dst: macB, Src: macA, Type: packet.TypeIPv4}.Append(nil)
	return append(h.Append(b, len(payload)), payload...)
}

func tcp() []byte {
	return packet.TCP{SrcPort: 4000, DstPort: 80, Flags: packet.TCPSyn}.Append(nil, addrA, addrB, []byte("odd"))
}

func udp() []byte {
	return packet.UDP{SrcPort: 4000, DstPort: 53}.Append(nil, addrA, addrB, []byte("even"))
}

// sctp is a packet with the checksum of RFC 9260 appendix A.
func sctp(src, dst uint16) []byte {
	b := binary.BigEndian.AppendUint16(nil, src)
	b = binary.BigEndian.AppendUint16(b, dst)
	b = append(b, 1, 2, 3, 4, 0, 0, 0, 0, 9, 9, 9)
	t := transport{b: b, proto: packet.ProtoSCTP}
	binary.LittleEndian.PutUint32(b[8:], t.crc())
	return b
}

// icmpError quotes a packet that went the other way, from its network header on.
func icmpError(quoted []byte) []byte {
	return packet.ICMP{Type: packet.ICMPTimeExceeded}.Append(nil, quoted)
}

// quoted is the packet in an error that comes from addrA.
func quoted(proto uint8, transport func(src, dst netip.Addr) []byte) []byte {
	t := transport(addrB, addrA)
	return append(packet.IPv4{TTL: 1, Proto: proto, Src: addrB, Dst: addrA}.Append(nil, len(t)), t...)
}

func full() *Rewrite {
	return &Rewrite{SrcMAC: macC, DstMAC: macD, Src: addrC, Dst: addrD, SrcPort: 1111, DstPort: 2222, Hops: 3}
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	echo := func(id uint16) []byte {
		return packet.ICMP{Type: packet.ICMPEchoRequest, Rest: packet.EchoRest(id, 1)}.Append(nil, []byte("ping"))
	}
	noSum := udp()
	noSum[6], noSum[7] = 0, 0
	for _, c := range []struct {
		name    string
		frame   []byte
		rewrite func(*Rewrite)
	}{
		{"TCP", ipv4(packet.IPv4{Proto: packet.ProtoTCP}, tcp()), nil},
		{"UDP", ipv4(packet.IPv4{Proto: packet.ProtoUDP}, udp()), nil},
		{"UDP without checksum", ipv4(packet.IPv4{Proto: packet.ProtoUDP}, noSum), nil},
		{"echo", ipv4(packet.IPv4{Proto: packet.ProtoICMP}, echo(7)), func(w *Rewrite) { w.SrcPort, w.DstPort = 99, 99 }},
		{"other protocol", ipv4(packet.IPv4{Proto: 47}, []byte("gre!")), func(w *Rewrite) { w.SrcPort, w.DstPort = 0, 0 }},
		{"first fragment", ipv4(packet.IPv4{Proto: packet.ProtoUDP, MoreFragments: true}, udp()), nil},
		{"later fragment", ipv4(packet.IPv4{Proto: packet.ProtoUDP, Offset: 5}, []byte("anything")), nil},
	} {
		w := full()
		if c.rewrite != nil {
			c.rewrite(w)
		}
		frame := bytes.Clone(c.frame)
		if err := w.Apply(frame, false); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if err := packet.VerifyChecksums(frame); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		var was, is packet.Frame
		if err := packet.Decode(c.frame, &was); err != nil {
			t.Fatal(err)
		}
		if err := packet.Decode(frame, &is); err != nil {
			t.Fatal(err)
		}
		if is.Src != macC || is.Dst != macD || is.SrcIP != addrC || is.DstIP != addrD || is.TTL != 61 {
			t.Errorf("%s: %+v", c.name, is)
		}
		if packet.HasPorts(is.Proto) && is.HasTp && (is.TpSrc != 1111 || is.TpDst != 2222) || is.Echo && is.EchoID != 99 {
			t.Errorf("%s: ports %d %d id %d", c.name, is.TpSrc, is.TpDst, is.EchoID)
		}
		if c.name == "UDP without checksum" && (frame[is.L4+6] != 0 || frame[is.L4+7] != 0) {
			t.Error("a checksum was made up")
		}
	}
}

// A rewritten fragment's checksum is that of the whole datagram, rewritten.
func TestRewriteOfAFirstFragment(t *testing.T) {
	t.Parallel()
	whole := ipv4(packet.IPv4{Proto: packet.ProtoUDP}, udp())
	fragment := ipv4(packet.IPv4{Proto: packet.ProtoUDP, MoreFragments: true}, udp()[:8])
	for _, frame := range [][]byte{whole, fragment} {
		if err := full().Apply(frame, false); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(whole[34:42], fragment[34:42]) {
		t.Errorf("UDP headers %x and %x", whole[34:42], fragment[34:42])
	}
}

// The interface finishes a partial checksum: the sum over the pseudo-header is in its place.
func TestRewriteWithPartialChecksum(t *testing.T) {
	t.Parallel()
	for proto, segment := range map[uint8][]byte{packet.ProtoTCP: tcp(), packet.ProtoUDP: udp()} {
		at := map[uint8]int{packet.ProtoTCP: 16, packet.ProtoUDP: 6}[proto]
		binary.BigEndian.PutUint16(segment[at:], ^packet.Fold(packet.PseudoSum(addrA, addrB, proto, len(segment))))
		frame := ipv4(packet.IPv4{Proto: proto}, segment)
		if err := full().Apply(frame, true); err != nil {
			t.Fatal(err)
		}
		sum := packet.Fold(packet.Sum(0, frame[34:])) // what the interface does
		binary.BigEndian.PutUint16(frame[34+at:], sum)
		if err := packet.VerifyChecksums(frame); err != nil {
			t.Errorf("protocol %d: %v", proto, err)
		}
	}
	frame := ipv4(packet.IPv4{Proto: packet.ProtoSCTP}, sctp(1, 2))
	before := bytes.Clone(frame[42:46])
	if err := full().Apply(frame, true); err != nil || !bytes.Equal(before, frame[42:46]) {
		t.Errorf("SCTP checksum %x became %x, %v", before, frame[42:46], err)
	}
}

func TestRewriteOfSCTP(t *testing.T) {
	t.Parallel()
	frame := ipv4(packet.IPv4{Proto: packet.ProtoSCTP}, sctp(4000, 80))
	if err := full().Apply(frame, false); err != nil {
		t.Fatal(err)
	}
	if want := sctp(1111, 2222); !bytes.Equal(frame[34:], want) {
		t.Errorf("got %x, want %x", frame[34:], want)
	}
	if err := full().Apply(ipv4(packet.IPv4{Proto: packet.ProtoSCTP, MoreFragments: true}, sctp(4000, 80)), false); err == nil {
		t.Error("the ports of a fragment were rewritten, of which the checksum covers more")
	}
}

func TestRewriteOfIPv6(t *testing.T) {
	t.Parallel()
	segment := packet.TCP{SrcPort: 4000, DstPort: 80}.Append(nil, addr6A, addr6B, nil)
	frame := packet.Ethernet{Dst: macB, Src: macA, Type: packet.TypeIPv6}.Append(nil)
	frame = append(packet.IPv6{HopLimit: 64, Next: packet.ProtoTCP, Src: addr6A, Dst: addr6B}.Append(frame, len(segment)), segment...)
	w := &Rewrite{SrcMAC: macC, DstMAC: macD, Src: addr6B, Dst: addr6A, SrcPort: 4001, DstPort: 81, Hops: 1}
	if err := w.Apply(frame, false); err != nil {
		t.Fatal(err)
	}
	var f packet.Frame
	if err := packet.Decode(frame, &f); err != nil || f.SrcIP != addr6B || f.DstIP != addr6A || f.TTL != 63 || f.TpSrc != 4001 {
		t.Errorf("%+v %v", f, err)
	}
	if err := packet.VerifyChecksums(frame); err != nil {
		t.Error(err)
	}
}

func TestRewriteOfAQuote(t *testing.T) {
	t.Parallel()
	for name, quote := range map[string][]byte{
		"TCP": quoted(packet.ProtoTCP, func(src, dst netip.Addr) []byte {
			return packet.TCP{SrcPort: 80, DstPort: 4000}.Append(nil, src, dst, []byte("odd"))
		}),
		"TCP, 8 bytes": quoted(packet.ProtoTCP, func(src, dst netip.Addr) []byte {
			return packet.TCP{SrcPort: 80, DstPort: 4000}.Append(nil, src, dst, nil)
		})[:28],
		"UDP": quoted(packet.ProtoUDP, func(src, dst netip.Addr) []byte {
			return packet.UDP{SrcPort: 80, DstPort: 4000}.Append(nil, src, dst, []byte("x"))
		}),
		"echo": quoted(packet.ProtoICMP, func(_, _ netip.Addr) []byte {
			return packet.ICMP{Type: packet.ICMPEchoRequest, Rest: packet.EchoRest(7, 1)}.Append(nil, nil)
		}),
		"SCTP": quoted(packet.ProtoSCTP, func(_, _ netip.Addr) []byte { return sctp(80, 4000) }),
		"GRE":  quoted(47, func(_, _ netip.Addr) []byte { return []byte("gre!") }),
	} {
		frame := ipv4(packet.IPv4{Proto: packet.ProtoICMP}, icmpError(quote))
		w := full()
		w.Quote = &Quote{Src: addrD, Dst: addrC, SrcPort: 88, DstPort: 88}
		if err := w.Apply(frame, false); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := packet.VerifyChecksums(frame); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var f packet.Frame
		if err := packet.Decode(frame, &f); err != nil || f.Quote.Src != addrD || f.Quote.Dst != addrC || name != "GRE" && (f.Quote.SrcPort != 88 || f.Quote.DstPort != 88) {
			t.Errorf("%s: %+v %v", name, f.Quote, err)
		}
		if inner := frame[42:]; packet.Fold(packet.Sum(0, inner[:20])) != 0 {
			t.Errorf("%s: the quoted header's checksum is wrong", name)
		} else if t2 := inner[20:]; name == "UDP" && packet.Fold(packet.Sum(packet.PseudoSum(addrD, addrC, packet.ProtoUDP, len(t2)), t2)) != 0 {
			t.Errorf("%s: the quoted packet's checksum is wrong", name)
		}
	}
}

func TestRewriteRefuses(t *testing.T) {
	t.Parallel()
	frame := ipv4(packet.IPv4{Proto: packet.ProtoTCP}, tcp())
	for name, w := range map[string]*Rewrite{
		"expired":      {Src: addrC, Dst: addrD, Hops: 64},
		"other family": {Src: addr6A, Dst: addr6B},
		"no quote":     {Src: addrC, Dst: addrD, Quote: &Quote{Src: addrC, Dst: addrD}},
	} {
		was := bytes.Clone(frame)
		if err := w.Apply(frame, false); err == nil || !bytes.Equal(frame, was) {
			t.Errorf("%s: %v, changed %v", name, err, !bytes.Equal(frame, was))
		}
	}
	if err := full().Apply(frame[:20], false); err == nil {
		t.Error("a frame cut short was rewritten")
	}
}

// asItIs is the rewrite that changes nothing of a frame.
func asItIs(f *packet.Frame) Rewrite {
	w := Rewrite{SrcMAC: f.Src, DstMAC: f.Dst, Src: f.SrcIP, Dst: f.DstIP}
	switch {
	case f.Echo:
		w.SrcPort, w.DstPort = f.EchoID, f.EchoID
	case packet.HasPorts(f.Proto):
		w.SrcPort, w.DstPort = f.TpSrc, f.TpDst
	}
	if f.EtherType == packet.TypeIPv4 && f.Quote.Valid {
		w.Quote = &Quote{Src: f.Quote.Src, Dst: f.Quote.Dst, SrcPort: f.Quote.SrcPort, DstPort: f.Quote.DstPort}
	}
	return w
}

// sameSums compares frames but for checksums of 0xffff and 0, which mean the same, but in UDP.
func sameSums(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := 0; i < len(a); i++ {
		if a[i] != b[i] {
			if i+1 >= len(a) || a[i]+b[i] != 0xff || a[i] != a[i+1] || b[i] != b[i+1] {
				return false
			}
			i++
		}
	}
	return true
}

// A rewrite and then its reverse give the frame as it was, checksums right or wrong.
func backAndForth(t interface{ Fatalf(string, ...any) }, frame []byte, w Rewrite, partial bool) {
	var f packet.Frame
	if packet.DecodeHead(frame, longestFrame, &f) != nil || !f.IsIP() {
		return
	}
	back := asItIs(&f)
	if back.Quote == nil {
		w.Quote = nil
	}
	got := bytes.Clone(frame)
	if err := w.Apply(got, partial); err != nil {
		if !bytes.Equal(got, frame) {
			t.Fatalf("refused with %v, but changed\n%x\nto\n%x", err, frame, got)
		}
		return
	}
	if f.End <= len(frame) && f.Frag == packet.FragNone && !partial && packet.VerifyChecksums(frame) == nil && packet.VerifyChecksums(got) != nil {
		t.Fatalf("the checksums of %x were right, those of %x are not", frame, got)
	}
	if err := back.Apply(got, partial); err != nil {
		t.Fatalf("%x does not go back: %v", got, err)
	}
	if !sameSums(got, frame) {
		t.Fatalf("%+v and back, partial %v, makes of\n%x\n%x", w, partial, frame, got)
	}
}

func TestRewriteBackAndForth(t *testing.T) {
	t.Parallel()
	frames := corpus()
	rapid.Check(t, func(t *rapid.T) {
		frame := bytes.Clone(rapid.SampledFrom(frames).Draw(t, "frame"))
		if rapid.Bool().Draw(t, "wrong") {
			frame[rapid.IntRange(34, len(frame)-1).Draw(t, "at")] ^= 0x5a
		}
		w := Rewrite{SrcMAC: macC, DstMAC: macD, SrcPort: rapid.Uint16().Draw(t, "src"), DstPort: rapid.Uint16().Draw(t, "dst")}
		address := rapid.SampledFrom([]netip.Addr{addrA, addrB, addrC, addrD})
		w.Src, w.Dst = address.Draw(t, "from"), address.Draw(t, "to")
		if frame[14] == 6<<4 {
			w.Src, w.Dst = addr6B, addr6A
		}
		w.Quote = &Quote{Src: address.Draw(t, "qsrc"), Dst: address.Draw(t, "qdst"), SrcPort: w.DstPort, DstPort: w.DstPort}
		backAndForth(t, frame, w, rapid.Bool().Draw(t, "partial"))
	})
}

func corpus() [][]byte {
	six := packet.Ethernet{Dst: macB, Src: macA, Type: packet.TypeIPv6}.Append(nil)
	segment := packet.UDP{SrcPort: 1, DstPort: 2}.Append(nil, addr6A, addr6B, []byte("six"))
	six = append(packet.IPv6{HopLimit: 64, Next: packet.ProtoUDP, Src: addr6A, Dst: addr6B}.Append(six, len(segment)), segment...)
	return [][]byte{
		ipv4(packet.IPv4{Proto: packet.ProtoTCP}, tcp()), ipv4(packet.IPv4{Proto: packet.ProtoUDP}, udp()),
		ipv4(packet.IPv4{Proto: packet.ProtoSCTP}, sctp(1, 2)), ipv4(packet.IPv4{Proto: packet.ProtoUDP, Offset: 7}, udp()),
		ipv4(packet.IPv4{Proto: packet.ProtoICMP}, packet.ICMP{Type: packet.ICMPEchoReply, Rest: packet.EchoRest(7, 1)}.Append(nil, nil)),
		ipv4(packet.IPv4{Proto: packet.ProtoICMP}, icmpError(quoted(packet.ProtoUDP, func(src, dst netip.Addr) []byte {
			return packet.UDP{SrcPort: 80, DstPort: 4000}.Append(nil, src, dst, nil)
		}))),
		six,
	}
}

func FuzzRewrite(f *testing.F) {
	for _, frame := range corpus() {
		f.Add(frame, uint16(1), uint16(2), false)
	}
	f.Fuzz(func(t *testing.T, frame []byte, src, dst uint16, partial bool) {
		w := Rewrite{SrcMAC: macC, DstMAC: macD, Src: addrC, Dst: addrD, SrcPort: src, DstPort: dst, Quote: &Quote{Src: addrD, Dst: addrC, SrcPort: src, DstPort: src}}
		var d packet.Frame
		if packet.DecodeHead(frame, longestFrame, &d) == nil && d.EtherType == packet.TypeIPv6 {
			w.Src, w.Dst = addr6A, addr6B
		}
		backAndForth(t, frame, w, partial)
	})
}
