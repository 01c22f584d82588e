package explain

import (
	"fmt"
	"slices"
	"testing"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// TestSince: the newest turn of a verdict is found, also of one that has turned before, and by the
// former names of ports; a port that was not there gave no answer.
func TestSince(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	_, db := c.twoTiers()
	snaps := []*records.Snap{c.view()}
	change := func(text string) int {
		update(c, c.Ports(), neutron.Ports, db.ID, text)
		snaps = append(snaps, c.view())
		return len(snaps) - 1
	}
	change(`{"admin_state_up":false}`)
	change(`{"admin_state_up":true}`)
	turned := change(`{"admin_state_up":false}`)
	change(`{"name":"database"}`)
	other := c.port(db.NetworkID, "db", "h1", "") // another has the name now
	snaps = append(snaps, c.view())
	for to, want := range map[string]Turn{
		"database": {Verdict: operator.Denied, Before: operator.Allowed, Looked: len(snaps) - turned},
		"db":       {Verdict: operator.Allowed, Fault: fmt.Sprintf("no port has the id or name %q: heddle port list", other.ID), Looked: 1},
	} {
		got, err := NewWorld().Since(snaps[len(snaps)-1], admin, &operator.WhyRequest{From: "web", To: to, Port: 22}, func(yield func(*records.Snap) bool) {
			for _, s := range slices.Backward(snaps[:len(snaps)-1]) {
				if !yield(s) {
					return
				}
			}
		})
		if err != nil || *got != want {
			t.Errorf("to %s: %+v, %v; want %+v", to, got, err, want)
		}
	}
}
