package datapath

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// sharedWords is the memory of an array map of 32-bit words, shared with the programs: reading and writing it takes no
// system call.
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

// epochStride is how many words lie from one slot's epoch to the next.
const epochStride = 2

// Tags reads the current epochs of slots.
func (d *Datapath) Tags(slots ...Slot) []Tag {
	return d.AppendTags(make([]Tag, 0, len(slots)), slots...)
}

// AppendTags is Tags into a slice of the caller's.
func (d *Datapath) AppendTags(to []Tag, slots ...Slot) []Tag {
	for _, s := range slots {
		to = append(to, Tag{Slot: s, Epoch: d.epochs.load(int(s) * epochStride)})
	}
	return to
}

// Current says whether no tag has moved: a flow with these tags would act.
func (d *Datapath) Current(tags []Tag) bool {
	for _, t := range tags {
		if d.epochs.load(int(t.Slot)*epochStride) != t.Epoch {
			return false
		}
	}
	return true
}

// Bump stops all flows that carry a tag of one of the slots, from the next packet on.
func (d *Datapath) Bump(slots ...Slot) {
	for _, s := range slots {
		d.epochs.add(int(s)*epochStride, 1)
	}
}
