package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"heddle/internal/api/operator"
	"heddle/internal/topology/flow"
)

// TestPrintHistory: gaps and restores stand where they were among the changes.
func TestPrintHistory(t *testing.T) {
	t.Parallel()
	const id = "0acc33cd-7d10-48a1-937e-88be575d35e7"
	at := func(minute int) time.Time { return time.Date(2026, 11, 28, 6, minute, 0, 0, time.Local) }
	change := func(epoch int, revision int64, minute int, a *operator.Author, o ...operator.ChangedObject) operator.Revision {
		return operator.Revision{Epoch: epoch, Revision: revision, Time: at(minute), Author: a, Objects: o}
	}
	h := operator.History{Epoch: 2, Names: map[string]flow.TraceName{id: {Kind: "port", Name: "web"}}, Next: "1.3",
		Changes: []operator.Revision{
			change(2, 1000000012, 9, &operator.Author{User: "alice", Summary: "update ports " + id}, operator.ChangedObject{Kind: "port", ID: id, Change: "changed", Fields: []operator.ChangedField{
				{Name: "admin_state_up", Before: json.RawMessage("true"), After: json.RawMessage("false")}, {Name: "security_groups[]", Before: json.RawMessage(`"` + id + `"`)}}}),
			change(1, 7, 6, nil, operator.ChangedObject{Kind: "port", ID: id, Change: "created", Fields: []operator.ChangedField{
				{Name: "name", After: json.RawMessage(`"web"`)}, {Name: "mtu", After: json.RawMessage("1450")}, {Name: "tags", After: json.RawMessage("[]")}}}),
			change(1, 3, 1, &operator.Author{Summary: "create v1 join"}, operator.ChangedObject{Kind: "host", ID: "h1\x1b[2J", Change: "deleted"}),
		},
		Gaps: []operator.Gap{{After: 4, AfterTime: at(2), Until: 6, UntilTime: at(5), Reason: "x.segment: damaged"}}}
	var out strings.Builder
	printHistory(&out, &h)
	want := `1000000012  2026-11-28 06:09:00  alice: update ports web (` + id + `)
    changed port web (` + id + `)
          admin_state_up: true → false
        - security_groups[]: web (` + id + `)
the store was restored or replaced after 2026-11-28 06:06:00
1.7  2026-11-28 06:06:00  direct write
    created port web (` + id + `)
        + mtu: 1450
not recorded between 2026-11-28 06:02:00 (revision 4) and 2026-11-28 06:05:00 (revision 6): x.segment: damaged
1.3  2026-11-28 06:01:00  without a log-in: create v1 join
    deleted host h1\x1b[2J
more: --before 1.3
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestParseSince(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2h":                   now.Add(-2 * time.Hour),
		"3d":                   now.AddDate(0, 0, -3),
		"2026-11-28":           time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC),
		"2026-11-28 10:30":     time.Date(2026, 11, 28, 10, 30, 0, 0, time.UTC),
		"2026-11-28T06:00:00Z": time.Date(2026, 11, 28, 6, 0, 0, 0, time.UTC),
	} {
		if got, err := parseSince(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "yesterday", "-2h", "99999d"} {
		if got, err := parseSince(text, now); err == nil {
			t.Errorf("%q is %v, want an error", text, got)
		}
	}
}
