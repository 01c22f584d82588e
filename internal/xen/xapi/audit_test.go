package xapi

import (
	"encoding/json"
	"strings"
	"testing"

	"heddle/internal/audit"
)

// TestAudit: a call that changes something has a record in its commit, without secrets.
func TestAudit(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	recorded := func() (records []audit.Record, text string) {
		kvs, _, err := s.opts.Store.List(t.Context(), audit.Prefix)
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range kvs {
			var r audit.Record
			if err := json.Unmarshal(kv.Value, &r); err != nil {
				t.Fatal(err)
			}
			records, text = append(records, r), text+string(kv.Value)
		}
		return records, text
	}
	c.must("network.get_all")
	before, _ := recorded()
	network := map[string]any{"name_label": "blue", "name_description": "", "other_config": map[string]any{"password": "hunter2"}}
	c.must("network.create", network)
	after, text := recorded()
	if len(after) != len(before)+1 {
		t.Fatalf("%d records, want %d", len(after), len(before)+1)
	}
	if strings.Contains(text, "hunter2") || !strings.Contains(text, `blue`) || !strings.Contains(text, `"method":"network.create"`) || !strings.Contains(text, `"user":"root"`) {
		t.Errorf("the records are %s", text)
	}
}
