package backend

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"heddle/internal/store"
)

// TestVerifyBackup: a backup has what its store had, table by table, whatever was written after it,
// and where nothing is left of the last changes; nothing stays beside the file.
func TestVerifyBackup(t *testing.T) {
	t.Parallel()
	s := openTest(t, Embedded{})
	for i := range 3 * pageKeys {
		mustCommit(t, s, put(fmt.Sprintf("/heddle/neutron/ports/%d", i), "port"), put(fmt.Sprintf("/calico/v1/host/h%d/config", i), "x"))
	}
	mustCommit(t, s, put("/heddle/neutron/networks/a", "blue"), put("/heddle/schema", "1"), put("plain", "key"))
	compare := func(what string, before int64, file string) Verified {
		t.Helper()
		v, err := s.CompareBackup(t.Context(), file, before, testLog(t))
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if left, err := filepath.Glob(filepath.Join(filepath.Dir(file), ".heddle-*")); err != nil || len(left) > 0 {
			t.Errorf("%s: left %q, %v", what, left, err)
		}
		return v
	}
	file := backup(t, s)
	last := mustCommit(t, s, put("/heddle/neutron/networks/b", "written later"))
	v := compare("written to meanwhile", 0, file)
	got := map[string]int{}
	for _, table := range v.Tables {
		got[table.Prefix] = table.Keys
	}
	for prefix, want := range map[string]int{"/heddle/neutron/ports/": 3 * pageKeys, "/calico/v1/host/": 3 * pageKeys, "/heddle/neutron/networks/": 1, "/heddle/": 1, "plain": 1} {
		if got[prefix] != want {
			t.Errorf("%d keys below %s, want %d", got[prefix], prefix, want)
		}
	}
	if at := slices.IndexFunc(v.Tables, func(t Table) bool { return t.Prefix == "plain" }); v.Tables[at].Bytes != int64(len("plain"+"key")) {
		t.Errorf("a key and its value have %d bytes", v.Tables[at].Bytes)
	}
	if v.Revision != last-1 {
		t.Errorf("revision %d, want %d", v.Revision, last-1)
	}

	last = mustCommit(t, s, store.Op{Key: "/heddle/neutron/networks/b", Delete: true})
	if err := s.CompactAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	compare("after a deletion whose history is gone", last, backup(t, s))
}

// TestVerifyFinds: a backup that is another store's, damaged, cut or missing is refused with its
// reason: each table that differs, or the file.
func TestVerifyFinds(t *testing.T) {
	t.Parallel()
	s, other := openTest(t, Embedded{}), openTest(t, Embedded{})
	mustCommit(t, s, put("/heddle/neutron/networks/a", "blue"), put("/heddle/neutron/ports/a", "x"))
	mustCommit(t, s, put("/heddle/neutron/subnets/a", "same"))
	mustCommit(t, other, put("/heddle/neutron/networks/a", "red"), put("/heddle/neutron/routers/a", "x"))
	mustCommit(t, other, put("/heddle/neutron/subnets/a", "same"))
	_, err := s.CompareBackup(t.Context(), backup(t, other), 0, testLog(t))
	for _, want := range []string{"/heddle/neutron/networks/: 1 keys restored, 1 in the store", "/heddle/neutron/ports/: 0 keys restored, 1 in the store",
		"/heddle/neutron/routers/: 1 keys restored, none in the store"} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "subnets") {
			t.Errorf("another store's: %v, want %q", err, want)
		}
	}
	whole, err := os.ReadFile(backup(t, s))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string][]byte{"cut": whole[:len(whole)/2], "empty": nil, "text": []byte("text")} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := VerifyBackup(t.Context(), file, nil); err == nil || !strings.Contains(err.Error(), file+": the file is damaged") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := VerifyBackup(t.Context(), filepath.Join(dir, "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
}

// TestLastBackups: what was noted last is what is read; before that it is never.
func TestLastBackups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if made, verified := LastBackups(dir); !made.IsZero() || !verified.IsZero() {
		t.Errorf("without a backup: made %v, verified %v", made, verified)
	}
	if err := NoteBackup(dir, false); err != nil {
		t.Fatal(err)
	}
	if made, verified := LastBackups(dir); made.IsZero() || !verified.IsZero() {
		t.Errorf("not verified: made %v, verified %v", made, verified)
	}
	if err := NoteBackup(dir, true); err != nil {
		t.Fatal(err)
	}
	if made, verified := LastBackups(dir); made.IsZero() || verified.IsZero() {
		t.Errorf("verified: made %v, verified %v", made, verified)
	}
	if err := NoteBackup(filepath.Join(dir, "none"), true); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}
