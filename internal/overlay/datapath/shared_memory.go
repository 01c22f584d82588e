package datapath

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// sharedWords is the memory of an array map, shared with the programs without system calls.
type sharedWords struct {
	memory []byte
	words  []uint32
}

// mapWords maps the memory of m, whose values are so many words each.
func mapWords(m *ebpf.Map, wordsPerValue int) (*sharedWords, error) {
	// The kernel rounds a value up to 8 bytes.
	stride := (4*wordsPerValue + 7) &^ 7
	size := stride * int(m.MaxEntries())
	memory, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the memory of %s: %w", m, err)
	}
	return &sharedWords{memory: memory, words: unsafe.Slice((*uint32)(unsafe.Pointer(&memory[0])), size/4)}, nil
}

func (s *sharedWords) load(i int) uint32          { return atomic.LoadUint32(&s.words[i]) }
func (s *sharedWords) store(i int, v uint32)      { atomic.StoreUint32(&s.words[i], v) }
func (s *sharedWords) add(i int, v uint32) uint32 { return atomic.AddUint32(&s.words[i], v) }

func (s *sharedWords) Close() error {
	if s == nil || s.memory == nil {
		return nil
	}
	memory := s.memory
	s.memory, s.words = nil, nil
	return unix.Munmap(memory)
}
