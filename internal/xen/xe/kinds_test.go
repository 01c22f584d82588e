package xe

import (
	"strings"
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

// TestCommandTable: no command is there twice, and the common ones are there.
func TestCommandTable(t *testing.T) {
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

// TestRequired: what a command cannot do without is asked for before anybody is.
func TestRequired(t *testing.T) {
	t.Parallel()
	for _, c := range commands() {
		for i, key := range c.required {
			words := []string{c.name, "server=192.0.2.1"}
			for j, other := range c.required {
				if j != i {
					words = append(words, other+"=x")
				}
			}
			var out, errs strings.Builder
			code := Run(t.Context(), words, Environment{Out: &out, Err: &errs})
			if want := "Required parameter not found: " + key + "\nFor usage run: 'xe help'\n"; code != 1 || errs.String() != want || out.Len() != 0 {
				t.Errorf("%s: exit code %d, %q and %q, want 1, %q", words, code, out.String(), errs.String(), want)
			}
		}
	}
}
