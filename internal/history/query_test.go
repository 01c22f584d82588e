package history

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/api/operator"
	"heddle/internal/store/journal"
	"heddle/internal/store/schema"
)

func TestFieldChanges(t *testing.T) {
	t.Parallel()
	raw := func(text string) json.RawMessage {
		if text == "" {
			return nil
		}
		return json.RawMessage(text)
	}
	field := func(name, before, after string) operator.ChangedField {
		return operator.ChangedField{Name: name, Before: raw(before), After: raw(after)}
	}
	for _, c := range []struct {
		before, after string
		want          []operator.ChangedField
	}{
		{`{"a":1,"updated_at":"x","revision_number":1}`, `{"a":1,"updated_at":"y","revision_number":2}`, nil},
		{`{"a":1,"b":"x"}`, `{"a":2,"c":true}`, []operator.ChangedField{field("a", "1", "2"), field("b", `"x"`, ""), field("c", "", "true")}},
		{`{"l":["x","y"]}`, `{"l":["y","z"]}`, []operator.ChangedField{field("l[]", `"x"`, ""), field("l[]", "", `"z"`)}},
		{`{"l":["x","y"]}`, `{"l":["y","x"]}`, []operator.ChangedField{field("l", `["x","y"]`, `["y","x"]`)}},
		{`{"r":[{"id":"1","p":80},{"id":"2"}]}`, `{"r":[{"id":"1","p":81},{"id":"3"}]}`,
			[]operator.ChangedField{field("r[1]", `{"id":"1","p":80}`, `{"id":"1","p":81}`), field("r[2]", `{"id":"2"}`, ""), field("r[3]", "", `{"id":"3"}`)}},
		{`{"l":null}`, `{"l":["x"]}`, []operator.ChangedField{field("l[]", "", `"x"`)}},
		{``, `{"a":1}`, []operator.ChangedField{field("a", "", "1")}},
		{`not JSON`, `{"a":1}`, []operator.ChangedField{field("a", "", "1")}},
	} {
		if diff := cmp.Diff(c.want, fieldChanges(raw(c.before), raw(c.after))); diff != "" {
			t.Errorf("%s, then %s: -want +got\n%s", c.before, c.after, diff)
		}
	}
}

func TestKindAndID(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ key, kind, id string }{
		{schema.Ports.Key("1"), "port", "1"},
		{schema.SecurityGroups.Key("1"), "security group", "1"},
		{schema.QoSPolicies.Key("1"), "qos policy", "1"},
		{schema.NDPProxies.Key("1"), "ndp proxy", "1"},
		{schema.FloatingIPs.Key("1"), "floatingip", "1"},
		{schema.Hosts.Key("h"), "host", "h"},
		{schema.StatePrefix + "h/alive", "host state", "h"},
		{schema.StatePrefix + "h/ports/p", "port state", "p"},
		{schema.CalicoPrefix + "v1/policy/a", "calico key", "v1/policy/a"},
		{xenObjects + "VM/ref", "pool VM", "ref"},
		{schema.UnderlayPrefix + "h", "underlay", "h"},
	} {
		if kind, id := kindAndID(c.key); kind != c.kind || id != c.id {
			t.Errorf("%s is %s %s, want %s %s", c.key, kind, id, c.kind, c.id)
		}
	}
}

// TestConcerns: the history of an object has what begins or ceases to refer to it, and not what
// goes on referring to it.
func TestConcerns(t *testing.T) {
	t.Parallel()
	q := Query{IDs: []string{"g-1"}, Name: "web"}
	port := func(before, after string) journal.Change {
		c := journal.Change{Key: schema.Ports.Key("p")}
		if before != "" {
			c.Before = []byte(before)
		}
		if after != "" {
			c.After = []byte(after)
		}
		return c
	}
	for _, c := range []struct {
		name   string
		change journal.Change
		want   bool
	}{
		{"the group itself", journal.Change{Key: schema.SecurityGroups.Key("g-1"), Before: []byte(`{"name":"web"}`), After: []byte(`{"name":"other"}`)}, true},
		{"a former group of this name", journal.Change{Key: schema.SecurityGroups.Key("former"), Before: []byte(`{"name":"web"}`)}, true},
		{"a port joins", port(`{"groups":[]}`, `{"groups":["g-1"]}`), true},
		{"a port leaves", port(`{"groups":["g-1","x"]}`, `{"groups":["x"]}`), true},
		{"a new port in it", port("", `{"groups":["g-1"]}`), true},
		{"a port in it goes", port(`{"groups":["g-1"]}`, ""), true},
		{"a port in it changes", port(`{"groups":["g-1"],"up":true}`, `{"groups":["g-1"],"up":false}`), false},
		{"a port of another group", port("", `{"groups":["x"]}`), false},
	} {
		commit := &journal.Commit{Changes: []journal.Change{c.change}}
		r := describe(commit)
		if got := q.matches(&r); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if c.want && !q.mentions(c.change.Key, c.change.Before) && !q.mentions(c.change.Key, c.change.After) {
			t.Errorf("%s: left out", c.name)
		}
	}
}
