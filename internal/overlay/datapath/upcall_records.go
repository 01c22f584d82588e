package datapath

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// Lengths of struct upcall in the ring and struct tap_upcall in the tap, which precede a frame.
const (
	recordHeadLen = 24
	tapHeadLen    = 14
	tapMagicTail  = 0x4844 // other frames on the tap are the kernel's own
)

// What an upcall costs its port until it is handled, as bpf/output.h.
const (
	smallCredits = 1
	giantCredits = 4 // a frame above UpcallBytes that is given up whole
)

// creditsOf returns the credits that a frame of the tap has taken.
func creditsOf(length int) uint32 {
	if length > UpcallBytes {
		return giantCredits
	}
	return smallCredits
}

var errRecord = errors.New("no upcall record")

// parseRecord reads a record of the ring buffer. It may overwrite the head of b.
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

// stateMessage removes the length and padding of a message, which another host wrote.
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

// parseTapRecord reads a frame as the tap gives it. It may overwrite the head of b.
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

// withTag returns the frame that begins at b[at:], with its VLAN tag back in place. It overwrites
// the four bytes before at.
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
