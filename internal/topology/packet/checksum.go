package packet

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Sum adds b to a one's complement sum (RFC 1071). Only the last part may have an odd length.
func Sum(sum uint32, b []byte) uint32 {
	s := uint64(sum)
	for len(b) >= 4 {
		s += uint64(binary.BigEndian.Uint32(b))
		b = b[4:]
	}
	if len(b) >= 2 {
		s += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint32(s)
}

// Fold ends a running sum: the checksum to put in a header.
func Fold(sum uint32) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// Adjust returns the checksum of data of which a part has changed, from the sums over that part
// before and after (RFC 1624). A wrong checksum stays wrong.
func Adjust(checksum uint16, before, after uint32) uint16 {
	if before == after {
		return checksum
	}
	return Fold(uint32(^checksum) + uint32(^uint16(before)) + after)
}

// PseudoSum is the sum over the pseudo-header (RFC 768, RFC 8200 §8.1).
func PseudoSum(src, dst netip.Addr, proto uint8, length int) uint32 {
	sum := uint32(proto) + uint32(length)>>16 + uint32(length)&0xffff
	if src.Is4() {
		s, d := src.As4(), dst.As4()
		return Sum(Sum(sum, s[:]), d[:])
	}
	s, d := src.As16(), dst.As16()
	return Sum(Sum(sum, s[:]), d[:])
}

// VerifyChecksums checks all checksums of an unfragmented packet.
func VerifyChecksums(b []byte) error {
	var f Frame
	if err := Decode(b, &f); err != nil {
		return err
	}
	if !f.IsIP() {
		return nil
	}
	if f.EtherType == TypeIPv4 {
		header := b[f.L3 : f.L3+int(b[f.L3]&15)*4]
		if Fold(Sum(0, header)) != 0 {
			return fmt.Errorf("IPv4 header checksum %#04x is wrong", binary.BigEndian.Uint16(header[10:]))
		}
	}
	if f.Frag != FragNone || f.L4 == 0 {
		return nil
	}
	t := b[f.L4:f.End]
	sum := PseudoSum(f.SrcIP, f.DstIP, f.Proto, len(t))
	at := 0
	switch {
	case f.Proto == ProtoTCP:
		at = 16
	case f.Proto == ProtoUDP:
		at = 6
	case f.Proto == ProtoICMPv6 && f.EtherType == TypeIPv6:
		at = 2
	case f.Proto == ProtoICMP && f.EtherType == TypeIPv4:
		at, sum = 2, 0
	default:
		return nil
	}
	if len(t) < at+2 {
		return &Malformed{"transport", "too short for its checksum"}
	}
	got := binary.BigEndian.Uint16(t[at:])
	if f.Proto == ProtoUDP && got == 0 && f.EtherType == TypeIPv4 {
		return nil
	}
	if Fold(Sum(sum, t)) != 0 {
		return fmt.Errorf("checksum %#04x of IP protocol %d is wrong", got, f.Proto)
	}
	return nil
}
