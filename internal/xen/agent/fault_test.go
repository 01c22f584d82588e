package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// TestKilled: kill -9 leaves bridges and traffic as they are. The next agent adopts what is wanted,
// and takes away what is wanted no more.
func TestKilled(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	h.ready()
	stays, goes := l.network("xapi0", nil), l.network("xapi1", nil)
	h.tunnel(stays)
	_, access := h.tunnel(goes)
	h.vm(1, stays)
	h.vm(2, stays)
	a, b := h.plug("vif1.0", "a", "10.77.0.1/24"), h.plug("vif2.0", "b", "10.77.0.2/24")
	_ = b
	l.reaches(a, "10.77.0.2")
	l.until("both bridges", func() bool { return h.bridgeReport("xapi0") != nil && h.bridgeReport("xapi1") != nil })
	before := h.bridge("xapi0").UUID
	h.kill()
	l.change(access, model.Record{"currently_attached": false})
	if _, err := a.Output(t.Context(), "ping", "-n", "-q", "-c3", "-i0.05", "-W1", "10.77.0.2"); err != nil {
		t.Errorf("without agent: %v", err)
	}
	l.until("the dead host's report to end", func() bool { return h.report() == nil })
	h.ready()
	l.until("the bridge that is not wanted to go", func() bool { return h.bridge("xapi1") == nil && h.bridgeReport("xapi1") == nil })
	l.until("the report of the other", func() bool { return h.bridgeReport("xapi0") != nil })
	if h.bridge("xapi0").UUID != before {
		t.Error("the bridge was made anew")
	}
	if _, err := a.Output(t.Context(), "ping", "-n", "-q", "-c3", "-i0.05", "-W1", "10.77.0.2"); err != nil {
		t.Errorf("adopted: %v", err)
	}
}

// TestSecondAgent: a host has one.
func TestSecondAgent(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	h.ready()
	first := h.cmd
	h.start()
	second := h.cmd
	h.cmd = first
	if err := second.Wait(); err == nil {
		t.Error("a second agent ended without error")
	}
	h.logged(ErrSecond.Error())
}

// TestSwitchFaults: Open vSwitch's database and daemon are killed, frozen and come back. The agent
// goes on, says what is wrong where it is asked, and repairs.
func TestSwitchFaults(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	h.ready()
	first := l.network("xapi0", nil)
	h.tunnel(first)
	l.until("the bridge", func() bool { return h.bridgeReport("xapi0") != nil })

	// The daemon is dead: what was there stays reported, an order fails and says why.
	if err := h.KillSwitch(); err != nil {
		t.Fatal(err)
	}
	order := &objects.Order{Host: h.ref, ID: "o1", Bridge: objects.Bridge{Name: "xapi1", NetworkUUID: "n1", MTU: 1500, FailMode: "standalone"}}
	l.write(func(tx *records.Tx) error { return objects.Orders.Put(tx, order) })
	l.until("the order's failure", func() bool {
		r := h.bridgeReport("xapi1")
		return r != nil && strings.Contains(r.Error, "ovs-vswitchd") && len(r.Orders) == 1
	})
	if r := h.bridgeReport("xapi0"); r == nil || r.Error != "" {
		t.Errorf("the bridge that was there: %+v", r)
	}
	if err := h.StartSwitch(); err != nil {
		t.Fatal(err)
	}
	l.until("the order to be carried out after all", func() bool { r := h.bridgeReport("xapi1"); return r != nil && r.Error == "" })
	l.write(func(tx *records.Tx) error { return objects.Orders.Delete(tx, h.ref+"/o1") })
	l.until("what was ordered to go", func() bool { return h.bridge("xapi1") == nil && h.bridgeReport("xapi1") == nil })

	// Somebody takes a bridge of ours away, or sets it down.
	h.vsctl("del-br", "xapi0")
	l.until("the bridge to be back", func() bool { b := h.bridge("xapi0"); return b != nil && marked(b.ExternalIDs) })
	l.until("it to be up", func() bool { return h.sw.Snapshot().Interface("xapi0").AdminState == "up" })
	h.Space.MustIP(t, "link set xapi0 down")
	l.until("it to be up again", func() bool { return h.sw.Snapshot().Interface("xapi0").AdminState == "up" })

	// The database is gone for a moment: the host's networks still are Open vSwitch's.
	if err := h.KillDatabase(); err != nil {
		t.Fatal(err)
	}
	h.logged("no connection to the switch's database")
	second := l.network("xapi2", nil)
	h.tunnel(second)
	if r := h.report(); r == nil || r.Backend != openVSwitch {
		t.Errorf("report %+v", r)
	}
	if err := h.StartDatabase(); err != nil {
		t.Fatal(err)
	}
	l.until("the bridge that came to be wanted meanwhile", func() bool { r := h.bridgeReport("xapi2"); return r != nil && r.Error == "" })
}

// TestWithoutSwitch: a host without Open vSwitch says so and fails orders; when one is started it
// is used.
func TestWithoutSwitch(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	if err := errors.Join(h.KillSwitch(), h.KillDatabase()); err != nil {
		t.Fatal(err)
	}
	h.start()
	l.until("the report", func() bool { r := h.report(); return r != nil && r.Backend == linuxBridges && len(r.Can) == 0 })
	l.write(func(tx *records.Tx) error {
		return objects.Orders.Put(tx, &objects.Order{Host: h.ref, ID: "o1", Bridge: objects.Bridge{Name: "xapi0", NetworkUUID: "n", FailMode: "standalone"}})
	})
	l.until("the order's failure", func() bool {
		r := h.bridgeReport("xapi0")
		return r != nil && strings.Contains(r.Error, "does not answer")
	})
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	l.until("Open vSwitch to be used", func() bool {
		r := h.bridgeReport("xapi0")
		return r != nil && r.Error == "" && h.report().Backend == openVSwitch
	})
}

// TestStoreAway: with the store away traffic and bridges stay, and what somebody breaks is mended;
// the agent catches up.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	h.ready()
	n := l.network("xapi0", nil)
	_, access := h.tunnel(n)
	l.until("the bridge", func() bool { return h.bridgeReport("xapi0") != nil })
	l.closeStore()
	h.vsctl("del-br", "xapi0")
	l.until("the bridge to be back", func() bool { return h.bridge("xapi0") != nil })
	l.openStore()
	l.change(access, model.Record{"currently_attached": false})
	l.until("the bridge to go", func() bool { return h.bridge("xapi0") == nil })
	l.until("the host to be alive", func() bool { return h.report() != nil })
}

// TestStoreRestored: after a restore to an older state, in which the host's lease is but not its
// report, the host reports itself again.
func TestStoreRestored(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	h.ready()
	forget := []store.Op{{Key: objects.HostReports.Key(h.ref), Delete: true}}
	if _, err := l.st.Commit(t.Context(), nil, forget); err != nil {
		t.Fatal(err)
	}
	older := filepath.Join(t.TempDir(), "older")
	l.closeStore()
	if err := os.CopyFS(older, os.DirFS(filepath.Join(l.dir, "etcd"))); err != nil {
		t.Fatal(err)
	}
	l.openStore()
	h.tunnel(l.network("xapi0", nil))
	l.until("the bridge", func() bool { return h.bridgeReport("xapi0") != nil })
	l.closeStore()
	if err := errors.Join(os.RemoveAll(filepath.Join(l.dir, "etcd")), os.CopyFS(filepath.Join(l.dir, "etcd"), os.DirFS(older))); err != nil {
		t.Fatal(err)
	}
	l.openStore()
	l.until("the report", func() bool { return h.report() != nil })
}

// TestReturn: a host that counted as dead, because its agent was dead or its lease was lost, is
// heard of again only without the legs of its former life that no tunnel's status confirms. An
// agent that is only restarted loses none.
func TestReturn(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	n, m := l.network("xapi0", nil), l.network("xapi1", nil)
	h.ready()
	tunnel, _ := h.tunnel(n)
	center, _ := h.tunnel(m)
	l.until("the bridges", func() bool { return h.bridgeReport("xapi0") != nil && h.bridgeReport("xapi1") != nil })
	leg := func(bridge, name, network, peer string) {
		h.vsctl("add-port", bridge, name, "--", "set", "interface", name, "type=gre", "options:remote_ip=198.18.0.99", "options:key="+name[1:],
			"--", "set", "port", name, "external_ids:heddle-owner=tunnel-controller", "external_ids:heddle-network="+network, "external_ids:heddle-peer="+peer)
	}
	leg("xapi0", "t1", n.UUID(), "old-center")
	leg("xapi0", "t2", n.UUID(), "center")
	leg("xapi1", "t3", m.UUID(), "spoke")
	leg("xapi1", "t4", "no-network", "spoke")
	h.vsctl("add-port", "xapi1", "t5", "--", "set", "interface", "t5", "type=gre", "options:remote_ip=198.18.0.98", "options:key=5")
	ports := func() string {
		var all []string
		for _, name := range []string{"t1", "t2", "t3", "t4", "t5"} {
			if h.sw.Snapshot().Port(name) != nil {
				all = append(all, name)
			}
		}
		return strings.Join(all, " ")
	}
	l.change(tunnel, model.Record{"status": map[string]string{"active": "true", "heddle:role": "spoke", "heddle:center": "center"}})
	l.change(center, model.Record{"status": map[string]string{"active": "true", "heddle:role": "center", "heddle:center": h.options.HostID}})

	h.kill() // and started anew while its lease lasts
	h.start()
	h.logged("msg=ready")
	if got := ports(); got != "t1 t2 t3 t4 t5" {
		t.Errorf("after a restart there are %q", got)
	}

	kv, err := l.st.Get(t.Context(), objects.HostReports.Key(h.ref))
	if err != nil {
		t.Fatal(err)
	}
	changes, _ := l.st.Watch(t.Context(), kv.ModRevision, objects.HostReports.Key(h.ref))
	if err := l.st.Revoke(t.Context(), kv.Lease); err != nil {
		t.Fatal(err)
	}
	l.untilReturn(changes)
	if got := ports(); got != "t2 t3 t5" {
		t.Errorf("after the lease was lost there are %q", got)
	}

	l.change(tunnel, model.Record{"status": map[string]string{"active": "false", "error": "HOST_OFFLINE"}})
	h.end(syscall.SIGTERM)
	l.until("the report to end", func() bool { return h.report() == nil })
	h.ready()
	if got := ports(); got != "t3 t5" {
		t.Errorf("after a while away there are %q", got)
	}
}

// untilReturn waits until a watched report has gone and come again.
func (l *lab) untilReturn(changes <-chan store.Change) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), timeout)
	defer cancel()
	for gone := false; ; {
		select {
		case <-ctx.Done():
			l.t.Fatal("the host has not returned")
		case c := <-changes:
			for _, e := range c.Events {
				if gone && !e.Deleted {
					return
				}
				gone = gone || e.Deleted
			}
		}
	}
}

// TestDeadHost: a host that is not heard of is missed within seconds.
func TestDeadHost(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	h.ready()
	begin := time.Now()
	h.kill()
	l.until("the report to end", func() bool { return h.report() == nil })
	t.Logf("a dead host is missed after %s", time.Since(begin).Round(time.Millisecond))
}
