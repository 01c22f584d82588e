package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

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

		root, err := store.OpenRunning(t.Context(), data, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		value := []byte(strings.Repeat("x", 1<<20))
		const filled = 57 // MiB, of 64; the last 8 are kept
		for i := range filled {
			if _, err := root.Commit(t.Context(), nil, []store.Op{{Key: fmt.Sprint("/filler/", i), Value: value}}); err != nil {
				t.Fatal(err)
			}
		}
		status("full: accepts deletions and log-ins")

		err = admin.call(t.Context(), http.MethodPost, "/v2.0/networks", map[string]any{"network": map[string]any{"name": "red"}}, nil)
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

		for i := range filled {
			if _, err := root.Commit(t.Context(), nil, []store.Op{{Key: fmt.Sprint("/filler/", i), Delete: true}}); err != nil {
				t.Fatal(err)
			}
		}
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
