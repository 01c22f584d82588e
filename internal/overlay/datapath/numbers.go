package datapath

import (
	"sync"

	"github.com/cilium/ebpf"
)

// maxNumbers is the number of values of a numbered set, as in bpf/maps.h. Number 0 is unused.
const maxNumbers = 4096

// numbered gives numbers to values of an array in the kernel, since flows have room for a number
// alone. Few values are in use at a time, many flows have the same one, and nothing counts its
// flows. So numbers are given back when none is left: those that no flow has, which are found by
// reading all flows.
type numbered[T comparable] struct {
	mu      sync.Mutex
	numbers map[T]uint16
	values  [maxNumbers]T   // by number
	last    uint16          // number given last
	given   map[uint16]bool // to flows that are not installed yet
}

// open reads the values that an earlier agent's flows have.
func (s *numbered[T]) open(m *ebpf.Map) error {
	var none T
	s.numbers = map[T]uint16{}
	return eachEntry(m, func(numbers []uint32, values []T) bool {
		for i, value := range values {
			if number := numbers[i]; value != none && number < maxNumbers {
				s.numbers[value], s.values[number] = uint16(number), value
			}
		}
		return true
	})
}

// free returns a number that no value has.
func (s *numbered[T]) free() (number uint16, ok bool) {
	var none T
	number = s.last
	for range maxNumbers {
		if number++; number == maxNumbers {
			number = 1
		}
		if s.values[number] == none {
			return number, true
		}
	}
	return 0, false
}

// number returns that of a value, which the kernel has by then. It calls release when none is free,
// and returns full when that gives none back. It needs the lock.
func (s *numbered[T]) number(value T, m *ebpf.Map, release func() error, full error) (number uint16, err error) {
	defer func() {
		if err == nil {
			s.given[number] = true
		}
	}()
	if number, known := s.numbers[value]; known {
		return number, nil
	}
	number, ok := s.free()
	if !ok {
		if err := release(); err != nil {
			return 0, err
		}
		if number, ok = s.free(); !ok {
			return 0, full
		}
	}
	if err := m.Put(uint32(number), value); err != nil {
		return 0, err
	}
	s.numbers[value], s.values[number], s.last = number, value, number
	return number, nil
}

// keep gives back the numbers that are not used.
func (s *numbered[T]) keep(used map[uint16]bool) {
	var none T
	for value, number := range s.numbers {
		if !used[number] {
			delete(s.numbers, value)
			s.values[number] = none
		}
	}
}

// at returns the value with a number; the zero value if there is none.
func (s *numbered[T]) at(number uint16) (value T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number < maxNumbers {
		value = s.values[number]
	}
	return value
}
