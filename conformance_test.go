package heddle

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testFile is the source of tests.
type testFile struct{ path, text string }

// testFiles returns all sources of tests.
func testFiles(t *testing.T) []testFile {
	t.Helper()
	var files []testFile
	err := filepath.WalkDir(".", func(path string, _ os.DirEntry, err error) error {
		if path == "dist" { // what scripts/outside downloads
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		files = append(files, testFile{filepath.ToSlash(path), string(text)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// defines reports whether the file has a test of this name.
func (f testFile) defines(name string) bool {
	return strings.Contains(f.text, "\nfunc "+name+"(")
}

// hasCase reports whether a test of the file has a case of this name: a text of the source begins
// so, or a golden file beside it is called so.
func (f testFile) hasCase(name string) bool {
	golden, _ := filepath.Glob(filepath.Join(filepath.Dir(f.path), "testdata", "*", name+".txt"))
	return len(golden) > 0 || strings.Contains(f.text, `"`+name)
}

// TestNamedTestsExist holds the tables of docs/conformance against the tests: each that they name
// is there; in the file that stands before it, and with the case that stands behind it, where its
// row names files.
func TestNamedTestsExist(t *testing.T) {
	files := testFiles(t)
	tables, err := filepath.Glob("docs/conformance/*.md")
	if err != nil || len(tables) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	name := regexp.MustCompile("`(?:([\\w/]+_test\\.go)|((?:Test|Fuzz)\\w+)(?:/([^`]*))?)`")
	for _, table := range tables {
		text, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		for row := range strings.SplitSeq(string(text), "\n") {
			in := ""
			for _, found := range name.FindAllStringSubmatch(row, -1) {
				if found[1] != "" {
					in = "/" + found[1]
					continue
				}
				checkNamed(t, table, files, in, found[2], found[3])
			}
		}
	}
}

// checkNamed checks one name of a table: of a test in a file whose path ends so, and of its case.
func checkNamed(t *testing.T, table string, files []testFile, in, test, of string) {
	t.Helper()
	defined, complete := false, of == ""
	for _, f := range files {
		if f.defines(test) && strings.HasSuffix("/"+f.path, in) {
			defined, complete = true, complete || f.hasCase(of)
		}
	}
	switch {
	case !defined:
		t.Errorf("%s: there is no %s%s", table, test, in)
	case strings.HasSuffix(test, "Scripts"):
		if found, err := filepath.Glob("cmd/heddle/testdata/*/" + of + ".txtar"); of != "" && (err != nil || len(found) == 0) {
			t.Errorf("%s: %s has no script %s", table, test, of)
		}
	case in != "" && !complete:
		t.Errorf("%s: %s has no case %s", table, test, of)
	}
}
