package datapath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

var (
	routerMAC = packet.MAC{2, 0, 0, 0, 2, 1}
	nextMAC   = packet.MAC{2, 0, 0, 0, 2, 2}
	natA      = netip.MustParseAddr("203.0.113.1")
	natB      = netip.MustParseAddr("203.0.113.2")
	nat6A     = netip.MustParseAddr("2001:db8:ffff::1")
	nat6B     = netip.MustParseAddr("2001:db8:ffff:1::ff00")
)

// routed is the rewrite by one router for frames with the key.
func routed(k Key) *flow.Rewrite {
	r := k.headers(1)
	r.SrcMAC, r.DstMAC = routerMAC, nextMAC
	return r
}

// translated is routed with other addresses, and other ports where there are any.
func translated(k Key) *flow.Rewrite {
	r := routed(k)
	r.Src, r.Dst = natA, natB
	if !k.Src.Is4() {
		r.Src, r.Dst = nat6A, nat6B
	}
	switch {
	case k.isEcho():
		r.SrcPort = k.SrcPort ^ 0x4321
		r.DstPort = r.SrcPort
	case k.hasPorts() && k.Proto != protoSCTP:
		r.SrcPort, r.DstPort = 40001, 443
	}
	return r
}

// checksumOffset returns where the checksum is in the transport header, not ok if none covers
// addresses or ports.
func checksumOffset(t transport) (at int, ok bool) {
	if t.frag == LaterFrag {
		return 0, false
	}
	switch t.proto {
	case protoTCP:
		return 16, true
	case protoUDP, protoUDPLite, protoDCCP:
		return 6, true
	case protoICMP, protoICMP6:
		return 2, true
	}
	return 0, false
}

// checksumAt returns where the transport checksum is in the frame; 0: there is none to change.
func checksumAt(b []byte, t transport) int {
	at, ok := checksumOffset(t)
	none := (t.proto == protoUDP || t.proto == protoUDPLite) && t.room >= 8 && b[t.offset+6] == 0 && b[t.offset+7] == 0
	if !ok || none {
		return 0
	}
	return t.offset + at
}

// rewriteByHand returns the frame that the programs should make of one with a key. It changes a
// field at a time, and the checksums with each (RFC 1624).
func rewriteByHand(frame []byte, r *flow.Rewrite) []byte {
	b := bytes.Clone(frame)
	k, t, _ := parse(1, b, len(b))
	set := func(at int, value []byte, checksums ...int) {
		if bytes.Equal(b[at:at+len(value)], value) {
			return
		}
		for _, c := range checksums {
			if c == 0 || c+2 > len(b) {
				continue // there is none, or the frame ends before
			}
			sum := uint32(^binary.BigEndian.Uint16(b[c:]))
			for i := 0; i < len(value); i += 2 {
				sum += uint32(^binary.BigEndian.Uint16(b[at+i:])) + uint32(binary.BigEndian.Uint16(value[i:]))
			}
			binary.BigEndian.PutUint16(b[c:], packet.Fold(sum))
		}
		copy(b[at:], value)
	}
	word := func(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
	sum := checksumAt(b, t)
	pseudo := sum
	if t.proto == protoICMP {
		pseudo = 0
	}
	copy(b, r.DstMAC[:])
	copy(b[6:], r.SrcMAC[:])
	if k.Src.Is4() {
		set(22, []byte{b[22] - r.Hops, b[23]}, 24)
		set(26, r.Src.AsSlice(), 24, pseudo)
		set(30, r.Dst.AsSlice(), 24, pseudo)
	} else {
		b[21] -= r.Hops
		set(22, r.Src.AsSlice(), pseudo)
		set(38, r.Dst.AsSlice(), pseudo)
	}
	switch {
	case k.isEcho():
		set(t.offset+4, word(r.SrcPort), sum)
	case k.hasPorts():
		set(t.offset, word(r.SrcPort), sum)
		set(t.offset+2, word(r.DstPort), sum)
	}
	if (t.proto == protoUDP || t.proto == protoUDPLite) && sum > 0 && t.room >= 8 && b[sum] == 0 && b[sum+1] == 0 {
		b[sum], b[sum+1] = 0xff, 0xff
	}
	return b
}

// equalFrames compares frames; of checksums other than UDP's, 0 and 0xffff are one.
func equalFrames(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	normal := func(f []byte) []byte {
		f = bytes.Clone(f)
		k, t, ok := parse(1, f, len(f))
		places := []int{checksumAt(f, t)}
		if !ok || t.proto == protoUDP || t.proto == protoUDPLite {
			places = nil
		}
		if k.Src.Is4() {
			places = append(places, 24)
		}
		for _, at := range places {
			if at > 0 && at+2 <= len(f) && f[at] == 0xff && f[at+1] == 0xff {
				f[at], f[at+1] = 0, 0
			}
		}
		return f
	}
	return bytes.Equal(normal(a), normal(b))
}

// testWholeSum is BPF_F_TEST_SKB_CHECKSUM_COMPLETE (Linux 6.16): the frame comes with a checksum
// over the whole packet, as hardware gives, and the run fails if it is wrong after.
const testWholeSum = 1 << 2

// runSummed runs a frame as if it came from the port in with a checksum over the whole packet. On
// an older kernel it does nothing.
func (l *lab) runSummed(frame []byte) error {
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Flags: testWholeSum}
	_, err := l.programs.FromWorkload.Run(&opts)
	if errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

func tcp4(payload []byte) []byte {
	b := packet.Ethernet{Dst: macB, Src: macA, Type: packet.TypeIPv4}.Append(nil)
	b = packet.IPv4{Src: ipA, Dst: ipB, Proto: protoTCP, TTL: 64}.Append(b, 20+len(payload))
	return packet.TCP{SrcPort: 1000, DstPort: 2000, Flags: packet.TCPAck}.Append(b, ipA, ipB, payload)
}

func tcp6(payload []byte) []byte {
	b := packet.Ethernet{Dst: macB, Src: macA, Type: packet.TypeIPv6}.Append(nil)
	b = packet.IPv6{Src: ip6A, Dst: ip6B, Next: protoTCP, HopLimit: 64}.Append(b, 20+len(payload))
	return packet.TCP{SrcPort: 1000, DstPort: 2000, Flags: packet.TCPAck}.Append(b, ip6A, ip6B, payload)
}

func echo4() []byte {
	message := packet.ICMP{Type: 8, Rest: packet.EchoRest(77, 1)}.Append(nil, []byte("ping"))
	return ipv4(packet.IPv4{Proto: protoICMP}, message)
}

func echo6() []byte {
	return ipv6(protoICMP6, packet.ICMP{Type: 128, Rest: packet.EchoRest(77, 1)}.AppendV6(nil, ip6A, ip6B, []byte("ping")))
}

// rewrittenShapes are frames of each kind that the programs rewrite.
func rewrittenShapes() map[string][]byte {
	unsummed := udp4([]byte("no checksum"))
	unsummed[40], unsummed[41] = 0, 0
	return map[string][]byte{
		"tcp": tcp4([]byte("data")), "tcp, odd": tcp4([]byte("odd")), "tcp6": tcp6([]byte("data")),
		"udp": udp4([]byte("data")), "udp6": udp6([]byte("data")), "udp without checksum": unsummed,
		"udp-lite": ipv4(packet.IPv4{Proto: protoUDPLite}, udpBytes), "dccp": ipv4(packet.IPv4{Proto: protoDCCP}, tcpBytes),
		"dccp of checksum 0": ipv4(packet.IPv4{Proto: protoDCCP}, []byte{1, 2, 3, 4, 5, 6, 0, 0, 1, 2, 3, 4}),
		"sctp":               ipv4(packet.IPv4{Proto: protoSCTP}, tcpBytes), "sctp6": ipv6(protoSCTP, tcpBytes), "gre": ipv4(packet.IPv4{Proto: 47}, udpBytes),
		"echo": echo4(), "echo6": echo6(),
		"first fragment":        ipv4(packet.IPv4{Proto: protoTCP, MoreFragments: true}, tcpBytes),
		"first of udp":          ipv4(packet.IPv4{Proto: protoUDP, MoreFragments: true}, udpBytes),
		"first of echo":         ipv4(packet.IPv4{Proto: protoICMP, MoreFragments: true}, []byte{8, 0, 1, 2, 3, 4, 5, 6}),
		"later fragment":        ipv4(packet.IPv4{Proto: protoTCP, Offset: 3}, tcpBytes),
		"last byte":             ipv4(packet.IPv4{Proto: protoUDP, Offset: 3}, []byte{1}),
		"extensions":            extended([]uint8{0, 43, 60}, protoTCP, tcp6(nil)[54:], hopByHop, routing16, hopByHop),
		"first fragment of udp": extended([]uint8{44}, protoUDP, udpBytes, firstPart),
		"first of echo6":        extended([]uint8{44}, protoICMP6, []byte{128, 0, 1, 2, 3, 4, 5, 6}, firstPart),
		"later fragment 6":      extended([]uint8{44}, protoUDP, udpBytes, laterPart),
	}
}

// TestRewrite compares what the program makes of each shape with the reference, and checks its
// checksums.
func TestRewrite(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	for name, frame := range rewrittenShapes() {
		key := l.keyOf(frame)
		right := packet.VerifyChecksums(frame) == nil
		for what, r := range map[string]*flow.Rewrite{"routed": routed(key), "translated": translated(key)} {
			l.install(Flow{Key: key, Out: Output{Port: l.out}, Rewrite: r})
			verdict, got := l.workload(frame)
			if want := rewriteByHand(frame, r); verdict != tcxRedirect || !equalFrames(got, want) {
				t.Errorf("%s, %s: verdict %d\ncame %x\nleft %x\nwant %x", name, what, verdict, frame, got, want)
				continue
			}
			if err := packet.VerifyChecksums(got); right && err != nil {
				t.Errorf("%s, %s: %v in %x", name, what, err, got)
			}
			if err := l.runSummed(frame); err != nil {
				t.Errorf("%s, %s: checksum over the whole packet: %v", name, what, err)
			}
			if s, ok, err := l.Lookup(key); err != nil || !ok || s.Packets < 1 || *s.Rewrite != *r {
				t.Errorf("%s, %s: its flow is %+v with rewrite %+v, %v, %v; want %+v", name, what, s, s.Rewrite, ok, err, r)
			}
		}
	}
}

// TestRewriteToChecksumOfZero has a datagram whose sum after the rewrite is 0, which would say that
// it has none.
func TestRewriteToChecksumOfZero(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	for name, build := range map[string]func([]byte) []byte{"ipv4": udp4, "ipv6": udp6} {
		frame := build([]byte{0, 0})
		key, tr, _ := parse(l.in, frame, len(frame))
		at := tr.offset + 6
		first := rewriteByHand(frame, translated(key))
		frame = build(first[at : at+2]) // adds to the sum what its complement lacks
		l.install(Flow{Key: key, Out: Output{Port: l.out}, Rewrite: translated(key)})
		if verdict, got := l.workload(frame); verdict != tcxRedirect || got[at] != 0xff || got[at+1] != 0xff || packet.VerifyChecksums(got) != nil {
			t.Errorf("%s: verdict %d, checksum %x, %v; want ffff", name, verdict, got[at:at+2], packet.VerifyChecksums(got))
		}
	}
}

// TestRewriteIntoTunnel checks that the inner frame is rewritten, and the outer headers are right.
func TestRewriteIntoTunnel(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	for name, frame := range map[string][]byte{"tcp": tcp4([]byte("x")), "udp": udp4(nil), "tcp6": tcp6(nil)} {
		key := l.keyOf(frame)
		r := translated(key)
		r.Hops = 3
		l.install(Flow{Key: key, Out: Output{Tunnel: l.tunnel, TunnelKey: testKey}, Rewrite: r})
		verdict, got := l.workload(frame)
		if want := rewriteByHand(frame, r); verdict != tcxRedirect || !bytes.Equal(got[Overhead:], want) {
			t.Errorf("%s: verdict %d, inner frame %x, want %x", name, verdict, got[Overhead:], want)
		}
		if vni := binary.BigEndian.Uint32(got[46:]) >> 8; vni != testKey || secretOf(got) != secretOut {
			t.Errorf("%s: tunnel key %#x and secret %#x, want %#x and %#x", name, vni, secretOf(got), testKey, uint32(secretOut))
		}
	}
}

// TestRewriteOfAnyFrame compares the program with the reference on frames of all kinds, good and
// bad.
func TestRewriteOfAnyFrame(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	addr := func(t *rapid.T, name string, like netip.Addr) netip.Addr {
		if rapid.Bool().Draw(t, name+" stays") {
			return like
		}
		a, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), like.BitLen()/8, like.BitLen()/8).Draw(t, name))
		return a
	}
	rapid.Check(t, func(t *rapid.T) {
		frame := anyFrame(t)
		key, tr, ok := parse(l.in, frame, len(frame))
		if !ok || tr.options {
			return
		}
		r := routed(key)
		r.Hops = rapid.SampledFrom([]uint8{0, 1, 2, 63, 64, 255}).Draw(t, "hops")
		r.Src, r.Dst = addr(t, "source", key.Src), addr(t, "destination", key.Dst)
		if key.isEcho() || key.hasPorts() && key.Proto != protoSCTP {
			r.SrcPort, r.DstPort = rapid.Uint16().Draw(t, "source port"), rapid.Uint16().Draw(t, "destination port")
		}
		if key.isEcho() {
			r.DstPort = r.SrcPort
		}
		f := Flow{Key: key, Out: Output{Port: l.out}, Rewrite: r}
		l.install(f)
		verdict, got := l.workload(frame)
		ttl := frame[22]
		if !key.Src.Is4() {
			ttl = frame[21]
		}
		at, summed := checksumOffset(tr)
		var reason Reason
		switch {
		case r.Hops > 0 && ttl <= r.Hops:
			reason = Expired
		case f.rewriteKind()&outTranslates != 0 && summed && (tr.room < 8 || at == 16 && tr.room < 20):
			reason = Malformed
		}
		if reason != 0 {
			if u := l.upcall(); verdict != tcxDrop || u == nil || u.Reason != reason || !bytes.Equal(u.Frame, frame[:min(len(frame), UpcallBytes)]) {
				t.Fatalf("frame %x: verdict %d, upcall %+v; want it as %s", frame, verdict, u, reason)
			}
		} else if want := rewriteByHand(frame, r); verdict != tcxRedirect || !equalFrames(got, want) {
			t.Fatalf("rewrite %+v: verdict %d, upcall %+v\ncame %x\nleft %x\nwant %x", r, verdict, l.upcall(), frame, got, want)
		} else if err := l.runSummed(frame); err != nil {
			t.Fatalf("rewrite %+v of %x: checksum over the whole packet: %v", r, frame, err)
		}
		if err := l.Delete(key); err != nil {
			t.Fatal(err)
		}
	})
}

// TestExpired sends frames with the last TTL that passes and the first that does not. The latter
// does not count for the flow, whatever its length.
func TestExpired(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{MTU: 1300})
	for name, c := range map[string]struct {
		frame []byte
		ttl   int // where it is
	}{
		"ipv4": {tcp4(nil), 22}, "ipv6": {tcp6(nil), 21}, "extensions": {extended([]uint8{0}, 17, udpBytes, hopByHop), 21},
		"too big": {tcp4(make([]byte, 1400)), 22}, "giant": {tcp4(make([]byte, 3000)), 22},
	} {
		key := l.keyOf(c.frame)
		for _, hops := range []uint8{1, 2, 200} {
			r := translated(key)
			r.Hops = hops
			l.install(Flow{Key: key, Out: Output{Port: l.out}, Rewrite: r})
			for _, ttl := range []uint8{0, 1, hops} {
				c.frame[c.ttl] = ttl
				verdict, _ := l.workload(c.frame)
				u := l.upcall()
				if verdict != tcxDrop || u == nil || u.Reason != Expired || u.Length != len(c.frame) || !bytes.Equal(u.Frame, c.frame[:min(len(c.frame), UpcallBytes)]) {
					t.Fatalf("%s, TTL %d, %d hops: verdict %d, upcall %+v; want it as expired", name, ttl, hops, verdict, u)
				}
			}
			s, ok, err := l.Lookup(key)
			if err != nil || !ok || s.Packets != 0 {
				t.Errorf("%s, %d hops: flow %+v, %v, %v; want no packets", name, hops, s, ok, err)
			}
			if len(c.frame) > 1300 {
				continue
			}
			c.frame[c.ttl] = hops + 1
			if verdict, got := l.workload(c.frame); verdict != tcxRedirect || got[c.ttl] != 1 {
				t.Errorf("%s, TTL %d, %d hops: verdict %d, TTL left %d; want redirect and 1", name, hops+1, hops, verdict, got[c.ttl])
			}
		}
	}
}

// TestOptions: a flow through routers leaves frames with IPv4 options or an IPv6 routing header of
// type 0 to the agent; one within a network takes them.
func TestOptions(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	sourceRoute := append(frameOf(t, packet.TypeIPv4, "47000030 00000000 40060000 c0000201 c0000202 830704c0000263 00"), tcpBytes...)
	routing0 := []byte{0, 0, 0, 0, 0, 0, 0, 0}
	for name, c := range map[string]struct {
		frame   []byte
		options bool
	}{
		"source route": {sourceRoute, true}, "routing header 0": {extended([]uint8{43}, 6, tcpBytes, routing0), true},
		"another routing header": {extended([]uint8{43}, 6, tcpBytes, routing16), false},
		"no options":             {tcp4(nil), false}, "no headers": {tcp6(nil), false},
	} {
		key := l.keyOf(c.frame)
		l.install(Flow{Key: key, Out: Output{Port: l.out}, Rewrite: translated(key)})
		verdict, _ := l.workload(c.frame)
		u := l.upcall()
		if want := c.options; (verdict == tcxDrop && u != nil && u.Reason == HasOptions && bytes.Equal(u.Frame, c.frame)) != want || (verdict == tcxRedirect) == want {
			t.Errorf("%s, routed: verdict %d, upcall %+v; want it to go up: %v", name, verdict, u, want)
		}
		l.install(Flow{Key: key, Out: Output{Port: l.out}})
		if verdict, _ := l.workload(c.frame); verdict != tcxRedirect {
			t.Errorf("%s, not routed: verdict %d, want redirect", name, verdict)
		}
	}
}

// TestRewriteKeepsTheOtherChecks checks MTU, epochs, counters and drops of flows with a rewrite:
// what goes up goes up as it came.
func TestRewriteKeepsTheOtherChecks(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{MTU: 1300})
	small := tcp4(nil)
	f := Flow{Key: l.keyOf(small), Out: Output{Port: l.out}, Rewrite: translated(l.keyOf(small)), Tags: l.Tags(3, 4), Cookie: 9}
	l.install(f)
	up := func(what string, frame []byte, want Reason) {
		t.Helper()
		verdict, _ := l.workload(frame)
		if u := l.upcall(); verdict != tcxDrop || u == nil || u.Reason != want || !bytes.Equal(u.Frame, frame) {
			t.Errorf("%s: verdict %d, upcall %+v; want the frame as %s", what, verdict, u, want)
		}
	}
	fits, exceeds := tcp4(make([]byte, 1260)), tcp4(make([]byte, 1261))
	if verdict, _ := l.workload(fits); verdict != tcxRedirect {
		t.Errorf("a packet of 1300 bytes: verdict %d, want redirect", verdict)
	}
	up("a packet of 1301 bytes", exceeds, TooBigPort)
	s, ok, err := l.Lookup(f.Key)
	if err != nil || !ok || s.Packets != 1 || s.Bytes != uint64(len(fits)) || s.Cookie != 9 || len(s.Tags) != 2 {
		t.Errorf("flow %+v, %v, %v; want one packet of %d bytes", s, ok, err, len(fits))
	}
	l.Bump(4)
	up("after a change", small, Stale)
	tiny := ipv4(packet.IPv4{Proto: protoTCP}, tcpBytes[:12]) // ends before its checksum
	f.Tags = l.Tags(3, 4)
	l.install(f)
	up("cut in the TCP header", tiny, Malformed)
	f.Rewrite = routed(f.Key)
	l.install(Flow{Key: f.Key, Out: f.Out, Rewrite: f.Rewrite})
	up("cut in the TCP header, routed alone", tiny, Malformed)
	l.install(Flow{Key: f.Key, Out: Output{Tunnel: l.tunnel, TunnelKey: testKey}, Rewrite: f.Rewrite})
	if verdict, _ := l.workload(tcp4(make([]byte, 1410))); verdict != tcxRedirect {
		t.Errorf("a packet of 1450 bytes into the tunnel: verdict %d, want redirect", verdict)
	}
	up("a packet of 1451 bytes into the tunnel", tcp4(make([]byte, 1411)), TooBigTunnel)
	l.install(Flow{Key: f.Key, Rewrite: f.Rewrite})
	if verdict, got := l.workload(small); verdict != tcxDrop || !bytes.Equal(got, small) || l.upcall() != nil {
		t.Errorf("a flow that drops, with a rewrite: verdict %d", verdict)
	}
	if s, _, err := l.Lookup(f.Key); err != nil || s.Rewrite != nil {
		t.Errorf("a flow that drops has rewrite %+v, %v", s.Rewrite, err)
	}
}

// TestRewriteRefusals lists rewrites that Install does not take, and that the error says why.
func TestRewriteRefusals(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	tcp, echo, sctp := l.keyOf(tcp4(nil)), l.keyOf(echo4()), l.keyOf(ipv4(packet.IPv4{Proto: protoSCTP}, tcpBytes))
	tagged := tcp
	tagged.VLAN = vlanPresent | 42
	for name, c := range map[string]struct {
		key    Key
		change func(*flow.Rewrite)
		want   string
	}{
		"tagged":       {tagged, func(*flow.Rewrite) {}, "VLAN 42"},
		"IPv6":         {tcp, func(r *flow.Rewrite) { r.Dst = ip6B }, "2001:db8::2"},
		"no address":   {tcp, func(r *flow.Rewrite) { r.Src = netip.Addr{} }, "invalid IP"},
		"quote":        {tcp, func(r *flow.Rewrite) { r.Quote = &flow.Quote{} }, "ICMP errors"},
		"two echo ids": {echo, func(r *flow.Rewrite) { r.DstPort++ }, "echo ids"},
		"SCTP ports":   {sctp, func(r *flow.Rewrite) { r.DstPort++ }, "SCTP"},
	} {
		r := translated(c.key)
		c.change(r)
		err := l.Install([]Flow{{Key: c.key, Out: Output{Port: l.out}, Rewrite: r}})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.key.Src.String()) {
			t.Errorf("%s: %v, want an error with the key and %q", name, err, c.want)
		}
		if _, ok, _ := l.Lookup(c.key); ok {
			t.Errorf("%s: the flow was installed", name)
		}
	}
}

// TestReverseRewritten turns keys and rewrites around: replies to what left have the reverse key
// and leave as replies to what came, and twice reversed is what it was.
func TestReverseRewritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		frame := anyFrame(t)
		key, ok := KeyOf(1, frame)
		if !ok {
			return
		}
		r := rapid.SampledFrom([]*flow.Rewrite{routed(key), translated(key)}).Draw(t, "rewrite")
		back, undo := key.ReverseRewritten(2, r)
		again, redo := back.ReverseRewritten(1, undo)
		if again != key || *redo != *r {
			t.Fatalf("%+v, %+v\ntwice reversed is\n%+v, %+v", key, r, again, redo)
		}
		if back.Port != 2 || back.Src != r.Dst || back.DstMAC != r.SrcMAC || undo.Src != key.Dst || undo.DstMAC != key.SrcMAC || undo.Hops != r.Hops {
			t.Fatalf("%+v, %+v\nreversed is\n%+v, %+v", key, r, back, undo)
		}
		left, ok := KeyOf(1, rewriteByHand(frame, r))
		if !ok || left.Reverse(2) != back {
			t.Fatalf("replies to the frame that left have key %+v, want %+v", left.Reverse(2), back)
		}
		if k, none := key.ReverseRewritten(2, nil); k != key.Reverse(2) || none != nil {
			t.Fatalf("without a rewrite %+v, %+v; want %+v", k, none, key.Reverse(2))
		}
	})
	echo := Key{Proto: protoICMP, Src: ipA, Dst: ipB, SrcPort: 7, DstPort: 8 << 8}
	back, undo := echo.ReverseRewritten(2, translated(echo))
	if back.SrcPort != 7^0x4321 || back.DstPort != 0 || undo.SrcPort != 7 || undo.DstPort != 7 {
		t.Errorf("the reply to an echo of id 7 has key %+v and rewrite %+v", back, undo)
	}
}

// TestDumpWithRewrites reads back flows of both versions, with and without a rewrite.
func TestDumpWithRewrites(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	want := map[Key]Flow{}
	var flows []Flow
	for i, frame := range [][]byte{tcp4(nil), udp6(nil), echo4(), echo6(), ipv4(packet.IPv4{Proto: 47}, nil)} {
		key := l.keyOf(frame)
		for j, r := range []*flow.Rewrite{nil, routed(key), translated(key)} {
			key.Port = Port(100*i + j)
			f := Flow{Key: key, Out: []Output{{Port: l.out}, {Tunnel: l.tunnel, TunnelKey: 0xfffffe}}[i%2], Tags: l.Tags(1, 65535), Rewrite: r}
			if r != nil {
				r.Hops = uint8(255 - j)
			}
			want[key] = f
			flows = append(flows, f)
		}
	}
	if err := l.Install(flows); err != nil {
		t.Fatal(err)
	}
	got := map[Key]Flow{}
	if err := l.Dump(func(s FlowState) bool { got[s.Key] = s.Flow; return true }); err != nil {
		t.Fatal(err)
	}
	compare(t, "flows", got, want)
}
