package objects

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/xen/model"
)

// TestObject: an object of each class comes back from the store as it was.
func TestObject(t *testing.T) {
	for class := range tables {
		o := &Object{Class: class, Ref: "OpaqueRef:1", Fields: model.New(class)}
		raw, err := json.Marshal(o)
		if err != nil {
			t.Error(err)
			continue
		}
		var back Object
		err = json.Unmarshal(raw, &back)
		if diff := cmp.Diff(*o, back); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", class, err, diff)
		}
	}
}
