package schema_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/storetest"
	"heddle/internal/topology"
)

// The formats of this release, of the next one, and of the one after that.
func releases() (n, next, afterNext schema.Formats) {
	one, two, three := schema.Format{Number: 1, MinReader: 1}, schema.Format{Number: 2, MinReader: 2}, schema.Format{Number: 3, MinReader: 2}
	return schema.Formats{one}, schema.Formats{one, two}, schema.Formats{two, three}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	n, next, afterNext := releases()
	tests := []struct {
		name   string
		knows  schema.Formats
		key    string // beforehand
		text   string
		want   string // in the error; "" = none
		format string // afterwards
	}{
		{"empty", n, "", "", "", `{"written":1,"min_reader":1}`},
		{"empty, by a newer one", next, "", "", "", `{"written":2,"min_reader":2}`},
		{"an earlier version's number", n, store.SchemaKey, "1", "", "1"},
		{"a number, newer", n, store.SchemaKey, "2", "upgrade heddle", ""},
		{"the format in use", n, store.SchemaKey, `{"written":1,"min_reader":1}`, "", ""},
		{"older than the newest known", next, store.SchemaKey, `{"written":1,"min_reader":1}`, "", ""},
		{"newer, but readable", next, store.SchemaKey, `{"written":3,"min_reader":2}`, "", ""},
		{"newer, with members of a later version", next, store.SchemaKey, `{"written":3,"min_reader":2,"x":1}`, "", ""},
		{"newer, not readable", n, store.SchemaKey, `{"written":3,"min_reader":2}`, "for programs that know format 2; this heddle knows no later one than 1: upgrade heddle", ""},
		{"older than the oldest known", afterNext, store.SchemaKey, "1", "run a release between that writes formats 1 and 2 everywhere", ""},
		{"nonsense", n, store.SchemaKey, "one", "no Heddle writes", ""},
		{"nothing", n, store.SchemaKey, "", "no Heddle writes", ""},
		{"no numbers", n, store.SchemaKey, "{}", "no Heddle writes", ""},
		{"readers newer than what is written", next, store.SchemaKey, `{"written":1,"min_reader":2}`, "no Heddle writes", ""},
		{"no format", n, "/heddle/neutron/ports/x", "{}", "no schema version", ""},
		{"what a tunnel controller kept", n, "/heddle/xen/controller/last-key", "7", "", `{"written":1,"min_reader":1}`},
		{"a part of a pool", n, "/heddle/xen/objects/pool/x", "{}", "no schema version", ""},
		{"other programs' keys", n, "/calico/v1/x", "{}", "", `{"written":1,"min_reader":1}`},
	}
	for _, tt := range tests {
		st := store.NewMemory()
		if tt.key != "" {
			put(t, st, tt.key, tt.text)
		}
		for range 2 {
			err := tt.knows.Check(t.Context(), st)
			if got := err == nil; got != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
			}
		}
		if tt.format == "" {
			tt.format = tt.text
		}
		if kv, err := st.Get(t.Context(), store.SchemaKey); tt.want == "" && (err != nil || string(kv.Value) != tt.format) {
			t.Errorf("%s: format is %q, %v; want %s", tt.name, kv.Value, err, tt.format)
		}
		if err := tt.knows.Verify(t.Context(), st); tt.want == "" && err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if err := n.Verify(t.Context(), store.NewMemory()); !errors.Is(err, store.ErrReplaced) {
		t.Errorf("an empty store that was in use: %v, want %v", err, store.ErrReplaced)
	}
}

func put(t *testing.T, st store.Store, key, value string) {
	t.Helper()
	if err := storetest.Write(t.Context(), st, store.Op{Key: key, Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
}

// cluster is an etcd with servers of several releases over it.
type cluster struct {
	t  *testing.T
	st store.Store
}

// server is a program of a release that works over the store, as heddle serve does.
type server struct {
	cluster
	db    *records.DB
	knows schema.Formats
	lease store.Lease
	name  string
}

// start has a server check the store, and then report.
func (c cluster) start(name string, knows schema.Formats) (*server, error) {
	c.t.Helper()
	if err := knows.Check(c.t.Context(), c.st); err != nil {
		return nil, err
	}
	rep := replica.New(c.st, replica.Options{Watch: schema.Root}, schema.All()...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- rep.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		<-done
	})
	s := &server{c, records.NewDB(c.st, rep), knows, 0, name}
	var err error
	if s.lease, err = c.st.Grant(c.t.Context(), time.Hour); err != nil {
		c.t.Fatal(err)
	}
	s.update(func(tx *records.Tx) error {
		return schema.Servers.PutLeased(tx, &schema.Server{ID: name, Name: name, Role: "serve", Version: "v", Reads: knows.Newest(), Writes: knows.Newest()}, s.lease)
	})
	return s, nil
}

func (c cluster) mustStart(name string, knows schema.Formats) *server {
	c.t.Helper()
	s, err := c.start(name, knows)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

func (s *server) update(f func(*records.Tx) error) {
	s.t.Helper()
	if _, err := s.db.Update(s.t.Context(), f); err != nil {
		s.t.Fatal(err)
	}
}

// stop ends the server.
func (s *server) stop() {
	s.t.Helper()
	if err := s.st.Revoke(s.t.Context(), s.lease); err != nil {
		s.t.Fatal(err)
	}
}

// commits has the server raise the format, and compares the format then in use, and the words of
// the error if there are any.
func (s *server) commits(want schema.StoreFormat, words ...string) {
	s.t.Helper()
	now, err := schema.CommitFormat(s.t.Context(), s.db, s.knows)
	if len(words) == 0 {
		if err != nil || now != want {
			s.t.Errorf("%s: commit: %+v, %v; want %+v", s.name, now, err, want)
		}
	} else if !errors.As(err, new(*schema.BehindError)) {
		s.t.Errorf("%s: commit: %v, want that %q are behind", s.name, err, words)
	}
	for _, w := range words {
		if err != nil && !strings.Contains(err.Error(), w) {
			s.t.Errorf("%s: commit: %v, want %q in it", s.name, err, w)
		}
	}
	found, _, err := schema.ReadFormat(s.t.Context(), s.st)
	if err != nil || found != want {
		s.t.Errorf("after the commit of %s the store is in format %+v, %v; want %+v", s.name, found, err, want)
	}
}

// addHost registers a host and has its agent report.
func (c cluster) addHost(id string, reads int) {
	c.t.Helper()
	put(c.t, c.st, schema.Hosts.Key(id), `{"id":"`+id+`","name":"host `+id+`"}`)
	c.hostReports(id, reads)
}

// hostReports has the agent of a host report that it knows a format; 0: as one that says nothing of
// formats.
func (c cluster) hostReports(id string, reads int) {
	c.t.Helper()
	value, err := json.Marshal(&topology.HostState{HostID: id, Name: "host " + id, Version: "v", Reads: reads, Writes: reads})
	if err != nil {
		c.t.Fatal(err)
	}
	put(c.t, c.st, schema.HostStates.Key(id), string(value))
}

// hostGoes ends the report of a host.
func (c cluster) hostGoes(id string) {
	c.t.Helper()
	if err := storetest.Write(c.t.Context(), c.st, store.Op{Key: schema.HostStates.Key(id), Delete: true}); err != nil {
		c.t.Fatal(err)
	}
}

// TestRollingUpgrade: servers and agents of two releases work beside each other over one etcd in
// any order, until the format is raised.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	n, next, afterNext := releases()
	one, two, three := schema.StoreFormat{Written: 1, MinReader: 1}, schema.StoreFormat{Written: 2, MinReader: 2}, schema.StoreFormat{Written: 3, MinReader: 2}
	c := cluster{t, storetest.Open(t, t.TempDir())}
	old := c.mustStart("old", n)
	c.addHost("h1", 0)
	c.addHost("h2", 1)
	old.commits(one) // there is nothing to raise

	newer := c.mustStart("newer", next)
	newer.commits(one, "format 2 cannot be used yet", "serve on old (v) reads format 1 and writes 1", "agent on host h1", "agent on host h2")
	old.commits(one, "serve on old", "agent on host h1")
	newer.stop() // back to the old release
	again := c.mustStart("old too", n)
	again.commits(one)
	again.stop()

	newer = c.mustStart("newer again", next)
	c.hostReports("h1", 2)
	old.stop()
	newer.commits(one, "agent on host h2")
	c.hostGoes("h2") // one that is away does not count, and has to be upgraded
	newer.commits(two)
	newer.commits(two)
	const words = "this heddle knows no later one than 1: upgrade heddle"
	if _, err := c.start("late", n); err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("a server of the old release starts over format 2: %v, want %q", err, words)
	}

	newest := c.mustStart("newest", afterNext)
	newest.commits(two, "serve on newer again", "agent on host h1")
	c.hostReports("h1", 3)
	newer.stop()
	newest.commits(three)
	// What is written is readable for the release before.
	c.mustStart("a late one of the release before", next)
}

// TestSkippedRelease: a release does not work beside the one before the last.
func TestSkippedRelease(t *testing.T) {
	t.Parallel()
	n, _, afterNext := releases()
	c := cluster{t, storetest.Open(t, t.TempDir())}
	c.mustStart("old", n)
	const words = "run a release between that writes formats 1 and 2 everywhere"
	if _, err := c.start("newest", afterNext); err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("%v, want %q", err, words)
	}
}

// interrupted is a store in which something happens right before the next commit.
type interrupted struct {
	store.Store
	before func()
}

func (s *interrupted) Commit(ctx context.Context, conds []store.Cond, ops []store.Op) (int64, error) {
	if f := s.before; f != nil {
		s.before = nil
		f()
	}
	return s.Store.Commit(ctx, conds, ops)
}

// TestCommitFormatMeanwhile: what members report while the format is raised counts.
func TestCommitFormatMeanwhile(t *testing.T) {
	t.Parallel()
	n, next, _ := releases()
	one, two := schema.StoreFormat{Written: 1, MinReader: 1}, schema.StoreFormat{Written: 2, MinReader: 2}
	for name, tt := range map[string]struct {
		meanwhile func(c cluster)
		want      schema.StoreFormat
		words     []string
	}{
		"a host goes back to the old release":    {func(c cluster) { c.hostReports("h", 1) }, one, []string{"agent on host h"}},
		"a host of the old release comes back":   {func(c cluster) { c.hostReports("away", 1) }, one, []string{"agent on host away"}},
		"a host reports again":                   {func(c cluster) { c.hostReports("h", 2) }, two, nil},
		"another server has raised it":           {func(c cluster) { put(c.t, c.st, store.SchemaKey, `{"written":2,"min_reader":2}`) }, two, nil},
		"nothing that has to do with the format": {func(c cluster) { put(c.t, c.st, schema.Ports.Key("p"), `{"id":"p"}`) }, two, nil},
	} {
		st := &interrupted{Store: storetest.Open(t, t.TempDir())}
		c := cluster{t, st}
		if err := n.Check(t.Context(), st); err != nil {
			t.Fatal(err)
		}
		c.addHost("h", 2)
		c.addHost("away", 2)
		c.hostGoes("away")
		s := c.mustStart("server", next)
		if _, err := s.db.View(t.Context()); err != nil {
			t.Fatal(err)
		}
		st.before = func() { tt.meanwhile(c) }
		t.Log(name)
		s.commits(tt.want, tt.words...)
	}
}

// TestBackupKeepsFormat: a store that is restored is in the format that it was backed up in.
func TestBackupKeepsFormat(t *testing.T) {
	t.Parallel()
	const value = `{"written":3,"min_reader":2}`
	st := storetest.Open(t, t.TempDir())
	put(t, st, store.SchemaKey, value)
	file, err := os.Create(filepath.Join(t.TempDir(), "backup"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(st.Backup(t.Context(), file), file.Close()); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := backend.Restore(t.Context(), file.Name(), dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	kv, err := storetest.Open(t, dir).Get(t.Context(), store.SchemaKey)
	if err != nil || string(kv.Value) != value {
		t.Errorf("restored: %q, %v; want %s", kv.Value, err, value)
	}
}
