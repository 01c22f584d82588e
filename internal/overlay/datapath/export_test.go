package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"heddle/internal/topology/flow"
)

// RewriteByHand is the reference for the programs' rewrites, which tests with an agent also send.
func RewriteByHand(frame []byte, r *flow.Rewrite) []byte { return rewriteByHand(frame, r) }

// Tokens returns what is in the bucket of a limit, by the time it takes to fill; below 0 it is
// overdrawn.
func (s *limitSet) Tokens(name string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.buckets[s.byName[name].number]
	b := &l.Bits
	if b.Rate == 0 {
		b = &l.Packets
	}
	return time.Duration(min(monotonicNow()-b.Due, b.Depth))
}

// LimitedEntries counts the interfaces with limits.
func (s *portSet) LimitedEntries() (n int) {
	entries := s.maps.Limited.Iterate()
	var key bpfLanKey
	var value bpfLimited
	for entries.Next(&key, &value) {
		n++
	}
	return n
}

// Reshape gives the pinned maps of a closed datapath the shapes that another version might have:
// members in another order, one more in each struct, and longer rows in tables. Programs use the
// maps that they have.
func Reshape(opts Options) (names []string, err error) {
	opts, err = opts.withDefaults()
	if err != nil {
		return nil, err
	}
	p := pins{root: filepath.Join(opts.BPFFS, "heddle", opts.Name), log: opts.Log}
	programs, err := loadBpf()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(p.maps())
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		m, err := ebpf.LoadPinnedMap(filepath.Join(p.maps(), e.Name()), nil)
		if err != nil {
			return nil, err
		}
		spec := programs.Maps[e.Name()]
		if m.Type() != ebpf.Hash && m.Type() != ebpf.Array || spec != nil && !isStruct(spec.Key) && !isStruct(spec.Value) {
			m.Close()
			continue
		}
		if spec == nil {
			spec = &ebpf.MapSpec{Type: m.Type(), KeySize: m.KeySize(), ValueSize: m.ValueSize() + 3, Flags: m.Flags()}
		} else {
			spec = spec.Copy()
			if spec.KeySize, err = reshape(spec.Key); err != nil {
				return nil, err
			}
			if spec.ValueSize, err = reshape(spec.Value); err != nil {
				return nil, err
			}
		}
		spec.MaxEntries = m.MaxEntries()
		other, err := p.replaceMap(filepath.Join(p.maps(), e.Name()), spec, m)
		if err := errors.Join(err, m.Close()); err != nil {
			return nil, err
		}
		if now := programs.Maps[e.Name()]; now != nil && fits(other, now) {
			return nil, fmt.Errorf("%s still fits", e.Name())
		}
		names = append(names, e.Name())
		if err := other.Close(); err != nil {
			return nil, err
		}
	}
	return names, nil
}

func isStruct(t btf.Type) bool {
	_, is := btf.UnderlyingType(t).(*btf.Struct)
	return is
}

// reshape turns the order of members round, adds one, and returns the new size.
func reshape(t btf.Type) (uint32, error) {
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Array:
		if _, err := reshape(t.Type); err != nil {
			return 0, err
		}
	case *btf.Struct:
		if t.Members[0].Name == "future" { // is done, as part of another one
			break
		}
		slices.Reverse(t.Members)
		t.Members = append([]btf.Member{{Name: "future", Type: &btf.Int{Name: "future", Size: 8}}}, t.Members...)
		t.Size = 0
		for i := range t.Members {
			size, err := reshape(t.Members[i].Type)
			if err != nil {
				return 0, err
			}
			t.Members[i].Offset = btf.Bits(t.Size * 8)
			t.Size += (size + 7) &^ 7
		}
	}
	size, err := btf.Sizeof(t)
	return uint32(size), err
}
