package flowstate

import (
	"math/bits"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"heddle/internal/topology/flow"
)

func TestBothDirectionsLiveTogether(t *testing.T) {
	tab := NewTranslations(TranslationOptions{})
	e := snat4(1, 2000)
	if fresh := tab.Add([]flow.NATEntry{e, e.Reverse()}, portA, nil, 0); !slices.Equal(fresh, []flow.NATEntry{e}) {
		t.Errorf("fresh %v", fresh)
	}
	has := func(now time.Duration, want bool) {
		t.Helper()
		f, ok := tab.Get(e.NATKey, now)
		r, back := tab.Get(e.Reverse().NATKey, now)
		if ok != want || back != want || want && (f != e.NATBinding || r != e.Reverse().NATBinding) {
			t.Errorf("at %v: %v, %v and %v, %v", now, f, ok, r, back)
		}
	}
	has(59*second, true)
	tab.Touch(e.Reverse().NATKey, 50*second) // by a reply
	has(100*second, true)
	has(110*second, false)
	tab.Expire(110 * second)
	if gone := tab.TakeGone(); !slices.Equal(gone, []flow.NATEntry{e}) || tab.Stats().Entries != 0 {
		t.Errorf("gone %v, %+v", gone, tab.Stats())
	}
	if len(tab.toward) != 0 || len(tab.blocks) != 0 {
		t.Errorf("ports are still in use: %v, %v", tab.toward, tab.blocks)
	}
}

// TestConflicts lists what happens when two translations have a key in common.
func TestConflicts(t *testing.T) {
	first, second := snat4(1, 2000), snat4(2, 2000) // two clients with one port
	key := first.Reverse().NATKey
	for _, tt := range []struct {
		name string
		do   func(*Translations)
		want flow.NATEntry
	}{
		{"an own one replaces", func(x *Translations) {
			x.Import([]flow.NATEntry{first}, hostA, 0)
			x.Add([]flow.NATEntry{second}, portA, nil, 0)
		}, second},
		{"an imported one does not replace an own one", func(x *Translations) {
			x.Add([]flow.NATEntry{first}, portA, nil, 0)
			x.Import([]flow.NATEntry{second}, hostA, 0)
		}, first},
		{"an imported one replaces an imported one", func(x *Translations) {
			x.Import([]flow.NATEntry{first}, hostA, 0)
			x.Import([]flow.NATEntry{second}, hostA, 0)
		}, second},
	} {
		x := NewTranslations(TranslationOptions{})
		tt.do(x)
		if b, ok := x.Get(key, 0); !ok || b != tt.want.Reverse().NATBinding || x.Stats().Entries != 1 {
			t.Errorf("%s: the port is that of %v, %v; %+v", tt.name, b, ok, x.Stats())
		}
		other := first
		if tt.want == first {
			other = second
		}
		if _, ok := x.Get(other.NATKey, 0); ok {
			t.Errorf("%s: the other is half there", tt.name)
		}
	}
}

func TestUseOnAnotherWay(t *testing.T) {
	x := NewTranslations(TranslationOptions{})
	e := snat4(1, 2000)
	if _, _, ok := x.Use(e.NATKey, portA, []string{"h2"}, 0); ok {
		t.Error("used what is not there")
	}
	x.Import([]flow.NATEntry{e}, hostA, 0) // of the port's host before it moved here
	for _, tt := range []struct {
		hosts, unsent []string
	}{{[]string{"h2"}, []string{"h2"}}, {[]string{"h2"}, nil}, {[]string{"h3", "h2"}, []string{"h3"}}, {[]string{"h3"}, nil}, {[]string{"h2"}, []string{"h2"}}} {
		got, unsent, ok := x.Use(e.NATKey, portA, tt.hosts, second)
		if !ok || got != e || !slices.Equal(unsent, tt.unsent) {
			t.Errorf("to %v: %v, %v, unsent %v, want %v", tt.hosts, got, ok, unsent, tt.unsent)
		}
	}
	if s := x.Stats(); s.Imported != 0 || s.Entries != 1 {
		t.Errorf("%+v: it is the port's own now", s)
	}
	x.Touch(e.NATKey, 100*second)
	if due := x.TakeDue(); len(due) != 1 || !slices.Equal(due["h2"], []flow.NATEntry{e}) {
		t.Errorf("due %v", due)
	}
}

func TestTranslationsSurviveARestart(t *testing.T) {
	kept := box[flow.NATEntry]{}
	x := NewTranslations(TranslationOptions{Keeper: kept})
	own, told := snat4(1, 2000), dnat4(2)
	x.Add([]flow.NATEntry{own}, portA, nil, 0)
	x.Import([]flow.NATEntry{told}, hostA, 0)
	if err := x.Flush(); err != nil || len(kept) != 2 {
		t.Fatalf("kept %v, %v", kept, err)
	}
	kept[snat4(3, 2000)] = true // replaced, but the agent was killed before that was written
	next := NewTranslations(TranslationOptions{Keeper: kept})
	if err := next.Load(1000 * second); err != nil {
		t.Fatal(err)
	}
	if _, ok := next.Get(told.NATKey, 1080*second); !ok {
		t.Error("the imported one is not there")
	}
	r := flow.NATRequest{Device: own.Device, Dst: own.Dst, DstPort: own.DstPort, Proto: own.Proto}
	if use := next.AppendInUse(nil, &r, own.Addr); len(use) != 1 || use[0] != (BlockUse{Number: 31, Ports: 1 << 16}) {
		t.Errorf("ports in use: %v", use)
	}
	if err := next.Flush(); err != nil || len(kept) != 2 {
		t.Errorf("kept %v, %v", kept, err)
	}
}

// TestImportedYieldsAfterARestart: what other hosts sent an earlier agent gives way to what they
// send this one, as it would have given way before: else replies of a new connection would go to
// the client of an ended one, which they would keep alive.
func TestImportedYieldsAfterARestart(t *testing.T) {
	ended, begun := snat4(1, 2000), snat4(2, 2000) // two clients with one port
	before, after := sticky4(3, 300), sticky4(3, 300)
	after.Port = 9
	own, other := snat4(4, 3000), snat4(5, 3000)
	kept := box[flow.NATEntry]{}
	x := NewTranslations(TranslationOptions{HostID: hostB, Keeper: kept})
	x.Import([]flow.NATEntry{ended, before}, hostC, 0)
	x.Add([]flow.NATEntry{own}, portA, nil, 0)
	if err := x.Flush(); err != nil {
		t.Fatal(err)
	}
	next := NewTranslations(TranslationOptions{HostID: hostB, Keeper: kept})
	if err := next.Load(second); err != nil {
		t.Fatal(err)
	}
	if fresh := next.Import([]flow.NATEntry{begun, after, other}, hostC, second); !slices.Equal(fresh, []flow.NATEntry{begun, after}) {
		t.Errorf("fresh %v", fresh)
	}
	for _, want := range []flow.NATEntry{begun.Reverse(), after, own.Reverse()} {
		if b, ok := next.Get(want.NATKey, second); !ok || b != want.NATBinding {
			t.Errorf("%+v leads to %v, %v", want.NATKey, b, ok)
		}
	}
	if gone := next.TakeGone(); !slices.Equal(gone, []flow.NATEntry{ended, before}) {
		t.Errorf("gone %v", gone)
	}
}

// TestTranslationsAgainstModel: each key leads to one record and back, and the ports in use are
// those of the records there.
func TestTranslationsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kept := box[flow.NATEntry]{}
		x := NewTranslations(TranslationOptions{Max: 10, Keeper: kept})
		now := time.Duration(0)
		draw := rapid.Custom(func(t *rapid.T) flow.NATEntry {
			e := snat4(rapid.ByteRange(0, 9).Draw(t, "client"), rapid.Uint16Range(60, 70).Draw(t, "port"))
			e.Proto = rapid.SampledFrom([]uint8{1, 6}).Draw(t, "proto")
			if e.DstPort = rapid.Uint16Range(80, 81).Draw(t, "server"); e.Proto == 1 {
				e.SrcPort = e.DstPort
			}
			if rapid.IntRange(0, 4).Draw(t, "dnat") == 0 {
				e.Kind = flow.ForwardDNAT
			}
			return e
		})
		t.Repeat(map[string]func(*rapid.T){
			"add":    func(t *rapid.T) { x.Add([]flow.NATEntry{draw.Draw(t, "entry")}, portA, nil, now) },
			"import": func(t *rapid.T) { x.Import([]flow.NATEntry{draw.Draw(t, "entry")}, hostA, now) },
			"use":    func(t *rapid.T) { x.Use(draw.Draw(t, "entry").NATKey, "other", []string{"h"}, now) },
			"time":   func(t *rapid.T) { now += time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * second },
			"expire": func(t *rapid.T) { x.Expire(now) },
			"": func(t *rapid.T) {
				records, ports, blocks := map[flow.NATEntry]bool{}, 0, 0
				for hash, c := range x.entries.byHash {
					if e := c.record; hash != x.entries.hash(e.NATKey) && hash != x.entries.hash(e.Reverse().NATKey) {
						t.Fatalf("%x leads to %+v", hash, e)
					}
					records[c.record] = true
				}
				for e := range records {
					if x.entries.get(e.NATKey) == nil || x.entries.get(e.NATKey) != x.entries.get(e.Reverse().NATKey) {
						t.Fatalf("%+v is half there", e)
					}
					if e.Kind != flow.ForwardSNAT {
						continue
					}
					ports++
					r := flow.NATRequest{Device: e.Device, Src: e.Src, Dst: e.Dst, DstPort: e.DstPort, Proto: e.Proto}
					use := x.AppendInUse(nil, &r, e.Addr)
					if i, ok := slices.BinarySearchFunc(use, e.Port/BlockSize, byNumber); !ok || use[i].Ports>>(e.Port%BlockSize)&1 == 0 {
						t.Fatalf("port of %+v is not in use: %v", e, use)
					}
					isSame := func(o flow.NATEntry) bool {
						return o.Kind == e.Kind && o.Src == e.Src && destinationOf(o.Reverse().NATKey) == destinationOf(e.Reverse().NATKey)
					}
					same := 0
					for o := range records {
						if isSame(o) {
							same++
						}
					}
					if got := x.UsedBySource(&r, e.Addr); got != same {
						t.Fatalf("%v uses %d ports, want %d", e.Src, got, same)
					}
				}
				inUse, bySources := 0, 0
				for _, use := range x.toward {
					for _, u := range use.blocks {
						inUse += bits.OnesCount64(u.Ports)
					}
					for _, u := range use.sources {
						bySources += u.ports
					}
				}
				for _, n := range x.blocks {
					blocks += n
				}
				if inUse != ports || bySources != ports || blocks != ports || x.Stats().Entries != len(records) || len(records) > 10 {
					t.Fatalf("%d ports in use, %d by blocks, %d records with one; %+v", inUse, blocks, ports, x.Stats())
				}
			},
		})
		if err := x.Flush(); err != nil || len(kept) != x.Stats().Entries {
			t.Fatalf("kept %d of %d, %v", len(kept), x.Stats().Entries, err)
		}
	})
}

func BenchmarkTranslations(b *testing.B) {
	x := NewTranslations(TranslationOptions{})
	var all []flow.NATEntry
	for i := range 4096 {
		e := snat4(byte(i), uint16(1024+i))
		e.SrcPort = uint16(i)
		all = append(all, e)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		e := all[i&4095]
		x.Add([]flow.NATEntry{e}, portA, nil, second)
		x.Get(e.NATKey, second)
		x.Touch(e.NATKey, second)
		i++
	}
}

// tellEachOther gives all hosts what others have due for them, but those that it is lost to.
func tellEachOther(hosts map[string]*Translations, now time.Duration, lost func(to string) bool) (messages int) {
	for from, t := range hosts {
		for to, entries := range t.TakeDue() {
			messages += len(entries)
			if !lost(to) {
				hosts[to].Import(entries, from, now)
			}
		}
	}
	return messages
}

// TestUsedByRepliesAlone: a translation that is used in one direction lives on all hosts that know
// it, whichever direction that is and though a message is lost now and then; unused, it ends.
func TestUsedByRepliesAlone(t *testing.T) {
	t.Parallel()
	for name, user := range map[string]string{"replies": "b", "first direction": hostA} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hosts := map[string]*Translations{}
			for _, h := range []string{hostA, "b", "c"} {
				hosts[h] = NewTranslations(TranslationOptions{})
			}
			e := snat4(1, 2000)
			key := e.NATKey
			if user == "b" {
				key = e.Reverse().NATKey
			}
			hosts[hostA].Add([]flow.NATEntry{e}, portA, []string{"b", "c"}, 0)
			hosts["b"].Import([]flow.NATEntry{e}, hostA, 0)
			hosts["c"].Import([]flow.NATEntry{e}, hostA, 0)
			messages, now := 0, time.Duration(0)
			const round = 10 * time.Second // of upkeep
			for n := 1; now < time.Hour; n++ {
				now += round
				hosts[user].Touch(key, now-time.Second)
				for _, h := range hosts {
					h.Expire(now)
				}
				messages += tellEachOther(hosts, now, func(to string) bool { return n%5 == 0 && to == hostA })
				for id, h := range hosts {
					if _, ok := h.Get(e.NATKey, now); !ok {
						t.Fatalf("%s has forgotten it after %v", id, now)
					}
				}
				if hosts[hostA].Uses(Block{e.Device, e.Addr, e.Port / BlockSize}) != 1 {
					t.Fatalf("the port is free after %v", now)
				}
			}
			if most := 3 * int(now/KeepAfter); messages > most {
				t.Errorf("%d messages in %v, at most %d are due", messages, now, most)
			}
			for range 20 { // nobody uses it any more
				now += round
				for _, h := range hosts {
					h.Expire(now)
				}
				tellEachOther(hosts, now, func(string) bool { return false })
			}
			for id, h := range hosts {
				if s := h.Stats(); s.Entries != 0 {
					t.Errorf("%s still has it: %+v", id, s)
				}
			}
		})
	}
}
