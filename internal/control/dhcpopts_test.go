package control

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/neutron"
)

// naiveMerge is mergeDHCPOpts as its comment says it, one change after the other.
func naiveMerge(had []neutron.DHCPOpt, changes []neutron.DHCPOptChange) []neutron.DHCPOpt {
	opts := slices.Clone(had)
	for _, c := range changes {
		i := slices.IndexFunc(opts, func(o neutron.DHCPOpt) bool { return o.OptName == c.OptName && o.IPVersion == c.IPVersion })
		switch {
		case c.OptValue == nil && i >= 0:
			opts = slices.Delete(opts, i, i+1)
		case c.OptValue == nil, *c.OptValue == "" && !mayBeBlank(c.OptName):
		case i >= 0:
			opts[i].OptValue = *c.OptValue
		default:
			opts = append(opts, neutron.DHCPOpt{OptName: c.OptName, OptValue: *c.OptValue, IPVersion: c.IPVersion})
		}
	}
	return opts
}

// TestMergeDHCPOpts: the result is that of applying the changes one by one, and a long list takes
// no more than a walk.
func TestMergeDHCPOpts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name, version := rapid.SampledFrom([]string{"a", "b", "router"}), rapid.SampledFrom([]int{4, 6})
		var had []neutron.DHCPOpt
		changes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) neutron.DHCPOptChange {
			c := neutron.DHCPOptChange{OptName: name.Draw(t, "name"), IPVersion: version.Draw(t, "version")}
			if text := rapid.SampledFrom([]string{"remove", "", "x", "y"}).Draw(t, "value"); text != "remove" {
				c.OptValue = &text
			}
			return c
		}), 0, 12).Draw(t, "changes")
		at := rapid.IntRange(0, len(changes)).Draw(t, "at")
		had = naiveMerge(nil, changes[:at])
		before := slices.Clone(had)
		if d := cmp.Diff(append([]neutron.DHCPOpt{}, naiveMerge(had, changes[at:])...), mergeDHCPOpts(had, changes[at:])); d != "" {
			t.Errorf("-want +got\n%s", d)
		}
		if d := cmp.Diff(before, had); d != "" {
			t.Errorf("the options before were changed:\n%s", d)
		}
	})
	many, value := make([]neutron.DHCPOptChange, 100_000), "x"
	for i := range many {
		many[i] = neutron.DHCPOptChange{OptName: fmt.Sprint(i), OptValue: &value, IPVersion: 4}
	}
	if got := mergeDHCPOpts(nil, many); len(got) != len(many) {
		t.Errorf("%d options of %d", len(got), len(many))
	}
}
