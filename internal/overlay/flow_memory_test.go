package overlay

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/flow"
)

// TestFlowIndexAgainstModel: whatever is put and removed, flows are found by what they asked for,
// what they open and when they are due exactly as a search through a plain list finds them.
func TestFlowIndexAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newFlowIndex(100)
		model := map[uint64]*installed{}
		now := time.Duration(1)
		asked := rapid.Custom(func(t *rapid.T) flow.ConnKey { return flow.ConnKey{SrcPort: rapid.Uint16Range(0, 3).Draw(t, "asked")} })
		translated := rapid.Custom(func(t *rapid.T) flow.NATKey {
			return flow.NATKey{Kind: flow.NATKind(rapid.IntRange(1, 2).Draw(t, "kind")), SrcPort: rapid.Uint16Range(0, 3).Draw(t, "translated")}
		})
		gone := func(got []datapath.Key, match func(*installed) bool) {
			want := 0
			for cookie, f := range model {
				if !match(f) {
					continue
				}
				want++
				if !slices.Contains(got, f.key) {
					t.Fatalf("%v is missing in %v", f.key, got)
				}
				delete(model, cookie)
			}
			if len(got) != want {
				t.Fatalf("got %v, want %d", got, want)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				f := &installed{cookie: x.cookie(), tracked: rapid.Bool().Draw(t, "tracked")}
				f.key.SrcPort = uint16(f.cookie)
				if f.tracked {
					f.lookup = asked.Draw(t, "asked")
				}
				if rapid.Bool().Draw(t, "opens") {
					ingress := flow.ConnKey{SrcPort: 9, Ingress: true}
					f.conns = []flow.ConnKey{ingress, asked.Draw(t, "opened")}
				}
				f.usesNATs(rapid.SliceOfN(translated, 0, 3).Draw(t, "translations used"), rapid.SliceOfN(rapid.Custom(func(t *rapid.T) flow.NATEntry {
					return flow.NATEntry{NATKey: translated.Draw(t, "key")}
				}), 0, 2).Draw(t, "translations made"), rapid.SliceOfN(translated, 0, 2).Draw(t, "translations missing"))
				if rapid.Bool().Draw(t, "shortly") {
					f.until = now + 5
				}
				x.put(f)
				model[f.cookie] = f
			},
			"remove": func(t *rapid.T) {
				for cookie, f := range model {
					x.remove(f)
					x.remove(f)
					delete(model, cookie)
					break
				}
			},
			"asked": func(t *rapid.T) {
				a := asked.Draw(t, "asked")
				gone(x.take(a, asks), func(f *installed) bool { return f.tracked && f.lookup == a })
			},
			"opened": func(t *rapid.T) {
				c := asked.Draw(t, "opened")
				gone(x.take(c, opens), func(f *installed) bool { return len(f.conns) > 0 && f.conns[1] == c })
			},
			"translated": func(t *rapid.T) {
				k := translated.Draw(t, "translated")
				gone(x.takeNAT(k), func(f *installed) bool {
					return slices.ContainsFunc(f.nats, func(l natLink) bool { return l.key == k })
				})
			},
			"translation comes": func(t *rapid.T) {
				k := translated.Draw(t, "translated")
				gone(x.takeMissing(k), func(f *installed) bool { return slices.Contains(f.missing, k) })
			},
			"due": func(t *rapid.T) {
				var keys []datapath.Key
				for _, f := range x.takeDue(now) {
					keys = append(keys, f.key)
				}
				gone(keys, func(f *installed) bool { return f.until > 0 && f.until <= now })
			},
			"time": func(t *rapid.T) { now += time.Duration(rapid.IntRange(0, 4).Draw(t, "passes")) },
			"": func(t *rapid.T) {
				if len(x.byCookie) != len(model) {
					t.Fatalf("index holds %d, want %d", len(x.byCookie), len(model))
				}
				if len(model) == 0 && len(x.byConn)+len(x.byNAT) > 0 {
					t.Fatalf("left: %v, %v", x.byConn, x.byNAT)
				}
				for cookie, f := range model {
					if x.get(cookie) != f {
						t.Fatalf("%v is not found", f.key)
					}
				}
			},
		})
	})
}
