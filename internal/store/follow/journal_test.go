package follow

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/store"
)

func kv(key, value string, mod int64) store.KV {
	return store.KV{Key: key, Value: []byte(value), CreateRevision: 2, ModRevision: mod, Lease: 7}
}

// change is one commit that puts a key, or deletes it when value is empty.
func change(rev int64, key, value string) store.Change {
	return store.Change{Revision: rev, Events: []store.Event{{KV: kv(key, value, rev), Deleted: value == ""}}}
}

// contents returns what a new process would read, keyed for comparison; nil for nothing.
func contents(t *testing.T, dir, owner string) map[string]store.KV {
	t.Helper()
	k, err := NewJournal(dir, "j", owner).read()
	if err != nil {
		t.Fatal(err)
	}
	if k == nil {
		return nil
	}
	return k.keys
}

// A journal gives back the full update with all changes since, to its owner only; a change of which
// a part is missing or damaged at the end is left out whole.
func TestJournal(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made")
	id := store.Identity{Cluster: 5, Term: 3, Revision: 10}
	j := NewJournal(dir, "j", "me")
	if got := contents(t, dir, "me"); got != nil {
		t.Fatalf("before the first write: %v", got)
	}
	if err := j.replace(id, []store.KV{kv("/a", "1", 9), kv("/b", "2", 10)}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []store.Change{change(11, "/c", "3"), change(12, "/a", "")} {
		if err := j.append(c); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]store.KV{"/b": kv("/b", "2", 10), "/c": kv("/c", "3", 11)}
	if diff := cmp.Diff(want, contents(t, dir, "me")); diff != "" {
		t.Error(diff)
	}
	if got := contents(t, dir, "another"); got != nil {
		t.Errorf("another owner reads %v", got)
	}
	file := filepath.Join(dir, "j.journal")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: want 0600", info.Mode(), err)
	}
	k, err := j.read()
	if err != nil || k.identity != (store.Identity{Cluster: 5, Term: 3, Revision: 12}) || time.Since(k.confirmed) > time.Hour {
		t.Errorf("identity %+v, confirmed %v, %v", k.identity, k.confirmed, err)
	}
	j.close()

	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// Cut anywhere in the last change: the one before stands. Then go on writing after it.
	before := map[string]store.KV{"/a": kv("/a", "1", 9), "/b": kv("/b", "2", 10), "/c": kv("/c", "3", 11)}
	for _, cut := range []int{1, 5, 12} {
		if err := os.WriteFile(file, whole[:len(whole)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, contents(t, dir, "me")); diff != "" {
			t.Errorf("%d bytes cut off: %s", cut, diff)
		}
	}
	next := NewJournal(dir, "j", "me")
	if err := next.append(change(13, "/d", "4")); err != nil {
		t.Fatal(err)
	}
	next.close()
	before["/d"] = kv("/d", "4", 13)
	if diff := cmp.Diff(before, contents(t, dir, "me")); diff != "" {
		t.Errorf("after going on: %s", diff)
	}
	// Damage before the end is found by the checksum.
	damaged := bytes.Clone(whole)
	damaged[len(damaged)-30] ^= 1
	if err := os.WriteFile(file, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	first := map[string]store.KV{"/a": kv("/a", "1", 9), "/b": kv("/b", "2", 10)}
	if diff := cmp.Diff(first, contents(t, dir, "me")); diff != "" {
		t.Errorf("with the change at revision 11 damaged: %s", diff)
	}
}

// The file follows the size of its contents, not the number of changes.
func TestJournalShrinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := NewJournal(dir, "j", "me")
	if err := j.replace(store.Identity{Revision: 1}, nil); err != nil {
		t.Fatal(err)
	}
	value := string(bytes.Repeat([]byte("x"), 100_000))
	for rev := int64(2); rev < 300; rev++ {
		if err := j.append(change(rev, "/a", value)); err != nil {
			t.Fatal(err)
		}
	}
	j.close()
	info, err := os.Stat(filepath.Join(dir, "j.journal"))
	if err != nil {
		t.Fatal(err)
	}
	if limit := int64(leastGrowth + 5*len(value)); info.Size() > limit {
		t.Errorf("%d bytes for one key of %d, want at most %d", info.Size(), len(value), limit)
	}
	if got := contents(t, dir, "me")["/a"]; got.ModRevision != 299 {
		t.Errorf("revision %d, want 299", got.ModRevision)
	}
}

// A change that cannot be written leaves what was there, and is made up for by a full update once
// there is room.
func TestJournalGap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := NewJournal(dir, "j", "me")
	if err := j.replace(store.Identity{Revision: 1}, []store.KV{kv("/a", "1", 1)}); err != nil {
		t.Fatal(err)
	}
	j.open.Close() // writing fails from here
	if err := j.append(change(2, "/a", "2")); err == nil {
		t.Fatal("no error")
	}
	if err := j.append(change(3, "/a", "3")); err != nil {
		t.Errorf("reported a second time: %v", err)
	}
	if got := contents(t, dir, "me")["/a"]; got.ModRevision != 1 {
		t.Errorf("with a change missing the journal has revision %d, want 1", got.ModRevision)
	}
	if !j.confirm() {
		t.Error("no full update is asked for although there is room")
	}
	if err := j.replace(store.Identity{Revision: 3}, []store.KV{kv("/a", "3", 3)}); err != nil {
		t.Fatal(err)
	}
	if j.confirm() {
		t.Error("another full update is asked for")
	}
	if got := contents(t, dir, "me")["/a"]; got.ModRevision != 3 {
		t.Errorf("revision %d, want 3", got.ModRevision)
	}
}

// A journal that is damaged before its end says so, with what is lost, and how old what is left is:
// not as the file, which was touched since. A block that was not wholly written at the end is no
// damage.
func TestDamagedJournal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		damage func(whole []byte) []byte
		says   string
		age    bool // of the blocks, not of the file
	}{
		{"whole", func(b []byte) []byte { return b }, "", false},
		{"cut in the last block", func(b []byte) []byte { return b[:len(b)-3] }, "was not wholly written", true},
		{"the last block damaged", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, "was not wholly written", true},
		{"an earlier block damaged", func(b []byte) []byte { b[len(b)-60] ^= 1; return b }, "is damaged", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			j := NewJournal(dir, "j", "me")
			if err := j.replace(store.Identity{Revision: 10}, []store.KV{kv("/a", "1", 9)}); err != nil {
				t.Fatal(err)
			}
			for rev := range int64(3) {
				if err := j.append(change(11+rev, "/c", "0123456789")); err != nil {
					t.Fatal(err)
				}
			}
			j.close()
			file := filepath.Join(dir, "j.journal")
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, c.damage(raw), 0o600); err != nil {
				t.Fatal(err)
			}
			touched := time.Now().Add(24 * time.Hour)
			if err := os.Chtimes(file, touched, touched); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			f := New(Options{Store: away{}, Prefixes: []string{"/"}, Journal: NewJournal(dir, "j", "me"), Log: slog.New(slog.NewTextHandler(&log, nil))})
			ctx, stop := context.WithCancel(t.Context())
			var got Update
			if err := f.Run(ctx, func(_ context.Context, u Update) { got = u; stop() }); err != nil {
				t.Fatal(err)
			}
			if says := strings.Contains(log.String(), "lost bytes"); says != (c.says != "") || !strings.Contains(log.String(), c.says) || c.says != "" && !strings.Contains(log.String(), file) {
				t.Errorf("want %q and the file in the log:\n%s", c.says, &log)
			}
			if byBlock := got.Recalled.Before(touched.Add(-time.Hour)); byBlock != c.age {
				t.Errorf("known to be current at %v, the file was touched at %v", got.Recalled, touched)
			}
		})
	}
}

func FuzzJournal(f *testing.F) {
	dir := f.TempDir()
	j := NewJournal(dir, "j", "me")
	if err := j.replace(store.Identity{Cluster: 1, Term: 2, Revision: 3}, []store.KV{kv("/a", "1", 3)}); err != nil {
		f.Fatal(err)
	}
	if err := j.append(change(4, "/a", "")); err != nil {
		f.Fatal(err)
	}
	j.close()
	raw, err := os.ReadFile(filepath.Join(dir, "j.journal"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(raw[:len(raw)-3])
	f.Add([]byte{0xff, 0xff, 0xff, 0x3f, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		k, err := readJournal(bytes.NewReader(raw), "me")
		if err != nil && k != nil {
			t.Error("contents beside an error")
		}
		// The records alone, without checksums in the way.
		_ = (&journalContents{keys: map[string]store.KV{}}).apply(raw)
	})
}

// away is a store that cannot be reached.
type away struct{ Source }

func (away) Identity(context.Context) (store.Identity, error) {
	return store.Identity{}, store.ErrUnavailable
}
