package calc

import (
	"net/netip"
	"slices"
)

// address is an IP address in 16 bytes; an IPv4 address has its IPv6-mapped form.
type address [16]byte

func addressOf4(ip [4]byte) address { return address(netip.AddrFrom4(ip).As16()) }

func (a address) addr() netip.Addr { return netip.AddrFrom16(a).Unmap() }

func (a address) as4() (ip [4]byte, ok bool) {
	if a.family() != 0 {
		return ip, false
	}
	return [4]byte(a[12:]), true
}

// family returns 0 for IPv4 and 1 for IPv6.
func (a address) family() int {
	if netip.AddrFrom16(a).Is4In6() {
		return 0
	}
	return 1
}

func addressesOf(lists ...[]netip.Addr) []address {
	var all []address
	for _, l := range lists {
		for _, ip := range l {
			all = append(all, address(ip.As16()))
		}
	}
	return distinct(all)
}

// few is up to how many entries are compared with each other; an object may have many thousands.
const few = 16

// distinct returns a list without repetitions, in order. It may be the list itself.
func distinct[T comparable](list []T) []T {
	if len(list) <= few {
		for i, v := range list {
			if slices.Contains(list[:i], v) {
				return distinctOf(list)
			}
		}
		return list
	}
	return distinctOf(list)
}

func distinctOf[T comparable](list []T) []T {
	seen := make(map[T]bool, len(list))
	kept := make([]T, 0, len(list))
	for _, v := range list {
		if !seen[v] {
			seen[v] = true
			kept = append(kept, v)
		}
	}
	return kept
}

// holders are the endpoints of each address.
type holders struct {
	v4   map[[4]byte]endpointID // the only holder of an IPv4 address
	v6   map[address]endpointID // the only holder of an IPv6 address
	many map[address][]endpointID
}

func newHolders() holders {
	return holders{map[[4]byte]endpointID{}, map[address]endpointID{}, map[address][]endpointID{}}
}

// only returns the only holder of an address; 0: none, or several.
func (h *holders) only(a address) endpointID {
	if ip, ok := a.as4(); ok {
		return h.v4[ip]
	}
	return h.v6[a]
}

// setOnly makes an endpoint the only holder of an address; 0: there is none.
func (h *holders) setOnly(a address, id endpointID) {
	ip, is4 := a.as4()
	switch {
	case is4 && id == 0:
		delete(h.v4, ip)
	case is4:
		h.v4[ip] = id
	case id == 0:
		delete(h.v6, a)
	default:
		h.v6[a] = id
	}
}

// several returns the holders of an address that has more than one.
func (h *holders) several(a address) []endpointID { return h.many[a] }

// hold notes one more holder of an address.
func (h *holders) hold(a address, id endpointID) {
	switch other := h.only(a); {
	case len(h.many[a]) > 0:
		h.many[a] = append(h.many[a], id)
	case other == 0:
		h.setOnly(a, id)
	default:
		h.setOnly(a, 0)
		h.many[a] = []endpointID{other, id}
	}
}

// unhold notes one holder less.
func (h *holders) unhold(a address, id endpointID) {
	if h.only(a) == id {
		h.setOnly(a, 0)
		return
	}
	left := slices.DeleteFunc(h.many[a], func(other endpointID) bool { return other == id })
	if len(left) > 1 {
		h.many[a] = left
		return
	}
	delete(h.many, a)
	h.setOnly(a, left[0])
}
