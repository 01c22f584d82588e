package packet

import (
	"encoding/binary"
	"net/netip"
)

// EtherTypes that Heddle reads.
const (
	TypeIPv4 uint16 = 0x0800
	TypeARP  uint16 = 0x0806
	TypeVLAN uint16 = 0x8100 // 802.1Q
	TypeQinQ uint16 = 0x88a8 // 802.1ad
	TypeIPv6 uint16 = 0x86dd
)

// IP protocol numbers that Heddle reads.
const (
	ProtoICMP    uint8 = 1
	ProtoTCP     uint8 = 6
	ProtoUDP     uint8 = 17
	ProtoDCCP    uint8 = 33
	ProtoICMPv6  uint8 = 58
	ProtoSCTP    uint8 = 132
	ProtoUDPLite uint8 = 136
)

// MaxVLANTags is the number of 802.1Q tags read; a further tag's EtherType is the frame's.
const MaxVLANTags = 2

// FragKind is the part of an IP datagram in a packet (midonet-simulation §4).
type FragKind uint8

const (
	FragNone  FragKind = iota // whole; also an IPv6 "atomic" fragment (RFC 6946)
	FragFirst                 // offset 0 and more to come: has the transport header
	FragLater                 // offset above 0: has no transport header
)

func (k FragKind) String() string {
	switch k {
	case FragFirst:
		return "first"
	case FragLater:
		return "later"
	}
	return "none"
}

// ARP operations.
const (
	ARPRequest uint16 = 1
	ARPReply   uint16 = 2
)

// Frame is a decoded Ethernet frame: every field that a decision may rest on. It holds values and
// offsets only, so it may be reused and outlive its bytes.
type Frame struct {
	Dst, Src  MAC
	VLANs     uint8  // 802.1Q and 802.1ad tags read, at most MaxVLANTags
	VLAN      uint16 // VLAN id of the outermost tag
	EtherType uint16 // behind the tags; 0 for an 802.3 frame

	// SrcIP and DstIP are the network addresses, of ARP the protocol addresses; else invalid.
	SrcIP, DstIP netip.Addr
	Proto        uint8 // IP protocol, of IPv6 the one behind the extension headers
	TOS          uint8 // IPv4 type of service, IPv6 traffic class
	TTL          uint8 // IPv4 time to live, IPv6 hop limit
	Frag         FragKind
	FragID       uint32 // identification, when Frag is not FragNone
	FragProto    uint8  // as all fragments of the datagram name it

	ARPOp uint16 // 0 when the frame is no ARP
	SHA   MAC    // of ARP: sender and target hardware address
	THA   MAC

	// TpSrc and TpDst are the ports of TCP, UDP, SCTP, DCCP and UDP-Lite, and type and code of
	// ICMP; HasTp is set if they are there (not in later fragments, not in other protocols).
	HasTp        bool
	TpSrc, TpDst uint16
	Echo         bool   // ICMP echo request or reply
	EchoID       uint16 // of an ICMP echo

	Quote Quote // what an ICMP error quotes

	NDTarget netip.Addr // of a neighbour solicitation or advertisement
	NDLink   MAC        // its source or target link-layer address option
	HasNDOpt bool       // NDLink is present
	// NDForeign is set if a link-layer address option of neighbour or router solicitation or
	// advertisement names another address than the frame's source.
	NDForeign bool
	NDFlags   uint8 // of an advertisement: NDRouter, NDSolicited, NDOverride

	// NoForward names what in the packet's network headers keeps routers from forwarding it: one of
	// the constants below; else "".
	NoForward string

	// fragmentHeader is set if there is an IPv6 fragment header, that of a whole packet included.
	fragmentHeader bool

	L3  int // offset of the network header, 14 plus the tags
	L4  int // offset of the transport header; 0 when there is none
	End int // offset behind the IP packet or the ARP message: Ethernet padding follows
}

// Headers of packets that routers do not forward, as NoForward names them.
const (
	SourceRouteOption = "an IPv4 source route option"
	RoutingHeader0    = "an IPv6 routing header of type 0"
	BadIPv4Option     = "an IPv4 option of impossible length"
)

// Quote is the packet that an ICMP error message quotes.
type Quote struct {
	Valid            bool // the quote is long enough to name a connection
	Src, Dst         netip.Addr
	Proto            uint8
	SrcPort, DstPort uint16 // ICMP echo: the id in both; 0 for protocols without ports
}

// Malformed says why bytes are no frame that Heddle passes on. Such frames are dropped.
type Malformed struct {
	Layer   string // Ethernet, ARP, IPv4…
	Problem string
}

func (e *Malformed) Error() string { return "malformed " + e.Layer + ": " + e.Problem }

var (
	errEthShort  = &Malformed{"Ethernet", "shorter than its header"}
	errARPShort  = &Malformed{"ARP", "shorter than 28 bytes"}
	errARPKind   = &Malformed{"ARP", "not about IPv4 over Ethernet"}
	errV4Short   = &Malformed{"IPv4", "shorter than its header"}
	errV4Version = &Malformed{"IPv4", "version is not 4"}
	errV4Length  = &Malformed{"IPv4", "total length does not fit header and frame"}
	errV6Short   = &Malformed{"IPv6", "shorter than its header"}
	errV6Version = &Malformed{"IPv6", "version is not 6"}
	errV6Length  = &Malformed{"IPv6", "payload length does not fit the frame"}
	errV6Ext     = &Malformed{"IPv6", "extension header cut short"}
	errV6ExtMany = &Malformed{"IPv6", "more than 8 extension headers"}
	errV6Frag    = &Malformed{"IPv6", "more than one fragment header"}
	errPorts     = &Malformed{"transport", "shorter than the 8 bytes that UDP and others have"}
	errTCPShort  = &Malformed{"TCP", "shorter than its header"}
	errTCPOffset = &Malformed{"TCP", "data offset is inside the header or beyond the packet"}
	errICMP      = &Malformed{"ICMP", "shorter than its header"}
	errICMPv6    = &Malformed{"ICMPv6", "shorter than its message"}
	errNDFrag    = &Malformed{"ICMPv6", "fragmented neighbour discovery (RFC 6980)"}
	errNDOption  = &Malformed{"ICMPv6", "neighbour discovery option of length 0 or cut short"}
)

// Decode reads the frame in b into f. A frame that is cut short or contradicts itself is a
// *Malformed error, and f then holds what was read before.
func Decode(b []byte, f *Frame) error { return DecodeHead(b, len(b), f) }

// DecodeHead is Decode for a frame of wireLen bytes of which only the first len(b) are at hand.
func DecodeHead(b []byte, wireLen int, f *Frame) error {
	*f = Frame{}
	if len(b) < 14 {
		return errEthShort
	}
	wireLen = max(wireLen, len(b))
	f.Dst, f.Src = MAC(b[0:6]), MAC(b[6:12])
	typ := binary.BigEndian.Uint16(b[12:14])
	f.L3 = 14
	for (typ == TypeVLAN || typ == TypeQinQ) && f.VLANs < MaxVLANTags {
		if len(b) < f.L3+4 {
			return errEthShort
		}
		if f.VLANs == 0 {
			f.VLAN = binary.BigEndian.Uint16(b[f.L3:]) & 0x0fff
		}
		typ = binary.BigEndian.Uint16(b[f.L3+2:])
		f.VLANs++
		f.L3 += 4
	}
	f.End = wireLen
	if typ < 0x0600 {
		return nil
	}
	f.EtherType = typ
	switch typ {
	case TypeIPv4:
		return f.decodeIPv4(b, wireLen)
	case TypeIPv6:
		return f.decodeIPv6(b, wireLen)
	case TypeARP:
		return f.decodeARP(b)
	}
	return nil
}

func (f *Frame) decodeARP(b []byte) error {
	a := b[f.L3:]
	if len(a) < 28 {
		return errARPShort
	}
	if binary.BigEndian.Uint16(a) != 1 || binary.BigEndian.Uint16(a[2:]) != TypeIPv4 || a[4] != 6 || a[5] != 4 {
		return errARPKind
	}
	f.ARPOp = binary.BigEndian.Uint16(a[6:])
	f.SHA, f.SrcIP = MAC(a[8:14]), netip.AddrFrom4([4]byte(a[14:18]))
	f.THA, f.DstIP = MAC(a[18:24]), netip.AddrFrom4([4]byte(a[24:28]))
	f.End = f.L3 + 28
	return nil
}

// IsIP reports whether the frame carries IPv4 or IPv6.
func (f *Frame) IsIP() bool { return f.EtherType == TypeIPv4 || f.EtherType == TypeIPv6 }

// HasPorts reports whether the protocol has a source and a destination port.
func HasPorts(proto uint8) bool {
	switch proto {
	case ProtoTCP, ProtoUDP, ProtoSCTP, ProtoDCCP, ProtoUDPLite:
		return true
	}
	return false
}
