package history

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store/journal"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// TestRewind: each commit is undone to what was there before it, and the beginning of the journal
// ends it.
func TestRewind(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	snaps := []*records.Snap{c.view(t)}
	note := func() { snaps = append(snaps, c.view(t)) }
	network := create(t, c.Networks(), neutron.Networks, `{"name":"blue"}`)[0]
	note()
	create(t, c.Subnets(), neutron.Subnets, fmt.Sprintf(`{"network_id":%q,"ip_version":4,"cidr":"10.0.0.0/24"}`, network.ID))
	note()
	for i := range leastUndone { // of more than one page
		port := create(t, c.Ports(), neutron.Ports, fmt.Sprintf(`{"network_id":%q,"name":"p%d"}`, network.ID, i))[0]
		note()
		if i%2 == 0 {
			if err := c.Ports().Delete(t.Context(), admin, port.ID, nil); err != nil {
				t.Fatal(err)
			}
			note()
		}
	}
	slices.Reverse(snaps)
	past, err := NewRewind(c.journal, snaps[0])
	if err != nil {
		t.Fatal(err)
	}
	undone := map[int64]*records.Snap{}
	for got := range past.Earlier(t.Context()) {
		undone[past.At().Revision] = got
	}
	for i, after := range snaps[:len(snaps)-1] {
		got, want := undone[after.Revision()], snaps[i+1]
		if got == nil {
			t.Fatalf("revision %d was not undone", after.Revision())
		}
		same(t, "networks", schema.Networks.All(got), schema.Networks.All(want))
		same(t, "ports", schema.Ports.All(got), schema.Ports.All(want))
		same(t, "groups", schema.SecurityGroups.All(got), schema.SecurityGroups.All(want))
		same(t, "bundles", schema.Bundles.All(got), schema.Bundles.All(want))
	}
	if back, why, gap, err := past.End(); why != operator.PastBegins || back.IsZero() || gap != nil || err != nil {
		t.Errorf("ended %s at %v, gap %v, %v", why, back, gap, err)
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if past, err = NewRewind(c.journal, snaps[0]); err != nil {
		t.Fatal(err)
	}
	for range past.Earlier(late) {
		t.Error("undid a commit after its time")
	}
	if back, why, _, _ := past.End(); why != operator.PastLimit || back.IsZero() {
		t.Errorf("out of time, ended by %q at %v", why, back)
	}
}

// TestRewindEndsAtAnEpoch: what was before the store was replaced is not undone.
func TestRewindEndsAtAnEpoch(t *testing.T) {
	t.Parallel()
	page := &journal.Page{Commits: []journal.Commit{{Position: journal.Position{Epoch: 2, Revision: 9}}, {Position: journal.Position{Epoch: 1, Revision: 30}}}}
	gap := &journal.Page{Commits: page.Commits[:1], Gaps: []journal.Gap{{After: journal.Position{Epoch: 2, Revision: 4}, Until: journal.Position{Epoch: 2, Revision: 8}}}}
	unknown := &journal.Page{Commits: []journal.Commit{{Position: journal.Position{Epoch: 2, Revision: 9}, Changes: []journal.Change{{Key: "/heddle/x", Unknown: true}}}}}
	for name, c := range map[string]struct {
		page   *journal.Page
		undone int
		want   operator.PastEnd
	}{"epoch": {page, 1, operator.PastRestored}, "gap": {gap, 1, operator.PastGap}, "unknown": {unknown, 0, operator.PastGap}} {
		past := newRewind(nil, newCloud(t).view(t), 2)
		undone := 0
		past.undoAll(t.Context(), c.page, func(*records.Snap) bool { undone++; return true })
		if _, why, g, _ := past.End(); why != c.want || undone != c.undone || (g != nil) != (c.want == operator.PastGap) {
			t.Errorf("%s: ended by %q after %d, gap %v", name, why, undone, g)
		}
	}
}
