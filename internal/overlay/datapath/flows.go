package datapath

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"heddle/internal/topology/flow"
)

// What a flow does, as enum out_kind in bpf/maps.h, with outRewrites and what follows beside it.
const (
	outDrop = iota
	outPort
	outTunnel
	outInside

	outKind       = 3
	outRewrites   = 4
	outTranslates = 8
	outLimited    = 16
	outCopied     = 32
	outFramed     = 64
	outNotesEnd   = 128
)

// What is in the TagCount of a flow, as in bpf/maps.h.
const (
	tagCount = 7
	shared   = 8
	synSeen  = 32
	finSeen  = 64
	rstLast  = 128
)

// flowCache holds the flows in the kernel.
type flowCache struct {
	*kernel
	epochs *epochs
	evict  evictor
	// The lock of copySets is taken first.
	copySets numbered[bpfCopies]
	framings numbered[bpfFraming]
}

// Install caches flows, replacing those with the same keys. A full cache evicts idle flows first. A
// flow whose tags have moved meanwhile is installed and does not act.
func (c *flowCache) Install(flows []Flow) error {
	var set4 batch[bpfKey4, bpfFlow4]
	var set6 batch[bpfKey6, bpfFlow6]
	now := coarseNow()
	if slices.ContainsFunc(flows, func(f Flow) bool { return len(f.Copies) > 0 || f.Out.Framing != (Framing{}) }) {
		// No number is given back before the flows that have it are there.
		c.copySets.mu.Lock()
		defer c.copySets.mu.Unlock()
		c.framings.mu.Lock()
		defer c.framings.mu.Unlock()
		c.copySets.given, c.framings.given = map[uint16]bool{}, map[uint16]bool{}
	}
	for i := range flows {
		f := &flows[i]
		if err := f.check(); err != nil {
			return fmt.Errorf("install flow: %w", err)
		}
		var n numbers
		var err error
		if n.copies, err = c.copyNumber(f.Copies); err != nil {
			return fmt.Errorf("install flow: %w", err)
		}
		if n.framing, err = c.framingNumber(f.Out.Framing); err != nil {
			return fmt.Errorf("install flow: %w", err)
		}
		if f.Src.Is4() {
			set4.add(f.key4(), f.value4(now, n))
		} else {
			set6.add(f.key6(), f.value6(now, n))
		}
	}
	if err := put(c, c.maps.Flows4, &c.evict.v4, set4); err != nil {
		return err
	}
	return put(c, c.maps.Flows6, &c.evict.v6, set6)
}

// numbers has the keys of a flow's copies and framing in their maps; 0 for none.
type numbers struct{ copies, framing uint16 }

// batch is keys and values side by side.
type batch[K, V any] struct {
	keys   []K
	values []V
}

func (b *batch[K, V]) add(k K, v V) {
	b.keys = append(b.keys, k)
	b.values = append(b.values, v)
}

func put[K bpfKey, V any, PV bpfValue[V]](c *flowCache, m *ebpf.Map, hand *hand[K, V, PV], b batch[K, V]) error {
	for i := 0; i < len(b.keys); {
		err := putOne[K, V, PV](c, m, &b.keys[i], &b.values[i])
		if err == nil {
			i++
			continue
		}
		if !isFull(err) {
			return fmt.Errorf("install flows: %w", err)
		}
		if err := c.makeRoom(func() (int, error) { return hand.evict(m, c.evict.gone) }); err != nil {
			return err
		}
	}
	return nil
}

// putOne writes a flow, and gives away what one with its key has counted.
func putOne[K bpfKey, V any, PV bpfValue[V]](c *flowCache, m *ebpf.Map, key *K, value *V) error {
	err := m.Update(key, value, ebpf.UpdateNoExist)
	if !errors.Is(err, ebpf.ErrKeyExist) {
		return err
	}
	var old V
	found := m.Lookup(key, &old)
	if err := m.Put(key, value); err != nil {
		return err
	}
	if found == nil {
		c.evict.left(PV(&old).common())
	}
	return nil
}

// isFull reports whether a map refused a new entry for lack of room.
func isFull(err error) bool { return errors.Is(err, unix.E2BIG) }

// check returns why the kernel cannot hold the flow.
func (f *Flow) check() error {
	if most := f.maxTags(); len(f.Tags) > most {
		return fmt.Errorf("%d tags: want at most %d", len(f.Tags), most)
	}
	if len(f.Limits) > MaxLimits || len(f.Limits) > 0 && !f.rewrites() {
		return fmt.Errorf("%d limits: want at most %d, of a flow that rewrites", len(f.Limits), MaxLimits)
	}
	if err := f.checkCopies(); err != nil {
		return err
	}
	if f.Out.Inside && (f.rewrites() || len(f.Copies) > 0 || f.Out.Framing != (Framing{}) || f.Proto != protoUDP || !f.Src.Is4() || f.Frag != Whole) {
		return errors.New("a flow into a VTEP: want whole IPv4 UDP packets, as they came")
	}
	if !f.Src.IsValid() || f.Src.BitLen() != f.Dst.BitLen() {
		return fmt.Errorf("key from %s to %s: want two addresses of one version", f.Src, f.Dst)
	}
	if !f.rewrites() {
		return nil
	}
	if err := f.checkRewrite(); err != nil {
		return fmt.Errorf("key from %s to %s, protocol %d: %w", f.Src, f.Dst, f.Proto, err)
	}
	return nil
}

func (f *Flow) maxTags() int {
	if f.Out.Framing != (Framing{}) {
		return MaxTags - 2
	}
	if len(f.Limits)+len(f.Copies) > 0 {
		return MaxTags - 1
	}
	return MaxTags
}

// common returns what both versions of IP have.
func (f *Flow) common(now uint64, n numbers) bpfFlow {
	v := bpfFlow{Used: now, Cookie: f.Cookie, TagCount: uint8(len(f.Tags))}
	v.Kind, v.Out, v.VniHops = f.Out.words()
	v.OuterPort = f.outerPort()
	if f.Out.Framing.wraps() {
		v.OuterPort = swap16(f.Out.Framing.Encap.SrcPort)
	}
	for i, t := range f.Tags {
		v.Slots[i], v.Epochs[i] = uint16(t.Slot), t.Epoch
	}
	if f.rewrites() {
		v.Kind |= f.rewriteKind()
		v.VniHops |= swap32(uint32(f.Rewrite.Hops))
	}
	if n.copies != 0 {
		v.Kind |= outCopied
		v.Slots[MaxTags-1] = n.copies
	}
	if n.framing != 0 {
		v.Kind |= outFramed
		v.Slots[MaxTags-2] = n.framing
	}
	if f.NotesEnd {
		v.Kind |= outNotesEnd
	}
	if f.Shared {
		v.TagCount |= shared
	}
	if f.Out.Inside {
		v.VniHops |= swap32(uint32(f.Out.Hops))
	}
	for i, number := range f.Limits {
		v.Kind |= outLimited
		v.Epochs[MaxTags-1] |= uint32(number) << (16 * i)
	}
	return v
}

func (o Output) words() (kind uint8, out, vni uint32) {
	switch {
	case o.Inside:
		return outInside, 0, 0
	case o.Tunnel != 0:
		return outTunnel, uint32(o.Tunnel), swap32(o.TunnelKey << 8)
	case o.Port != 0:
		return outPort, uint32(o.Port), 0
	}
	return outDrop, 0, 0
}

// outputOf is the reverse of words; the last byte of vni means nothing here.
func outputOf(kind uint8, out, vni uint32) Output {
	switch kind {
	case outPort:
		return Output{Port: Port(out)}
	case outInside:
		return Output{Inside: true, Hops: uint8(swap32(vni))}
	case outTunnel:
		return Output{Tunnel: Tunnel(out), TunnelKey: swap32(vni) >> 8}
	}
	return Output{}
}

// outerPort returns the flow's UDP source port in tunnels, in network order (RFC 7348 §5).
func (k *Key) outerPort() uint16 {
	h := fnv.New32a()
	src, dst := k.Src.As16(), k.Dst.As16()
	h.Write(src[:])
	h.Write(dst[:])
	h.Write([]byte{k.Proto, byte(k.SrcPort >> 8), byte(k.SrcPort), byte(k.DstPort >> 8), byte(k.DstPort)})
	sum := h.Sum32()
	return swap16(0x8000 | uint16(sum^sum>>16))
}

// Delete removes flows; those that are not there are no error.
func (c *flowCache) Delete(keys ...Key) error {
	for i := range keys {
		var err error
		if k := &keys[i]; k.Src.Is4() {
			err = remove[bpfKey4, bpfFlow4](c, c.maps.Flows4, k.key4())
		} else {
			err = remove[bpfKey6, bpfFlow6](c, c.maps.Flows6, k.key6())
		}
		if err != nil {
			return fmt.Errorf("delete flow: %w", err)
		}
	}
	return nil
}

// remove deletes a flow and gives away what it has counted up to then.
func remove[K bpfKey, V any, PV bpfValue[V]](c *flowCache, m *ebpf.Map, key K) error {
	var v V
	switch err := m.LookupAndDelete(&key, &v); {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return nil
	case err != nil:
		return err
	}
	c.evict.left(PV(&v).common())
	return nil
}

func (c *flowCache) Lookup(k Key) (FlowState, bool, error) {
	if k.Src.Is4() {
		return lookUp[bpfKey4, bpfFlow4](c, c.maps.Flows4, k, k.key4())
	}
	return lookUp[bpfKey6, bpfFlow6](c, c.maps.Flows6, k, k.key6())
}

func lookUp[K bpfKey, V any, PV bpfValue[V]](c *flowCache, m *ebpf.Map, k Key, key K) (FlowState, bool, error) {
	var v V
	err := m.Lookup(&key, &v)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return FlowState{}, false, nil
	}
	if err != nil {
		return FlowState{}, false, fmt.Errorf("look up flow: %w", err)
	}
	return flowState(c, k, PV(&v), coarseNow()), true, nil
}

// Dump calls f with every cached flow until it returns false. Flows that come or go meanwhile may
// be missed or seen twice. It takes about half a microsecond a flow.
func (c *flowCache) Dump(f func(FlowState) bool) error {
	more, err := dump[bpfKey4, bpfFlow4](c, c.maps.Flows4, (*bpfKey4).key, f)
	if err == nil && more {
		_, err = dump[bpfKey6, bpfFlow6](c, c.maps.Flows6, (*bpfKey6).key, f)
	}
	if err != nil {
		return fmt.Errorf("list flows: %w", err)
	}
	return nil
}

func dump[K bpfKey, V any, PV bpfValue[V]](c *flowCache, m *ebpf.Map, key func(*K) Key, f func(FlowState) bool) (more bool, err error) {
	more = true
	err = eachEntry(m, func(keys []K, values []V) bool {
		now := coarseNow()
		for i := 0; more && i < len(keys); i++ {
			more = f(flowState(c, key(&keys[i]), PV(&values[i]), now))
		}
		return more
	})
	return more, err
}

func flowState[V any, PV bpfValue[V]](c *flowCache, k Key, value PV, now uint64) FlowState {
	v := value.common()
	s := FlowState{Flow: Flow{Key: k, Cookie: v.Cookie}, Packets: v.Packets, Bytes: v.Bytes}
	if now > v.Used {
		s.Idle = time.Duration(now - v.Used)
	}
	s.Out = outputOf(v.Kind&outKind, v.Out, v.VniHops)
	if v.Kind&outFramed != 0 {
		s.Out.Framing = framingOf(c.framings.at(v.Slots[MaxTags-2]), v.OuterPort)
	}
	if v.Kind&outCopied != 0 {
		s.Copies = c.copiesAt(v.Slots[MaxTags-1])
	}
	if v.Kind&outRewrites != 0 {
		s.Rewrite = value.rewrite(k)
	}
	if v.Kind&outLimited != 0 {
		for word := v.Epochs[MaxTags-1]; word != 0; word >>= 16 {
			s.Limits = append(s.Limits, Limit(word))
		}
	}
	s.NotesEnd, s.Shared = v.Kind&outNotesEnd != 0, v.TagCount&shared != 0
	s.SYN, s.FIN, s.RST = v.TagCount&synSeen != 0, v.TagCount&finSeen != 0, v.TagCount&rstLast != 0
	for i := range min(v.TagCount&tagCount, MaxTags) {
		s.Tags = append(s.Tags, Tag{Slot: Slot(v.Slots[i]), Epoch: v.Epochs[i]})
	}
	s.Stale = !c.epochs.Current(s.Tags)
	return s
}

// bpfKey is the key of one of the two maps of flows.
type bpfKey interface{ bpfKey4 | bpfKey6 }

// bpfValue is a value V of one of the two maps of flows.
type bpfValue[V any] interface {
	*V
	common() *bpfFlow
	rewrite(k Key) *flow.Rewrite // of the flow with that key, which has one
}

// coarseNow is the clock that the programs write to a flow when it is hit.
func coarseNow() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &ts) // this clock exists since Linux 2.6.32
	return uint64(ts.Nano())
}
