package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/nettest"
	"heddle/internal/store"
)

// A server whose store is full answers 503 with the reason to what makes it fuller. Reading, logging in and deleting go
// on, and what is deleted makes room: by the server itself, or by the command.
func TestServeFullStore(t *testing.T) {
	t.Parallel()
	for _, more := range [][]string{nil, {"--agents-listen", "127.0.0.1:2379"}} {
		ns := nettest.ForTest(t).MustNamespace(t, "full")
		data := t.TempDir()
		refuse(t, ns, 2, "want at least 64 MiB", serveAt("127.0.0.1", data, "--store-quota", "1")...)
		start(t, ns, serveAt("127.0.0.1", data, append(more, "--store-quota", "64")...)...)
		admin := login(t, ns, "127.0.0.1", data)
		network := admin.mustCreate(t, "network", map[string]any{"name": "blue"})
		status := func(want string) {
			t.Helper()
			if text := succeed(t, ns, "store", "status", "--data", data); !strings.Contains(text, want) {
				t.Errorf("heddle store status does not say %q:\n%s", want, text)
			}
		}
		status("ok")

		empty := fillStore(t, data)
		status("full: accepts deletions and log-ins")

		err := admin.call(t.Context(), http.MethodPost, "/v2.0/networks", map[string]any{"network": map[string]any{"name": "red"}}, nil)
		if err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), "near its quota; only deletions and log-ins are accepted") {
			t.Errorf("network made in a full store: %v, want 503 and why", err)
		}
		if n := len(admin.list(t, "network")); n != 1 {
			t.Errorf("%d networks are listed, want 1", n)
		}
		again := login(t, ns, "127.0.0.1", data)
		if err := again.call(t.Context(), http.MethodDelete, "/v2.0/networks/"+network.ID, nil, nil); err != nil {
			t.Error("deletion in a full store:", err)
		}

		empty()
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

// fillStore brings a store with a quota of 64 MiB so far that only its reserve is left.
func fillStore(t *testing.T, data string) (empty func()) {
	t.Helper()
	root, err := store.OpenRunning(t.Context(), data, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	value := []byte(strings.Repeat("x", 1<<20))
	const filled = 57 // MiB, of 64; the last 8 are kept
	each := func(op store.Op) {
		t.Helper()
		for i := range filled {
			op.Key = fmt.Sprint("/filler/", i)
			if _, err := root.Commit(t.Context(), nil, []store.Op{op}); err != nil {
				t.Fatal(err)
			}
		}
	}
	each(store.Op{Value: value})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := nettest.Until(ctx, "the database to have grown", func() (bool, error) { // etcd writes it after it has answered
		space, err := root.Space(ctx)
		return err == nil && space[0].Full(), err
	}); err != nil {
		t.Fatal(err)
	}
	return func() { t.Helper(); each(store.Op{Delete: true}) }
}

// The XenAPI heeds that the store is full, whether it has the store open itself or uses that of the server beside it:
// logging in and destroying go on, making networks does not.
func TestXenAPIFullStore(t *testing.T) {
	t.Parallel()
	for _, beside := range []bool{false, true} {
		ns, data := nettest.ForTest(t).MustNamespace(t, "full"), t.TempDir()
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
		if err := nettest.Until(ctx, "refusal of a network", func() (bool, error) {
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
