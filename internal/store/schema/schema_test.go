package schema_test

import (
	"strings"
	"testing"

	"heddle/internal/store"
	"heddle/internal/store/schema"
)

func TestCheck(t *testing.T) {
	tests := []struct {
		name string
		key  string // beforehand
		text string
		want string // in the error; "" = none
	}{
		{"empty", "", "", ""},
		{"this version", "/heddle/schema", "1", ""},
		{"newer", "/heddle/schema", "2", "upgrade heddle"},
		{"nonsense", "/heddle/schema", "one", "no Heddle writes"},
		{"no version", "/heddle/neutron/ports/x", "{}", "no schema version"},
		{"other programs' keys", "/calico/v1/x", "{}", ""},
	}
	for _, tt := range tests {
		st := store.NewMemory()
		if tt.key != "" {
			if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: tt.key, Value: []byte(tt.text)}}); err != nil {
				t.Fatal(err)
			}
		}
		err := schema.Check(t.Context(), st)
		if got := err == nil; got != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if err != nil {
			continue
		}
		if kv, err := st.Get(t.Context(), "/heddle/schema"); err != nil || string(kv.Value) != "1" {
			t.Errorf("%s: version is %q, %v", tt.name, kv.Value, err)
		}
		if err := schema.Check(t.Context(), st); err != nil {
			t.Errorf("%s, a second time: %v", tt.name, err)
		}
	}
}
