package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/schema"
)

// TestDrill: a drill takes the newest backup or the one that is named, shows what a restore would
// lose and bring back, and refuses what is no backup for this version; the store in use and the
// directory of the backups stay as they are.
func TestDrill(t *testing.T) {
	t.Parallel()
	ns := netlab.ForTest(t).MustNamespace(t, "drill")
	ns.MustIP(t, "link set lo up")
	data, backups := t.TempDir(), t.TempDir()
	server := start(t, ns, "serve", "--data", data)
	ctl := shell{ns, data}
	drill := func(more ...string) []string {
		return append([]string{"drill", "--data", data, "--backups", backups}, more...)
	}
	refuse(t, ns, 1, "no backup *.db in "+backups+": make one with heddle backup", drill()...)

	older, newer := filepath.Join(backups, "z.db"), filepath.Join(backups, "a.db")
	ctl.run(t, "net create blue")
	ctl.run(t, "backup "+older)
	ctl.run(t, "net create green")
	ctl.run(t, "backup "+newer)
	long := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(older, long, long); err != nil {
		t.Fatal(err)
	}
	if last := backend.LastDrill(data); !last.IsZero() {
		t.Errorf("before the first drill the last was at %v", last)
	}
	wantOutput(t, succeed(t, ns, drill()...), "restored "+newer+" of ", "of the topology, which decides what reaches what, 0 differ")
	if last := backend.LastDrill(data); last.IsZero() {
		t.Error("the drill is not noted")
	}

	ctl.run(t, "net delete blue")
	wantOutput(t, succeed(t, ns, drill("--file", older, "-o", "json")...), `"prefix": "/heddle/neutron/networks/"`, `"only_backup": 1`, `"only_store": 1`)
	wantOutput(t, succeed(t, ns, drill("--file", older)...), "/heddle/neutron/networks/")
	server.stop(t)
	wantOutput(t, succeed(t, ns, drill("--file", older)...), "/heddle/neutron/networks/") // without a server

	whole, err := os.ReadFile(newer)
	if err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(backups, "half.db")
	if err := os.WriteFile(half, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	refuse(t, ns, 1, half+": the file is damaged, or no snapshot of a store", drill()...)
	if err := os.Remove(half); err != nil {
		t.Fatal(err)
	}
	refuse(t, ns, 1, "the store is in format 9, for programs that know format 9", drill("--file", backupOf(t, store.Op{Key: store.SchemaKey, Value: []byte("9")}))...)
	refuse(t, ns, 1, "a server would ignore 1 records, such as: /heddle/neutron/networks/x", drill("--file", backupOf(t,
		store.Op{Key: store.SchemaKey, Value: []byte("1")}, store.Op{Key: schema.Networks.Key("x"), Value: []byte("{")}))...)
	wantOutput(t, succeed(t, ns, drill("--file", backupOf(t, store.Op{Key: store.SchemaKey, Value: []byte("1")},
		store.Op{Key: schema.Underlays.Key("x"), Value: []byte("{")}))...), "it would ignore 1 records of hosts' own, which they write anew, such as: /heddle/underlay/x: ")
	refuse(t, ns, 1, "no such file", drill("--file", filepath.Join(backups, "none.db"))...)
	if left, err := filepath.Glob(filepath.Join(backups, ".*")); err != nil || len(left) > 0 {
		t.Errorf("drills left %q, %v", left, err)
	}
}

// wantOutput reports what the output of a command lacks.
func wantOutput(t *testing.T, output string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(output, w) {
			t.Errorf("the output lacks %q:\n%s", w, output)
		}
	}
}

// backupOf returns a backup of a store with these keys.
func backupOf(t *testing.T, ops ...store.Op) string {
	t.Helper()
	st, err := backend.Open(t.Context(), backend.Options{Embedded: &backend.Embedded{DataDir: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.Commit(t.Context(), nil, ops); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := st.Backup(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "other.db")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
