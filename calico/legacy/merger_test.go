package legacy_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/calico"
	"heddle/calico/legacy"
)

// tree is the view of a follower of the Merger's changes.
type tree map[calico.Key]any

// follow applies an update to the view and fails on a change that changes nothing.
func (v tree) follow(t interface{ Fatalf(string, ...any) }, m *legacy.Merger, key calico.Key, object any) legacy.Merged {
	out := m.Update(key, object)
	for _, c := range out.Changes {
		if _, there := v[c.Key]; c.Object == nil && !there {
			t.Fatalf("update of %#v takes away %#v, which the view does not have", key, c.Key)
		}
		if c.Object == nil {
			delete(v, c.Key)
		} else {
			v[c.Key] = c.Object
		}
	}
	return out
}

var (
	oldPort = calico.WorkloadEndpointKey{Host: "h", Orchestrator: "o", Workload: "w", Endpoint: "e", Legacy: true}
	newPort = calico.WorkloadEndpointKey{Host: "h", Orchestrator: "o", Workload: "w", Endpoint: "e"}
)

func TestMerge(t *testing.T) {
	t.Parallel()
	type step struct {
		key    calico.Key
		object any
		want   legacy.Merged
	}
	oldRules, newRules := calico.ProfileRulesKey{Profile: "p", Legacy: true}, calico.ProfileRulesKey{Profile: "p"}
	oldTags, newTags := calico.ProfileTagsKey{Profile: "p", Legacy: true}, calico.ProfileTagsKey{Profile: "p"}
	labels := calico.ProfileLabelsKey{Profile: "p"}
	keys := func(k ...calico.Key) []calico.Key { return k }
	changes := func(c ...legacy.Change) []legacy.Change { return c }
	for name, steps := range map[string][]step{
		"legacy endpoint alone shows at its v1 key": {
			{oldPort, "a", legacy.Merged{Changes: changes(legacy.Change{Key: newPort, Object: "a"})}},
			{oldPort, "b", legacy.Merged{Changes: changes(legacy.Change{Key: newPort, Object: "b"})}},
			{oldPort, nil, legacy.Merged{Changes: changes(legacy.Change{Key: newPort})}},
			{oldPort, nil, legacy.Merged{}},
		},
		"v1 endpoint wins, and gives back": {
			{oldPort, "old", legacy.Merged{Changes: changes(legacy.Change{Key: newPort, Object: "old"})}},
			{newPort, "new", legacy.Merged{Changes: changes(legacy.Change{Key: newPort, Object: "new"}), Hidden: keys(oldPort)}},
			{newPort, "newer", legacy.Merged{Changes: changes(legacy.Change{Key: newPort, Object: "newer"})}},
			{oldPort, "older", legacy.Merged{}},
			{newPort, nil, legacy.Merged{Changes: changes(legacy.Change{Key: newPort, Object: "older"}), Shown: keys(oldPort)}},
		},
		"legacy endpoint comes and goes behind v1": {
			{newPort, "new", legacy.Merged{Changes: changes(legacy.Change{Key: newPort, Object: "new"})}},
			{oldPort, "old", legacy.Merged{Hidden: keys(oldPort)}},
			{oldPort, nil, legacy.Merged{Shown: keys(oldPort)}},
			{newPort, nil, legacy.Merged{Changes: changes(legacy.Change{Key: newPort})}},
		},
		"v1 labels alone hide a legacy profile whole": {
			{oldRules, "r", legacy.Merged{Changes: changes(legacy.Change{Key: newRules, Object: "r"})}},
			{oldTags, "t", legacy.Merged{Changes: changes(legacy.Change{Key: newTags, Object: "t"})}},
			{labels, "l", legacy.Merged{
				Changes: changes(legacy.Change{Key: newRules}, legacy.Change{Key: newTags}, legacy.Change{Key: labels, Object: "l"}),
				Hidden:  keys(oldRules, oldTags),
			}},
			{newTags, "t1", legacy.Merged{Changes: changes(legacy.Change{Key: newTags, Object: "t1"})}},
			{labels, nil, legacy.Merged{Changes: changes(legacy.Change{Key: labels})}},
			{newTags, nil, legacy.Merged{
				Changes: changes(legacy.Change{Key: newRules, Object: "r"}, legacy.Change{Key: newTags, Object: "t"}),
				Shown:   keys(oldRules, oldTags),
			}},
		},
		"other keys pass, reference counts do not": {
			{calico.PolicyKey{Tier: "default", Policy: "p"}, "x", legacy.Merged{Changes: changes(legacy.Change{Key: calico.PolicyKey{Tier: "default", Policy: "p"}, Object: "x"})}},
			{calico.ProfileRefcountKey{Profile: "p"}, "3", legacy.Merged{}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, view := legacy.NewMerger(), tree{}
			for i, s := range steps {
				if diff := cmp.Diff(s.want, view.follow(t, m, s.key, s.object)); diff != "" {
					t.Errorf("step %d: %#v: -want +got\n%s", i, s.key, diff)
				}
			}
		})
	}
}

// wanted returns the view by definition, from the two trees as they are.
func wanted(stored tree) (view tree, hidden int) {
	view = tree{}
	profiles := map[string]bool{}
	for k := range stored {
		switch k := k.(type) {
		case calico.ProfileRulesKey:
			profiles[k.Profile] = profiles[k.Profile] || !k.Legacy
		case calico.ProfileTagsKey:
			profiles[k.Profile] = profiles[k.Profile] || !k.Legacy
		case calico.ProfileLabelsKey:
			profiles[k.Profile] = true
		}
	}
	show := func(won bool, at calico.Key, object any) {
		if won {
			hidden++
			return
		}
		view[at] = object
	}
	for k, object := range stored {
		switch k := k.(type) {
		case calico.WorkloadEndpointKey:
			at := k
			at.Legacy = false
			show(k.Legacy && stored[at] != nil, at, object)
		case calico.ProfileRulesKey:
			show(k.Legacy && profiles[k.Profile], calico.ProfileRulesKey{Profile: k.Profile}, object)
		case calico.ProfileTagsKey:
			show(k.Legacy && profiles[k.Profile], calico.ProfileTagsKey{Profile: k.Profile}, object)
		default:
			show(false, k, object)
		}
	}
	return view, hidden
}

// TestMergeDependsOnTheTreesAlone tells trees in any order, with repetitions and detours, and
// compares with what the view is by definition, after every update.
func TestMergeDependsOnTheTreesAlone(t *testing.T) {
	t.Parallel()
	var keys []calico.Key
	for _, n := range []string{"a", "b"} {
		for _, legacyTree := range []bool{true, false} {
			keys = append(keys, calico.WorkloadEndpointKey{Host: "h", Orchestrator: "o", Workload: "w", Endpoint: n, Legacy: legacyTree},
				calico.ProfileRulesKey{Profile: n, Legacy: legacyTree}, calico.ProfileTagsKey{Profile: n, Legacy: legacyTree})
		}
		keys = append(keys, calico.ProfileLabelsKey{Profile: n}, calico.TierKey{Tier: n})
	}
	rapid.Check(t, func(t *rapid.T) {
		m, view, stored, hidden := legacy.NewMerger(), tree{}, tree{}, 0
		for range rapid.IntRange(1, 60).Draw(t, "updates") {
			key := rapid.SampledFrom(keys).Draw(t, "key")
			var object any = []string{rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "object")} // cannot be compared, as some objects cannot
			if rapid.Bool().Draw(t, "delete") {
				object = nil
			}
			if _, there := stored[key]; object == nil && !there {
				if out := m.Update(key, nil); key.Kind() != calico.KindTier && len(out.Changes)+len(out.Hidden)+len(out.Shown) > 0 {
					t.Fatalf("taking away %#v, which was not there, gives %#v", key, out)
				}
				continue
			}
			if object == nil {
				delete(stored, key)
			} else {
				stored[key] = object
			}
			out := view.follow(t, m, key, object)
			hidden += len(out.Hidden) - len(out.Shown)
			want, wantHidden := wanted(stored)
			if diff := cmp.Diff(want, view); diff != "" {
				t.Fatalf("after %#v: -want +got\n%s", key, diff)
			}
			if hidden != wantHidden || len(m.Hidden()) != wantHidden {
				t.Fatalf("after %#v: %d reported as hidden, %d listed, want %d", key, hidden, len(m.Hidden()), wantHidden)
			}
		}
		// Taken away in any order, nothing is left.
		for _, key := range rapid.Permutation(slices.Collect(maps.Keys(stored))).Draw(t, "end") {
			view.follow(t, m, key, nil)
		}
		if len(view) > 0 || len(m.Hidden()) > 0 {
			t.Fatalf("left: %v, hidden %v", view, m.Hidden())
		}
	})
}
