package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/netlab"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/storetest"
)

// A server whose store is full answers 503 with the reason to what makes it fuller. Reading,
// logging in and deleting go on, and what is deleted makes room: by the server itself, or by the
// command.
func TestServeFullStore(t *testing.T) {
	t.Parallel()
	for _, more := range [][]string{nil, {"--agents-listen", "127.0.0.1:2379"}} {
		ns := netlab.ForTest(t).MustNamespace(t, "full")
		data := t.TempDir()
		refuse(t, ns, 2, "want at least 64 MiB", serveAt("127.0.0.1", data, "--store-quota", "1")...)
		config := filepath.Join(t.TempDir(), "heddle.yaml")
		writeFile(t, config, fmt.Sprintf("serve:\n  data: %s\n  store-quota: 64\n", data))
		server := start(t, ns, append(serveAt("127.0.0.1", data, more...), "--config", config)...)
		admin := login(t, ns, "127.0.0.1", data)
		network := admin.mustCreate(t, "network", map[string]any{"name": "blue"})
		status := func(want string) {
			t.Helper()
			if text := succeed(t, ns, "store", "status", "--config", config); !strings.Contains(text, want) {
				t.Errorf("heddle store status does not say %q:\n%s", want, text)
			}
		}
		status("ok")
		if text := succeed(t, ns, "store", "tables", "--config", config); !regexp.MustCompile(`(?m)^/heddle/neutron/networks/ +1 +\d+`).MatchString(text) {
			t.Errorf("heddle store tables does not count the network:\n%s", text)
		}

		fillStore(t, data)
		status("full: accepts deletions and log-ins")

		for _, at := range [][]string{{"--config", config}, {"--config", "", "--data", data}} {
			if text, code := output(t, ns, append([]string{"doctor"}, at...)...); code != 1 || !strings.Contains(text, "nearly full: the embedded store") {
				t.Errorf("heddle doctor %s beside a full store: exit code %d\n%s", at, code, text)
			}
		}

		err := admin.call(t.Context(), http.MethodPost, "/v2.0/networks", map[string]any{"network": map[string]any{"name": "red"}}, nil)
		if err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), "near its quota; only deletions and log-ins are accepted") {
			t.Errorf("network made in a full store: %v, want 503 and why", err)
		}
		if n := len(admin.list(t, "network")); n != 1 {
			t.Errorf("%d networks are listed, want 1", n)
		}
		server.stop(t)
		status("full: accepts deletions and log-ins")
		if text := succeed(t, ns, "store", "status", "--data", data, "--store-quota", "256"); !strings.Contains(text, "256.0") || !strings.Contains(text, "ok") {
			t.Errorf("heddle store status of a stopped server with a larger quota:\n%s", text)
		}
		server = start(t, ns, append(serveAt("127.0.0.1", data, more...), "--config", config)...)
		checkDiskMetric(t, server, data)
		again := login(t, ns, "127.0.0.1", data)
		if err := again.call(t.Context(), http.MethodDelete, "/v2.0/networks/"+network.ID, nil, nil); err != nil {
			t.Error("deletion in a full store:", err)
		}

		emptyStore(t, data)
		if text := succeed(t, ns, "store", "reclaim", "--data", data); !strings.Contains(text, "reclaimed; ") {
			t.Errorf("heddle store reclaim says %q", text)
		}
		for _, step := range []string{"compact", "defragment", "disarm"} {
			succeed(t, ns, "store", step, "--data", data)
		}
		status("ok")
		admin.mustCreate(t, "network", map[string]any{"name": "red"})
	}
}

// filled is the number of 1 MiB values that leave only the reserve of a store with a quota of 64
// MiB.
const filled = 57

// fillStore writes as many, and waits until the database has grown: etcd writes it after it has
// answered.
func fillStore(t *testing.T, data string) {
	t.Helper()
	root := eachFiller(t, data, store.Op{Value: []byte(strings.Repeat("x", 1<<20))})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := netlab.Until(ctx, "the database to have grown", func() (bool, error) {
		space, err := root.Space(ctx)
		return err == nil && space[0].Full(), err
	}); err != nil {
		t.Fatal(err)
	}
}

// emptyStore deletes what fillStore has written.
func emptyStore(t *testing.T, data string) {
	t.Helper()
	eachFiller(t, data, store.Op{Delete: true})
}

func eachFiller(t *testing.T, data string, op store.Op) *backend.Etcd {
	t.Helper()
	root, err := backend.OpenRunning(t.Context(), data, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	for i := range filled {
		op.Key = fmt.Sprint("/filler/", i)
		// What was written twice, since etcd did not answer the first time, takes room twice.
		if err := storetest.Write(t.Context(), root, op); errors.Is(err, store.ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// checkDiskMetric checks that a server's metric of free space is within the size of its disk.
func checkDiskMetric(t *testing.T, server *running, data string) {
	t.Helper()
	var disk unix.Statfs_t
	if err := unix.Statfs(data, &disk); err != nil {
		t.Fatal(err)
	}
	total := float64(disk.Blocks) * float64(disk.Bsize)
	_, text, err := server.page(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^heddle_data_disk_free_bytes (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no free space of the data directory in\n%s", text)
	}
	if free, err := strconv.ParseFloat(found[1], 64); err != nil || free <= 0 || free >= total {
		t.Errorf("the data directory has %v bytes free of %v, %v", free, total, err)
	}
}

// The XenAPI heeds that the store is full, whether it has the store open itself or uses that of the
// server beside it: logging in and destroying go on, making networks does not.
func TestXenAPIFullStore(t *testing.T) {
	t.Parallel()
	for _, beside := range []bool{false, true} {
		ns, data := netlab.ForTest(t).MustNamespace(t, "full"), t.TempDir()
		pool := []string{"xapi", "--data", data, "--tls-listen", ""}
		if beside {
			start(t, ns, serveAt("127.0.0.1", data, "--store-quota", "64")...)
		} else {
			refuse(t, ns, 2, "want at least 64 MiB", append(pool, "--store-quota", "1")...)
			pool = append(pool, "--store-quota", "64")
		}
		server := start(t, ns, pool...)
		xe := func(args ...string) (string, int) {
			return output(t, ns, append([]string{"xe", "-s", "127.0.0.1", "-p", "8080", "--nossl", "-u", "root", "-pw", rootPassword(t, data)}, args...)...)
		}
		network, code := xe("network-create", "name-label=blue")
		if code != 0 {
			t.Fatal(network)
		}
		fillStore(t, data)
		server.stop(t)
		start(t, ns, pool...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := netlab.Until(ctx, "refusal of a network", func() (bool, error) {
			text, code := xe("network-create", "name-label=red")
			return code == 1 && strings.Contains(text, "near its quota; only deletions and log-ins are accepted"), nil
		}); err != nil {
			t.Error(err)
		}
		if text, code := xe("network-destroy", "uuid="+strings.TrimSpace(network)); code != 0 {
			t.Errorf("destroying a network in a full store: exit code %d, %s", code, text)
		}
	}
}

// rootPassword is that of the XenAPI's first account.
func rootPassword(t *testing.T, data string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(data, rootPasswordFile))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}
