package journal

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/store"
)

// lab is a store in memory with a journal that can be stopped and started.
type lab struct {
	t    *testing.T
	st   *store.Memory
	opts Options
	j    *Journal
	stop func()
	// clock is added to the time.
	clock atomic.Int64
}

func newLab(t *testing.T, edit func(*Options)) *lab {
	t.Helper()
	l := &lab{t: t, st: store.NewMemory()}
	t.Cleanup(func() { _ = l.st.Close() })
	l.opts = Options{Dir: filepath.Join(t.TempDir(), "journal"), Store: l.st, Prefixes: []string{"/a/", "/b/"},
		Now: func() time.Time { return time.Now().Add(time.Duration(l.clock.Load())) },
		Keep: func(key string, value []byte) ([]byte, bool) {
			if strings.HasPrefix(key, "/a/secret") && value != nil {
				value = []byte("***")
			}
			return value, !strings.HasPrefix(key, "/a/left-out")
		}}
	if edit != nil {
		edit(&l.opts)
	}
	l.start()
	return l
}

func (l *lab) start() {
	l.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	j := New(l.opts)
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }()
	<-j.Ready()
	stopped := false
	l.j, l.stop = j, func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			l.t.Errorf("the journal ended with %v", err)
		}
	}
	l.t.Cleanup(l.stop)
	now, err := l.st.Revision(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	if err := j.Await(l.t.Context(), now); err != nil {
		l.t.Fatal(err)
	}
}

// commit commits "key=value" and "-key", and returns the revision once the journal has it.
func (l *lab) commit(ops ...string) int64 {
	l.t.Helper()
	rev := l.write(ops...)
	if err := l.j.Await(l.t.Context(), rev); err != nil {
		l.t.Fatal(err)
	}
	return rev
}

func (l *lab) write(ops ...string) int64 {
	l.t.Helper()
	var all []store.Op
	for _, op := range ops {
		key, value, _ := strings.Cut(op, "=")
		if rest, gone := strings.CutPrefix(key, "-"); gone {
			all = append(all, store.Op{Key: rest, Delete: true})
		} else {
			all = append(all, store.Op{Key: key, Value: []byte(value)})
		}
	}
	rev, err := l.st.Commit(l.t.Context(), nil, all)
	if err != nil {
		l.t.Fatal(err)
	}
	return rev
}

// page prints commits, one a line.
func (l *lab) page(q Query) (lines []string, p *Page) {
	l.t.Helper()
	if q.Limit == 0 {
		q.Limit = 1000
	}
	p, err := l.j.Commits(l.t.Context(), q)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, c := range p.Commits {
		line := fmt.Sprintf("%d.%d", c.Epoch, c.Revision)
		for _, change := range c.Changes {
			line += fmt.Sprintf(" %s:%s→%s", change.Key, change.Before, change.After)
		}
		lines = append(lines, line)
	}
	return lines, p
}

func (l *lab) want(want ...string) {
	l.t.Helper()
	got, p := l.page(Query{})
	if diff := cmp.Diff(want, got); diff != "" {
		l.t.Errorf("commits, -want +got:\n%s", diff)
	}
	if len(p.Gaps) > 0 {
		l.t.Errorf("gaps %+v, want none", p.Gaps)
	}
}

func TestCommits(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.commit("/a/1=x", "/b/1=y", "/c/1=other", "/a/left-out=z")
	l.commit("/a/1=xx", "/a/secret=password")
	l.commit("/c/1=other2")
	l.commit("-/a/1", "/b/1=yy")
	l.commit("/a/1=new")
	want := []string{
		"1.6 /a/1:→new",
		"1.5 /a/1:xx→ /b/1:y→yy",
		"1.3 /a/1:x→xx /a/secret:→***",
		"1.2 /a/1:→x /b/1:→y",
	}
	l.want(want...)
	l.stop()
	l.start()
	l.want(want...)
	l.commit("/a/1=newer")
	want = append([]string{"1.7 /a/1:new→newer"}, want...)
	l.want(want...)

	var paged []string
	for q := (Query{Limit: 2}); ; {
		lines, p := l.page(q)
		if paged = append(paged, lines...); p.Next == (Position{}) {
			break
		}
		q.Before = p.Next
	}
	if diff := cmp.Diff(want, paged); diff != "" {
		t.Errorf("by pages of two, -want +got:\n%s", diff)
	}
	about := func(c *Commit) bool {
		return slices.ContainsFunc(c.Changes, func(c Change) bool { return c.Key == "/b/1" })
	}
	got, _ := l.page(Query{Match: about})
	if diff := cmp.Diff([]string{want[2], want[4]}, got); diff != "" {
		t.Errorf("of one key, -want +got:\n%s", diff)
	}
	got, _ = l.page(Query{About: func(_ string, value []byte) bool { return string(value) == "x" }})
	if diff := cmp.Diff([]string{want[0], want[1], want[2], want[3], want[4]}, got); diff != "" {
		t.Errorf("of keys that once had a value, -want +got:\n%s", diff)
	}
	got, _ = l.page(Query{About: func(_ string, value []byte) bool { return string(value) == "yy" }})
	if diff := cmp.Diff([]string{want[2], want[4]}, got); diff != "" {
		t.Errorf("of a key that later has a value, -want +got:\n%s", diff)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	paged = nil
	for q := (Query{Limit: 100}); ; { // a search without time goes on all the same
		p, err := l.j.Commits(over, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Commits {
			paged = append(paged, fmt.Sprint(c.Revision))
		}
		if p.Next == (Position{}) {
			break
		}
		q.Before = p.Next
	}
	if got := strings.Join(paged, " "); got != "7 6 5 3 2" {
		t.Errorf("by searches without time: revisions %s, want 7 6 5 3 2", got)
	}
	got, _ = l.page(Query{Limit: 1, Want: func(c *Commit) bool { return string(c.Changes[0].Before) == "x" }})
	if diff := cmp.Diff([]string{want[3]}, got); diff != "" {
		t.Errorf("by what was before, -want +got:\n%s", diff)
	}
	if got, _ := l.page(Query{Since: time.Now().Add(time.Hour)}); got != nil {
		t.Errorf("since a time to come: %v", got)
	}
	for _, kv := range l.files() {
		if raw, err := os.ReadFile(kv); err != nil || strings.Contains(string(raw), "password") {
			t.Errorf("%s has a password, or %v", kv, err)
		}
	}
}

func (l *lab) files() []string {
	files, err := filepath.Glob(filepath.Join(l.opts.Dir, "*"+suffix))
	if err != nil {
		l.t.Fatal(err)
	}
	return files
}

// TestSegments: through many segments, the state at each revision is what the store had.
func TestSegments(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *Options) { o.SegmentBytes = 600 })
	states := map[int64]map[string]string{}
	for i := range 200 {
		key := fmt.Sprintf("/a/%d", i*7%13)
		op := fmt.Sprintf("%s=%d", key, i)
		if i%5 == 4 {
			op = "-" + key
		}
		rev := l.commit(op)
		states[rev] = l.stored()
		l.j.due.Give() // as time does
	}
	if n := len(l.files()); n < 3 {
		t.Fatalf("%d segments, want several", n)
	}
	for rev, want := range states {
		st, err := l.j.AtRevision(t.Context(), Position{Revision: rev})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for key, kv := range st.Keys {
			got[key] = string(kv.Value)
		}
		if diff := cmp.Diff(want, got); diff != "" || st.Revision > rev {
			t.Errorf("at revision %d, -want +got:\n%s", rev, diff)
		}
	}
	_, p := l.page(Query{})
	if len(p.Commits) != len(states) || len(p.Gaps) > 0 {
		t.Errorf("%d commits and gaps %v, want %d and none", len(p.Commits), p.Gaps, len(states))
	}
	before := map[string]string{}
	for _, c := range slices.Backward(p.Commits) {
		for _, change := range c.Changes {
			if string(change.Before) != before[change.Key] {
				t.Errorf("revision %d: %s was %q before, want %q", c.Revision, change.Key, change.Before, before[change.Key])
			}
			before[change.Key] = string(change.After)
		}
	}
	if st, err := l.j.At(t.Context(), time.Now().Add(time.Hour)); err != nil || len(st.Keys) != len(l.stored()) {
		t.Errorf("the newest state is %v, %v", st, err)
	}
	if _, err := l.j.At(t.Context(), time.Now().Add(-time.Hour)); err == nil || !strings.HasPrefix(err.Error(), "not recorded before ") {
		t.Errorf("before the journal began: %v", err)
	}
}

func (l *lab) stored() map[string]string {
	l.t.Helper()
	all := map[string]string{}
	for _, prefix := range l.opts.Prefixes {
		kvs, _, err := l.st.List(l.t.Context(), prefix)
		if err != nil {
			l.t.Fatal(err)
		}
		maps.Insert(all, func(yield func(string, string) bool) {
			for _, kv := range kvs {
				if !yield(kv.Key, string(kv.Value)) {
					return
				}
			}
		})
	}
	return all
}

// TestPrune: the oldest segments go when all together are too large.
func TestPrune(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *Options) { o.SegmentBytes, o.MostBytes = 600, 3000 })
	for i := range 300 {
		l.commit(fmt.Sprintf("/a/%d=%d", i%5, i))
		l.j.due.Give()
	}
	total := int64(0)
	for _, file := range l.files() {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total > 5000 {
		t.Errorf("%d bytes are kept, want about 3000", total)
	}
	if _, p := l.page(Query{}); p.Begins.Revision < 10 || len(p.Gaps) > 0 {
		t.Errorf("the journal begins at %+v, gaps %v", p.Begins, p.Gaps)
	}
}

// TestOneJournal: a directory is one journal's.
func TestOneJournal(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.commit("/a/1=x")
	first := l.j
	stopFirst := l.stop
	l.start()
	if p := l.j.Problem(); !strings.Contains(p, "is another server's journal; give each server a data directory of its own") {
		t.Errorf("the second journal's problem is %q", p)
	}
	l.stop()
	l.j, l.stop = first, stopFirst
	l.commit("/a/1=y")
	l.want("1.3 /a/1:x→y", "1.2 /a/1:→x")
}

// TestGap: what a server has missed while it was away is named.
func TestGap(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	first := l.commit("/a/1=x")
	l.stop()
	l.write("/a/1=missed")
	l.st.Compact(l.write("/a/1=missed too"))
	l.start()
	last := l.commit("/a/1=y")
	got, p := l.page(Query{})
	if diff := cmp.Diff([]string{"1.5 /a/1:missed too→y", "1.2 /a/1:→x"}, got); diff != "" {
		t.Errorf("commits, -want +got:\n%s", diff)
	}
	if len(p.Gaps) != 1 || p.Gaps[0].After.Revision != first || p.Gaps[0].Until.Revision != last-1 {
		t.Errorf("gaps %+v, want one from %d to %d", p.Gaps, first, last-1)
	}
	_, err := l.j.AtRevision(t.Context(), Position{Revision: 3})
	if err == nil || !strings.HasPrefix(err.Error(), "not recorded between ") {
		t.Errorf("the state in the gap: %v", err)
	}
	if st, err := l.j.AtRevision(t.Context(), Position{Revision: 2}); err != nil || string(st.Keys["/a/1"].Value) != "x" {
		t.Errorf("the state before the gap: %+v, %v", st, err)
	}
}

// TestEpoch: after the store was replaced, revisions begin again, and mean the newest ones.
func TestEpoch(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.commit("/a/1=x")
	l.commit("/a/1=xx")
	l.stop()
	l.st = store.NewMemory()
	t.Cleanup(func() { _ = l.st.Close() })
	l.opts.Store = l.st
	l.write("/a/1=y")
	l.start()
	for epoch := 0; epoch != 2; {
		next := l.j.written.Next()
		segments, _ := l.j.snapshot()
		if epoch = segments[len(segments)-1].header.Epoch; epoch != 2 {
			<-next
		}
	}
	l.commit("/a/1=yy")
	l.want("2.3 /a/1:y→yy", "1.3 /a/1:x→xx", "1.2 /a/1:→x")
	for _, c := range []struct {
		at   Position
		want string
	}{{Position{1, 3}, "xx"}, {Position{2, 3}, "yy"}, {Position{0, 2}, "y"}} {
		st, err := l.j.AtRevision(t.Context(), c.at)
		if err != nil || string(st.Keys["/a/1"].Value) != c.want {
			t.Errorf("at %+v: %+v, %v; want %s", c.at, st, err, c.want)
		}
	}
}

// TestTornTail: wherever a crash has cut the last block, what is before it stands, and the journal
// goes on with the changes that were lost.
func TestTornTail(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.commit("/a/1=x")
	whole := l.size()
	l.commit("/a/1=y")
	l.stop()
	raw, err := os.ReadFile(l.files()[0])
	if err != nil {
		t.Fatal(err)
	}
	for cut := whole; cut <= int64(len(raw)); cut += 7 {
		if err := os.WriteFile(l.files()[0], raw[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		l.start()
		l.want("1.3 /a/1:x→y", "1.2 /a/1:→x")
		l.stop()
	}
}

func (l *lab) size() int64 {
	info, err := os.Stat(l.files()[0])
	if err != nil {
		l.t.Fatal(err)
	}
	return info.Size()
}

// TestDamagedSegment: a segment that cannot be read is lost alone, and named.
func TestDamagedSegment(t *testing.T) {
	t.Parallel()
	for _, damage := range []struct {
		name string
		at   func(size int) int
	}{{"header", func(int) int { return 40 }}, {"end", func(size int) int { return size - 3 }}} {
		t.Run(damage.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, func(o *Options) { o.SegmentBytes = 600 })
			for i := range 100 {
				l.commit(fmt.Sprintf("/a/%d=%d", i%5, i))
				l.j.due.Give()
			}
			l.stop()
			files := l.files()
			if len(files) < 3 {
				t.Fatalf("%d segments, want several", len(files))
			}
			raw, err := os.ReadFile(files[1])
			if err != nil {
				t.Fatal(err)
			}
			raw[damage.at(len(raw))] ^= 1
			if err := os.WriteFile(files[1], raw, 0o600); err != nil {
				t.Fatal(err)
			}
			l.start()
			_, p := l.page(Query{})
			if len(p.Commits) < 20 || len(p.Commits) >= 100 {
				t.Errorf("%d commits, want those of the other segments", len(p.Commits))
			}
			if len(p.Gaps) == 0 || !strings.Contains(p.Gaps[0].Unreadable, filepath.Base(files[1])) {
				t.Errorf("gaps %+v, want %s", p.Gaps, files[1])
			}
			l.commit("/a/1=after")
			if st, err := l.j.At(t.Context(), time.Now().Add(time.Minute)); err != nil || string(st.Keys["/a/1"].Value) != "after" {
				t.Errorf("the newest state is %v, %v", st, err)
			}
		})
	}
}

// TestDiskFull: while the disk is full nothing is recorded and the journal says so; afterwards it
// goes on by itself, and the gap is named.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("mounting a small disk needs root: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	l := newLab(t, func(o *Options) { o.Dir = filepath.Join(dir, "journal") })
	l.commit("/a/1=x")
	if most := l.j.mostBytes(0); most != leastBytes {
		t.Errorf("on a small disk the journal takes %d bytes, want %d", most, leastBytes)
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 8<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	l.commit("/a/1=" + noise(64<<10))
	if l.j.Problem() == "" {
		t.Fatal("the journal has no problem with a full disk")
	}
	l.want("1.2 /a/1:→x")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	l.clock.Add(int64(2 * retryEvery))
	for l.j.Problem() != "" {
		next := l.j.written.Next()
		l.j.due.Give()
		if l.j.Problem() != "" {
			<-next
		}
	}
	l.commit("/b/1=y")
	got, p := l.page(Query{})
	if diff := cmp.Diff([]string{"1.4 /b/1:→y", "1.2 /a/1:→x"}, got); diff != "" {
		t.Errorf("commits, -want +got:\n%s", diff)
	}
	if len(p.Gaps) != 1 || p.Gaps[0].After.Revision != 2 || p.Gaps[0].Until.Revision != 3 {
		t.Errorf("gaps %+v, want one from 2 to 3", p.Gaps)
	}
}

// noise returns a text that does not compress.
func noise(n int) string {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return string(b)
}

// TestClockJumps: times never go back.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	for i, jump := range []time.Duration{0, time.Hour, -3 * time.Hour, 0, 4 * time.Hour} {
		l.clock.Add(int64(jump))
		l.commit(fmt.Sprintf("/a/1=%d", i))
	}
	_, p := l.page(Query{})
	for i, c := range p.Commits[1:] {
		if c.Time.After(p.Commits[i].Time) {
			t.Errorf("revision %d has the time %v, the later revision %d %v", c.Revision, c.Time, p.Commits[i].Revision, p.Commits[i].Time)
		}
	}
}

// FuzzSegment: whatever a segment has, it is read without a panic.
func FuzzSegment(f *testing.F) {
	dir := f.TempDir()
	header := segmentHeader{Format: segmentFormat, Epoch: 1, Revision: 2, Time: time.Unix(1, 0)}
	state := State{Keys: map[string]store.KV{"/a": {Key: "/a", Value: []byte("x"), ModRevision: 2}}}
	c := newCompressor()
	s, out, err := begin(dir, header, state.records, c)
	if err != nil {
		f.Fatal(err)
	}
	records := appendRecord(appendRecord(nil, record{putRecord, store.KV{Key: "/a", Value: []byte("y"), ModRevision: 3}}), record{deletedRecord, store.KV{Key: "/a", ModRevision: 4}})
	if err := s.writeRecords(out, c, changesBlock, 4, time.Unix(2, 0), records); err != nil {
		f.Fatal(err)
	}
	raw, err := os.ReadFile(s.file)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(raw[:len(raw)-5])
	f.Fuzz(func(t *testing.T, raw []byte) {
		file := filepath.Join(t.TempDir(), segmentName(1, 2))
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, whole := range []bool{false, true} {
			s, err := loadSegment(file, whole)
			if err != nil {
				continue
			}
			_, _ = s.state(func(blockHead, record) bool { return true })
			j := New(Options{})
			j.segments = []*segment{s}
			if _, err := j.Commits(t.Context(), Query{Limit: 10}); err != nil {
				t.Error(err)
			}
		}
	})
}
