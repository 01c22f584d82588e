package packet

import "encoding/binary"

// VXLANHeaderLen is the length of a VXLAN header in bytes.
const VXLANHeaderLen = 8

// What VXLAN adds to a packet's IP length, in bytes: outer IP, UDP, VXLAN and the inner Ethernet header.
const (
	VXLANOverheadV4 = 20 + 8 + 8 + 14
	VXLANOverheadV6 = 40 + 8 + 8 + 14
)

// AppendVXLAN adds a VXLAN header (RFC 7348 §5); of vni the low 24 bits count.
func AppendVXLAN(b []byte, vni uint32) []byte {
	b = append(b, 0x08, 0, 0, 0)
	return binary.BigEndian.AppendUint32(b, vni<<8)
}

// ParseVXLAN reads the VXLAN header at the start of a UDP payload: the network identifier, and the frame behind it as
// a part of b.
func ParseVXLAN(b []byte) (vni uint32, frame []byte, err error) {
	if len(b) < VXLANHeaderLen {
		return 0, nil, &Malformed{"VXLAN", "shorter than its header"}
	}
	if b[0]&0x08 == 0 {
		return 0, nil, &Malformed{"VXLAN", "no network identifier"}
	}
	return binary.BigEndian.Uint32(b[4:]) >> 8, b[VXLANHeaderLen:], nil
}
