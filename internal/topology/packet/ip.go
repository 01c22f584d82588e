package packet

import (
	"encoding/binary"
	"net/netip"
)

// maxExtensions is the number of IPv6 extension headers followed (midonet-simulation §18).
const maxExtensions = 8

// IPv6 extension headers that are followed, as by the eBPF programs (dataplane-lab §1.7).
const (
	extHopByHop    = 0
	extRouting     = 43
	extFragment    = 44
	extAuth        = 51
	extDestination = 60
	extMobility    = 135
)

// IsExtension reports whether a number is that of an IPv6 extension header that is followed, and
// so of no protocol there.
func IsExtension(next uint8) bool {
	switch next {
	case extHopByHop, extRouting, extDestination, extMobility, extFragment, extAuth:
		return true
	}
	return false
}

func (f *Frame) decodeIPv4(b []byte, wireLen int) error {
	h := b[f.L3:]
	if len(h) < 20 {
		return errV4Short
	}
	if h[0]>>4 != 4 {
		return errV4Version
	}
	headerLen, total := int(h[0]&15)*4, int(binary.BigEndian.Uint16(h[2:]))
	if headerLen < 20 || total < headerLen || total > wireLen-f.L3 {
		return errV4Length
	}
	if len(h) < headerLen {
		return errV4Short
	}
	f.SrcIP, f.DstIP = netip.AddrFrom4([4]byte(h[12:16])), netip.AddrFrom4([4]byte(h[16:20]))
	f.TOS, f.TTL, f.Proto = h[1], h[8], h[9]
	f.End = f.L3 + total
	f.FragProto = f.Proto
	fragment := binary.BigEndian.Uint16(h[6:])
	f.setFragment(fragment&0x1fff, fragment&0x2000 != 0, uint32(binary.BigEndian.Uint16(h[4:])))
	f.NoForward = forwardBlocker(h[20:headerLen])
	return f.decodeTransport(b, f.L3+headerLen)
}

// IPv4 options (RFC 791).
const (
	ipOptEnd         = 0
	ipOptNoOperation = 1
	ipOptLooseRoute  = 131
	ipOptStrictRoute = 137
)

// forwardBlocker returns why no router forwards a packet with the IPv4 options o, or "".
func forwardBlocker(o []byte) string {
	for len(o) > 0 && o[0] != ipOptEnd {
		if o[0] == ipOptNoOperation {
			o = o[1:]
			continue
		}
		if len(o) < 2 || o[1] < 2 || int(o[1]) > len(o) {
			return BadIPv4Option
		}
		if o[0] == ipOptLooseRoute || o[0] == ipOptStrictRoute {
			return SourceRouteOption
		}
		o = o[o[1]:]
	}
	return ""
}

func (f *Frame) decodeIPv6(b []byte, wireLen int) error {
	h := b[f.L3:]
	if len(h) < 40 {
		return errV6Short
	}
	if h[0]>>4 != 6 {
		return errV6Version
	}
	payload := int(binary.BigEndian.Uint16(h[4:]))
	if payload > wireLen-f.L3-40 {
		return errV6Length
	}
	f.SrcIP, f.DstIP = netip.AddrFrom16([16]byte(h[8:24])), netip.AddrFrom16([16]byte(h[24:40]))
	f.TOS, f.TTL = h[0]<<4|h[1]>>4, h[7]
	f.End = f.L3 + 40 + payload
	at := f.L3 + 40
	x := walkExtensions(b[:min(len(b), f.End)], h[6], at)
	if x.err != nil {
		return x.err
	}
	f.Proto, f.FragProto = x.proto, x.fragProto
	if x.fragmented {
		f.setFragment(x.offset, x.more, x.id)
	}
	f.fragmentHeader = x.fragmented
	if x.sourceRoute {
		f.NoForward = RoutingHeader0
	}
	return f.decodeTransport(b, x.at)
}

func (f *Frame) setFragment(offset uint16, more bool, id uint32) {
	switch {
	case offset > 0:
		f.Frag = FragLater
	case more:
		f.Frag = FragFirst
	default:
		return
	}
	f.FragID = id
}

// extensions describes the headers between IPv6's and the transport's.
type extensions struct {
	proto      uint8
	at         int // offset behind the extension headers
	fragmented bool
	offset     uint16 // in 8-byte units
	more       bool
	id         uint32
	fragProto  uint8
	// sourceRoute is set if there is a routing header of type 0 (RFC 5095).
	sourceRoute bool
	err         error
}

// walkExtensions follows the extension headers of b from offset at, of which next is the first's
// type. Behind a later fragment's header comes payload.
func walkExtensions(b []byte, next uint8, at int) (x extensions) {
	x.proto, x.at = next, at
	for n := 0; ; n++ {
		unit, extra := 8, 1
		switch x.proto {
		case extHopByHop, extRouting, extDestination, extMobility, extFragment:
		case extAuth:
			unit, extra = 4, 2
		default:
			return x
		}
		if n == maxExtensions {
			x.err = errV6ExtMany
			return x
		}
		if len(b) < x.at+8 {
			x.err = errV6Ext
			return x
		}
		h := b[x.at:]
		size := 8
		if x.proto != extFragment {
			size = (int(h[1]) + extra) * unit
		}
		if len(h) < size {
			x.err = errV6Ext
			return x
		}
		if x.proto == extFragment {
			if x.fragmented {
				x.err = errV6Frag
				return x
			}
			field := binary.BigEndian.Uint16(h[2:])
			x.fragmented, x.offset, x.more = true, field>>3, field&1 != 0
			x.id, x.fragProto = binary.BigEndian.Uint32(h[4:]), h[0]
		}
		x.sourceRoute = x.sourceRoute || x.proto == extRouting && h[2] == 0
		x.proto = h[0]
		x.at += size
		if x.offset > 0 {
			return x
		}
	}
}

// decodeTransport reads ports, or ICMP's type, code and what hangs on them, at offset at.
func (f *Frame) decodeTransport(b []byte, at int) error {
	if f.Frag == FragLater {
		return nil
	}
	f.L4 = at
	t := b[min(at, len(b)):min(len(b), f.End)]
	switch {
	case HasPorts(f.Proto):
		if len(t) < 8 {
			return errPorts
		}
		f.HasTp = true
		f.TpSrc, f.TpDst = binary.BigEndian.Uint16(t), binary.BigEndian.Uint16(t[2:])
		if f.Proto == ProtoTCP {
			return checkTCPHeader(t, f.End-at)
		}
	case f.Proto == ProtoICMP && f.EtherType == TypeIPv4:
		return f.decodeICMP(t)
	case f.Proto == ProtoICMPv6 && f.EtherType == TypeIPv6:
		return f.decodeICMPv6(t)
	}
	return nil
}

// checkTCPHeader checks that the TCP header at the beginning of t is within the room bytes that the
// packet has for it. A first fragment must hold all of it (RFC 1858, RFC 7112).
func checkTCPHeader(t []byte, room int) error {
	if room < 20 || len(t) < 13 {
		return errTCPShort
	}
	if size := int(t[12]>>4) * 4; size < 20 || size > room {
		return errTCPOffset
	}
	return nil
}
