package neutronv2

import (
	"bytes"
	"errors"
	"testing"

	"heddle/internal/neutron"
	"heddle/internal/strictjson"
)

func TestItems(t *testing.T) {
	t.Parallel()
	const (
		invalid = "Body contains invalid data"
		missing = "Unable to find 'network' in request body"
	)
	tests := []struct {
		body  string
		op    neutron.Op
		count int
		bulk  bool
		want  string // error text
	}{
		{`notjson`, neutron.Create, 0, false, invalid},
		{`[]`, neutron.Create, 0, false, invalid},
		{`null`, neutron.Create, 0, false, invalid},
		{`{"network":{}} x`, neutron.Create, 0, false, invalid},
		{`{"networks":[{},5]}`, neutron.Create, 0, true, invalid},
		{``, neutron.Create, 0, false, missing},
		{`{}`, neutron.Create, 0, false, missing},
		{`{"subnet":{}}`, neutron.Create, 0, false, missing},
		{`{"network":null}`, neutron.Update, 0, false, missing},
		{`{"network":[]}`, neutron.Create, 0, false, "Object 'network' contains invalid data"},
		{`{"network":"x"}`, neutron.Update, 0, false, "Object 'network' contains invalid data"},
		{`{"network":{"name":"[[{{"}}`, neutron.Create, 1, false, ""},
		{`{"networks":[]}`, neutron.Create, 0, true, "Resources required"},
		{`{"networks":null}`, neutron.Create, 0, true, "Resources required"},
		{`{"networks":{}}`, neutron.Create, 0, true, "Resources required"}, {`{"networks":""}`, neutron.Create, 0, true, "Resources required"},
		{`{"networks":{"a":1}}`, neutron.Create, 0, true, invalid},
		{`{"networks":[5]}`, neutron.Create, 0, true, invalid},
		{`{"networks":["x"]}`, neutron.Create, 0, true, "Object 'network' contains invalid data"},
		{`{"networks":[{"name":"a"},{"network":{"name":"b"}}]}`, neutron.Create, 2, true, ""},
		{`{"networks":[{}]}`, neutron.Update, 0, true, "Bulk operation not supported"},
	}
	for _, tt := range tests {
		body, err := decodeBody([]byte(tt.body))
		var objects []map[string]any
		var bulk bool
		if err == nil {
			bulk, err = items(body, neutron.Networks, tt.op, func(o map[string]any) error {
				objects = append(objects, o)
				return nil
			})
		}
		var got *neutron.Error
		switch {
		case tt.want == "" && (err != nil || len(objects) != tt.count || bulk != tt.bulk):
			t.Errorf("%s: %v, bulk %v, %v", tt.body, objects, bulk, err)
		case tt.want != "" && (!errors.As(err, &got) || got.Message != tt.want || got.Type != "HTTPBadRequest"):
			t.Errorf("%s: %v, want %s", tt.body, err, tt.want)
		}
	}
}

// FuzzBody: no body panics, and what is refused is refused with an answer for the client.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{``, `{"networks":[{"network":{}}, 1]}`, `{"network":{"name":"\u0000\"["}}`, `[[[[`, `{"network":`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := strictjson.Read(bytes.NewReader(raw), int64(len(raw)), bodyLimits(nil)); err != nil {
			return
		}
		body, err := decodeBody(raw)
		if err == nil {
			_, err = items(body, neutron.Networks, neutron.Create, func(map[string]any) error { return nil })
		}
		var known *neutron.Error
		if err != nil && !errors.As(err, &known) {
			t.Fatalf("%q: %v is no answer for a client", raw, err)
		}
	})
}
