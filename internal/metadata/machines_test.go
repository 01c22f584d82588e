package metadata

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/sealing"
	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/store/storetest"
	"heddle/internal/topology"
)

// TestMachines: a host publishes its key once the store knows it, and again after the key is lost,
// but not once the host is removed; it finds its own machines alone.
func TestMachines(t *testing.T) {
	t.Parallel()
	st := storetest.Open(t, t.TempDir())
	key, err := sealing.LoadHostKey(filepath.Join(t.TempDir(), "metadata.key"))
	if err != nil {
		t.Fatal(err)
	}
	m := NewMachines(MachinesOptions{Store: st, HostID: "h", Key: key, Log: slog.New(slog.DiscardHandler)})
	done := make(chan error, 1)
	go func() { done <- m.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	wait := func(what string, is func() bool) {
		t.Helper()
		if err := netlab.Until(ctx, what, func() (bool, error) { return is(), nil }); err != nil {
			t.Fatal(err)
		}
	}
	keyPath := schema.MetadataKeys.KeyOf(&topology.MetadataKey{HostID: "h"})
	published := func() bool {
		kv, err := st.Get(t.Context(), keyPath)
		var there topology.MetadataKey
		return err == nil && json.Unmarshal(kv.Value, &there) == nil && bytes.Equal(there.Key, key.Public())
	}
	record := func(path string, r any) {
		value, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		storetest.Put(t, st, path, string(value))
	}
	instance := func(host, port string) {
		i := &topology.Instance{HostID: host, PortID: port}
		record(schema.Instances.KeyOf(i), i)
	}
	instance("other", "a")
	instance("h", "b")
	wait("machine of the host", func() bool { _, err := m.Find("b"); return err == nil })
	if _, err := m.Find("a"); !errors.Is(err, ErrUnknown) {
		t.Errorf("another host's machine: %v, want ErrUnknown", err)
	}
	if published() {
		t.Error("a host that the store does not know has published its key")
	}
	host := &topology.Host{ID: "h", Name: "h"}
	record(schema.Hosts.KeyOf(host), host)
	wait("key", published)
	storetest.Put(t, st, keyPath, "")
	wait("key that was lost", published)
	if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: schema.Hosts.KeyOf(host), Delete: true}, {Key: keyPath, Delete: true}}); err != nil {
		t.Fatal(err)
	}
	instance("h", "c") // later than the removal
	wait("machine after the removal", func() bool { _, err := m.Find("c"); return err == nil })
	if published() {
		t.Error("a host that was removed has published its key again")
	}
}
