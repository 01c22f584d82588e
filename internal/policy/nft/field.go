package nft

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"heddle/calico"
)

// The types of keys.
var (
	typeNFProto = keyType{name: "nf_proto", magic: 2, length: 1, host: true}
	typeIPv4    = keyType{name: "ipv4_addr", magic: 7, length: 4, show: showAddr}
	typeIPv6    = keyType{name: "ipv6_addr", magic: 8, length: 16, show: showAddr}
	typeEther   = keyType{name: "ether_addr", magic: 9, length: 6, show: func(b []byte) string { return net.HardwareAddr(b).String() }}
	typeProto   = keyType{name: "inet_proto", magic: 12, length: 1, show: func(b []byte) string { return protocolName(calico.Protocol(b[0])) }}
	typePort    = keyType{name: "inet_service", magic: 13, length: 2,
		show: func(b []byte) string { return strconv.Itoa(int(binary.BigEndian.Uint16(b))) }}
	typeICMP   = keyType{name: "icmp_type", magic: 14, length: 1, show: showByte}
	typeICMPv6 = keyType{name: "icmpv6_type", magic: 29, length: 1, show: showByte}
	typeMark   = keyType{name: "mark", magic: 19, length: 4, host: true}
	typeState  = keyType{name: "ct_state", magic: 26, length: 4, host: true, show: showState}
	typeFib    = keyType{name: "fib_addrtype", magic: 38, length: 4, host: true}
	typeBool   = keyType{name: "boolean", magic: 39, length: 4, host: true}
	typeIfname = keyType{name: "ifname", magic: 41, length: nameLength, host: true, show: showName}
)

func showAddr(b []byte) string {
	a, _ := netip.AddrFromSlice(b)
	return a.String()
}

func showByte(b []byte) string { return strconv.Itoa(int(b[0])) }

func showName(b []byte) string {
	return `"` + cString(b) + `"`
}

func showState(b []byte) string {
	names := map[uint32]string{ctInvalid: "invalid", ctEstablished: "established", ctRelated: "related"}
	state := binary.NativeEndian.Uint32(b)
	return cmp.Or(names[state], fmt.Sprintf("0x%08x", state))
}

// protocolNames has the names of protocols in nft.
var protocolNames = map[calico.Protocol]string{calico.ProtocolICMP: "icmp", calico.ProtocolTCP: "tcp", calico.ProtocolUDP: "udp",
	calico.ProtocolICMPv6: "ipv6-icmp", calico.ProtocolSCTP: "sctp", calico.ProtocolUDPLite: "udplite"}

func protocolName(p calico.Protocol) string {
	return cmp.Or(protocolNames[p], strconv.Itoa(int(p)))
}

func hasPorts(p calico.Protocol) bool {
	return slices.Contains([]calico.Protocol{calico.ProtocolTCP, calico.ProtocolUDP, calico.ProtocolSCTP, calico.ProtocolUDPLite}, p)
}

// field is a part of a packet, or of its metadata, that can be loaded into a register.
type field struct {
	name string
	key  keyType
	load func(register uint32) expr.Any
}

func meta(name string, key expr.MetaKey, kind keyType) field {
	return field{name, kind, func(r uint32) expr.Any { return &expr.Meta{Key: key, Register: r} }}
}

func payload(name string, base expr.PayloadBase, offset uint32, kind keyType) field {
	return field{name, kind, func(r uint32) expr.Any {
		return &expr.Payload{DestRegister: r, Base: base, Offset: offset, Len: uint32(kind.length)}
	}}
}

func nfproto() field  { return meta("meta nfproto", expr.MetaKeyNFPROTO, typeNFProto) }
func l4proto() field  { return meta("meta l4proto", expr.MetaKeyL4PROTO, typeProto) }
func markOf() field   { return meta("meta mark", expr.MetaKeyMARK, typeMark) }
func inName() field   { return meta("iifname", expr.MetaKeyIIFNAME, typeIfname) }
func outName() field  { return meta("oifname", expr.MetaKeyOIFNAME, typeIfname) }
func etherSrc() field { return payload("ether saddr", expr.PayloadBaseLLHeader, 6, typeEther) }

func arpEtherSrc() field {
	return payload("arp saddr ether", expr.PayloadBaseNetworkHeader, 8, typeEther)
}
func arpSrc() field { return payload("arp saddr ip", expr.PayloadBaseNetworkHeader, 14, typeIPv4) }

func ctState() field {
	return field{"ct state", typeState, func(r uint32) expr.Any { return &expr.Ct{Key: expr.CtKeySTATE, Register: r} }}
}

// end is one of a packet's two ends.
type end bool

const (
	source      end = false
	destination end = true
)

// address is an IP address in a packet of the version.
func address(version int, of end) field {
	names := [2]string{"saddr", "daddr"}
	at := 0
	if of == destination {
		at = 1
	}
	if version == 4 {
		return payload("ip "+names[at], expr.PayloadBaseNetworkHeader, uint32(12+4*at), typeIPv4)
	}
	return payload("ip6 "+names[at], expr.PayloadBaseNetworkHeader, uint32(8+16*at), typeIPv6)
}

// port is a port of a packet of the protocol; "th" is any protocol with ports.
func port(protocol string, of end) field {
	if of == source {
		return payload(protocol+" sport", expr.PayloadBaseTransportHeader, 0, typePort)
	}
	return payload(protocol+" dport", expr.PayloadBaseTransportHeader, 2, typePort)
}

// icmpName returns nft's prefix for the fields of ICMP of a version.
func icmpName(version int) string {
	if version == 4 {
		return "icmp"
	}
	return "icmpv6"
}

func icmpType(version int) field {
	kind := typeICMP
	if version == 6 {
		kind = typeICMPv6
	}
	return payload(icmpName(version)+" type", expr.PayloadBaseTransportHeader, 0, kind)
}

func icmpCode(version int) field {
	return payload(icmpName(version)+" code", expr.PayloadBaseTransportHeader, 1, typeICMP)
}

// icmpTypeAndCode is both as one number of two bytes.
func icmpTypeAndCode() field {
	return payload("@th,0,16", expr.PayloadBaseTransportHeader, 0, keyType{name: "integer", magic: 4, length: 2})
}

// local matches if the address is one of this host.
func local(of end) statement {
	name := "fib saddr type"
	if of == destination {
		name = "fib daddr type"
	}
	f := field{name, typeFib, func(r uint32) expr.Any {
		return &expr.Fib{Register: r, ResultADDRTYPE: true, FlagSADDR: of == source, FlagDADDR: of == destination}
	}}
	return compare{f: f, value: native(unix.RTN_LOCAL), shown: "local"}
}

// routedBack matches if this host would answer by the interface on which the packet came in.
func routedBack() statement {
	f := field{"fib saddr . iif oif", typeBool, func(r uint32) expr.Any {
		return &expr.Fib{Register: r, ResultOIF: true, FlagSADDR: true, FlagIIF: true, FlagPRESENT: true}
	}}
	return compare{f: f, value: native(1), shown: "exists"}
}

func native(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// nameKey returns the name of an interface as a key.
func nameKey(name string) []byte {
	key := make([]byte, nameLength)
	copy(key[:nameLength-1], name)
	return key
}

// ofEthernet matches packets with an Ethernet header.
func ofEthernet() statement {
	f := meta("meta iiftype", expr.MetaKeyIIFTYPE, keyType{name: "iface_type", magic: 31, length: 2, host: true})
	return implied{compare{f: f, value: binary.NativeEndian.AppendUint16(nil, unix.ARPHRD_ETHER), shown: "ether"}}
}
