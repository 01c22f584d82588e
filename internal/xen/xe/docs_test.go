package xe

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDocs: docs/xe.md lists the commands that there are. -update writes the list anew.
func TestDocs(t *testing.T) {
	t.Parallel()
	file := filepath.Join("..", "..", "..", "docs", "xe.md")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const end = "is made by a test of `internal/xen/xe`.\n\n"
	head, list, ok := strings.Cut(string(raw), end)
	if !ok {
		t.Fatalf("%s has no place for the list", file)
	}
	want := docs()
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(file, []byte(head+end+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("%s: write it anew with -update\n%s", file, diff)
	}
}

// docs are the tables of docs/xe.md.
func docs() string {
	var b strings.Builder
	b.WriteString("| command | needs | may have | |\n|---|---|---|---|\n")
	of := map[string]bool{}
	for _, k := range kinds() {
		for _, c := range k.commands() {
			of[c.name] = true
		}
	}
	for _, c := range commands() {
		if !of[c.name] {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.name, strings.Join(c.required, ", "), strings.Join(c.optional, ", "), c.about)
		}
	}
	b.WriteString("\nEach class has the commands `CLASS-list`, `-param-list` and `-param-get`; those with fields to set also `-param-set` and `-param-clear`, and those with sets or maps to\nchange `-param-add` and `-param-remove`. The columns of lists are marked with *.\n\n| class | fields |\n|---|---|\n")
	for _, k := range kinds() {
		fmt.Fprintf(&b, "| %s | %s |\n", k.name, strings.Join(k.fieldList(), ", "))
	}
	return b.String()
}

// fieldList are the fields of a kind as docs/xe.md has them.
func (k *kind) fieldList() []string {
	var all []string
	for _, f := range k.fields {
		text := fmt.Sprintf("%s (%s)", f.name, f.mark)
		for _, column := range k.columns {
			if column == f.name {
				text += "\\*"
			}
		}
		all = append(all, text)
	}
	return all
}
