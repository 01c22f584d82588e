package hosts

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/api/apitest"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// announce puts the record of a server that hosts can reach.
func (w *world) announce(id string, r schema.Reach) {
	w.t.Helper()
	if _, err := w.db.Update(w.t.Context(), func(tx *records.Tx) error {
		return schema.Servers.Put(tx, &schema.Server{ID: id, Name: id, Role: "serve", Reach: r})
	}); err != nil {
		w.t.Fatal(err)
	}
}

// otherAuthority returns an authority's certificate, PEM.
func otherAuthority(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, _, err := backend.KeepCertificate(dir, "other", "127.0.0.1:1", nil); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(backend.AuthorityFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestLocationsOfAllServers: joining and renewing answer with the server that was asked first, and
// then all others.
func TestLocationsOfAllServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.announce("s1", schema.Reach{URLs: []string{"https://192.0.2.1:9698"}, Pin: "11", StoreURLs: []string{"https://192.0.2.1:2379"}})
	w.announce("s2", schema.Reach{})
	c, err := w.join(w.token(""), "h1")
	if err != nil {
		t.Fatal(err)
	}
	servers, endpoints := []string{w.url, "https://192.0.2.1:9698"}, []string{"https://" + w.store.Endpoint(), "https://192.0.2.1:2379"}
	if !slices.Equal(c.Servers, servers) || !slices.Equal(c.Endpoints, endpoints) {
		t.Errorf("joined: servers %v, store %v", c.Servers, c.Endpoints)
	}
	another := otherAuthority(t)
	w.announce("s3", schema.Reach{URLs: []string{"https://192.0.2.3:9698"}, Pin: "33", StoreURLs: []string{"https://192.0.2.3:2379"}, StoreCA: another})
	answer, err := askRenewal(t.Context(), filepath.Dir(c.CertFile))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(answer.Servers, append(servers, "https://192.0.2.3:9698")) || !slices.Equal(answer.Endpoints, append(endpoints, "https://192.0.2.3:2379")) ||
		!slices.Equal(answer.Pins, []string{w.server.Fingerprint(), "11", "33"}) || answer.CA != string(w.store.Authority().PEM())+another {
		t.Errorf("renewed: %+v", answer.locations)
	}
}

// TestLocator: a host records what servers say of themselves, keeps what it knew of those that are
// gone, and says when the store is elsewhere.
func TestLocator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, err := w.join(w.token(""), "h1")
	if err != nil {
		t.Fatal(err)
	}
	own, err := w.reach(c)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	moves, renewals := make(chan []string, 10), make(chan struct{}, 10)
	dir := filepath.Dir(c.CertFile)
	apitest.Run(t, NewLocator(dir, own, func(endpoints []string) { moves <- endpoints }, func() { renewals <- struct{}{} }, slog.New(slog.DiscardHandler)))
	next := func() []string {
		t.Helper()
		select {
		case endpoints := <-moves:
			return endpoints
		case <-time.After(time.Minute):
			t.Fatal("the host was not told of a move")
			panic("unreachable")
		}
	}

	at := schema.Reach{URLs: []string{"https://192.0.2.1:9698"}, Pin: "11", StoreURLs: []string{"https://192.0.2.1:2379"}, StoreCA: string(w.store.Authority().PEM())}
	w.announce("s1", at)
	if m := next(); !slices.Equal(m, at.StoreURLs) {
		t.Errorf("a server appears: %v", m)
	}
	other := at
	other.URLs, other.Pin, other.StoreCA = []string{"https://192.0.2.2:9698"}, "22", at.StoreCA+otherAuthority(t)
	other.HostSigner = "0a0b"
	w.announce("s1", other)
	select {
	case <-renewals:
	case <-time.After(time.Minute):
		t.Fatal("the host was not told of another authority")
	}
	now, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"https://192.0.2.2:9698", "https://192.0.2.1:9698", w.url}; !slices.Equal(now.Servers, want) {
		t.Errorf("servers %v, want %v", now.Servers, want)
	}
	if want := []string{"22", "11", w.server.Fingerprint()}; !slices.Equal(now.Pins, want) || now.Pin != c.Pin || now.HostID != c.HostID || now.Signer != "0a0b" {
		t.Errorf("%+v, want pins %v", now, want)
	}
	if ca, err := os.ReadFile(c.CAFile); err != nil || string(ca) != other.StoreCA {
		t.Errorf("authorities %s, %v", ca, err)
	}
	if _, err := w.db.Update(t.Context(), func(tx *records.Tx) error { return schema.Servers.Delete(tx, "s1") }); err != nil {
		t.Fatal(err)
	}
	w.announce("s2", schema.Reach{StoreURLs: []string{"https://192.0.2.9:2379"}})
	if m := next(); !slices.Equal(m, []string{"https://192.0.2.9:2379"}) {
		t.Errorf("another server in its place: %+v", m)
	}
	if later, err := Load(dir); err != nil || !slices.Equal(later.Servers, now.Servers) {
		t.Errorf("servers that are gone: %+v, %v", later, err)
	}
}

// TestLocatorAsksServers: while the store cannot be reached, the servers say where it is.
func TestLocatorAsksServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, err := w.join(w.token(""), "h1")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(c.CertFile)
	lost := c
	lost.Endpoints = []string{"https://127.0.0.1:1"}
	if err := writeCredentials(dir, lost); err != nil {
		t.Fatal(err)
	}
	closed := store.NewDeferred()
	closed.Fail()
	moved := make(chan []string, 1)
	apitest.Run(t, NewLocator(dir, closed, func(endpoints []string) { moved <- endpoints }, func() {}, slog.New(slog.DiscardHandler)))
	select {
	case endpoints := <-moved:
		if !slices.Equal(endpoints, c.Endpoints) {
			t.Errorf("the store is at %v, want %v", endpoints, c.Endpoints)
		}
	case <-time.After(time.Minute):
		t.Error("no server was asked")
	}
}

// TestRememberServers: the servers that a host remembers are bounded, the newest first.
func TestRememberServers(t *testing.T) {
	t.Parallel()
	known := strings.Split("bcdefghijklmnopqrst", "")
	if got := remember([]string{"a", "c"}, known); len(got) != mostServers || got[0] != "a" || got[1] != "c" || got[2] != "b" || got[3] != "d" {
		t.Error(got)
	}
}

// TestUntrustedServers: a host that trusts none of the servers that answer says to join again,
// until a server is trusted.
func TestUntrustedServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, err := w.join(w.token(""), "h1")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(c.CertFile)
	put := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(file string) string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	about := filepath.Join(dir, hostFile)
	own, joined := read(c.CAFile), read(about)
	put(c.CAFile, otherAuthority(t))
	put(about, strings.ReplaceAll(joined, w.server.Fingerprint(), "00"))
	l := NewLocator(dir, w.store, func([]string) {}, func() {}, slog.New(slog.DiscardHandler))
	const again = "let it join again with a token for its name: `heddle host token h1`"
	if err := l.askServers(t.Context()); err == nil || !strings.Contains(err.Error(), again) || l.Untrusted() != err.Error() {
		t.Errorf("the servers are asked: %v; untrusted %q; want %q in both", err, l.Untrusted(), again)
	}
	put(c.CAFile, own)
	put(about, joined)
	if err := l.askServers(t.Context()); err != nil || l.Untrusted() != "" {
		t.Errorf("a trusted server is asked: %v; untrusted %q", err, l.Untrusted())
	}
}
