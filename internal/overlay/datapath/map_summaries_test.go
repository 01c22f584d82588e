package datapath

import (
	"context"
	"errors"
	"testing"
)

// TestMapSummaries: the maps of a datapath with their sizes, and the entries of those in which
// entries come and go.
func TestMapSummaries(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	d := openWith(t, opts)
	table, err := d.Table("rows", 4, 8, 3*batchSize)
	if err != nil {
		t.Fatal(err)
	}
	const entries = batchSize + 5
	keys, values := make([][4]byte, entries), make([][8]byte, entries)
	for i := range keys {
		keys[i] = [4]byte{byte(i), byte(i >> 8)}
	}
	if err := PutAll(table, keys, values); err != nil {
		t.Fatal(err)
	}
	found := map[string]MapSummary{}
	all, err := MapSummaries(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Datapath == opts.Name {
			found[s.Name] = s
		}
	}
	programs, err := loadBpf()
	if err != nil {
		t.Fatal(err)
	}
	for name := range programs.Maps {
		if s := found[name]; name[0] != '.' && (s.Type == "" || s.Capacity == 0) { // others are the compiler's, for constants
			t.Errorf("map %s: %+v", name, s)
		}
	}
	rows := found[tablePrefix+"rows"]
	if rows.Entries == nil || *rows.Entries != entries || rows.Capacity != 3*batchSize || rows.Type != "Hash" || rows.Layout != "v1" {
		t.Errorf("got %+v, want %d entries of %d in a hash", rows, entries, 3*batchSize)
	}
	if flows := found["flows4"]; flows.Entries == nil || *flows.Entries != 0 {
		t.Errorf("flows4: %+v, want none", flows)
	}
	if counters := found["counters"]; counters.Entries != nil {
		t.Errorf("counters: %+v, want no number of entries", counters)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := MapSummaries(ended, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
	if all, err := MapSummaries(t.Context(), t.TempDir()); err != nil || len(all) != 0 {
		t.Errorf("where there is no datapath: %v, %v", all, err)
	}
}
