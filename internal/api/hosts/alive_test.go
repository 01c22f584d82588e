package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/api/jointoken"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// reportAlive stores what the agent of a host reports, and deleteReport ends that.
func (w *world) reportAlive(host string) {
	w.t.Helper()
	value := fmt.Sprintf(`{"hostId":%q,"name":"h1","tunnelIp":"192.0.2.1","startedAt":"2026-01-02T03:04:05Z"}`, host)
	if _, err := w.store.Commit(w.t.Context(), nil, []store.Op{{Key: schema.HostStates.Key(host), Value: []byte(value)}}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) deleteReport(host string) {
	w.t.Helper()
	if _, err := w.store.Commit(w.t.Context(), nil, []store.Op{{Key: schema.HostStates.Key(host), Delete: true}}); err != nil {
		w.t.Fatal(err)
	}
}

// keyInRecord returns the key by which other parts know the host.
func (w *world) keyInRecord(host string) string {
	w.t.Helper()
	snap, err := w.db.View(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	h, err := schema.Hosts.Get(snap, host)
	if err != nil {
		w.t.Fatal(err)
	}
	return h.Key
}

// TestJoinAsLiveHost: while the agent of a host reports, no other machine gets its place, and the
// token stays good; the same machine may join again.
func TestJoinAsLiveHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := filepath.Join(t.TempDir(), "state")
	first, err := Join(t.Context(), w.token(""), JoinOptions{Name: "h1", StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	key := w.keyInRecord(first.HostID)
	w.reportAlive(first.HostID)
	token := w.token(`{"name":"h1"}`)
	_, err = w.join(token, "h1")
	for _, words := range []string{"Host h1 is alive", "at 192.0.2.1 ", "since 2026-01-02T03:04:05Z", "stop its agent", "15 seconds", "`heddle host remove h1`", "not used up"} {
		if !Refused(err) || !strings.Contains(err.Error(), words) {
			t.Errorf("another machine joins as a live host: %v; want it refused with %q", err, words)
		}
	}
	if now := w.keyInRecord(first.HostID); now != key {
		t.Errorf("the host's key is %s after the refusal, was %s", now, key)
	}

	// The machine itself, told to join again while its last report still counts.
	if err := os.Remove(filepath.Join(dir, hostFile)); err != nil {
		t.Fatal(err)
	}
	again, err := Join(t.Context(), token, JoinOptions{Name: "h1", StateDir: dir})
	if err != nil || again.HostID != first.HostID {
		t.Errorf("the same machine joins again: %+v, %v", again, err)
	}
	if now := w.keyInRecord(first.HostID); now == key || now == "" {
		t.Errorf("the host's key is %q after it has joined by another, was %q", now, key)
	}

	// Its key of before the last join proves nothing.
	old := filepath.Join(t.TempDir(), "old")
	if err := os.MkdirAll(old, 0o700); err != nil {
		t.Fatal(err)
	}
	stale, err := pendingKey(old)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(old, keyFile), stale, 0o600); err != nil {
		t.Fatal(err)
	}
	token = w.token(`{"name":"h1"}`)
	if _, err = Join(t.Context(), token, JoinOptions{Name: "h1", StateDir: old}); err == nil {
		t.Error("a machine with another key joined as a live host")
	}

	w.deleteReport(first.HostID)
	if replaced, err := w.join(token, "h1"); err != nil || replaced.HostID != first.HostID {
		t.Errorf("another machine joins once the host is dead: %+v, %v", replaced, err)
	}
}

// TestHostComesAliveDuringJoin: a host whose agent reports while another machine joins in its place
// keeps it.
func TestHostComesAliveDuringJoin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, err := w.join(w.token(""), "h1")
	if err != nil {
		t.Fatal(err)
	}
	shown, err := jointoken.Parse(w.token(`{"name":"h1"}`), jointoken.ForHost)
	if err != nil {
		t.Fatal(err)
	}
	private, err := pendingKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	csr, err := newRequest(private)
	if err != nil {
		t.Fatal(err)
	}
	s, hash, ask := &service{Options: Options{DB: w.db, Now: w.clock}}, jointoken.Hash(shown.Secret), &joinRequest{Name: "h1", CSR: string(csr)}
	snap, err := w.db.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.admit(snap, hash, ask)
	if err != nil {
		t.Fatal(err)
	}
	w.reportAlive(first.HostID)
	_, err = w.db.Update(t.Context(), func(tx *records.Tx) error { return s.useUp(tx, hash, ask, a, issued{until: w.clock().Add(time.Hour)}) })
	if err == nil || !strings.Contains(err.Error(), "Host h1 is alive") {
		t.Errorf("the commit of the join: %v", err)
	}
}

// TestCheckNamesDamagedFiles: a host whose credentials are damaged learns which file it is, and how
// to join again.
func TestCheckNamesDamagedFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := filepath.Join(t.TempDir(), "state")
	joined, err := Join(t.Context(), w.token(""), JoinOptions{Name: "h1", StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if key, err := joined.Check(); err != nil || key != w.keyInRecord(joined.HostID) {
		t.Errorf("key %q, %v; the record has %q", key, err, w.keyInRecord(joined.HostID))
	}
	for _, file := range []string{joined.CertFile, joined.KeyFile, joined.CAFile} {
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, whole[:len(whole)/2], 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = joined.Check()
		for _, words := range []string{file + ": missing or damaged", "remove " + filepath.Join(dir, hostFile), "`heddle host token h1`"} {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("with half of %s: %v; want %q", file, err, words)
			}
		}
		if err := os.WriteFile(file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUpkeepEntersKeys: the records of hosts that joined under an earlier version get their keys.
func TestUpkeepEntersKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, err := w.join(w.token(""), "h1")
	if err != nil {
		t.Fatal(err)
	}
	key := w.keyInRecord(h.HostID)
	if _, err := w.store.Commit(t.Context(), nil, []store.Op{{Key: schema.Hosts.Key(h.HostID), Value: claim(t, h.HostID, "h1")}}); err != nil {
		t.Fatal(err)
	}
	if err := NewUpkeep(Options{DB: w.db, Admission: w.store, CA: w.store.Authority().PEM}).pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := w.keyInRecord(h.HostID); now != key || key == "" {
		t.Errorf("the record has the key %q, want %q", now, key)
	}
}
