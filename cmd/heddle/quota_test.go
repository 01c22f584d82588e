package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/storetest"
)

// Over an etcd that does not report its quota, such as Debian's, the reserve is that of the quota
// given, or of the one that is assumed, which status and log say. What etcd itself refuses for lack
// of space is answered with the reason.
func TestClusterWithoutQuotaReport(t *testing.T) {
	t.Parallel()
	if version, err := exec.Command("etcd", "--version").Output(); err != nil || !strings.Contains(string(version), "etcd Version: 3.4.") {
		t.Skipf("needs etcd 3.4, as Debian has it: run scripts/setup (%v)", err)
	}
	ns := netlab.ForTest(t).MustNamespace(t, "etcd34")
	st := startEtcd34(t, ns)
	cluster := []string{"--etcd-endpoints", "127.0.0.1:2379"}
	given := append(cluster, "--etcd-quota", fmt.Sprint(etcd34QuotaMiB))
	data := t.TempDir()
	server := start(t, ns, serveAt("127.0.0.1", data, cluster...)...)
	server.waitLog(t, "assuming etcd's default")
	if text := succeed(t, ns, append([]string{"store", "status"}, cluster...)...); !strings.Contains(text, "2048.0 (assumed: give --etcd-quota)") {
		t.Errorf("status without a quota:\n%s", text)
	}
	admin := login(t, ns, "127.0.0.1", data)
	kept := admin.mustCreate(t, "network", map[string]any{"name": "blue"})

	// The quota assumed is too large, so that etcd refuses first.
	n := 0
	for err := error(nil); err == nil; n++ {
		if n > 2*etcd34QuotaMiB {
			t.Fatalf("etcd accepts %d MiB over its quota of %d MiB", n, etcd34QuotaMiB)
		}
		err = storetest.Write(t.Context(), st, fillerOf34(n))
	}
	refused := func(what, why string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), why) {
			t.Errorf("%s in a full cluster: %v, want 503 and %q", what, err, why)
		}
	}
	_, err := admin.create(t.Context(), "network", map[string]any{"name": "red"})
	refused("a create", "is full: heddle store status and reclaim", err)
	refused("a log-in", "is full: heddle store status and reclaim",
		newClient(ns, "127.0.0.1", "").login(t.Context(), "http://127.0.0.1:5000", readCloud(t, data)))

	config := filepath.Join(t.TempDir(), "heddle.yaml")
	writeFile(t, config, fmt.Sprintf("serve:\n  data: %s\n  etcd-endpoints: [127.0.0.1:2379]\n  etcd-quota: %d\n", data, etcd34QuotaMiB))
	if text, code := output(t, ns, "doctor", "--config", config); code != 1 || !strings.Contains(text, "nearly full: ") || !strings.Contains(text, "of 64 MiB") {
		t.Errorf("doctor beside a full cluster: exit code %d\n%s", code, text)
	}
	if text := succeed(t, ns, append([]string{"store", "status"}, given...)...); !strings.Contains(text, "alarm: refuses all writes") || !strings.Contains(text, "64.0") || strings.Contains(text, "assumed") {
		t.Errorf("status with a quota:\n%s", text)
	}
	if text, code := output(t, ns, append([]string{"store", "disarm"}, given...)...); code == 0 || !strings.Contains(text, "compact and defragment first") {
		t.Errorf("disarm of a cluster that is as full as before: exit code %d\n%s", code, text)
	}
	if err := storetest.Write(t.Context(), st, store.Op{Key: "/filler/", DeletePrefix: true}); err != nil {
		t.Fatal(err)
	}
	succeed(t, ns, append([]string{"store", "reclaim"}, given...)...)
	server.stop(t)

	// With the quota given, the reserve is kept.
	server = start(t, ns, serveAt("127.0.0.1", data, given...)...)
	server.waitFor(t, "/metrics", http.StatusOK, "} 6.7108864e+07")
	for i, full := 0, false; !full; i++ {
		// Small values: large ones leave gaps, and the file overshoots.
		if err := storetest.Write(t.Context(), st, store.Op{Key: fmt.Sprint("/filler/", i), Value: make([]byte, 64<<10)}); err != nil {
			t.Fatal(err)
		}
		space, err := st.Space(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		full = space[0].Full()
	}
	server.waitLog(t, "the store is full; only deletions and log-ins are accepted")
	_, err = admin.create(t.Context(), "network", map[string]any{"name": "red"})
	refused("a create", "near its quota; only deletions and log-ins are accepted", err)
	again := login(t, ns, "127.0.0.1", data)
	if err := again.call(t.Context(), http.MethodDelete, "/v2.0/networks/"+kept.ID, nil, nil); err != nil {
		t.Error("deletion in a full cluster:", err)
	}
}

const etcd34QuotaMiB = 64

func fillerOf34(i int) store.Op {
	return store.Op{Key: fmt.Sprint("/filler/", i), Value: []byte(strings.Repeat("x", 1<<20))}
}

// startEtcd34 runs the machine's etcd in a namespace, and returns its store.
func startEtcd34(t *testing.T, ns *netlab.Namespace) *backend.Etcd {
	t.Helper()
	// A directory with a short name: the path of a socket may have 107 bytes.
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	// etcd wants a port in the name of a socket, and no path.
	cmd := exec.Command("etcd", "--data-dir", "data", "--listen-client-urls", "http://127.0.0.1:2379,unix://s:1",
		"--advertise-client-urls", "http://127.0.0.1:2379", "--listen-peer-urls", "http://127.0.0.1:2380",
		"--max-txn-ops", "8192", "--max-request-bytes", "67108864", "--quota-backend-bytes", fmt.Sprint(etcd34QuotaMiB<<20))
	cmd.Dir, cmd.Stderr = dir, t.Output()
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st, err := backend.Open(ctx, backend.Options{Cluster: &backend.Cluster{Endpoints: []string{"unix://" + filepath.Join(dir, "s:1")}, SkipLimits: true, Quota: etcd34QuotaMiB << 20}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}
