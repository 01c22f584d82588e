package nft

import (
	"iter"
	"net/netip"
)

// members are addresses of both versions in compact form: there may be a million.
type members struct {
	v4 map[[4]byte]struct{}
	v6 map[[16]byte]struct{}
}

// add adds addresses. The first call makes room for just these.
func (m *members) add(all []netip.Addr) {
	if m.v4 == nil && m.v6 == nil {
		n := 0
		for _, a := range all {
			if a.Is4() {
				n++
			}
		}
		m.v4, m.v6 = make(map[[4]byte]struct{}, n), make(map[[16]byte]struct{}, len(all)-n)
	}
	for _, a := range all {
		if a.Is4() {
			m.v4[a.As4()] = struct{}{}
		} else {
			m.v6[a.As16()] = struct{}{}
		}
	}
}

func (m *members) remove(a netip.Addr) {
	if a.Is4() {
		delete(m.v4, a.As4())
	} else {
		delete(m.v6, a.As16())
	}
}

func (m *members) has(a netip.Addr) (ok bool) {
	if a.Is4() {
		_, ok = m.v4[a.As4()]
	} else {
		_, ok = m.v6[a.As16()]
	}
	return ok
}

func (m *members) of(version int) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		if version == 4 {
			for a := range m.v4 {
				if !yield(netip.AddrFrom4(a)) {
					return
				}
			}
			return
		}
		for a := range m.v6 {
			if !yield(netip.AddrFrom16(a)) {
				return
			}
		}
	}
}
