package cli

import (
	"fmt"
	"strings"
	"testing"

	"heddle/internal/api/operator"
)

func TestUpgradePlan(t *testing.T) {
	t.Parallel()
	v := &operator.Formats{Written: 3, Members: []operator.Reader{
		{Role: "serve", Name: "cloud1", Version: "v1"}, {Role: "serve", Name: "cloud2", Version: "v2"}, {Role: "xapi", Name: "pool1", Version: "v1"},
		{Role: "agent", Name: "h1", Version: "v1"}, {Role: "agent", Name: "h2", Version: "v1"}, {Role: "agent", Name: "h3", Version: "v2"}, {Role: "agent", Name: "h4", Version: "v0"},
	}}
	want := `to v2, over a store in format 3
1. back up the store: heddle backup FILE
2. serve on cloud1 (v1): install, restart, wait until it is ready
3. xapi on pool1 (v1): install, restart, wait until it is ready
4. agent on h1 (v1), h2 (v1): install, restart, wait until it is ready
5. agent on h4 (v0): install, restart, wait until it is ready
6. hosts that are away, once they are back: heddle host list
7. heddle upgrade status, and when you will not go back: heddle upgrade commit
`
	if got := upgradePlan(v, "v2", 2); got != want {
		t.Errorf("plan:\n%s\nwant:\n%s", got, want)
	}
	v.Members = v.Members[1:2]
	if got, want := upgradePlan(v, "v2", 2), "to v2, over a store in format 3\nall live servers and agents have it: heddle upgrade commit\n"; got != want {
		t.Errorf("plan when all have the version: %q, want %q", got, want)
	}
}

func TestSilentNames(t *testing.T) {
	t.Parallel()
	silent := []operator.Silent{{Role: "serve", Name: "s3"}}
	for i := range mostSilent {
		silent = append(silent, operator.Silent{Role: "agent", Name: fmt.Sprint("h", i)})
	}
	if got, want := silentNames(silent[:2]), "serve on s3, agent on h0"; got != want {
		t.Errorf("two: %q, want %q", got, want)
	}
	if got := silentNames(silent); !strings.HasSuffix(got, "agent on h18, and 1 more") {
		t.Errorf("one more than are named: %q", got)
	}
}
