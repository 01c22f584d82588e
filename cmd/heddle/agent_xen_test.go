package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"heddle/internal/store/storetest"
)

// TestMovedHost: a host that has joined another pool on its pool's order belongs there, whatever it
// was started with; only as a host of a pool.
func TestMovedHost(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	if err := os.Mkdir(poolState(state), 0o700); err != nil {
		t.Fatal(err)
	}
	authority, err := storetest.NewAuthority(poolState(state))
	if err != nil {
		t.Fatal(err)
	}
	if err := authority.Pair("host"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(poolState(state), "host.json"), []byte(`{"host_id":"there","name":"h1","endpoints":["https://192.0.2.1:2379"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, pool := range []bool{true, false} {
		c := agentConfig{name: "h1", state: state, serverData: "/own", xen: xenConfig{on: pool}}
		id, _, err := c.access(slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if moved := id == "there" && c.serverData == ""; moved != pool {
			t.Errorf("with --xen=%t the host is %s and its store %q", pool, id, c.serverData)
		}
	}
}

// TestXenFlags: what cannot be is refused as usage, before anything is done.
func TestXenFlags(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]xenConfig{
		"datapath":  {on: true, datapath: "kernel"},
		"address":   {on: true, address: "here"},
		"interface": {on: true, interfaces: []string{"["}},
		"listen":    {on: true, listen: "everywhere"},
		"joined":    {on: true, listen: "192.0.2.1"},
	} {
		var usage usageError
		if err := c.check("h1", t.TempDir(), false); !errors.As(err, &usage) {
			t.Errorf("%s: %v, want an error of usage", name, err)
		}
	}
	if err := (&xenConfig{on: true, datapath: "netdev", interfaces: []string{"eth*"}}).check("h1", t.TempDir(), false); err != nil {
		t.Error(err)
	}
}
