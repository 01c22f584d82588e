package neutron_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"heddle/internal/audit"
	"heddle/internal/neutron"
)

// TestSecretAttributes: records of requests leave out exactly the attributes that are marked as
// secret. The golden file has all attributes, so that a new one is looked at.
func TestSecretAttributes(t *testing.T) {
	t.Parallel()
	const file = "testdata/secret_attributes.txt"
	var list strings.Builder
	list.WriteString("# Attributes of each resource; those with a star are secrets, which no record of a request has.\n")
	for _, r := range neutron.Resources() {
		list.WriteString(r.Name() + ":")
		for _, a := range r.Attributes() {
			mark := ""
			if a.Secret {
				mark = "*"
			}
			list.WriteString(" " + a.Name + mark)
			for _, value := range []string{`"hunter2"`, `["hunter2"]`, `{"x":["hunter2"]}`} {
				body, _ := audit.Strike(fmt.Appendf(nil, `{"%s":{"%s":%s}}`, r.Name(), a.Name, value))
				if strings.Contains(body, "hunter2") == a.Secret {
					t.Errorf("%s.%s, secret %v, is recorded as %s", r.Name(), a.Name, a.Secret, body)
				}
			}
		}
		list.WriteString("\n")
	}
	if *update {
		if err := os.WriteFile(file, []byte(list.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if list.String() != string(want) {
		t.Errorf("%s differs from the tables: decide which new attributes are secrets, then run the test with -update\n%s", file, list.String())
	}
}
