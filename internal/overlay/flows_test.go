package overlay

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/flow"
)

// TestFlowIndexAgainstModel: whatever is put and removed, flows are found by what they asked for and when they are due
// exactly as a search through a plain list finds them.
func TestFlowIndexAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newFlowIndex()
		model := map[datapath.Key]*installed{}
		now := time.Duration(1)
		key := rapid.Custom(func(t *rapid.T) datapath.Key { return datapath.Key{SrcPort: rapid.Uint16Range(0, 9).Draw(t, "key")} })
		asked := rapid.Custom(func(t *rapid.T) flow.ConnKey { return flow.ConnKey{SrcPort: rapid.Uint16Range(0, 3).Draw(t, "asked")} })
		gone := func(got []datapath.Key, match func(*installed) bool) {
			want := 0
			for k, f := range model {
				if !match(f) {
					continue
				}
				want++
				if !slices.Contains(got, k) {
					t.Fatalf("%v is missing in %v", k, got)
				}
				delete(model, k)
			}
			if len(got) != want {
				t.Fatalf("got %v, want %d", got, want)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				f := &installed{key: key.Draw(t, "key"), tracked: rapid.Bool().Draw(t, "tracked")}
				if f.tracked {
					f.asked = asked.Draw(t, "asked")
				}
				if rapid.Bool().Draw(t, "shortly") {
					f.until = now + 5
				}
				x.put(f)
				model[f.key] = f
			},
			"remove": func(t *rapid.T) {
				k := key.Draw(t, "key")
				x.remove(k)
				delete(model, k)
			},
			"asked": func(t *rapid.T) {
				a := asked.Draw(t, "asked")
				gone(x.takeAsked(a), func(f *installed) bool { return f.tracked && f.asked == a })
			},
			"due": func(t *rapid.T) {
				gone(x.takeDue(now), func(f *installed) bool { return f.until > 0 && f.until <= now })
			},
			"time": func(t *rapid.T) { now += time.Duration(rapid.IntRange(0, 4).Draw(t, "passes")) },
			"": func(t *rapid.T) {
				if len(x.byKey) != len(model) {
					t.Fatalf("index holds %d, want %d", len(x.byKey), len(model))
				}
				for k, f := range model {
					if x.get(k) != f {
						t.Fatalf("%v is not found", k)
					}
				}
			},
		})
	})
}
