package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
	"heddle/internal/xen/xapi"
)

// simulate serves the pool of testdata/pool.json until the test has ended.
func simulate(t *testing.T) string {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("testdata", "pool.json"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := xapi.NewSimulation(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-s.Ready()
	return s.Pools()[0].URL
}

// TestFollowPool: after any changes the copy is what the pool has, over each transport.
func TestFollowPool(t *testing.T) {
	t.Parallel()
	at := simulate(t)
	for name, json := range map[string]bool{"XML-RPC": false, "JSON-RPC": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			session, err := client.Dial(t.Context(), client.Options{URL: at, User: "root", Password: "secret", JSON: json})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close(context.Background())
			n := 0
			rapid.Check(t, func(t *rapid.T) {
				n++
				play(t, session, fmt.Sprintf("%s %d", name, n))
			})
		})
	}
}

// errEnd ends a Follow.
var errEnd = errors.New("the last change has come")

// play changes networks while one copy follows them, and compares the two when the last change, a
// network of that name, has come.
func play(t *rapid.T, session *client.Session, last string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	must := func(method string, args ...any) string {
		v, err := session.Call(ctx, method, args...)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		ref, _ := v.(string)
		return ref
	}
	copied := make(chan map[string]model.Record, 1)
	failed := make(chan error, 1)
	go func() {
		failed <- session.Follow(ctx, []string{"network"}, func(all client.Objects, _ []client.Event) error {
			for _, r := range all["network"] {
				if r["name_label"] == last {
					copied <- all["network"]
					return errEnd
				}
			}
			return nil
		})
	}()
	var mine []string
	for i := range rapid.IntRange(0, 8).Draw(t, "changes") {
		switch what := rapid.SampledFrom([]string{"create", "rename", "tag", "destroy"}).Draw(t, "change"); {
		case what == "create" || len(mine) == 0:
			mine = append(mine, must("network.create", model.Record{"name_label": fmt.Sprintf("%s, number %d", last, i), "other_config": map[string]string{"é": "<&>\\\""}}))
		case what == "rename":
			must("network.set_name_label", mine[0], rapid.StringMatching(`[ -~é]{0,8}`).Draw(t, "name"))
		case what == "tag":
			must("network.add_tags", mine[len(mine)-1], what)
		default:
			must("network.destroy", mine[0])
			mine = mine[1:]
		}
	}
	mine = append(mine, must("network.create", model.Record{"name_label": last}))
	if err := <-failed; err != errEnd {
		t.Fatal(err)
	}
	found := <-copied
	for _, ref := range mine {
		v, err := session.Call(ctx, "network.get_record", ref)
		if diff := cmp.Diff(v, found[ref]); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", ref, err, diff)
		}
		must("network.destroy", ref)
	}
}
