package flow

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/netip"

	"heddle/internal/topology/packet"
)

// Errors of Apply.
var (
	errExpired  = errors.New("the time to live or hop limit is over")
	errFamily   = errors.New("the new addresses are of another IP version")
	errNoQuote  = errors.New("the packet quotes no other that could be rewritten")
	errSCTPHead = errors.New("the checksum of SCTP needs the whole packet")
)

// longestFrame is more than any frame with an IP packet has: the frame at hand may be its head.
const longestFrame = 1 << 17

// Apply rewrites the headers of a frame in place. Checksums follow by difference, so that a wrong
// one stays wrong, and a UDP checksum of 0, none, stays 0. partial: that of the transport header
// covers the pseudo-header alone, and the interface that sends the frame will finish it. On an
// error the frame is as it was.
func (w *Rewrite) Apply(frame []byte, partial bool) error {
	var f packet.Frame
	if err := packet.DecodeHead(frame, longestFrame, &f); err != nil {
		return err
	}
	if f.IsIP() {
		if err := w.check(&f, frame, partial); err != nil {
			return err
		}
		before, after := w.rewriteIP(&f, frame)
		if f.L4 != 0 {
			t := transport{b: frame[f.L4:min(f.End, len(frame))], proto: f.Proto, is4: f.EtherType == packet.TypeIPv4, partial: partial}
			t.before, t.after = before, after
			t.rewrite(w.SrcPort, w.DstPort, f.Echo)
			if w.Quote != nil {
				w.Quote.rewrite(t.b)
			}
		}
	}
	copy(frame, w.DstMAC[:])
	copy(frame[6:], w.SrcMAC[:])
	return nil
}

// check reports why the rewrite does not fit the frame.
func (w *Rewrite) check(f *packet.Frame, frame []byte, partial bool) error {
	portsChange := f.HasTp && (f.TpSrc != w.SrcPort || f.TpDst != w.DstPort)
	switch {
	case w.Hops > 0 && f.TTL <= w.Hops:
		return errExpired
	case w.Src.Is4() != f.SrcIP.Is4() || w.Dst.Is4() != f.DstIP.Is4():
		return errFamily
	case w.Quote != nil && (f.EtherType != packet.TypeIPv4 || !f.Quote.Valid || !w.Quote.Src.Is4() || !w.Quote.Dst.Is4()):
		return errNoQuote
	case f.Proto == packet.ProtoSCTP && portsChange && !partial && (f.End > len(frame) || f.Frag != packet.FragNone || f.End-f.L4 < 12):
		return errSCTPHead
	}
	return nil
}

// rewriteIP changes the IP header, and returns the sums over the addresses before and after.
func (w *Rewrite) rewriteIP(f *packet.Frame, frame []byte) (before, after uint32) {
	h := frame[f.L3:]
	if f.EtherType == packet.TypeIPv6 {
		h[7] -= w.Hops
		before = packet.Sum(0, h[8:40])
		copy(h[8:], addrBytes(w.Src))
		copy(h[24:], addrBytes(w.Dst))
		return before, packet.Sum(0, h[8:40])
	}
	ttl := packet.Sum(0, h[8:10])
	h[8] -= w.Hops
	adjust(h, 10, ttl, packet.Sum(0, h[8:10]))
	return rewriteIPv4(h, w.Src, w.Dst)
}

// rewriteIPv4 changes the addresses of an IPv4 header, and returns the sums over them.
func rewriteIPv4(h []byte, src, dst netip.Addr) (before, after uint32) {
	before = packet.Sum(0, h[12:20])
	copy(h[12:], addrBytes(src))
	copy(h[16:], addrBytes(dst))
	after = packet.Sum(0, h[12:20])
	adjust(h, 10, before, after)
	return before, after
}

func addrBytes(a netip.Addr) []byte {
	if a.Is4() {
		b := a.As4()
		return b[:]
	}
	b := a.As16()
	return b[:]
}

func adjust(b []byte, at int, before, after uint32) {
	binary.BigEndian.PutUint16(b[at:], packet.Adjust(binary.BigEndian.Uint16(b[at:]), before, after))
}

// transport is the transport header of a packet, and what follows of it.
type transport struct {
	b             []byte
	proto         uint8
	is4           bool
	partial       bool
	before, after uint32 // sums over the addresses
}

// rewrite changes the ports, or the id of an echo, and the checksum.
func (t *transport) rewrite(src, dst uint16, echo bool) {
	var changed []byte
	switch {
	case packet.HasPorts(t.proto) && len(t.b) >= 4:
		changed = t.b[:4]
	case echo && len(t.b) >= 6:
		changed = t.b[4:6]
	}
	crc := t.crc()
	before := packet.Sum(0, changed)
	if len(changed) > 0 {
		binary.BigEndian.PutUint16(changed, src)
	}
	if len(changed) == 4 {
		binary.BigEndian.PutUint16(changed[2:], dst)
	}
	if t.proto == packet.ProtoSCTP {
		t.adjustCRC(crc)
		return
	}
	t.adjust(before, packet.Sum(0, changed))
}

// adjust follows a change of the header of which the sums are given, and of the addresses.
func (t *transport) adjust(before, after uint32) {
	at, pseudo := t.checksum()
	if at == 0 || len(t.b) < at+2 {
		return
	}
	old := binary.BigEndian.Uint16(t.b[at:])
	switch {
	case t.partial && pseudo: // the sum itself, not its complement; it covers nothing else
		binary.BigEndian.PutUint16(t.b[at:], ^packet.Adjust(^old, t.before, t.after))
		return
	case t.partial, t.proto == packet.ProtoUDP && old == 0:
		return
	}
	sum := packet.Adjust(old, before, after)
	if pseudo {
		sum = packet.Adjust(sum, t.before, t.after)
	}
	if sum == 0 && t.proto == packet.ProtoUDP {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(t.b[at:], sum)
}

// checksum returns the offset of the checksum, 0 without one, and whether it covers addresses.
func (t *transport) checksum() (at int, pseudo bool) {
	switch t.proto {
	case packet.ProtoTCP:
		return 16, true
	case packet.ProtoUDP, packet.ProtoUDPLite, packet.ProtoDCCP:
		return 6, true
	case packet.ProtoICMPv6:
		return 2, !t.is4
	case packet.ProtoICMP:
		return 2, false
	}
	return 0, false
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sctpChecksum is the offset of SCTP's CRC32c, which is little endian.
const sctpChecksum = 8

// crc returns the CRC32c over an SCTP packet, as if its checksum were 0. That over two packets
// differs as those over them with checksums do: CRCs are linear.
func (t *transport) crc() uint32 {
	if t.proto != packet.ProtoSCTP || t.partial || len(t.b) < sctpChecksum+4 {
		return 0
	}
	c := crc32.Update(0, castagnoli, t.b[:sctpChecksum])
	c = crc32.Update(c, castagnoli, make([]byte, 4))
	return crc32.Update(c, castagnoli, t.b[sctpChecksum+4:])
}

func (t *transport) adjustCRC(before uint32) {
	if change := before ^ t.crc(); change != 0 {
		sum := binary.LittleEndian.Uint32(t.b[sctpChecksum:])
		binary.LittleEndian.PutUint32(t.b[sctpChecksum:], sum^change)
	}
}

// rewrite changes the packet that an ICMP error quotes, and the error's checksum.
func (q *Quote) rewrite(icmp []byte) {
	quote := icmp[8:]
	before := packet.Sum(0, quote)
	headerLen := int(quote[0]&15) * 4
	t := transport{b: quote[headerLen:], proto: quote[9], is4: true}
	t.before, t.after = rewriteIPv4(quote, q.Src, q.Dst)
	echo := t.proto == packet.ProtoICMP && (t.b[0] == packet.ICMPEchoRequest || t.b[0] == packet.ICMPEchoReply)
	if t.proto == packet.ProtoSCTP {
		t.partial = true // its checksum covers what the quote lacks
	}
	t.rewrite(q.SrcPort, q.DstPort, echo)
	adjust(icmp, 2, before, packet.Sum(0, quote))
}
