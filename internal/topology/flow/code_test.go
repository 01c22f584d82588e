package flow

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestCodes: each code has a name of its own, by which it is read again, and a row in the docs.
func TestCodes(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../../../docs/codes.md")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]Code{}
	for _, c := range Codes() {
		name := c.String()
		if other, taken := names[name]; taken || name == "" {
			t.Errorf("codes %d and %d are both %q", c, other, name)
		}
		names[name] = c
		text, err := json.Marshal(Dropped{Code: c})
		var read Dropped
		if err == nil {
			err = json.Unmarshal(text, &read)
		}
		if err != nil || read.Code != c {
			t.Errorf("%s: read again as %d: %v", text, read.Code, err)
		}
		if !strings.Contains(string(docs), fmt.Sprintf("\n| `%s` | ", name)) {
			t.Errorf("docs/codes.md has no row for `%s`", name)
		}
	}
	for _, k := range StepKinds() {
		if !strings.Contains(string(docs), fmt.Sprintf("\n| `%s` | ", k)) {
			t.Errorf("docs/codes.md has no row for steps of the kind `%s`", k)
		}
	}
	if n, all := strings.Count(string(docs), "\n| `"), len(names)+len(StepKinds()); n != all {
		t.Errorf("docs/codes.md has %d rows, and there are %d codes and kinds", n, all)
	}
	later := Dropped{Code: CodeNoRule}
	if err := json.Unmarshal([]byte(`{"code": "of-a-later-version", "reason": "why"}`), &later); err != nil || later.Code != 0 || later.Reason != "why" {
		t.Errorf("a name of a later version: %+v, %v", later, err)
	}
	if got := codes.String(); !strings.HasPrefix(got, "code-") {
		t.Errorf("a number without a name: %q", got)
	}
}
