package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/store/storetest"
)

// TestUpgrade: operators see which formats servers and agents know, and cannot raise the store's
// while some do not know the newest.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(t)
	h := s.addHost(t, "h1", "192.0.2.11")
	start(t, h.ns, h.agent("--join", s.token(t))...)
	known := schema.KnownFormats().Newest()
	status := func() (text string, code int) { return output(t, s.ctl, "upgrade", "status", "--data", s.data) }
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var text string
	if err := netlab.Until(ctx, "server and agent to be listed", func() (bool, error) {
		var code int
		text, code = status()
		return code == 0 && strings.Contains(text, "serve ") && strings.Contains(text, "agent "), nil
	}); err != nil {
		t.Fatal(err, text)
	}
	inUse := fmt.Sprintf("store: written in format %d, programs must know format %d", known, known)
	if !strings.Contains(text, inUse) || strings.Contains(text, "behind") {
		t.Errorf("upgrade status:\n%s\nwant %q and no one behind", text, inUse)
	}
	if text := succeed(t, s.ctl, "upgrade", "commit", "--data", s.data); text != inUse+"\n" {
		t.Errorf("upgrade commit: %q, want %q", text, inUse)
	}

	st := openData(t, s.data)
	newer := &schema.Server{ID: "newer", Name: "cloud2", Role: "serve", Version: "next", Reads: known + 1, Writes: known + 1}
	value, err := json.Marshal(newer)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Put(t, st, schema.Servers.KeyOf(newer), string(value))
	if text, code := status(); code != 1 || !strings.Contains(text, fmt.Sprintf("2 of 3 do not read format %d", known+1)) || strings.Count(text, "behind") != 2 {
		t.Errorf("upgrade status beside a newer server: exit code %d, want 1 and 2 behind:\n%s", code, text)
	}
	refuse(t, s.ctl, 1, fmt.Sprintf("agent on %s (%s) reads format %d", h.name, version, known), "upgrade", "commit", "--data", s.data)
	if found, _, err := schema.ReadFormat(t.Context(), st); err != nil || found.Written != known {
		t.Errorf("after the refused commit: %+v, %v", found, err)
	}
}

// TestUnknownFormat: servers and agents that do not know the format to which the store was raised
// end, and do not start again. They say what to do.
func TestUnknownFormat(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	server := start(t, s.ctl, "serve", "--data", s.data)
	next := schema.KnownFormats().Newest() + 1
	storetest.Put(t, openData(t, s.data), store.SchemaKey, fmt.Sprintf(`{"written":%d,"min_reader":%d}`, next, next))
	select {
	case err := <-server.done:
		server.done <- err
		text, _ := os.ReadFile(server.log)
		if err == nil || !strings.Contains(string(text), "upgrade heddle") {
			t.Errorf("the server ended with %v:\n%s", err, text)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the server goes on over a format that it does not know")
	}
	st := openData(t, s.data) // in the place of a newer server
	h := s.addHost(t, "h1", "192.0.2.11")
	refuse(t, h.ns, 1, "upgrade heddle", h.agent("--server-data", s.data)...)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	refuse(t, s.ctl, 1, "upgrade heddle", "serve", "--data", s.data)
}
