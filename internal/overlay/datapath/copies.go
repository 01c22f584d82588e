package datapath

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
)

// MaxCopies is the number of copies of one flow.
const MaxCopies = 4

// Copy is a place that a copy of a flow's frames goes to. It has the headers that frames come with
// or, if Rewritten, those of the flow's Rewrite, also if the flow drops. A copy that cannot be sent
// is counted, and changes nothing about the frame.
type Copy struct {
	Output
	Rewritten bool
}

// maxCopySets is the number of different lists of copies of one datapath, as in bpf/maps.h. Number
// 0 is unused.
const maxCopySets = 4096

// errCopySetsFull reports that flows in force use all numbers.
var errCopySetsFull = errors.New("flows have too many different lists of copies")

// copySets gives numbers to lists of copies: a flow has room for a number alone. Few lists are in
// use at a time, many flows have the same one, and nothing counts its flows. So numbers are given
// back when none is left: those that no flow has, which are found by reading all flows.
type copySets struct {
	mu      sync.Mutex
	numbers map[bpfCopies]uint16
	lists   [maxCopySets]bpfCopies // by number
	last    uint16                 // number given last
	given   map[uint16]bool        // to flows that are not installed yet
}

// open reads the lists that an earlier agent's flows have.
func (s *copySets) open(m *ebpf.Map) error {
	s.numbers = map[bpfCopies]uint16{}
	err := eachEntry(m, func(numbers []uint32, lists []bpfCopies) bool {
		for i, list := range lists {
			if number := numbers[i]; list != (bpfCopies{}) && number < maxCopySets {
				s.numbers[list], s.lists[number] = uint16(number), list
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("read the copies of flows: %w", err)
	}
	return nil
}

// copyNumber returns the number of a list of copies, which the kernel has by then; 0 for none. It
// needs the lock.
func (c *flowCache) copyNumber(all []Copy) (number uint16, err error) {
	if len(all) == 0 {
		return 0, nil
	}
	s, list := &c.copySets, packCopies(all)
	defer func() {
		if err == nil {
			s.given[number] = true
		}
	}()
	if number, known := s.numbers[list]; known {
		return number, nil
	}
	number, ok := s.free()
	if !ok {
		if err := c.releaseCopies(); err != nil {
			return 0, err
		}
		if number, ok = s.free(); !ok {
			return 0, errCopySetsFull
		}
	}
	if err := c.maps.Copies.Put(uint32(number), list); err != nil {
		return 0, fmt.Errorf("write the copies of a flow: %w", err)
	}
	s.numbers[list], s.lists[number], s.last = number, list, number
	return number, nil
}

// free returns a number that no list has.
func (s *copySets) free() (number uint16, ok bool) {
	number = s.last
	for range maxCopySets {
		if number++; number == maxCopySets {
			number = 1
		}
		if s.lists[number] == (bpfCopies{}) {
			return number, true
		}
	}
	return 0, false
}

// releaseCopies gives back the numbers that no flow has.
func (c *flowCache) releaseCopies() error {
	used := maps.Clone(c.given)
	err := errors.Join(copiesInUse[bpfKey4, bpfFlow4](c.maps.Flows4, used), copiesInUse[bpfKey6, bpfFlow6](c.maps.Flows6, used))
	if err != nil {
		return fmt.Errorf("find the copies that flows have: %w", err)
	}
	s := &c.copySets
	for list, number := range s.numbers {
		if !used[number] {
			delete(s.numbers, list)
			s.lists[number] = bpfCopies{}
		}
	}
	return nil
}

func copiesInUse[K bpfKey, V any, PV bpfValue[V]](m *ebpf.Map, used map[uint16]bool) error {
	return eachEntry(m, func(_ []K, values []V) bool {
		for i := range values {
			if v := PV(&values[i]).common(); v.Kind&outCopied != 0 {
				used[v.Slots[MaxTags-1]] = true
			}
		}
		return true
	})
}

// copiesAt returns the list of copies with a number.
func (s *copySets) copiesAt(number uint16) (all []Copy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number >= maxCopySets {
		return nil
	}
	for _, c := range s.lists[number].All {
		if c.Kind == outDrop {
			break
		}
		all = append(all, Copy{outputOf(c.Kind, c.Out, c.Vni), c.Rewritten != 0})
	}
	return all
}

func packCopies(all []Copy) (list bpfCopies) {
	for i, c := range all {
		to := &list.All[i]
		to.Kind, to.Out, to.Vni = c.words()
		if c.Rewritten {
			to.Rewritten = 1
		}
	}
	return list
}

// copiesRewritten reports whether some copies have the headers of the flow's Rewrite.
func (f *Flow) copiesRewritten() bool {
	return slices.ContainsFunc(f.Copies, func(c Copy) bool { return c.Rewritten })
}

// checkCopies returns why the programs cannot send the flow's copies.
func (f *Flow) checkCopies() error {
	switch {
	case len(f.Copies) > MaxCopies:
		return fmt.Errorf("%d copies: want at most %d", len(f.Copies), MaxCopies)
	case f.copiesRewritten() && f.Rewrite == nil:
		return errors.New("rewritten copies of a flow that does not rewrite")
	case slices.ContainsFunc(f.Copies, func(c Copy) bool { return c.Drops() }):
		return errors.New("a copy that goes nowhere")
	}
	return nil
}
