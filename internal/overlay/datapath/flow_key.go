package datapath

import (
	"encoding/binary"
	"net/netip"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// Numbers of headers that a frame's key needs; the same as in bpf/parse.h.
const (
	ethHeaderLen  = 14
	etherIPv4     = 0x0800
	etherIPv6     = 0x86dd
	etherVLAN     = 0x8100
	protoICMP     = 1
	protoTCP      = 6
	protoUDP      = 17
	protoDCCP     = 33
	protoRouting  = 43
	protoFragment = 44
	protoAH       = 51
	protoICMP6    = 58
	protoDstOpts  = 60
	protoSCTP     = 132
	protoMobility = 135
	protoUDPLite  = 136
	maxExtensions = 6
	tcpFlags      = 13 // where they are in the TCP header
	vlanPresent   = 0x1000
	jumboFrame    = 0xffff + ethHeaderLen // longer ones have no length in their IP header
)

// KeyOf returns the key by which the kernel looks up the flow of a frame that came in at port; not
// ok when it has none. It agrees with bpf/parse.h on every frame.
func KeyOf(port Port, frame []byte) (key Key, ok bool) {
	k, _, ok := parse(port, frame, len(frame))
	return k, ok
}

// Key is the key of the frame, or not ok.
func (u *Upcall) Key() (Key, bool) {
	k, _, ok := parse(u.Port, u.Frame, u.Length)
	return k, ok
}

// Reverse is the key of the replies, which come in at port from.
func (k Key) Reverse(from Port) Key {
	k.Port = from
	k.SrcMAC, k.DstMAC = k.DstMAC, k.SrcMAC
	k.Src, k.Dst = k.Dst, k.Src
	switch k.Proto {
	case protoICMP: // the port fields are id, type and code
		k.DstPort ^= 8 << 8
	case protoICMP6:
		k.DstPort ^= 1 << 8
	default:
		k.SrcPort, k.DstPort = k.DstPort, k.SrcPort
	}
	return k
}

// ReverseRewritten returns what the replies, which come in at port from, need if frames with key k
// leave as r says: their key, and the rewrite that turns r around. r may be nil.
func (k Key) ReverseRewritten(from Port, r *flow.Rewrite) (Key, *flow.Rewrite) {
	if r == nil {
		return k.Reverse(from), nil
	}
	unchanged := k.Reverse(from)
	return k.rewritten(r).Reverse(from), unchanged.headers(r.Hops)
}

// rewritten returns the key that frames with key k have after r.
func (k Key) rewritten(r *flow.Rewrite) Key {
	k.SrcMAC, k.DstMAC, k.Src, k.Dst = r.SrcMAC, r.DstMAC, r.Src, r.Dst
	switch {
	case k.isEcho():
		k.SrcPort = r.SrcPort
	case k.hasPorts():
		k.SrcPort, k.DstPort = r.SrcPort, r.DstPort
	}
	return k
}

// headers returns the rewrite that leads to frames with key k.
func (k Key) headers(hops uint8) *flow.Rewrite {
	r := &flow.Rewrite{SrcMAC: k.SrcMAC, DstMAC: k.DstMAC, Src: k.Src, Dst: k.Dst, SrcPort: k.SrcPort, DstPort: k.DstPort, Hops: hops}
	if k.isEcho() {
		r.DstPort = k.SrcPort // both are the id
	}
	return r
}

// isEcho reports whether the port fields are those of an ICMP echo.
func (k *Key) isEcho() bool {
	return k.Frag == Whole && (k.Proto == protoICMP || k.Proto == protoICMP6)
}

// hasPorts reports whether the port fields are ports.
func (k *Key) hasPorts() bool {
	switch k.Proto {
	case protoTCP, protoUDP, protoSCTP, protoDCCP, protoUDPLite:
		return k.Frag == Whole
	}
	return false
}

// transport is the place of the header behind IP.
type transport struct {
	offset int // in the frame
	room   int // bytes of the datagram from there on
	proto  uint8
	frag   Frag
	// options is set if there are IPv4 options or an IPv6 routing header of type 0: such packets do
	// not take flows through routers.
	options bool
}

// parse reads the key and finds the transport header. b may be cut from length bytes.
func parse(port Port, b []byte, length int) (k Key, t transport, ok bool) {
	if len(b) < ethHeaderLen {
		return k, t, false
	}
	k.Port = port
	k.DstMAC, k.SrcMAC = packet.MAC(b[0:6]), packet.MAC(b[6:12])
	at, etherType := ethHeaderLen, binary.BigEndian.Uint16(b[12:])
	if etherType == etherVLAN {
		if len(b) < ethHeaderLen+4 {
			return k, t, false
		}
		k.VLAN = vlanPresent | binary.BigEndian.Uint16(b[14:])&0xfff
		at, etherType = ethHeaderLen+4, binary.BigEndian.Uint16(b[16:])
	}
	switch etherType {
	case etherIPv4:
		t, ok = parseIPv4(&k, b, at, length)
	case etherIPv6:
		t, ok = parseIPv6(&k, b, at, length)
	}
	if !ok {
		return k, t, false
	}
	k.Proto, k.Frag = t.proto, t.frag
	return k, t, endPoints(&k, b, t)
}

func parseIPv4(k *Key, b []byte, at, length int) (t transport, ok bool) {
	if len(b) < at+20 || b[at]>>4 != 4 || b[at]&15 < 5 {
		return t, false
	}
	header := int(b[at]&15) * 4
	total := int(binary.BigEndian.Uint16(b[at+2:]))
	if total == 0 && length > jumboFrame {
		total = length - at
	}
	if total < header || at+total > length {
		return t, false
	}
	k.Src, k.Dst = netip.AddrFrom4([4]byte(b[at+12:])), netip.AddrFrom4([4]byte(b[at+16:]))
	t = transport{offset: at + header, room: total - header, proto: b[at+9], options: header > 20}
	if fragment := binary.BigEndian.Uint16(b[at+6:]); fragment&0x1fff != 0 {
		t.frag = LaterFrag
	} else if fragment&0x2000 != 0 {
		t.frag = FirstFrag
	}
	return t, true
}

func parseIPv6(k *Key, b []byte, at, length int) (t transport, ok bool) {
	if len(b) < at+40 || b[at]>>4 != 6 {
		return t, false
	}
	payload := int(binary.BigEndian.Uint16(b[at+4:]))
	if payload == 0 && length > jumboFrame {
		payload = length - at - 40
	}
	if at+40+payload > length {
		return t, false
	}
	k.Src, k.Dst = netip.AddrFrom16([16]byte(b[at+8:])), netip.AddrFrom16([16]byte(b[at+24:]))
	t = transport{offset: at + 40, room: payload, proto: b[at+6]}
	for i := 0; ; i++ {
		switch t.proto {
		case 0, protoRouting, protoDstOpts, protoMobility, protoAH, protoFragment:
		default:
			return t, true
		}
		if i == maxExtensions || t.room < 8 || len(b) < t.offset+8 {
			return t, false
		}
		h := b[t.offset:]
		size := 8 + int(h[1])*8
		switch t.proto {
		case protoAH:
			size = 8 + int(h[1])*4
		case protoFragment:
			size = 8
			if offset := binary.BigEndian.Uint16(h[2:]) &^ 7; offset != 0 {
				t.frag = LaterFrag
			} else if h[3]&1 != 0 {
				t.frag = FirstFrag
			}
		}
		if size > t.room {
			return t, false
		}
		t.options = t.options || t.proto == protoRouting && h[2] == 0
		t.proto = h[0]
		t.offset += size
		t.room -= size
		if t.frag == LaterFrag {
			return t, true
		}
	}
}

// endPoints sets the ports of the key, or the id and type of an echo.
func endPoints(k *Key, b []byte, t transport) bool {
	if t.frag != Whole {
		return true
	}
	switch t.proto {
	case protoTCP, protoUDP, protoSCTP, protoDCCP, protoUDPLite:
		if t.room < 8 || len(b) < t.offset+8 || t.proto == protoTCP && hasBadTCP(b[t.offset:], t.room) {
			return false
		}
		k.SrcPort = binary.BigEndian.Uint16(b[t.offset:])
		k.DstPort = binary.BigEndian.Uint16(b[t.offset+2:])
	case protoICMP, protoICMP6:
		if t.room < 8 || len(b) < t.offset+8 {
			return false
		}
		kind := b[t.offset]
		if t.proto == protoICMP && kind != 0 && kind != 8 || t.proto == protoICMP6 && kind != 128 && kind != 129 {
			return false
		}
		k.SrcPort = binary.BigEndian.Uint16(b[t.offset+4:])
		k.DstPort = binary.BigEndian.Uint16(b[t.offset:])
	}
	return true
}

// TCPFlags returns the flags of a whole TCP packet, 0 of anything else.
func (u *Upcall) TCPFlags() uint8 {
	_, t, ok := parse(u.Port, u.Frame, u.Length)
	if !ok || t.proto != protoTCP || t.frag != Whole {
		return 0
	}
	return u.Frame[t.offset+tcpFlags]
}

// hasBadTCP reports whether the TCP header h, up to its flags at hand or not, does not fit the room
// for it.
func hasBadTCP(h []byte, room int) bool {
	if len(h) <= tcpFlags {
		return true
	}
	size := int(h[12]>>4) * 4
	return size < 20 || size > room
}

func (k *Key) key4() bpfKey4 {
	src, dst := k.Src.As4(), k.Dst.As4()
	return bpfKey4{
		Port: uint32(k.Port), Dmac: k.DstMAC, Smac: k.SrcMAC,
		Saddr: binary.NativeEndian.Uint32(src[:]), Daddr: binary.NativeEndian.Uint32(dst[:]),
		Sport: swap16(k.SrcPort), Dport: swap16(k.DstPort),
		Vlan: k.VLAN, Proto: k.Proto, Frag: uint8(k.Frag),
	}
}

func (k *Key) key6() bpfKey6 {
	return bpfKey6{
		Port: uint32(k.Port), Dmac: k.DstMAC, Smac: k.SrcMAC,
		Saddr: words(k.Src), Daddr: words(k.Dst),
		Sport: swap16(k.SrcPort), Dport: swap16(k.DstPort),
		Vlan: k.VLAN, Proto: k.Proto, Frag: uint8(k.Frag),
	}
}

func (b *bpfKey4) key() Key {
	var src, dst [4]byte
	binary.NativeEndian.PutUint32(src[:], b.Saddr)
	binary.NativeEndian.PutUint32(dst[:], b.Daddr)
	return Key{
		Port: Port(b.Port), SrcMAC: b.Smac, DstMAC: b.Dmac, VLAN: b.Vlan,
		Src: netip.AddrFrom4(src), Dst: netip.AddrFrom4(dst), Proto: b.Proto,
		SrcPort: swap16(b.Sport), DstPort: swap16(b.Dport), Frag: Frag(b.Frag),
	}
}

func (b *bpfKey6) key() Key {
	return Key{
		Port: Port(b.Port), SrcMAC: b.Smac, DstMAC: b.Dmac, VLAN: b.Vlan,
		Src: address(b.Saddr), Dst: address(b.Daddr), Proto: b.Proto,
		SrcPort: swap16(b.Sport), DstPort: swap16(b.Dport), Frag: Frag(b.Frag),
	}
}

func words(a netip.Addr) (w [4]uint32) {
	b := a.As16()
	for i := range w {
		w[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return w
}

func address(w [4]uint32) netip.Addr {
	var b [16]byte
	for i := range w {
		binary.NativeEndian.PutUint32(b[4*i:], w[i])
	}
	return netip.AddrFrom16(b)
}

// swap16 converts between host and network order.
func swap16(n uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], n)
	return binary.NativeEndian.Uint16(b[:])
}

func swap32(n uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return binary.NativeEndian.Uint32(b[:])
}
