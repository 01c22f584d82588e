package ovsdb

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestValues lists values as databases write them.
func TestValues(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]any{
		`"x"`:                                  "x",
		`5`:                                    int64(5),
		`-9223372036854775808`:                 int64(-1 << 63),
		`0.5`:                                  0.5,
		`1e300`:                                1e300,
		`true`:                                 true,
		`["uuid","u"]`:                         UUID("u"),
		`["named-uuid","n"]`:                   Named("n"),
		`["set",[]]`:                           Set{},
		`["set",["a","b"]]`:                    Set{"a", "b"},
		`["set",[["uuid","u"]]]`:               Set{UUID("u")},
		`["map",[]]`:                           Map{},
		`["map",[["k","v"],[1,["uuid","u"]]]]`: Map{"k": "v", int64(1): UUID("u")},
	} {
		got, err := decode(json.RawMessage(raw))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s reads as %#v, %v; want %#v", raw, got, err, want)
		}
	}
	for _, bad := range []string{``, `null`, `{}`, `[]`, `["set"]`, `["set",5]`, `["set",[["set",[]]]]`, `["set",[null]]`, `["map",[["k"]]]`,
		`["map",[[["map",[]],1]]]`, `["uuid",5]`, `["what","x"]`, `[5,"x"]`, `["set",[],[]]`, `1e999`} {
		if got, err := decode(json.RawMessage(bad)); err == nil {
			t.Errorf("%s reads as %#v", bad, got)
		}
	}
}

// genAtom makes atoms as they come back: a real without a fraction would be an integer.
func genAtom() *rapid.Generator[any] {
	return rapid.OneOf(
		rapid.Custom(func(t *rapid.T) any { return rapid.String().Draw(t, "text") }),
		rapid.Custom(func(t *rapid.T) any { return rapid.Int64().Draw(t, "integer") }),
		rapid.Custom(func(t *rapid.T) any { return float64(rapid.Int32().Draw(t, "real")) + 0.5 }),
		rapid.Custom(func(t *rapid.T) any { return rapid.Bool().Draw(t, "truth") }),
		rapid.Custom(func(t *rapid.T) any { return UUID(rapid.String().Draw(t, "uuid")) }),
		rapid.Custom(func(t *rapid.T) any { return Named(rapid.String().Draw(t, "named")) }),
	)
}

func genValue() *rapid.Generator[any] {
	return rapid.OneOf(
		genAtom(),
		rapid.Custom(func(t *rapid.T) any { return Set(rapid.SliceOfN(genAtom(), 0, 5).Draw(t, "set")) }),
		rapid.Custom(func(t *rapid.T) any { return Map(rapid.MapOfN(genAtom(), genAtom(), 0, 5).Draw(t, "map")) }),
	)
}

// TestWrittenRowsReadTheSame writes any row and reads it back.
func TestWrittenRowsReadTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		row := Row(rapid.MapOfN(rapid.StringN(1, 10, -1), genValue(), 0, 5).Draw(t, "row"))
		raw, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		var back Row
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if !reflect.DeepEqual(back, row) {
			t.Fatalf("%s reads as %#v, was %#v", raw, back, row)
		}
	})
}

// FuzzDecode shows that what can be read can be written, and reads the same again.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`"x"`, `-5`, `0.5`, `true`, `["uuid","u"]`, `["set",["a",1]]`, `["map",[["k",["uuid","u"]]]]`, `["set",[["set",[]]]]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			return // the stream's decoder lets nothing else through
		}
		value, err := decode(json.RawMessage(raw))
		if err != nil {
			return
		}
		written, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(written)
		if err != nil {
			t.Fatalf("%s was written as %s: %v", raw, written, err)
		}
		if f, ok := value.(float64); ok { // which may have no fraction
			if n, ok := again.(int64); ok && float64(n) == f {
				return
			}
		}
		if s, ok := value.(Set); ok && len(s) > 0 { // so may its elements
			return
		}
		if _, ok := value.(Map); ok {
			return
		}
		if !reflect.DeepEqual(value, again) {
			t.Fatalf("%s reads as %#v, then as %#v", raw, value, again)
		}
	})
}

// bridges is a model of one table.
type bridges struct {
	State
	rows map[UUID]*Row
}

func (b *bridges) Clone() *bridges { return &bridges{State: b.State, rows: b.rows} }

func (b *bridges) Take(_ string, update Rows) (err error) {
	b.rows, err = TakeRows(b.rows, update, func(_ UUID, r *RowReader) *Row { return &r.row })
	return err
}

var bridgeModel = Model[*bridges]{Database: "Open_vSwitch", New: func() *bridges { return &bridges{} }, Tables: map[string][]Column{
	"Bridge": {{Name: "name"}, {Name: "external_ids"}, {Name: "fail_mode"}, {Name: "flood_vlans"}, {Name: "ports"}}}}

// bridgeCache has the schema of Open vSwitch itself.
func bridgeCache(t testing.TB) *Cache[*bridges] {
	t.Helper()
	raw, err := os.ReadFile("/usr/share/openvswitch/vswitch.ovsschema")
	if err != nil {
		t.Skipf("this test reads the schema of Open vSwitch: install openvswitch-switch (%v)", err)
	}
	c, err := NewCache(&bridgeModel, raw)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDifferences lists how columns change by what monitor_cond_since tells.
func TestDifferences(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ was, difference, want string }{
		"one value comes whole":      {`{"fail_mode":"secure"}`, `{"fail_mode":"standalone"}`, `{"fail_mode":"standalone"}`},
		"an optional value goes":     {`{"fail_mode":"secure"}`, `{"fail_mode":["set",[]]}`, `{"fail_mode":["set",[]]}`},
		"an element comes":           {`{"flood_vlans":1}`, `{"flood_vlans":["set",[2]]}`, `{"flood_vlans":["set",[1,2]]}`},
		"an element goes":            {`{"flood_vlans":["set",[1,2]]}`, `{"flood_vlans":2}`, `{"flood_vlans":["set",[1]]}`},
		"to a column that was empty": {`{}`, `{"flood_vlans":["set",[1,2]]}`, `{"flood_vlans":["set",[1,2]]}`},
		"a key comes":                {`{}`, `{"external_ids":["map",[["k","v"]]]}`, `{"external_ids":["map",[["k","v"]]]}`},
		"a key goes":                 {`{"external_ids":["map",[["k","v"],["l","w"]]]}`, `{"external_ids":["map",[["k","v"]]]}`, `{"external_ids":["map",[["l","w"]]]}`},
		"a key has another value":    {`{"external_ids":["map",[["k","v"]]]}`, `{"external_ids":["map",[["k","w"]]]}`, `{"external_ids":["map",[["k","w"]]]}`},
	} {
		c := bridgeCache(t)
		if err := c.Apply(json.RawMessage(`{"Bridge":{"b":{"initial":`+tc.was+`}}}`), true); err != nil {
			t.Fatal(err)
		}
		if err := c.Apply(json.RawMessage(`{"Bridge":{"b":{"modify":`+tc.difference+`}}}`), false); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var want Row
		if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
			t.Fatal(err)
		}
		if got := c.rows["Bridge"]["b"]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// TestUnknownColumnsAreTolerated reads a row of a newer switch.
func TestUnknownColumnsAreTolerated(t *testing.T) {
	t.Parallel()
	c := bridgeCache(t)
	if err := c.Apply(json.RawMessage(`{"Bridge":{"b":{"initial":{"name":"x","colour":["set",["red"]]}}},"Paint":{"p":{"initial":{}}}}`), true); err != nil {
		t.Fatal(err)
	}
	if c.Contents().rows["b"] == nil {
		t.Fatal("there is no bridge")
	}
}

// FuzzAnswers reads schemas and answers to transactions, whatever they hold.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{`[{"uuid":["uuid","u"]},{"count":1}]`, `[{},{"error":"x","details":"y"},null]`, `[{"rows":[{"next_cfg":5}]},{},{"error":"commit"}]`,
		`{"name":"Open_vSwitch","tables":{"Bridge":{"columns":{"name":{"type":"string"},"ports":{"type":{"key":"uuid","max":"unlimited"}}}}}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		ops := []Op{Insert("Bridge", "b", Row{}), Comment("")}
		if results, err := readResults(ops, raw); err == nil && len(results) != len(ops) {
			t.Fatalf("%d results", len(results))
		}
		if s, err := readSchema(&bridgeModel, raw); err == nil {
			s.requests(true)
		}
	})
}

// TestLongErrors: a server's words can be of any length; errors have their beginning.
func TestLongErrors(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 20_000)
	_, refused := readResults([]Op{{}}, json.RawMessage(`[{"error":"constraint violation","details":"`+long+`"}]`))
	for name, err := range map[string]error{
		"transaction": refused,
		"text":        &rpcError{json.RawMessage(`"` + long + `"`)},
		"object":      &rpcError{json.RawMessage(`{"error":"` + long + `","details":"` + long + `"}`)},
	} {
		if err == nil || len(err.Error()) > 1000 || !strings.Contains(err.Error(), "(20000 bytes)") {
			t.Errorf("%s: got %.1200v, want the beginning and the length", name, err)
		}
	}
}
