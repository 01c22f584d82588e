package packet

import (
	"encoding/binary"
	"net/netip"
)

// VXLAN's addition to a packet's IP length, in bytes: outer IP, UDP, VXLAN, inner Ethernet.
const (
	VXLANOverheadV4 = 20 + 8 + 8 + 14
	VXLANOverheadV6 = 40 + 8 + 8 + 14
)

// VLANTagLen is the length of a VLAN tag in bytes (IEEE 802.1Q §9.3).
const VLANTagLen = 4

// VXLANPort is the UDP port of VTEPs (RFC 7348 §5).
const VXLANPort uint16 = 4789

// vxlanHeaderLen is the length of the VXLAN header: flags, reserved, VNI, reserved.
const vxlanHeaderLen = 8

// vxlanValidVNI is the only flag of a VXLAN header, that the VNI is valid.
const vxlanValidVNI = 0x08

var (
	errVXLANShort    = &Malformed{"VXLAN", "shorter than its header"}
	errVXLANFlags    = &Malformed{"VXLAN", "flags other than that of a valid VNI"}
	errVXLANReserved = &Malformed{"VXLAN", "reserved bits are set"}
)

// ParseVXLAN reads the VXLAN header at the start of a UDP payload, behind which the inner frame is
// (RFC 7348 §5). Headers of extensions, which have other bits set, are refused: what they mean is
// not known.
func ParseVXLAN(payload []byte) (vni uint32, inner []byte, err error) {
	switch {
	case len(payload) < vxlanHeaderLen:
		return 0, nil, errVXLANShort
	case payload[0] != vxlanValidVNI:
		return 0, nil, errVXLANFlags
	case payload[1]|payload[2]|payload[3]|payload[7] != 0:
		return 0, nil, errVXLANReserved
	}
	return binary.BigEndian.Uint32(payload[4:]) >> 8, payload[vxlanHeaderLen:], nil
}

// VXLAN is the outside of a VXLAN packet over IPv4. It has no UDP checksum: a switch need not check
// it (RFC 7348 §5), and hardware that is left to fill it in does not know the inner packet.
type VXLAN struct {
	VNI      uint32
	Dst, Src MAC
	From, To netip.Addr // IPv4
	SrcPort  uint16
	DstPort  uint16 // VXLANPort, unless a router on the way translates it
	TTL      uint8
}

// Append adds the whole packet around an inner frame to b.
func (h VXLAN) Append(b, inner []byte) []byte {
	b = Ethernet{Dst: h.Dst, Src: h.Src, Type: TypeIPv4}.Append(b)
	b = IPv4{TTL: h.TTL, Proto: ProtoUDP, Src: h.From, Dst: h.To}.Append(b, 8+vxlanHeaderLen+len(inner))
	b = binary.BigEndian.AppendUint16(b, h.SrcPort)
	b = binary.BigEndian.AppendUint16(b, h.DstPort)
	b = binary.BigEndian.AppendUint16(b, uint16(8+vxlanHeaderLen+len(inner)))
	return AppendVXLAN(append(b, 0, 0), h.VNI, inner)
}

// AppendVXLAN adds the VXLAN header and an inner frame to b.
func AppendVXLAN(b []byte, vni uint32, inner []byte) []byte {
	b = append(b, vxlanValidVNI, 0, 0, 0)
	return append(binary.BigEndian.AppendUint32(b, vni<<8), inner...)
}

// PopVLAN returns a frame without its outermost 802.1Q or 802.1ad tag, if it has one. The result
// shares no memory with it.
func PopVLAN(frame []byte) []byte {
	if len(frame) < 14+VLANTagLen || !isTag(frame) {
		return append([]byte(nil), frame...)
	}
	return append(append(make([]byte, 0, len(frame)-VLANTagLen), frame[:12]...), frame[16:]...)
}

// PushVLAN returns a frame with an 802.1Q tag in front of those it has.
func PushVLAN(frame []byte, vlan uint16) []byte {
	if len(frame) < 14 {
		return append([]byte(nil), frame...)
	}
	b := append(make([]byte, 0, len(frame)+VLANTagLen), frame[:12]...)
	b = binary.BigEndian.AppendUint16(b, TypeVLAN)
	b = binary.BigEndian.AppendUint16(b, vlan&0x0fff)
	return append(b, frame[12:]...)
}

// SecondVLAN returns the id of a frame's second tag, 0 without one.
func SecondVLAN(frame []byte) uint16 {
	if len(frame) < 22 || !isTag(frame) || !isTag(frame[4:]) {
		return 0
	}
	return binary.BigEndian.Uint16(frame[18:]) & 0x0fff
}

func isTag(frame []byte) bool {
	typ := binary.BigEndian.Uint16(frame[12:])
	return typ == TypeVLAN || typ == TypeQinQ
}
