package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"heddle/internal/api/hosts"
	"heddle/internal/store/schema"
)

// buildNext builds the heddle of a release after this one, which has a format of the store that
// programs of this release cannot read.
func buildNext(t *testing.T) binary {
	t.Helper()
	const formats = "internal/store/schema/format.go"
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(root, formats))
	if err != nil {
		t.Fatal(err)
	}
	newest := schema.KnownFormats()[len(schema.KnownFormats())-1]
	known := fmt.Sprintf("{Number: %d, MinReader: %d}", newest.Number, newest.MinReader)
	if strings.Count(string(source), known+"}") != 1 {
		t.Fatalf("%s has no list of formats that ends with %s", formats, known)
	}
	next := filepath.Join(t.TempDir(), "format.go")
	writeFile(t, next, strings.Replace(string(source), known+"}", known+fmt.Sprintf(", {Number: %d, MinReader: %[1]d}}", newest.Number+1), 1))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, formats): next}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "overlay.json")
	writeFile(t, file, string(overlay))
	return buildIn(t, root, "next", "-overlay", file)
}

// TestBesideNextRelease: servers and agents of this release work beside those of the next one,
// until the format of the store is raised.
func TestBesideNextRelease(t *testing.T) {
	t.Parallel()
	next := buildNext(t)
	for name, test := range map[string]func(*testing.T, binary){"a host is away": commitWithoutHost, "a server is away": commitWithoutServer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, next)
		})
	}
}

// commitWithoutHost raises the format while a host is away, which is named. The host comes back
// with the earlier release: its agent says what to do, and leaves the store and the traffic as they
// are. With the next release it works again.
func commitWithoutHost(t *testing.T, next binary) {
	s := newMixedSite(t, heddle, next.command)
	away, known := s.hosts[1], schema.KnownFormats().Newest()
	s.server.stop(t)
	s.startServer(false)
	s.agents[0].stop(t)
	s.startAgent(0, false)
	refuse(t, s.ctl, 1, fmt.Sprintf("format %d cannot be used yet: agent on %s (%s) reads format %d and writes %[4]d; upgrade or stop them first", known+1, away.name, version, known),
		"upgrade", "commit", "--data", s.data)
	ping, err := s.vms[0].Ping("10.0.0.11")
	if err != nil {
		t.Fatal(err)
	}
	s.agents[1].stop(t)
	s.waitGone(t, away)

	silent := "away, and not waited for by a commit: agent on " + away.name
	if text := succeed(t, s.ctl, "upgrade", "status", "--data", s.data); !strings.Contains(text, silent) {
		t.Errorf("upgrade status: %s\nwant %q", text, silent)
	}
	raised := fmt.Sprintf("store: written in format %d, programs must know format %[1]d\n"+
		"away: agent on %s: upgrade heddle there too, before they start again\n", known+1, away.name)
	if text := succeed(t, s.ctl, "upgrade", "commit", "--data", s.data); text != raised {
		t.Errorf("upgrade commit: %q, want %q", text, raised)
	}
	before := s.reports(t, away)
	refuse(t, away.ns, 1, "upgrade heddle", away.agent()...)
	if after := s.reports(t, away); after != before {
		t.Errorf("an agent that does not know the format has changed what the store has of its host from %s to %s", before, after)
	}
	s.startAgent(1, false)
	s.check()
	longest, lost, err := ping.End()
	if err != nil || lost > 0 {
		t.Errorf("%d pings lost, longest time without an answer %v: %v", lost, longest, err)
	}
	if text := succeed(t, s.ctl, "upgrade", "status", "--data", s.data); strings.Contains(text, "away") {
		t.Errorf("upgrade status, with the host back: %s", text)
	}
}

// commitWithoutServer upgrades a cluster of embedded stores under load, server by server, and
// raises the format while the last one is away, which is named. That one comes back with the
// earlier release, says what to do, and leaves the others to work. With the next release it is one
// of them.
func commitWithoutServer(t *testing.T, next binary) {
	s := newClusterSite(t, 3)
	s.form(t)
	known := schema.KnownFormats().Newest()
	last := s.servers[2]
	admin := login(t, s.servers[0].ns, "127.0.0.1", s.servers[0].data)
	admin.unlimited(t)
	book := newLedger()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() { book.load(ctx, t, w, admin, newClient(s.servers[1].ns, "127.0.0.1", admin.token)) })
	}
	upgrade := func(m *serverMachine) {
		m.startAs(t, next.command, m.member()...)
		m.waitMembers(t, "s1", "s2", "s3")
		book.waitFor(t, 40)
	}
	s.servers[0].kill()
	upgrade(s.servers[0])
	s.servers[1].run.stop(t)
	upgrade(s.servers[1])
	behind := fmt.Sprintf("format %d cannot be used yet: serve on s3 (%s) reads format %d and writes %[3]d; upgrade", known+1, version, known)
	withinLease(t, "the commit to be refused for s3 alone", func() bool { // the killed server counts until then
		text, code := output(t, last.ns, "upgrade", "commit", "--data", last.data)
		return code == 1 && strings.Contains(text, behind)
	})

	last.run.stop(t)
	raised := fmt.Sprintf("store: written in format %d, programs must know format %[1]d\naway: serve on s3: upgrade", known+1)
	if text := succeed(t, s.servers[0].ns, "upgrade", "commit", "--data", s.servers[0].data); !strings.Contains(text, raised) {
		t.Errorf("upgrade commit: %s\nwant %q", text, raised)
	}
	refuse(t, last.ns, 1, "upgrade heddle", last.member()...)
	book.waitFor(t, 40)
	upgrade(last)
	stop()
	workers.Wait()
	for _, m := range s.servers {
		book.check(t, newClient(m.ns, "127.0.0.1", admin.token))
	}
	verify(t, openData(t, last.data))
}

// reports returns the keys below those of a host's reports, with their revisions.
func (s *site) reports(t *testing.T, h *host) string {
	t.Helper()
	joined, err := hosts.Load(h.state)
	if err != nil {
		t.Fatal(err)
	}
	kvs, _, err := openData(t, s.data).List(t.Context(), schema.StatePrefix+joined.HostID+"/")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, kv := range kvs {
		all = append(all, fmt.Sprintf("%s@%d", kv.Key, kv.ModRevision))
	}
	return strings.Join(all, " ")
}
