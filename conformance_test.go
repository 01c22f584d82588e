package heddle

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNamedTestsExist holds the tables of docs/conformance against the tests: each that they name
// is there.
func TestNamedTestsExist(t *testing.T) {
	defined := map[string]bool{}
	definition := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir(".", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range definition.FindAllSubmatch(text, -1) {
			defined[string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob("docs/conformance/*.md")
	if err != nil || len(tables) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)(/[^`]*)?`")
	for _, table := range tables {
		text, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range named.FindAllStringSubmatch(string(text), -1) {
			if !defined[name[1]] {
				t.Errorf("%s: there is no %s", table, name[1])
			}
			script, isScript := strings.CutPrefix(name[2], "/")
			if !isScript || !strings.HasSuffix(name[1], "Scripts") {
				continue
			}
			if found, err := filepath.Glob("cmd/heddle/testdata/*/" + script + ".txtar"); err != nil || len(found) == 0 {
				t.Errorf("%s: %s has no script %s", table, name[1], script)
			}
		}
	}
}
