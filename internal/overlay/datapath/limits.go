package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"heddle/internal/topology"
)

// Limit is the number of a limit of rate. 0 is none.
type Limit uint16

// maxLimits is the number of limits of one datapath, as in bpf/maps.h. Number 0 is unused.
const maxLimits = 16384

// LimitState is a limit as found in the kernel.
type LimitState struct {
	Name   string
	Number Limit
	topology.Limit
	Dropped, Delayed uint64 // packets
}

// limitSet holds the limits and their buckets, in memory shared with the programs.
//
// A bucket is one number: the time since when it has had tokens, or, while it is overdrawn, when it
// will have some. A token is what passes in a nanosecond at the rate. A bucket holds no more than
// its depth, so the time never lies further back than that. A packet passes while there is any
// token, and moves the time on by what it takes: one of 64 KB passes a bucket of less, and what
// follows waits for as long as it was too much. So the rate holds over any time, but for the burst
// and one packet, and no core waits for another.
type limitSet struct {
	*kernel
	registry *Table // the limits, for the next agent

	mu      sync.Mutex
	shared  *sharedWords
	buckets []bpfLimit // in shared
	byName  map[string]*limitEntry
	taken   [maxLimits]bool
	last    Limit // number given last
}

type limitEntry struct {
	number Limit
	limit  topology.Limit
}

// errNoLimits reports that all numbers are in use.
var errNoLimits = fmt.Errorf("there are %d limits of rate: no more fit on one host", maxLimits-1)

// SetLimit makes the limit called name, or changes it. A frame over the limit waits for at most
// maxWait ns, if it goes to a paced interface, and is dropped else.
func (s *limitSet) SetLimit(name string, l topology.Limit, maxWait uint64) (Limit, error) {
	if name == "" || len(name) > maxLimitName {
		return 0, fmt.Errorf("limit %q: want a name of 1 to %d characters", name, maxLimitName)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byName[name]
	if e == nil {
		number, err := s.freeNumber()
		if err != nil {
			return 0, fmt.Errorf("limit %s: %w", name, err)
		}
		e = &limitEntry{number: number}
		s.buckets[number] = bpfLimit{}
	}
	if err := s.registry.Put(limitKey(e.number), limitRecord(name, l)); err != nil {
		return 0, fmt.Errorf("limit %s: %w", name, err)
	}
	e.limit = l
	s.byName[name], s.taken[e.number] = e, true
	s.write(e, maxWait)
	return e.number, nil
}

func (s *limitSet) freeNumber() (Limit, error) {
	for range maxLimits {
		if s.last++; s.last == maxLimits {
			s.last = 1
		}
		if !s.taken[s.last] {
			return s.last, nil
		}
	}
	return 0, errNoLimits
}

// write puts the figures of a limit in force. Another rate clears what its bucket is overdrawn.
func (s *limitSet) write(e *limitEntry, maxWait uint64) {
	now := monotonicNow()
	b := &s.buckets[e.number]
	l := e.limit
	b.Bits.set(l.Rate, depthOf(l.BurstBits(), l.Rate), now)
	b.Packets.set(l.Packets, depthOf(l.BurstPackets(), l.Packets), now)
	atomic.StoreUint64(&b.MaxWait, maxWait)
}

func (b *bpfBucket) set(rate uint64, depth, now int64) {
	was := atomic.LoadUint64(&b.Rate)
	switch due := atomic.LoadInt64(&b.Due); {
	case was == rate:
	case was == 0:
		atomic.StoreInt64(&b.Due, now-depth) // full
	case due > now:
		atomic.StoreInt64(&b.Due, now)
	}
	atomic.StoreInt64(&b.Depth, depth)
	atomic.StoreUint64(&b.Rate, rate)
}

// maxDepth keeps sums with times within 64 bits: 146 years.
const maxDepth = 1 << 62

// depthOf returns the time in ns that a burst takes at the rate.
func depthOf(burst, rate uint64) int64 {
	const second = 1_000_000_000
	high, low := bits.Mul64(burst, second)
	if rate == 0 || high >= rate {
		return maxDepth
	}
	depth, _ := bits.Div64(high, low, rate)
	return int64(min(depth, maxDepth))
}

// RemoveLimit forgets a limit; flows that still name its number have none. One that is not there is
// no error.
func (s *limitSet) RemoveLimit(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byName[name]
	if e == nil {
		return nil
	}
	if err := s.registry.Delete(limitKey(e.number)); err != nil {
		return fmt.Errorf("remove limit %s: %w", name, err)
	}
	e.limit = topology.Limit{}
	s.write(e, 0)
	delete(s.byName, name)
	s.taken[e.number] = false
	return nil
}

// Limits lists the limits by name.
func (s *limitSet) Limits() []LimitState {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]LimitState, 0, len(s.byName))
	for name, e := range s.byName {
		b := &s.buckets[e.number]
		all = append(all, LimitState{name, e.number, e.limit, atomic.LoadUint64(&b.Dropped), atomic.LoadUint64(&b.Delayed)})
	}
	slices.SortFunc(all, func(a, b LimitState) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// limit returns the limit called name; the zero value is none.
func (s *limitSet) limit(name string) topology.Limit {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byName[name]; e != nil {
		return e.limit
	}
	return topology.Limit{}
}

// Admit takes the tokens of a frame that the agent sends itself, and reports whether it may pass
// all limits, as the programs do.
func (s *limitSet) Admit(limits []Limit, frame []byte, off Offload) bool {
	bytes, packets := wireBytes(frame, off)
	for _, number := range limits {
		if !s.admit(number, bytes, packets, monotonicNow()) {
			return false
		}
	}
	return true
}

func (s *limitSet) admit(number Limit, bytes, packets uint64, now int64) bool {
	s.mu.Lock() // against the end of the memory
	defer s.mu.Unlock()
	if number >= Limit(len(s.buckets)) {
		return true
	}
	l := &s.buckets[number]
	if l.Bits.isOverdrawn(now) || l.Packets.isOverdrawn(now) {
		atomic.AddUint64(&l.Dropped, packets)
		return false
	}
	l.Bits.take(bytes*8, now)
	l.Packets.take(packets, now)
	return true
}

func (b *bpfBucket) isOverdrawn(now int64) bool {
	return atomic.LoadUint64(&b.Rate) != 0 && atomic.LoadInt64(&b.Due) > now
}

func (b *bpfBucket) take(amount uint64, now int64) {
	rate := atomic.LoadUint64(&b.Rate)
	if rate == 0 {
		return
	}
	due, full := atomic.LoadInt64(&b.Due), now-atomic.LoadInt64(&b.Depth)
	if due < full {
		atomic.CompareAndSwapInt64(&b.Due, due, full)
	}
	atomic.AddInt64(&b.Due, depthOf(amount, rate))
}

// wireBytes returns the bytes of a frame's IP packets as they will be on the wire, and how many.
func wireBytes(frame []byte, off Offload) (length, packets uint64) {
	length, packets = uint64(len(frame)-ethHeaderLen), 1
	piece := uint64(off.vnet.segmentSize)
	if off.vnet.gsoType == vnetGSONone || piece == 0 {
		return length, packets
	}
	var repeated uint64
	if _, t, ok := parse(1, frame, len(frame)); ok {
		repeated = uint64(t.offset-ethHeaderLen) + 8
		if t.proto == protoTCP && t.offset+13 <= len(frame) {
			repeated += uint64(frame[t.offset+12]>>4)*4 - 8
		}
	}
	if length > repeated {
		packets = (length - repeated + piece - 1) / piece
	}
	return length + (packets-1)*repeated, packets
}

// openLimits takes over the limits of an earlier agent.
func (s *limitSet) openLimits() (err error) {
	if s.shared, err = mapWords(s.maps.Limits, int(unsafe.Sizeof(bpfLimit{}))/4); err != nil {
		return err
	}
	s.buckets = unsafe.Slice((*bpfLimit)(unsafe.Pointer(&s.shared.memory[0])), maxLimits)
	if s.registry, err = s.Table("limits", limitKeySize, limitRecordSize, maxLimits); err != nil {
		return err
	}
	return s.registry.Each(func(key, value []byte) bool {
		name, l := parseLimitRecord(value)
		e := &limitEntry{number: Limit(binary.NativeEndian.Uint32(key)), limit: l}
		if e.number == 0 || e.number >= maxLimits {
			return true
		}
		s.byName[name], s.taken[e.number] = e, true
		s.write(e, atomic.LoadUint64(&s.buckets[e.number].MaxWait))
		return true
	})
}

func (s *limitSet) closeLimits() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets = nil
	return s.shared.Close()
}

// A limit's record in the registry: its name, and its four figures.
const (
	maxLimitName    = 80
	limitKeySize    = 4
	limitRecordSize = maxLimitName + 4*8
)

func limitKey(number Limit) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(number)) }

func limitRecord(name string, l topology.Limit) []byte {
	b := make([]byte, maxLimitName, limitRecordSize)
	copy(b, name)
	for _, figure := range []uint64{l.Rate, l.Burst, l.Packets, l.PacketBurst} {
		b = binary.NativeEndian.AppendUint64(b, figure)
	}
	return b
}

func parseLimitRecord(b []byte) (string, topology.Limit) {
	name, _, _ := bytes.Cut(b[:maxLimitName], []byte{0})
	figure := func(i int) uint64 { return binary.NativeEndian.Uint64(b[maxLimitName+8*i:]) }
	return string(name), topology.Limit{Rate: figure(0), Burst: figure(1), Packets: figure(2), PacketBurst: figure(3)}
}

// monotonicNow is the clock of the programs' buckets.
func monotonicNow() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // never fails for this clock
	return ts.Nano()
}
