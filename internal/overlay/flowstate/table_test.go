package flowstate

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"heddle/internal/topology/flow"
)

const second = time.Second

func TestUseKeepsAConnection(t *testing.T) {
	tab := New(Options{})
	own, told := key4(1), key4(2)
	tab.Add([]flow.ConnKey{own}, portA, nil, 0)
	tab.Import([]flow.ConnKey{told}, hostA, 0)
	check := func(now time.Duration, wantOwn, wantTold bool) {
		t.Helper()
		tab.Expire(now)
		if o, i := tab.Has(own, now), tab.Has(told, now); o != wantOwn || i != wantTold {
			t.Errorf("at %v: own %v, told %v; want %v, %v", now, o, i, wantOwn, wantTold)
		}
	}
	check(59*second, true, true)
	tab.Touch(own, 59*second)
	check(89*second, true, true)
	check(90*second, true, false)
	check(119*second, false, false)
	if gone := tab.TakeGone(); !slices.Equal(gone, []flow.ConnKey{told, own}) {
		t.Errorf("gone %v", gone)
	}
	tab.Touch(own, 119*second)
	if tab.Has(own, 119*second) {
		t.Error("a touch brought a forgotten connection back")
	}
	if s := tab.Stats(); s.Entries != 0 || s.Imported != 0 || s.Expired != 2 || s.Added != 1 || s.Received != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestFreshKeysAreReportedOnce(t *testing.T) {
	tab := New(Options{})
	a, b := key4(1), key4(2)
	if got := tab.Import([]flow.ConnKey{a, b}, hostA, 0); len(got) != 2 {
		t.Errorf("fresh %v", got)
	}
	if got := tab.Add([]flow.ConnKey{a}, portA, nil, second); got != nil {
		t.Errorf("fresh %v, was told before", got)
	}
	if got := tab.Import([]flow.ConnKey{a, b}, hostA, 2*second); got != nil {
		t.Errorf("fresh %v, is known", got)
	}
	if s := tab.Stats(); s.Imported != 1 || s.Entries != 2 {
		t.Errorf("stats %+v", s)
	}
	if got := tab.Import([]flow.ConnKey{b}, hostA, 200*second); len(got) != 1 {
		t.Errorf("fresh %v after its time was over", got)
	}
}

func TestToldAgainWhileInUse(t *testing.T) {
	tab := New(Options{})
	used, idle, local := key4(1), key4(2), key4(3)
	tab.Add([]flow.ConnKey{used, idle}, portA, []string{"h2", "h3"}, 0)
	tab.Add([]flow.ConnKey{local}, portA, nil, 0)
	for now := time.Duration(0); now <= 65*second; now += 5 * second {
		tab.Touch(used, now)
		tab.Touch(local, now)
		due := tab.TakeDue()
		want := map[string][]flow.ConnKey{}
		if now == 30*second || now == 60*second {
			want = map[string][]flow.ConnKey{"h2": {used}, "h3": {used}}
		}
		if !maps.EqualFunc(due, want, slices.Equal) {
			t.Errorf("at %v due %v, want %v", now, due, want)
		}
	}
}

func TestFullTableEvictsTheLongestUnused(t *testing.T) {
	tab := New(Options{Max: 3, MaxFrags: 2})
	for n := range byte(3) {
		tab.Add([]flow.ConnKey{key4(n)}, portA, nil, time.Duration(n)*second)
	}
	tab.Touch(key4(0), 5*second)
	tab.Import([]flow.ConnKey{key4(9)}, hostA, 6*second)
	for n, want := range map[byte]bool{0: true, 1: false, 2: true, 9: true} {
		if tab.Has(key4(n), 6*second) != want {
			t.Errorf("connection %d there: %v", n, !want)
		}
	}
	if gone := tab.TakeGone(); !slices.Equal(gone, []flow.ConnKey{key4(1)}) {
		t.Errorf("gone %v", gone)
	}
	for n := range uint32(3) {
		tab.AddFrag(flow.FragKey{ID: n}, [2]uint16{1, uint16(n)}, 0)
	}
	if _, ok := tab.Frag(flow.FragKey{ID: 0}, 0); ok {
		t.Error("the oldest fragment is still there")
	}
	if n, evicted := tab.FragStats(); n != 2 || evicted != 1 {
		t.Errorf("%d fragments, %d evicted", n, evicted)
	}
	if s := tab.Stats(); s.Evicted != 1 || s.Entries != 3 {
		t.Errorf("stats %+v", s)
	}
}

func TestFragments(t *testing.T) {
	tab := New(Options{})
	k := flow.FragKey{Src: key4(1).Src, Dst: key4(1).Dst, Proto: 17, ID: 7, Device: net1}
	tab.AddFrag(k, [2]uint16{1, 2}, 0)
	tab.AddFrag(k, [2]uint16{3, 4}, 20*second) // the id was used again
	for now, want := range map[time.Duration]bool{0: true, 29 * second: true, 49 * second: true, 50 * second: false} {
		if ports, ok := tab.Frag(k, now); ok != want || ok && ports != [2]uint16{3, 4} {
			t.Errorf("at %v: %v, %v", now, ports, ok)
		}
	}
	tab.Expire(31 * second)
	if _, ok := tab.Frag(k, 31*second); !ok {
		t.Error("the newer fragment went with the older")
	}
	tab.Expire(50 * second)
	if n, _ := tab.FragStats(); n != 0 {
		t.Errorf("%d fragments", n)
	}
}

// box keeps records as the kernel's table does.
type box[R comparable] map[R]bool

func (b box[R]) Apply(changes []Change[R]) error {
	for _, c := range changes {
		if c.Delete {
			delete(b, c.Record)
		} else {
			b[c.Record] = c.Imported
		}
	}
	return nil
}

func (b box[R]) Each(f func(r R, imported bool) bool) error {
	for r, imported := range b {
		if !f(r, imported) {
			break
		}
	}
	return nil
}

func TestConnectionsSurviveARestart(t *testing.T) {
	kept := box[flow.ConnKey]{}
	tab := New(Options{Keeper: kept})
	tab.Add([]flow.ConnKey{key4(1), key4(2)}, portA, []string{"h2"}, 0)
	tab.Import([]flow.ConnKey{key4(3)}, hostA, 0)
	select {
	case <-tab.Changed():
	default:
		t.Error("nothing said that there are connections to keep")
	}
	if err := tab.Flush(); err != nil || len(kept) != 3 {
		t.Fatalf("kept %d, %v", len(kept), err)
	}
	tab.Touch(key4(1), 30*second)
	tab.Expire(61 * second) // key4(2) goes, key4(3) lasts until 90 s
	if err := tab.Flush(); err != nil {
		t.Fatal(err)
	}

	next := New(Options{Keeper: kept})
	if err := next.Load(1000 * second); err != nil {
		t.Fatal(err)
	}
	now := 1059 * second
	for n, want := range map[byte]bool{1: true, 2: false, 3: true} {
		if next.Has(key4(n), now) != want {
			t.Errorf("connection %d there: %v", n, !want)
		}
	}
	if s := next.Stats(); s.Imported != 1 || s.Entries != 2 {
		t.Errorf("stats %+v", s)
	}
	if err := next.Flush(); err != nil || len(kept) != 2 {
		t.Errorf("kept %d after restart, %v", len(kept), err)
	}
}

// TestTableAgainstModel: whatever happens, the table knows exactly what a plain map with times
// knows, except what it had to evict, and its keeper holds the same.
func TestTableAgainstModel(t *testing.T) {
	type entry struct {
		last     time.Duration
		imported bool
	}
	rapid.Check(t, func(t *rapid.T) {
		kept := box[flow.ConnKey]{}
		tab := New(Options{Max: 8, Keeper: kept})
		model := map[flow.ConnKey]entry{}
		now := time.Duration(0)
		alive := func(k flow.ConnKey) bool {
			e, ok := model[k]
			ttl := time.Duration(TTL)
			if e.imported {
				ttl = ImportedTTL
			}
			return ok && now < e.last+ttl
		}
		forget := func() {
			for _, k := range tab.TakeGone() {
				if !alive(k) {
					delete(model, k)
				}
			}
		}
		key := rapid.Custom(func(t *rapid.T) flow.ConnKey { return key4(rapid.ByteRange(0, 7).Draw(t, "n")) })
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				k := key.Draw(t, "key")
				fresh := len(tab.Add([]flow.ConnKey{k}, portA, []string{"h"}, now)) == 1
				if fresh == alive(k) {
					t.Fatalf("fresh %v, was alive %v", fresh, alive(k))
				}
				forget()
				model[k] = entry{last: now}
			},
			"import": func(t *rapid.T) {
				k := key.Draw(t, "key")
				fresh := len(tab.Import([]flow.ConnKey{k}, hostA, now)) == 1
				if fresh == alive(k) {
					t.Fatalf("fresh %v, was alive %v", fresh, alive(k))
				}
				forget()
				if alive(k) {
					model[k] = entry{last: now, imported: model[k].imported}
				} else {
					model[k] = entry{last: now, imported: true}
				}
			},
			"touch": func(t *rapid.T) {
				k := key.Draw(t, "key")
				tab.Touch(k, now)
				if e, ok := model[k]; ok {
					model[k] = entry{last: now, imported: e.imported}
				}
			},
			"time":   func(t *rapid.T) { now += time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * second },
			"expire": func(t *rapid.T) { tab.Expire(now); forget() },
			"flush":  func(t *rapid.T) { _ = tab.Flush() },
			"": func(t *rapid.T) {
				for n := range byte(8) {
					if got := tab.Has(key4(n), now); got != alive(key4(n)) {
						t.Fatalf("at %v: has %d: %v, model %v", now, n, got, alive(key4(n)))
					}
				}
			},
		})
		if err := tab.Flush(); err != nil || len(kept) != tab.Stats().Entries {
			t.Fatalf("kept %d of %d, %v", len(kept), tab.Stats().Entries, err)
		}
	})
}

func BenchmarkAddTouchHas(b *testing.B) {
	tab := New(Options{})
	keys := make([]flow.ConnKey, 4096)
	for i := range keys {
		keys[i] = key4(byte(i))
		keys[i].SrcPort = uint16(i)
	}
	tab.Add(keys, portA, nil, 0)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		k := keys[i&4095]
		tab.Has(k, second)
		tab.Touch(k, second)
		i++
	}
}
