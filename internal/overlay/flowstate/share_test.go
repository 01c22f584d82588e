package flowstate

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"heddle/internal/topology/flow"
)

// TestSharesOfAFullTable lists who gives way in a full table.
func TestSharesOfAFullTable(t *testing.T) {
	fill := func(tab *Table, own int, told map[string]int) {
		n := byte(0)
		for range own {
			tab.Add([]flow.ConnKey{key4(n)}, nil, time.Duration(n))
			n++
		}
		for _, h := range []string{"h1", "h2", "h3"} {
			for range told[h] {
				tab.Import([]flow.ConnKey{key4(n)}, h, time.Duration(n))
				n++
			}
		}
	}
	for _, c := range []struct {
		name string
		own  int
		told map[string]int
		from string // "": this host
		want string // who gives way
	}{
		{"this host alone", 12, nil, "", "own"},
		{"this host has more than half", 10, map[string]int{"h1": 2}, "", "own"},
		{"this host has no more than half", 6, map[string]int{"h1": 4, "h2": 2}, "", "h1"},
		{"a new host, and this one has more than half", 12, nil, "h1", "own"},
		{"a host with more than its share, and this one has more than half", 7, map[string]int{"h1": 4, "h2": 1}, "h1", "h1"},
		{"a host with less than its share", 6, map[string]int{"h1": 5, "h2": 1}, "h2", "h1"},
		{"a host with its share", 6, map[string]int{"h1": 3, "h2": 3}, "h1", "h1"},
		{"a new host among full ones", 6, map[string]int{"h1": 4, "h2": 2}, "h3", "h1"},
		{"a host that has all", 0, map[string]int{"h1": 12}, "h1", "h1"},
	} {
		tab := New(Options{Max: 12})
		fill(tab, c.own, c.told)
		if got := tab.Stats().Connections; got != 12 {
			t.Fatalf("%s: %d connections", c.name, got)
		}
		before := holders(tab)
		if c.from == "" {
			tab.Add([]flow.ConnKey{key4(200)}, nil, 100)
			before["own"]++
		} else {
			tab.Import([]flow.ConnKey{key4(200)}, c.from, 100)
			before[c.from]++
		}
		before[c.want]--
		if after := holders(tab); fmt.Sprint(after) != fmt.Sprint(before) || tab.Stats().Connections != 12 || tab.Stats().Evicted != 1 {
			t.Errorf("%s: now %v, want %v; %+v", c.name, after, before, tab.Stats())
		}
	}
}

// holders counts the connections of each.
func holders(t *Table) map[string]int {
	n := map[string]int{}
	for _, c := range t.conns {
		if c.imported {
			n[c.from]++
		} else {
			n["own"]++
		}
	}
	return n
}

// TestFloodTakesNoShare: whatever one host tells, the others keep what they have up to their share, and this host up to
// its half.
func TestFloodTakesNoShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 60
		tab := New(Options{Max: size})
		own, other := rapid.IntRange(0, size/2).Draw(t, "own"), rapid.IntRange(0, size/4).Draw(t, "of the other host")
		for i := range own {
			tab.Add([]flow.ConnKey{key4(byte(i))}, nil, 0)
		}
		for i := range other {
			tab.Import([]flow.ConnKey{key4(byte(100 + i))}, "quiet", 0)
		}
		for i := range rapid.IntRange(0, 3*size).Draw(t, "flood") {
			k := key4(200)
			k.SrcPort = uint16(i)
			tab.Import([]flow.ConnKey{k}, "loud", second)
		}
		got := holders(tab)
		if got["own"] != own || got["quiet"] != other || tab.Stats().Connections > size {
			t.Fatalf("%v after the flood, before own %d and quiet %d", got, own, other)
		}
		if s := tab.Stats(); s.Imported != got["quiet"]+got["loud"] {
			t.Fatalf("%+v, and %v", s, got)
		}
	})
}
