// Package addresses chooses fixed addresses, gateways, pools, MAC addresses and tunnel keys for
// Neutron objects. It is pure: [Used] and small functions report what is taken, and randomness is a
// parameter. Concurrent callers rarely choose the same; no choice costs more for a larger pool.
package addresses

import (
	"net/netip"

	"heddle/internal/neutron"
	"heddle/internal/topology/packet"
)

// Used reports the taken addresses of a subnet. The first error ends the choice.
type Used interface {
	// Has reports whether the address is taken.
	Has(subnetID string, a netip.Addr) (bool, error)
	// Between lists the taken addresses from first to last, both included, in ascending order. It
	// is asked only when a pool is so full that guessing failed.
	Between(subnetID string, first, last netip.Addr) ([]netip.Addr, error)
}

// Random is a source of chance; *rand.Rand of math/rand/v2 is one.
type Random interface {
	Uint64() uint64
	Uint64N(n uint64) uint64 // from 0 to n−1
}

// Lowest is a [Random] that chooses the lowest free address of the first pool with one.
type Lowest struct{}

// Uint64 implements [Random].
func (Lowest) Uint64() uint64 { return 0 }

// Uint64N implements [Random].
func (Lowest) Uint64N(uint64) uint64 { return 0 }

// guesses bounds the random addresses tried before taken addresses are listed: with half of them
// taken, one choice in 4096 lists.
const guesses = 12

// Pick chooses a free address from the pools of a subnet; ok is false when all are taken.
func Pick(s *neutron.Subnet, used Used, random Random) (a netip.Addr, ok bool, err error) {
	for range guesses {
		a, ok := randomIn(s.AllocationPools, random)
		if !ok {
			return netip.Addr{}, false, nil
		}
		taken, err := used.Has(s.ID, a)
		if err != nil {
			return netip.Addr{}, false, err
		}
		if !taken {
			return a, true, nil
		}
	}
	return pickFromGaps(s, used, random)
}

// randomIn returns any address of the pools, each as likely as the other.
func randomIn(pools []neutron.Pool, random Random) (netip.Addr, bool) {
	var total u128
	for _, p := range pools {
		total = total.add(span(p.Start, p.End))
	}
	if total.isZero() {
		return netip.Addr{}, false
	}
	at := randomBelow(total, random)
	for _, p := range pools {
		size := span(p.Start, p.End)
		if at.less(size) {
			return offset(p.Start, at), true
		}
		at = at.sub(size)
	}
	return netip.Addr{}, false
}

// pickFromGaps chooses among the free addresses, pool by pool from a random one on.
func pickFromGaps(s *neutron.Subnet, used Used, random Random) (netip.Addr, bool, error) {
	n := len(s.AllocationPools)
	first := int(random.Uint64N(uint64(n)))
	for i := range n {
		p := s.AllocationPools[(first+i)%n]
		taken, err := used.Between(s.ID, p.Start, p.End)
		if err != nil {
			return netip.Addr{}, false, err
		}
		free := span(p.Start, p.End).sub(u128{lo: uint64(len(taken))})
		if !free.isZero() {
			return nthFree(p.Start, taken, randomBelow(free, random)), true, nil
		}
	}
	return netip.Addr{}, false, nil
}

// nthFree returns the n-th address, from 0, from start on that is not in the sorted list taken.
func nthFree(start netip.Addr, taken []netip.Addr, n u128) netip.Addr {
	a := offset(start, n)
	for _, t := range taken {
		if a.Less(t) {
			break
		}
		a = a.Next()
	}
	return a
}

// DefaultGateway returns the gateway of a prefix without one: the first address after the
// network's, in IPv6 the network's own (neutron-api §4). A prefix of one address has none.
func DefaultGateway(cidr netip.Prefix) (netip.Addr, bool) {
	if cidr.IsSingleIP() {
		return netip.Addr{}, false
	}
	network := cidr.Masked().Addr()
	if network.Is6() {
		return network, true
	}
	return network.Next(), true
}

// DefaultPools returns all usable addresses of a prefix but the gateway, which may be nil or
// outside; a gateway in the middle splits them into two pools. IPv4 leaves out the network and
// broadcast addresses, except in prefixes of one or two addresses; IPv6 the first.
func DefaultPools(cidr netip.Prefix, gateway *netip.Addr) []neutron.Pool {
	cidr = cidr.Masked()
	first, last := cidr.Addr(), LastOf(cidr)
	switch {
	case cidr.IsSingleIP(), first.Is4() && cidr.Bits() == 31:
	case first.Is4():
		first, last = first.Next(), last.Prev()
	default:
		first = first.Next()
	}
	if gateway == nil || gateway.Less(first) || last.Less(*gateway) {
		return []neutron.Pool{{Start: first, End: last}}
	}
	var pools []neutron.Pool
	if first.Less(*gateway) {
		pools = append(pools, neutron.Pool{Start: first, End: gateway.Prev()})
	}
	if gateway.Less(last) {
		pools = append(pools, neutron.Pool{Start: gateway.Next(), End: last})
	}
	return pools
}

// Usable reports whether a port may have the address on the prefix. The network and broadcast
// addresses of IPv4 may not be used; the first of an IPv6 prefix is the routers' (neutron-api §5).
func Usable(cidr netip.Prefix, a netip.Addr, deviceOwner string) bool {
	if !cidr.Contains(a) {
		return false
	}
	network := cidr.Masked().Addr()
	if a.Is6() {
		return a != network || router(deviceOwner) || cidr.IsSingleIP()
	}
	return cidr.Bits() >= 31 || a != network && a != LastOf(cidr)
}

// EUI64 returns the address that a machine with this MAC forms in a /64 (RFC 4291 appendix A).
func EUI64(prefix netip.Prefix, m packet.MAC) netip.Addr {
	b := prefix.Masked().Addr().As16()
	copy(b[8:], []byte{m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
	return netip.AddrFrom16(b)
}
