package datapath

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// Lengths of what stands in front of a frame that goes up: struct upcall in the ring, struct tap_upcall in the tap.
const (
	recordHeadLen = 24
	tapHeadLen    = 14
	tapMagicTail  = 0x4844 // with tapMagic, tells upcalls from what the kernel itself sends on the tap
)

// What an upcall costs its port until it is handled, as bpf/output.h.
const (
	smallCredits = 1
	giantCredits = 4 // a frame above UpcallBytes that is given up whole
)

// creditsOf is what a frame of the tap took.
func creditsOf(length int) uint32 {
	if length > UpcallBytes {
		return giantCredits
	}
	return smallCredits
}

var errRecord = errors.New("no upcall record")

// parseRecord reads a record of the ring buffer. The frame lies in b, whose head may be overwritten.
func parseRecord(b []byte) (u Upcall, err error) {
	if len(b) < recordHeadLen {
		return u, errRecord
	}
	captured := int(binary.NativeEndian.Uint16(b[12:]))
	u = Upcall{
		Port:   Port(binary.NativeEndian.Uint32(b)),
		Length: int(binary.NativeEndian.Uint32(b[8:])),
		Reason: Reason(b[18]),
	}
	if captured > len(b)-recordHeadLen || captured > u.Length {
		return u, errRecord
	}
	if u.Reason == State {
		u.From = netip.AddrFrom4([4]byte(b[4:8]))
		u.Frame, err = stateMessage(b[recordHeadLen : recordHeadLen+captured])
		u.Length = len(u.Frame)
		return u, err
	}
	u.Offload.unknown = true
	vlanProto, tci := [2]byte(b[14:16]), binary.NativeEndian.Uint16(b[16:])
	u.Frame = withTag(b[:recordHeadLen+captured], recordHeadLen, vlanProto, tci)
	u.Length += len(u.Frame) - captured
	return u, nil
}

// stateMessage takes a message out of its length and padding. Another host wrote them: they may be anything.
func stateMessage(b []byte) ([]byte, error) {
	if len(b) < stateHeadLen {
		return nil, errRecord
	}
	n := int(binary.BigEndian.Uint16(b))
	if n > len(b)-stateHeadLen {
		return nil, errRecord
	}
	return b[stateHeadLen : stateHeadLen+n], nil
}

// parseTapRecord reads a frame as the tap gives it. The frame lies in b, whose head may be overwritten.
func parseTapRecord(b []byte) (u Upcall, err error) {
	const head = vnetHeaderLen + tapHeadLen
	if len(b) < head {
		return u, errRecord
	}
	h := b[vnetHeaderLen:]
	if h[9] != tapMagic || binary.NativeEndian.Uint16(h[10:]) != tapMagicTail {
		return u, errRecord
	}
	u = Upcall{Port: Port(binary.NativeEndian.Uint32(h)), Reason: Reason(h[8])}
	v := &u.Offload.vnet
	v.read(b)
	vlanProto, tci := [2]byte(h[4:6]), binary.NativeEndian.Uint16(h[6:])
	u.Frame = withTag(b, head, vlanProto, tci)
	u.Length = len(u.Frame)

	// The offsets count from the head; count them from the frame.
	shift := len(u.Frame) - (len(b) - vnetHeaderLen)
	v.headerLen = moved(v.headerLen, shift)
	if v.flags&vnetNeedsChecksum != 0 {
		v.checksumStart = moved(v.checksumStart, shift)
	}
	return u, nil
}

func moved(offset uint16, by int) uint16 { return uint16(max(0, int(offset)+by)) }

// withTag is the frame that begins at b[at:], with a VLAN tag that lay beside it put back in place. It writes over the
// four bytes before at.
func withTag(b []byte, at int, proto [2]byte, tci uint16) []byte {
	const macs, tag = 12, 4
	if proto == [2]byte{} || len(b) < at+macs {
		return b[at:]
	}
	copy(b[at-tag:], b[at:at+macs])
	copy(b[at-tag+macs:], proto[:])
	binary.BigEndian.PutUint16(b[at-tag+macs+2:], tci)
	return b[at-tag:]
}
