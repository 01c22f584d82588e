package model

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestStored: what every class has by default is of the fields' types, and comes back from the
// store as it was.
func TestStored(t *testing.T) {
	for _, c := range Classes() {
		if c.Value {
			continue
		}
		r := New(c.Name)
		raw, err := Marshal(c.Name, r)
		if err != nil {
			t.Error(err)
			continue
		}
		back, err := Unmarshal(c.Name, raw)
		if diff := cmp.Diff(r, back); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", c.Name, err, diff)
		}
	}
}
