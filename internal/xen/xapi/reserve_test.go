package xapi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/records"
	"heddle/internal/store/storetest"
	"heddle/internal/xen/objects"
)

// TestFullStore: while the store is at its quota, calls that make it fuller fail with the reason.
// Logging in, detaching and destroying go on, also as tasks and at a server that has just started.
func TestFullStore(t *testing.T) {
	t.Parallel()
	st, err := backend.Open(t.Context(), backend.Options{Embedded: &backend.Embedded{
		DataDir: t.TempDir(), Quota: 64 << 20, Tick: 10 * time.Millisecond, NoFsync: true,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	options := Options{Store: st, RootPasswordFile: filepath.Join(t.TempDir(), "root"), Hosts: Hosts{Expel: st.RemoveHost}}
	s := started(t, options)
	file, err := os.ReadFile(options.RootPasswordFile)
	if err != nil {
		t.Fatal(err)
	}
	password := strings.TrimSpace(string(file))
	c := connect(t, s, RootAccount, password)

	live, dead := machine(1), machine(2)
	report(t, s, live)
	report(t, s, dead)
	network := func(name string) string {
		return c.must("network.create", map[string]any{"name_label": name, "other_config": map[string]string{"k": "v"}, "tags": []string{"a", "b"}}).(string)
	}
	plain, later, carried, used := network("plain"), network("later"), network("carried"), network("used")
	pifs := by(s.now(), "PIF", "host", live.Host)
	transport := pifs[slices.IndexFunc(pifs, func(p *objects.Object) bool { return p.Text("device") == live.Interfaces[0].Device })]
	over, _ := objects.Table("network").Peek(s.now(), carried)
	tunnel, access := (&pool{Reader: s.now()}).newTunnel(tunnelSite{transport, over}, "vxlan", randomMAC())
	access.Fields["currently_attached"] = true
	made(t, s, tunnel, access)
	vm := c.must("VM.create", map[string]any{"name_label": "vm"}).(string)
	vif := c.must("VIF.create", map[string]any{"device": "0", "network": used, "VM": vm, "MAC": ""}).(string)
	task, other := c.must("task.create", "mine", "").(string), c.must("task.create", "other", "").(string)
	if err := s.update(t.Context(), func(tx *records.Tx) error { return objects.HostReports.Delete(tx, dead.Host) }); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the host is dead", func() bool { _, ok := objects.HostReports.Peek(s.now(), dead.Host); return !ok })

	fill(t, st)

	for _, server := range []*Server{s, started(t, options)} {
		c = connect(t, server, RootAccount, password)
		for _, call := range [][]any{
			{"network.create", map[string]any{"name_label": "more"}}, {"Async.network.create", map[string]any{"name_label": "more"}},
			{"network.set_name_description", later, strings.Repeat("x", 1000)}, {"task.create", "more", ""},
		} {
			if params := c.fails("INTERNAL_ERROR", call[0].(string), call[1:]...); !strings.Contains(fmt.Sprint(params), "nothing was changed") {
				t.Errorf("%s in a full store says %v", call[0], params)
			}
		}
	}
	for _, call := range [][]any{
		{"network.remove_from_other_config", later, "k"}, {"network.remove_tags", later, "a"}, {"network.destroy", plain},
		{"VIF.destroy", vif}, {"VM.destroy", vm}, {"network.destroy", used},
		{"PIF.unplug", access.Ref}, {"tunnel.destroy", tunnel.Ref}, {"network.destroy", carried},
		{"host.declare_dead", dead.Host}, {"host.destroy", dead.Host},
		{"task.cancel", task}, {"task.destroy", task}, {"task.destroy", other},
	} {
		c.must(call[0].(string), call[1:]...)
	}
	if end := c.ended(c.must("Async.network.destroy", later).(string)); end["status"] != "success" {
		t.Errorf("a task that destroys a network in a full store: %v", end)
	}
	c.fails("HANDLE_INVALID", "network.get_record", later)
}

// fill writes until the store refuses, and would after etcd's next commit too: between commits the
// size is an estimate, and a compaction makes etcd commit.
func fill(t *testing.T, st *backend.Etcd) {
	t.Helper()
	value := []byte(strings.Repeat("x", 256<<10))
	for i, refusals := 0, 0; refusals < 2; i++ {
		err := storetest.Write(t.Context(), st, store.Op{Key: fmt.Sprint("/filler/", i), Value: value})
		switch {
		case err == nil:
			refusals = 0
			continue
		case !errors.Is(err, store.ErrFull):
			t.Fatal("filling the store:", err)
		}
		refusals++
		if err := st.CompactAll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
