package xapi

import (
	"errors"
	"strings"
	"testing"

	"heddle/internal/xen/model"
)

// TestObjectSize: an object's fields have 256 KiB together, whichever of them takes the room.
func TestObjectSize(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 100<<10)
	for _, tt := range []struct {
		fields model.Record
		want   string // the field that is named; "" = accepted
	}{
		{model.Record{"name_label": large, "tags": []string{large}}, ""},
		{model.Record{"name_label": large, "tags": []string{large, large}}, "tags"},
		{model.Record{"name_label": large + large + large, "MTU": int64(1500)}, "name_label"},
		{model.Record{"other_config": map[string]string{large: large, "a": large}, "tags": []string{"a"}}, "other_config"},
	} {
		err := checkObjectSize(tt.fields)
		var e *model.Error
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("refused: %v", err)
		case tt.want != "" && (!errors.As(err, &e) || e.Code != "INVALID_VALUE" || e.Params[0] != tt.want):
			t.Errorf("%v, want %s to be named", err, tt.want)
		}
	}
}
