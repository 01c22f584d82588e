package nft

import (
	"iter"
	"maps"
	"net/netip"

	"heddle/internal/policy/calc"
)

// wantedSet is a set as it should be, with its changes since the last commit.
type wantedSet interface {
	shape() *set
	all() iter.Seq[element]
	has(key string) (element, bool)
	// changes returns the elements to add and to remove since the last commit.
	changes() (add, remove []element)
}

type namedSet struct {
	set      *set
	elements map[string]element
	was      map[string]*element // by key, of those touched; nil: not there
}

func newNamedSet(s *set) *namedSet {
	return &namedSet{set: s, elements: map[string]element{}, was: map[string]*element{}}
}

func (s *namedSet) shape() *set                         { return s.set }
func (s *namedSet) has(key string) (e element, ok bool) { e, ok = s.elements[key]; return e, ok }

func (s *namedSet) forget() { clear(s.was) }

func (s *namedSet) all() iter.Seq[element] { return maps.Values(s.elements) }

func (s *namedSet) touch(key string) {
	if _, ok := s.was[key]; ok {
		return
	}
	s.was[key] = nil
	if e, ok := s.elements[key]; ok {
		s.was[key] = &e
	}
}

func (s *namedSet) put(e element) {
	s.touch(e.key)
	s.elements[e.key] = e
}

func (s *namedSet) remove(key string) {
	s.touch(key)
	delete(s.elements, key)
}

func (s *namedSet) replace(all []element) {
	keep := map[string]bool{}
	for _, e := range all {
		keep[e.key] = true
		if old, ok := s.elements[e.key]; !ok || old != e {
			s.put(e)
		}
	}
	for key := range s.elements {
		if !keep[key] {
			s.remove(key)
		}
	}
}

func (s *namedSet) changes() (add, remove []element) {
	for key, was := range s.was {
		is, ok := s.elements[key]
		if was != nil && (!ok || is != *was) {
			remove = append(remove, *was)
		}
		if ok && (was == nil || is != *was) {
			add = append(add, is)
		}
	}
	return add, remove
}

type addressState struct {
	members members
	was     map[netip.Addr]bool // of those touched since the last commit: were they members? Nil unless there
	there   bool                // in the kernel, of one version at least, since the last commit
	gone    bool
	users   [2]int // lists that name it, for IPv4 and IPv6
}

func (s *addressState) touch(a netip.Addr) {
	if !s.there {
		return
	}
	if s.was == nil {
		s.was = map[netip.Addr]bool{}
	}
	if _, ok := s.was[a]; !ok {
		s.was[a] = s.members.has(a)
	}
}

func (s *addressState) clear() {
	for _, v := range []int{4, 6} {
		for a := range s.members.of(v) {
			s.touch(a)
		}
	}
	s.members = members{}
}

// addressView is the part of an address set of a version.
type addressView struct {
	state   *addressState
	set     *set
	version int
}

func newAddressView(id calc.SetID, s *addressState, version int) addressView {
	return addressView{s, addressSet(setName(id, version), version), version}
}

func (v addressView) shape() *set { return v.set }

func (v addressView) all() iter.Seq[element] {
	return func(yield func(element) bool) {
		for a := range v.state.members.of(v.version) {
			if !yield(element{key: string(a.AsSlice())}) {
				return
			}
		}
	}
}

func (v addressView) has(key string) (element, bool) {
	a, _ := netip.AddrFromSlice([]byte(key))
	return element{key: key}, v.state.members.has(a)
}

func (v addressView) changes() (add, remove []element) {
	for a, was := range v.state.was {
		if a.Is4() != (v.version == 4) {
			continue
		}
		is := v.state.members.has(a)
		switch e := (element{key: string(a.AsSlice())}); {
		case is && !was:
			add = append(add, e)
		case was && !is:
			remove = append(remove, e)
		}
	}
	return add, remove
}
