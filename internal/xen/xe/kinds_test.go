package xe

import (
	"testing"

	"heddle/internal/xen/model"
)

// foreign are setters that other servers have and the model lacks.
var foreign = map[string]bool{"VIF.set_locking_mode": true, "VIF.set_ipv4_allowed": true, "VIF.set_ipv6_allowed": true, "network.set_purpose": true}

// TestKinds: the table holds, and what it says can be set, the model can set.
func TestKinds(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		seen := map[string]bool{}
		for _, f := range k.fields {
			if seen[f.name] {
				t.Errorf("%s has two fields %s", k.name, f.name)
			}
			seen[f.name] = true
			setter := k.api + ".set_" + f.own().Name
			if f.writable() && (len(f.path) != 1 || (model.Calls()[setter] == nil && !foreign[setter])) {
				t.Errorf("%s: %s is (%s), but there is no %s", k.name, f.name, f.mark, setter)
			}
			if kind := f.last().Type.Kind; f.isMap() != (kind == model.Map) && (f.isMap() || f.writable()) {
				t.Errorf("%s: %s is (%s), but its type is not", k.name, f.name, f.mark)
			}
		}
		for _, column := range k.columns {
			if !seen[column] {
				t.Errorf("%s has no field %s, which is a column", k.name, column)
			}
		}
		if k.fields[0].name != "uuid" || k.columns[0] != "uuid" {
			t.Errorf("%s does not begin with uuid", k.name)
		}
	}
}

// TestCommands: no command is there twice, and the common ones are there.
func TestCommands(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range commands() {
		if seen[c.name] {
			t.Errorf("%s is there twice", c.name)
		}
		seen[c.name] = true
		if c.about == "" {
			t.Errorf("%s says nothing about itself", c.name)
		}
	}
	for _, name := range common {
		if !seen[name] {
			t.Errorf("%s is not there", name)
		}
	}
}
