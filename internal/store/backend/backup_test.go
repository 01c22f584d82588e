package backend

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"heddle/internal/store"
)

func backup(t testing.TB, s *Etcd) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "backup")
	var b bytes.Buffer
	if err := s.Backup(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A store comes back from its backup with its keys, its hosts' rights and its authority.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	first := openTest(t, Embedded{Agents: "127.0.0.1:0"})
	config := joined(t, first, "h1")
	for i := range 2000 {
		mustCommit(t, first, put(fmt.Sprintf("/heddle/topology/%d", i), strings.Repeat("x", 100)))
	}
	file := backup(t, first)
	last := mustCommit(t, first, put("/heddle/topology/after", "the backup"))

	dir := t.TempDir()
	if err := Restore(t.Context(), file, dir, testLog(t)); err != nil {
		t.Fatal(err)
	}
	second := openTest(t, Embedded{DataDir: dir, Agents: "127.0.0.1:0"})
	kvs, rev, err := second.List(t.Context(), "/heddle/topology/")
	if err != nil || len(kvs) != 2000 {
		t.Errorf("%d keys, %v; want 2000", len(kvs), err)
	}
	if rev <= last {
		t.Errorf("revision %d is not beyond %d, which agents may have seen", rev, last)
	}
	agent, err := connect(t, second, config)
	if err != nil {
		t.Fatal("the host's certificate:", err)
	}
	changes, failed := agent.Watch(t.Context(), last, "/heddle/topology/")
	for c := range changes {
		t.Errorf("a watch from before the restore gets %v", c)
	}
	if err := failed(); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("a watch from before the restore: %v, want ErrCompacted", err)
	}
	if err := Restore(t.Context(), file, dir, nil); !errors.Is(err, ErrInUse) {
		t.Errorf("restore over a running store: %v, want ErrInUse", err)
	}
	second.Close()
	if err := Restore(t.Context(), file, dir, nil); err == nil || !strings.Contains(err.Error(), "has a store already") {
		t.Errorf("restore over a store: %v, want it refused", err)
	}
}

func TestRestoreRefusesDamagedFiles(t *testing.T) {
	t.Parallel()
	s := openTest(t, Embedded{})
	mustCommit(t, s, put("/heddle/a", "b"))
	whole, err := os.ReadFile(backup(t, s))
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for name, content := range map[string][]byte{
		"empty": nil, "text": []byte("hello"), "cut": whole[:len(whole)/2], "hash cut off": whole[:len(whole)-32], "flipped": flipped,
	} {
		dir := t.TempDir()
		file := filepath.Join(t.TempDir(), "backup")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Restore(t.Context(), file, dir, nil); err == nil || !strings.Contains(err.Error(), file+": the file is damaged, or no snapshot of a store: use another backup") {
			t.Errorf("%s: %v, want the file refused as damaged", name, err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "etcd*")); len(left) > 0 {
			t.Errorf("%s: leaves %q", name, left)
		}
	}
	if err := Restore(t.Context(), "/no/such/file", t.TempDir(), nil); err == nil {
		t.Error("no file: restored")
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Restore(t.Context(), fifo, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), fifo+": it is no regular file") {
		t.Errorf("a FIFO: %v", err)
	}
}

// TestRestoreRefusesBadPages: a file whose hash is right and whose pages are not is refused,
// whatever is wrong with them.
func TestRestoreRefusesBadPages(t *testing.T) {
	t.Parallel()
	pages := snapshotOf300(t)
	size := os.Getpagesize()
	for name, fill := range map[string]byte{"zeros": 0, "ones": 0xff} {
		// A page's header is 16 bytes: damage it, or what follows, which has offsets of keys.
		for part, from := range map[string]int{"headers": 0, "elements": 16} {
			bad := bytes.Clone(pages)
			for page := 2 * size; page < len(bad); page += size { // after those of the description
				copy(bad[page+from:page+size], bytes.Repeat([]byte{fill}, 64))
			}
			refusesPages(t, fmt.Sprintf("%s instead of %s", name, part), "", bad)
		}
	}
}

// TestRestoreRefusesCircles: pages that refer to each other in a circle, or to one more than once,
// which bbolt would follow for ever or for a very long time, are refused.
func TestRestoreRefusesCircles(t *testing.T) {
	t.Parallel()
	pages := snapshotOf300(t)
	size := os.Getpagesize()
	branch := rootOfKeys(t, pages) * size
	if pages[branch+8] != branchPage {
		t.Fatal("the keys are in one page")
	}
	child := func(i int) int { return branch + headerSize + i*elementSize + 8 }
	number := func(i int) uint64 { return binary.NativeEndian.Uint64(pages[child(i):]) }
	children := int(binary.NativeEndian.Uint16(pages[branch+10:]))
	numbers := map[uint64]bool{}
	for i := range children {
		numbers[number(i)] = true
	}
	first := 1 // with another child in the page after it
	for first < children && !numbers[number(first)+1] {
		first++
	}
	if first == children {
		t.Fatalf("no two of %d pages are one after the other", children)
	}
	leaf := int(number(first)) * size
	none := uint64(len(pages) / size)
	for _, test := range []struct {
		name, words string
		at          int
		value       []byte
	}{
		{"a page that refers to itself", "two others refer to it, or it to itself", child(0), binary.NativeEndian.AppendUint64(nil, uint64(branch/size))},
		{"two that refer to the same", "is out of order", child(0), bytes.Clone(pages[child(1) : child(1)+8])},
		{"a page that belongs to another, too", "two others refer to it", leaf + 12, []byte{1, 0, 0, 0}},
		{"a page of another number", fmt.Sprintf("it says that it is page %d", none), leaf, binary.NativeEndian.AppendUint64(nil, none)},
		{"a key without order", "is out of order", leaf + headerSize + 8, []byte{1, 0, 0, 0}},
		{"a branch without pages", "it is a branch without a page", branch + 10, []byte{0, 0}},
		{"a page after the end", "it is not in the file", child(0), binary.NativeEndian.AppendUint64(nil, none)},
		{"a page with the highest number", "it is not in the file", child(0), binary.NativeEndian.AppendUint64(nil, 1<<64-1)},
		{"a page with 4 billion more", "its end is not in the file", leaf + 12, bytes.Repeat([]byte{0xff}, 4)},
		{"a page of 65535 elements", "65535 elements do not fit into it", leaf + 10, []byte{0xff, 0xff}},
		{"a key outside of its page", "element 0: its key is not in the page", branch + headerSize, bytes.Repeat([]byte{0xff}, 4)},
		{"a value outside of its page", "element 0: its key or value is not in the page", leaf + headerSize + 12, bytes.Repeat([]byte{0xff}, 4)},
		{"a list of free pages in the tree", "is not one of a tree", leaf + 8, []byte{0x10, 0}},
	} {
		bad := bytes.Clone(pages)
		copy(bad[test.at:], test.value)
		refusesPages(t, test.name, test.words, bad)
	}
}

// TestRestoreRefusesBadRecords: a file whose hash and pages are right is refused if etcd would
// panic at a record of its own in it.
func TestRestoreRefusesBadRecords(t *testing.T) {
	t.Parallel()
	pages := snapshotOf300(t)
	for _, record := range []struct{ bucket, key, value, words string }{
		{"meta", "finishedCompactRev", "1", "invalid revision length"},
		{"lease", "1", "x", "lease ID must be 8-byte"},
		{"lease", "12345678", "x", "lease proto item"},
		{"cluster", "clusterVersion", "x", "not in dotted-tri format"},
		{"cluster", "downgrade", "x", "downgrade information"},
		{"members", "x", "{}", "member id"},
		{"members_removed", "x", "", "member id"},
		{"auth", "authRevision", "1", "index out of range"},
		{"authUsers", "x", "x", "authpb.User"},
		{"authRoles", "x", "x", "cannot parse invalid wire-format data"},
	} {
		refusesPages(t, fmt.Sprintf("record %q of bucket %s", record.key, record.bucket), record.words, withRecord(t, pages, record.bucket, record.key, record.value))
	}
}

// withRecord returns the pages of a snapshot with a record in one of etcd's buckets.
func withRecord(t *testing.T, pages []byte, bucket, key, value string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(file, pages, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(file, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil {
			return err
		}
		return b.Put([]byte(key), []byte(value))
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	changed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// FuzzSnapshot changes bytes of a snapshot: whatever they are, its check ends.
func FuzzSnapshot(f *testing.F) {
	pages := snapshotOf300(f)
	f.Add(uint32(2*os.Getpagesize()+8), []byte{branchPage, 0, 1, 0})
	f.Fuzz(func(t *testing.T, at uint32, with []byte) {
		bad := bytes.Clone(pages)
		copy(bad[int(at)%len(bad):], with)
		if _, err := checkSnapshot(sealed(t, bad)); err != nil && !errors.Is(err, errDamaged) {
			t.Error(err)
		}
	})
}

// snapshotOf300 returns the snapshot of a store with some hundred keys, without its hash.
func snapshotOf300(t testing.TB) []byte {
	t.Helper()
	s := openTest(t, Embedded{})
	for i := range 300 {
		mustCommit(t, s, put(fmt.Sprintf("/heddle/a/%d", i), strings.Repeat("b", 100)))
	}
	whole, err := os.ReadFile(backup(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return whole[:len(whole)-sha256.Size]
}

// rootOfKeys returns the number of the first page of etcd's keys. Older versions of it may lie in
// pages that are free.
func rootOfKeys(t *testing.T, pages []byte) (number int) {
	t.Helper()
	db, err := bbolt.Open(sealed(t, pages), 0o400, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.View(func(tx *bbolt.Tx) error {
		number = int(tx.Bucket([]byte("key")).Root())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return number
}

// sealed writes a snapshot with its hash to a file.
func sealed(t testing.TB, pages []byte) (file string) {
	t.Helper()
	sum := sha256.Sum256(pages)
	file = filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(file, slices.Concat(pages, sum[:]), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// refusesPages requires a restore and a trial to refuse a snapshot, with certain words.
func refusesPages(t *testing.T, what, words string, pages []byte) {
	t.Helper()
	file := sealed(t, pages)
	err := Restore(t.Context(), file, t.TempDir(), nil)
	if !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: restored with %v, want %q", what, err, words)
	}
	if _, err := VerifyBackup(t.Context(), file, nil); !errors.Is(err, errDamaged) {
		t.Errorf("%s: verified with %v", what, err)
	}
}

// Commands of the server's machine reach the store while it runs, with and without agents, and
// while it does not.
func TestOpenDataDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if s, err := OpenDataDir(t.Context(), Embedded{DataDir: dir}, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no store: %v, %v", s, err)
	}
	if s, err := OpenRunning(t.Context(), dir, nil); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("no server: %v, %v", s, err)
	}
	for i, o := range []Embedded{{DataDir: dir}, {DataDir: dir, Agents: "127.0.0.1:0"}, {DataDir: dir}} {
		running := openTest(t, o)
		mustCommit(t, running, put("/heddle/x", fmt.Sprint(i)))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		s, err := OpenDataDir(ctx, Embedded{DataDir: dir}, testLog(t))
		if err != nil {
			t.Fatal(err)
		}
		if kv, err := s.Get(ctx, "/heddle/x"); err != nil || string(kv.Value) != fmt.Sprint(i) {
			t.Errorf("%d: %q, %v", i, kv.Value, err)
		}
		backup(t, s)
		s.Close()
		running.Close()
		cancel()
	}
	s, err := OpenDataDir(t.Context(), Embedded{DataDir: dir}, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if kv, err := s.Get(t.Context(), "/heddle/x"); err != nil || string(kv.Value) != "2" {
		t.Errorf("not running: %q, %v", kv.Value, err)
	}
}

func TestCopy(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	from, to := openTest(t, Embedded{}), store.NewMemory()
	lease, err := from.Grant(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * copyBatch {
		mustCommit(t, from, put(fmt.Sprintf("/heddle/n/%d", i), fmt.Sprint(i)))
	}
	mustCommit(t, from, put("/heddle/schema", "1"), put("/calico/x", "y"), put("/other", "no"), store.Op{Key: "/heddle/state/h/alive", Lease: lease},
		store.Op{Key: "/heddle/identity/tokens/x", Lease: lease})
	told := 0
	if err := Copy(ctx, from, to, func(done, all int) { told = all - done }); err != nil {
		t.Fatal(err)
	}
	kvs, _, _ := to.List(ctx, "")
	if len(kvs) != 3*copyBatch+3 || told != 0 {
		t.Errorf("%d keys copied, %d to go; want %d and none", len(kvs), told, 3*copyBatch+3)
	}
	if token, err := to.Get(ctx, "/heddle/identity/tokens/x"); err != nil || token.Lease == 0 {
		t.Errorf("what lasts for a time: %+v, %v", token, err)
	}
	if err := Copy(ctx, from, to, nil); err != nil {
		t.Errorf("the same copy again: %v", err)
	}

	// A target in use is described, and left as it is.
	reporting, _ := to.Grant(ctx, time.Minute)
	now := mustCommit(t, to, put("/heddle/neutron/networks/n", `{"updated_at":"2026-03-01T12:00:00Z"}`), put("/calico/y", "z"),
		store.Op{Key: "/heddle/state/h1/alive", Lease: reporting}, store.Op{Key: "/calico/felix/v1/host/h2/status", Lease: reporting})
	err = Copy(ctx, from, to, nil)
	want := TargetError{Heddle: 3*copyBatch + 4, Calico: 3, Revision: now, Now: now, Changed: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Reporting: []string{"h1", "h2"}}
	var inUse *TargetError
	if !errors.As(err, &inUse) || !cmp.Equal(want, *inUse) {
		t.Errorf("copy into what is in use: %v; %s", err, cmp.Diff(&want, inUse))
	}
	if err != nil && (!strings.Contains(err.Error(), "it is in use: h1, h2 report to it now") || strings.Contains(err.Error(), "del")) {
		t.Errorf("the error should say who uses the target, and advise no deletion: %v", err)
	}
	if again, err := to.Revision(ctx); err != nil || again != now {
		t.Errorf("the refused copy wrote to its target: revision %d, want %d (%v)", again, now, err)
	}

	// A copy that was interrupted begins again.
	id, err := from.Identity(ctx)
	if err != nil {
		t.Fatal(err)
	}
	half := store.NewMemory()
	mustCommit(t, half, put(unfinishedKey, strconv.FormatUint(id.Cluster, 16)), put("/heddle/n/0", "0"))
	if err := Copy(ctx, from, half, nil); err != nil {
		t.Errorf("copy after one that was interrupted: %v", err)
	}
	others := store.NewMemory()
	mustCommit(t, others, put(unfinishedKey, "1"), put("/heddle/n/0", "0"))
	if err := Copy(ctx, from, others, nil); err == nil || !strings.Contains(err.Error(), "of another store that did not finish") {
		t.Errorf("copy over the unfinished copy of another store: %v", err)
	}

	// A source that changes meanwhile is noticed, and the target left as it was.
	target := store.NewMemory()
	err = Copy(ctx, from, target, func(int, int) { mustCommit(t, from, put("/heddle/n/1", "changed")) })
	if err == nil || !strings.Contains(err.Error(), "the source changed at /heddle/n/1") {
		t.Errorf("copy of what changes: %v", err)
	}
	if kvs, _, _ := target.List(ctx, ""); len(kvs) != 0 {
		t.Errorf("a failed copy leaves %d keys", len(kvs))
	}
}

// A store that was moved is opened by nobody but who asks for it, until it is made the current one
// again.
func TestMovedStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openTest(t, Embedded{DataDir: dir})
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if err := s.MarkMoved(t.Context(), []string{"192.0.2.21:2379", "192.0.2.22:2379"}, at); err != nil {
		t.Fatal(err)
	}
	s.Close()
	for range 2 { // the refusal itself leaves the directory free
		_, err := OpenDataDir(t.Context(), Embedded{DataDir: dir}, testLog(t))
		var moved *MovedError
		if !errors.As(err, &moved) || !moved.At.Equal(at) || !strings.Contains(err.Error(), "192.0.2.21:2379,192.0.2.22:2379") {
			t.Errorf("open of a moved store: %v, want it refused, with where it went", err)
		}
		_, err = OpenRunning(t.Context(), dir, testLog(t))
		if moved = nil; !errors.As(err, &moved) || !moved.At.Equal(at) || moved.DataDir != dir {
			t.Errorf("connection to the server of a moved store: %v, want it refused, with where it went", err)
		}
	}
	s = openTest(t, Embedded{DataDir: dir, Moved: true})
	for _, want := range []bool{true, false} {
		if moved, err := s.UnmarkMoved(t.Context()); err != nil || (moved != nil) != want || want && !moved.At.Equal(at) {
			t.Errorf("unmark: %v, %v; want where it was moved: %t", moved, err, want)
		}
	}
	s.Close()
	if _, err := OpenRunning(t.Context(), dir, testLog(t)); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("connection to a stopped server: %v, want ErrUnavailable", err)
	}
	openTest(t, Embedded{DataDir: dir})
}
