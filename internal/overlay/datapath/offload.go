package datapath

import (
	"encoding/binary"
	"math/bits"
)

// vnetHeader is struct virtio_net_hdr of a tap opened with IFF_VNET_HDR, in host byte order.
type vnetHeader struct {
	flags, gsoType             uint8
	headerLen, segmentSize     uint16
	checksumStart, checksumOff uint16
}

const (
	vnetHeaderLen     = 10
	vnetNeedsChecksum = 1
	vnetGSONone       = 0
)

func (h *vnetHeader) read(b []byte) {
	h.flags, h.gsoType = b[0], b[1]
	h.headerLen = binary.NativeEndian.Uint16(b[2:])
	h.segmentSize = binary.NativeEndian.Uint16(b[4:])
	h.checksumStart = binary.NativeEndian.Uint16(b[6:])
	h.checksumOff = binary.NativeEndian.Uint16(b[8:])
}

func (h *vnetHeader) write(b []byte) {
	b[0], b[1] = h.flags, h.gsoType
	binary.NativeEndian.PutUint16(b[2:], h.headerLen)
	binary.NativeEndian.PutUint16(b[4:], h.segmentSize)
	binary.NativeEndian.PutUint16(b[6:], h.checksumStart)
	binary.NativeEndian.PutUint16(b[8:], h.checksumOff)
}

// finish returns the header to send frame with, shift bytes behind the start. A TCP or UDP checksum
// that the header leaves to others is set to the sum of the pseudo-header, from which the kernel or
// the hardware goes on. That is right whether or not the sender had finished the checksum.
func (o Offload) finish(frame []byte, shift int) vnetHeader {
	h := o.vnet
	if h.flags&vnetNeedsChecksum != 0 {
		h.checksumStart += uint16(shift)
		h.headerLen += uint16(shift)
	}
	if !o.unknown && h.flags&vnetNeedsChecksum == 0 {
		return h
	}
	k, t, ok := parse(1, frame, len(frame))
	if !ok || t.frag != Whole {
		return h // a fragment's checksum is never left to hardware
	}
	var field int
	switch t.proto {
	case protoTCP:
		field = 16
	case protoUDP:
		field = 6
	default:
		return h
	}
	if h.flags&vnetNeedsChecksum != 0 && int(h.checksumStart) != t.offset+shift {
		return h // what is left to do lies inside a tunnel of the workload's own
	}
	if len(frame) < t.offset+field+2 {
		return h
	}
	sum := frame[t.offset+field:]
	if t.proto == protoUDP && o.unknown && sum[0] == 0 && sum[1] == 0 {
		return h // none wanted
	}
	binary.BigEndian.PutUint16(sum, pseudoSum(&k, t))
	h.flags |= vnetNeedsChecksum
	h.checksumStart, h.checksumOff = uint16(t.offset+shift), uint16(field)
	return h
}

// Moved returns the work on the frame after n bytes have come in front of its network header, or
// have gone from there.
func (o Offload) Moved(n int) Offload {
	if o.vnet.flags&vnetNeedsChecksum != 0 {
		o.vnet.checksumStart += uint16(n)
		o.vnet.headerLen += uint16(n)
	}
	return o
}

// segmentLen returns the length of the longest IP packet that frame will be cut into.
func (o Offload) segmentLen(frame []byte) int {
	_, t, ok := parse(1, frame, len(frame))
	ip := ethHeaderLen
	if len(frame) >= ethHeaderLen && binary.BigEndian.Uint16(frame[12:]) == etherVLAN {
		ip += 4
	}
	if !ok || o.vnet.gsoType == vnetGSONone {
		return len(frame) - ip
	}
	header := 8
	if t.proto == protoTCP && len(frame) > t.offset+12 {
		header = int(frame[t.offset+12]>>4) * 4
	}
	return t.offset + header - ip + int(o.vnet.segmentSize)
}

// pseudoSum is the one's complement sum over the pseudo-header (RFC 9293 §3.1, RFC 8200 §8.1).
func pseudoSum(k *Key, t transport) uint16 {
	var b [40]byte
	n := 0
	for _, a := range [][]byte{k.Src.AsSlice(), k.Dst.AsSlice()} {
		n += copy(b[n:], a)
	}
	sum := uint64(t.proto) + uint64(t.room)
	for i := 0; i < n; i += 4 {
		sum += uint64(binary.BigEndian.Uint32(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// foldedSum is the one's complement sum of b's 16-bit words in memory order.
func foldedSum(b []byte) uint32 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		var carry uint32
		sum, carry = bits.Add32(sum, uint32(binary.NativeEndian.Uint16(b[i:])), 0)
		sum += carry
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return sum
}
