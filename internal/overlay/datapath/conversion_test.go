package datapath

import (
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// TestNoConversion: entries whose members changed their sizes, or that do not say what is in them,
// are refused, with the reason.
func TestNoConversion(t *testing.T) {
	t.Parallel()
	needRoot(t)
	word := &btf.Int{Name: "word", Size: 4}
	value := func(members ...btf.Member) btf.Type {
		s := &btf.Struct{Name: "value", Members: members}
		for i := range s.Members {
			size, err := btf.Sizeof(s.Members[i].Type)
			if err != nil {
				t.Fatal(err)
			}
			s.Members[i].Offset = btf.Bits(s.Size * 8)
			s.Size += uint32(size)
		}
		return s
	}
	spec := func(kind ebpf.MapType, value btf.Type) *ebpf.MapSpec {
		size, err := btf.Sizeof(value)
		if err != nil {
			t.Fatal(err)
		}
		return &ebpf.MapSpec{Type: kind, KeySize: 4, ValueSize: uint32(size), MaxEntries: 4, Key: word, Value: value}
	}
	pair := value(btf.Member{Name: "a", Type: word}, btf.Member{Name: "b", Type: &btf.Array{Index: word, Type: word, Nelems: 2}})
	plain := &ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 16, MaxEntries: 4}
	longer := *plain
	longer.KeySize = 8
	for _, c := range []struct {
		name       string
		before, to *ebpf.MapSpec
		want       string
	}{
		{"another kind", spec(ebpf.Array, pair), spec(ebpf.Hash, pair), "a Array into a Hash"},
		{"a wider member", spec(ebpf.Hash, pair), spec(ebpf.Hash, value(btf.Member{Name: "a", Type: &btf.Int{Name: "wide", Size: 8}})), `member ".a" of 4 bytes into 8`},
		{"a longer array", spec(ebpf.Hash, pair), spec(ebpf.Hash, value(btf.Member{Name: "b", Type: &btf.Array{Index: word, Type: word, Nelems: 3}})), `member ".b" of 8 bytes into 12`},
		{"no description", plain, spec(ebpf.Hash, pair), "what is in the map"},
		{"other keys of rows", plain, &longer, "keys of 4 bytes into 8"},
	} {
		before, err := ebpf.NewMap(c.before)
		if err != nil {
			t.Fatal(c.name, err)
		}
		defer before.Close()
		if fits(before, c.to) {
			t.Errorf("%s: the map fits", c.name)
		}
		if _, err := conversionTo(c.to, before); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.want)
		} else if c.name != "no description" && !errors.Is(err, errNoConversion) {
			t.Errorf("%s: %v is not errNoConversion", c.name, err)
		}
	}
}
