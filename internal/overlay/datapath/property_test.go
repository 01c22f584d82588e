package datapath

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"heddle/internal/topology/packet"
)

// anyFrame draws a frame: a good one of some kind, often with bytes changed, cut or added. Frames
// shorter than the IP header they announce cannot be given to a program by hand.
func anyFrame(t *rapid.T) []byte {
	payload := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "payload")
	var b []byte
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		b = udp4(payload)
	case 1:
		b = udp6(payload)
	case 2:
		b = ipv4(packet.IPv4{Proto: rapid.Byte().Draw(t, "proto"), MoreFragments: rapid.Bool().Draw(t, "more"),
			Offset: rapid.SampledFrom([]uint16{0, 0, 0, 1, 8000}).Draw(t, "offset")}, append(bytes.Clone(tcpBytes), payload...))
	case 3:
		types := rapid.SliceOfN(rapid.SampledFrom([]uint8{0, 43, 44, 51, 60, 135}), 1, 8).Draw(t, "extensions")
		headers := make([][]byte, len(types))
		for i := range types {
			headers[i] = rapid.SampledFrom([][]byte{hopByHop, routing16, ah, wholePart, firstPart, laterPart}).Draw(t, "header")
		}
		b = extended(types, rapid.SampledFrom([]uint8{6, 17, 58, 59, 132}).Draw(t, "last"), append(bytes.Clone(tcpBytes), payload...), headers...)
	case 4:
		b = ipv6(58, append([]byte{rapid.SampledFrom([]byte{1, 128, 129, 135}).Draw(t, "icmp"), 0, 0, 0, 1, 2, 3, 4}, payload...))
	}
	least := 14 + 20
	if b[12] == 0x86 {
		least = 14 + 40
	}
	if rapid.Bool().Draw(t, "cut") {
		b = b[:rapid.IntRange(least, len(b)).Draw(t, "length")]
	}
	for range rapid.IntRange(0, 3).Draw(t, "changes") {
		b[rapid.IntRange(14, len(b)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "to")
	}
	return b
}

// TestKeyOfAgreesWithTheProgram holds the two parsers together: a frame has a key for both or for
// neither, and it is the same one.
func TestKeyOfAgreesWithTheProgram(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	rapid.Check(t, func(t *rapid.T) {
		frame := anyFrame(t)
		key, ok := KeyOf(l.in, frame)
		if !ok {
			if verdict, _ := l.workload(frame); verdict == tcxDrop {
				if u := l.upcall(); u == nil || u.Reason != NoKey && u.Reason != Malformed {
					t.Fatalf("frame %x has no key for KeyOf, the program gave up %+v", frame, u)
				}
			}
			return
		}
		l.install(Flow{Key: key, Out: Output{Port: l.out}})
		l.workload(frame)
		s, found, err := l.Lookup(key)
		if err != nil || !found || s.Packets != 1 || s.Key != key {
			u := l.upcall()
			t.Fatalf("frame %x has key %+v for KeyOf; its flow: %+v, %v, %v; the program gave up %+v", frame, key, s, found, err, u)
		}
		if err := l.Delete(key); err != nil {
			t.Fatal(err)
		}
	})
}

func TestKeyReverse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key, ok := KeyOf(1, anyFrame(t))
		if !ok {
			return
		}
		back := key.Reverse(2)
		if again := back.Reverse(1); again != key {
			t.Fatalf("%+v twice reversed is %+v", key, again)
		}
		if back.Src != key.Dst || back.DstMAC != key.SrcMAC || back.Port != 2 {
			t.Fatalf("%+v reversed is %+v", key, back)
		}
	})
	echo := Key{Proto: protoICMP, SrcPort: 7, DstPort: 8 << 8}
	if got := echo.Reverse(0); got.SrcPort != 7 || got.DstPort != 0 {
		t.Errorf("the reply to an echo request has key %+v", got)
	}
	echo6 := Key{Proto: protoICMP6, SrcPort: 7, DstPort: 129 << 8}
	if got := echo6.Reverse(0); got.SrcPort != 7 || got.DstPort != 128<<8 {
		t.Errorf("the request of an echo reply has key %+v", got)
	}
}

// FuzzKeyOf checks that no frame makes the parsers panic, and that what they say lies inside the
// frame.
func FuzzKeyOf(f *testing.F) {
	for _, b := range [][]byte{udp4(nil), udp6(nil), ipv4(packet.IPv4{Proto: 6}, tcpBytes), extended([]uint8{0, 44}, 6, tcpBytes, hopByHop, firstPart)} {
		f.Add(b, len(b), uint8(1))
	}
	f.Fuzz(func(t *testing.T, frame []byte, length int, flags uint8) {
		if length < len(frame) {
			length = len(frame)
		}
		_, tr, ok := parse(1, frame, length)
		if ok && (tr.offset < ethHeaderLen || tr.offset > length || tr.room < 0 || tr.offset+tr.room > length) {
			t.Fatalf("transport header at %d with %d bytes in a frame of %d", tr.offset, tr.room, length)
		}
		for _, o := range []Offload{{}, {unknown: true}, {vnet: vnetHeader{flags: flags, gsoType: flags, checksumStart: uint16(length), segmentSize: uint16(length)}}} {
			b := bytes.Clone(frame)
			o.finish(b, instructionLen)
			o.segmentLen(b)
		}
	})
}

// FuzzRecords checks the parsers of what the programs, and other hosts through them, write.
func FuzzRecords(f *testing.F) {
	record := make([]byte, recordHeadLen+60)
	binary.NativeEndian.PutUint16(record[12:], 60)
	binary.NativeEndian.PutUint32(record[8:], 60)
	record[14], record[15], record[18] = 0x81, 0, byte(Miss)
	f.Add(record)
	state := bytes.Clone(record)
	state[18] = byte(State)
	f.Add(state)
	tapped := make([]byte, vnetHeaderLen+tapHeadLen+60)
	tapped[vnetHeaderLen+9] = tapMagic
	binary.NativeEndian.PutUint16(tapped[vnetHeaderLen+10:], tapMagicTail)
	f.Add(tapped)
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, parse := range map[string]func([]byte) (Upcall, error){"ring": parseRecord, "tap": parseTapRecord} {
			u, err := parse(bytes.Clone(b))
			if err != nil {
				continue
			}
			if len(u.Frame) > len(b) || u.Length < len(u.Frame) {
				t.Fatalf("%s: frame of %d bytes, said to be %d, in a record of %d", name, len(u.Frame), u.Length, len(b))
			}
			u.Key()
		}
	})
}

func TestTagIsPutBack(t *testing.T) {
	t.Parallel()
	plain := udp4([]byte("tagged"))
	record := make([]byte, recordHeadLen, recordHeadLen+len(plain))
	binary.NativeEndian.PutUint32(record, 9)
	binary.NativeEndian.PutUint32(record[8:], uint32(len(plain)))
	binary.NativeEndian.PutUint16(record[12:], uint16(len(plain)))
	record[14], record[15] = 0x81, 0x00
	binary.NativeEndian.PutUint16(record[16:], 5<<13|42)
	record[18] = byte(Miss)
	u, err := parseRecord(append(record, plain...))
	if err != nil {
		t.Fatal(err)
	}
	want := append(append(bytes.Clone(plain[:12]), 0x81, 0, 0xa0, 42), plain[12:]...)
	if !bytes.Equal(u.Frame, want) || u.Length != len(want) {
		t.Errorf("frame of %d bytes %x, want %x", u.Length, u.Frame, want)
	}
	k, ok := u.Key()
	if !ok || k.VLAN != vlanPresent|42 || k.Src != ipA || k.Port != 9 {
		t.Errorf("key %+v, %v; want VLAN 42 from %s at port 9", k, ok, ipA)
	}
}

// TestChecksumsAreFinished checks what Send puts into checksum fields, for each state a frame can
// come in.
func TestChecksumsAreFinished(t *testing.T) {
	t.Parallel()
	tcp := packet.Ethernet{Dst: macB, Src: macA, Type: packet.TypeIPv4}.Append(nil)
	tcp = packet.IPv4{Src: ipA, Dst: ipB, Proto: protoTCP, TTL: 64}.Append(tcp, 20)
	tcp = packet.TCP{SrcPort: 1, DstPort: 2, Flags: packet.TCPSyn}.Append(tcp, ipA, ipB, nil)
	for name, c := range map[string]struct {
		frame []byte
		off   Offload
		start uint16 // where the kernel goes on; 0: nowhere
	}{
		"built by the agent":     {bytes.Clone(tcp), Offload{}, 0},
		"tcp from the ring":      {bytes.Clone(tcp), Offload{unknown: true}, 14 + 34},
		"udp6 from the ring":     {udp6([]byte("x")), Offload{unknown: true}, 14 + 54},
		"fragment from the ring": {ipv4(packet.IPv4{Proto: 17, MoreFragments: true}, udpBytes), Offload{unknown: true}, 0},
		"udp without checksum":   {ipv4(packet.IPv4{Proto: 17}, []byte{1, 2, 3, 4, 0, 8, 0, 0}), Offload{unknown: true}, 0},
		"from the tap":           {bytes.Clone(tcp), Offload{vnet: vnetHeader{flags: vnetNeedsChecksum, checksumStart: 34, checksumOff: 16}}, 14 + 34},
		"finished, from the tap": {bytes.Clone(tcp), Offload{}, 0},
		"inside the workload's own tunnel": {udp4(make([]byte, 60)),
			Offload{vnet: vnetHeader{flags: vnetNeedsChecksum, checksumStart: 80, checksumOff: 16}}, 14 + 80},
	} {
		before := bytes.Clone(c.frame)
		h := c.off.finish(c.frame, 14)
		if (h.flags&vnetNeedsChecksum != 0) != (c.start != 0) || c.start != 0 && h.checksumStart != c.start {
			t.Errorf("%s: header %+v, want start %d", name, h, c.start)
		}
		if c.start == 0 || name == "inside the workload's own tunnel" {
			if !bytes.Equal(before, c.frame) {
				t.Errorf("%s: the frame was changed", name)
			}
			continue
		}
		// Do what the kernel would: sum from the start over the field, put the complement into the
		// field.
		at := int(h.checksumStart) - 14
		sum := packet.Fold(packet.Sum(0, c.frame[at:]))
		binary.BigEndian.PutUint16(c.frame[at+int(h.checksumOff):], sum)
		if err := packet.VerifyChecksums(c.frame); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestChecksumsOfRewrittenFrames checks what Send makes of frames whose addresses and ports the
// agent has changed, with the checksum by difference: of an unfinished one it is set anew.
func TestChecksumsOfRewrittenFrames(t *testing.T) {
	t.Parallel()
	long := make([]byte, 20000)
	for name, frame := range map[string][]byte{"tcp": tcp4([]byte("x")), "tcp6": tcp6([]byte("x")), "tcp segments": tcp4(long), "tcp6 segments": tcp6(long),
		"udp": udp4([]byte("x")), "udp6": udp6([]byte("x")), "udp segments": udp4(long), "echo": echo4(), "echo6": echo6()} {
		key, tr, ok := parse(1, frame, len(frame))
		if !ok {
			t.Fatalf("%s: no key", name)
		}
		at := checksumAt(frame, tr)
		changed := rewriteByHand(frame, translated(key))
		partial := bytes.Clone(frame)
		binary.BigEndian.PutUint16(partial[at:], pseudoSum(&key, tr))
		unfinished := Offload{vnet: vnetHeader{flags: vnetNeedsChecksum, gsoType: 1, segmentSize: 1400, checksumStart: uint16(tr.offset), checksumOff: uint16(at - tr.offset)}}
		for what, c := range map[string]struct {
			frame []byte
			off   Offload
			start bool // the kernel is to finish it
		}{
			"finished":                    {changed, Offload{}, false},
			"finished, from the ring":     {changed, Offload{unknown: true}, !key.isEcho()},
			"unfinished, from the ring":   {rewriteByHand(partial, translated(key)), Offload{unknown: true}, true},
			"unfinished, with an offload": {rewriteByHand(partial, translated(key)), unfinished, true},
		} {
			if key.isEcho() && strings.HasPrefix(what, "unfinished") {
				continue // no stack leaves these to hardware
			}
			got := bytes.Clone(c.frame)
			h := c.off.finish(got, instructionLen)
			if (h.flags&vnetNeedsChecksum != 0) != c.start {
				t.Errorf("%s, %s: header %+v, want it to be finished: %v", name, what, h, c.start)
				continue
			}
			if c.start {
				start := int(h.checksumStart) - instructionLen
				binary.BigEndian.PutUint16(got[start+int(h.checksumOff):], packet.Fold(packet.Sum(0, got[start:])))
			}
			if err := packet.VerifyChecksums(got); err != nil {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
	// Behind an outer UDP header that is finished, the sum of a packet further in is not touched.
	tunnel := udp4(make([]byte, 80))
	key, _, _ := parse(1, tunnel, len(tunnel))
	changed := rewriteByHand(tunnel, translated(key))
	want := bytes.Clone(changed)
	h := Offload{vnet: vnetHeader{flags: vnetNeedsChecksum, checksumStart: 90, checksumOff: 16}}.finish(changed, instructionLen)
	if !bytes.Equal(changed, want) || h.checksumStart != 90+instructionLen {
		t.Errorf("a tunnel of the workload's own: header %+v, frame %x, want %x", h, changed, want)
	}
}

func TestSlots(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.String().Draw(t, "id")
		if s := SlotOf(id); s == SlotAll || s != SlotOf(id) {
			t.Fatalf("slot of %q is %d", id, s)
		}
	})
}

func TestOuterPortIsTheFlows(t *testing.T) {
	t.Parallel()
	seen := map[uint16]bool{}
	for i := range 1000 {
		k := Key{Src: ipA, Dst: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), SrcPort: uint16(i), Proto: 6}
		p := swap16(k.outerPort())
		if p < 0x8000 || p != swap16(k.outerPort()) {
			t.Fatalf("outer port %d", p)
		}
		seen[p] = true
	}
	if len(seen) < 900 {
		t.Errorf("1000 flows share %d outer ports", len(seen))
	}
}
