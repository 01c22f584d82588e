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
			tab.Add([]flow.ConnKey{key4(n)}, portA, nil, time.Duration(n))
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
		if got := tab.Stats().Entries; got != 12 {
			t.Fatalf("%s: %d connections", c.name, got)
		}
		before := holding(tab)
		if c.from == "" {
			tab.Add([]flow.ConnKey{key4(200)}, portA, nil, 100)
			before["own"]++
		} else {
			tab.Import([]flow.ConnKey{key4(200)}, c.from, 100)
			before[c.from]++
		}
		before[c.want]--
		if after := holding(tab); fmt.Sprint(after) != fmt.Sprint(before) || tab.Stats().Entries != 12 || tab.Stats().Evicted != 1 {
			t.Errorf("%s: now %v, want %v; %+v", c.name, after, before, tab.Stats())
		}
	}
}

// holding counts the connections of each.
func holding(t *Table) map[string]int {
	n := map[string]int{}
	for _, c := range t.entries.byHash {
		if c.in.imported {
			n[c.in.holder]++
		} else {
			n["own"]++
		}
	}
	return n
}

// TestFloodTakesNoShare: whatever one host tells, the others keep what they have up to their share,
// and this host up to its half.
func TestFloodTakesNoShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 60
		tab := New(Options{Max: size})
		own, other := rapid.IntRange(0, size/2).Draw(t, "own"), rapid.IntRange(0, size/4).Draw(t, "of the other host")
		for i := range own {
			tab.Add([]flow.ConnKey{key4(byte(i))}, portA, nil, 0)
		}
		for i := range other {
			tab.Import([]flow.ConnKey{key4(byte(100 + i))}, "quiet", 0)
		}
		for i := range rapid.IntRange(0, 3*size).Draw(t, "flood") {
			k := key4(200)
			k.SrcPort = uint16(i)
			tab.Import([]flow.ConnKey{k}, "loud", second)
		}
		got := holding(tab)
		if got["own"] != own || got["quiet"] != other || tab.Stats().Entries > size {
			t.Fatalf("%v after the flood, before own %d and quiet %d", got, own, other)
		}
		if s := tab.Stats(); s.Imported != got["quiet"]+got["loud"] {
			t.Fatalf("%+v, and %v", s, got)
		}
	})
}

// TestScanTakesNoPlace: whatever one port opens, the others keep what they have up to their share.
func TestScanTakesNoPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 60
		tab := New(Options{Max: size})
		var quiet []flow.ConnKey
		for port := range byte(3) {
			for i := range rapid.IntRange(0, size/5).Draw(t, "connections of a quiet port") {
				k := key4(10*port + byte(i))
				k.DstPort = uint16(port)
				tab.Add([]flow.ConnKey{k}, fmt.Sprint("quiet ", port), nil, 0)
				quiet = append(quiet, k)
			}
		}
		n := rapid.IntRange(0, 5*size).Draw(t, "scan")
		for i := range n {
			k := key4(200)
			k.SrcPort = uint16(i)
			tab.Add([]flow.ConnKey{k}, "scanner", nil, second)
		}
		for _, k := range quiet {
			if !tab.Has(k, second) {
				t.Fatalf("%v went", k)
			}
		}
		idle, evicted := tab.TakeEvicted()
		if over := len(quiet)+n > size; evicted != over || evicted && idle != 0 || tab.Stats().Entries != min(size, len(quiet)+n) {
			t.Fatalf("evicted %v, unused for %v, %+v", evicted, idle, tab.Stats())
		}
	})
}

// TestLargestAgain: a port that was quiet when the table was full is no longer spared when it has
// more than all others.
func TestLargestAgain(t *testing.T) {
	tab := New(Options{Max: 400})
	n := 0
	open := func(port string, count int) {
		for range count {
			k := key4(1)
			k.SrcPort = uint16(n)
			n++
			tab.Add([]flow.ConnKey{k}, port, nil, time.Duration(n))
		}
	}
	open("a", 300)
	open("b", 100)
	open("c", 1) // a gives way, and would for a while
	tab.Expire(TTL + 300)
	open("b", 350)
	open("c", 1)
	if a, b, c := tab.own.by["a"], tab.own.by["b"].n, tab.own.by["c"].n; a != nil || b != 398 || c != 2 {
		t.Errorf("a %+v, b %d, c %d", a, b, c)
	}
}
