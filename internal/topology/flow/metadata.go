package flow

import (
	"encoding/binary"
	"net/netip"

	"heddle/internal/topology/packet"
)

// MetadataPort is the id of a host's port to its metadata service (decision 0040): no port of the
// virtual network, and the same on every host.
const MetadataPort = "heddle-md"

// MetadataTCPPort is the TCP port of the metadata service.
const MetadataTCPPort = 80

// The metadata service's addresses on every network.
var (
	MetadataIPv4 = netip.AddrFrom4([4]byte{169, 254, 169, 254})
	MetadataIPv6 = netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 12: 0xa9, 13: 0xfe, 14: 0xa9, 15: 0xfe})
	MetadataMAC  = packet.MAC{0x02, 0xa8, 0x9c, 0xde, 0x39, 0x28}
)

// MetadataClient is a source of requests for metadata. A host assigns an address of its own to
// each, so that addresses that several networks use are told apart.
type MetadataClient struct {
	PortID string // by which its packets come in
	MAC    packet.MAC
	IP     netip.Addr
	Via    packet.MAC // to which it sends: the service's, or that of its router
}

// metadataSources is the first of the addresses, never on a wire, that stand for clients of IPv4
// (RFC 6598). Those for clients of IPv6 are link-local ones that end in the same bytes.
const (
	metadataSources = 100<<24 | 64<<16
	// MaxMetadataSource is the largest number of MetadataSourceAddr.
	MaxMetadataSource = 1<<22 - 2
)

// MetadataSources are the addresses of clients of IPv4, as routes name them.
var MetadataSources = netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64}), 10)

// MetadataSourceAddr returns the address with a number from 1 to MaxMetadataSource that stands for
// a client of the metadata service on its host.
func MetadataSourceAddr(n uint32, is6 bool) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], metadataSources+n)
	if !is6 {
		return netip.AddrFrom4(b)
	}
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 12: b[0], 13: b[1], 14: b[2], 15: b[3]})
}

// MetadataSourceNumber is the reverse of MetadataSourceAddr; 0 for an address that is none.
func MetadataSourceNumber(a netip.Addr) uint32 {
	b := a.AsSlice()
	if len(b) < 4 {
		return 0
	}
	n := binary.BigEndian.Uint32(b[len(b)-4:]) - metadataSources
	if n == 0 || n > MaxMetadataSource || MetadataSourceAddr(n, a.Is6()) != a {
		return 0
	}
	return n
}
