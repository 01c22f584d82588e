package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"heddle/internal/netlab"
)

// On a full disk reading goes on for those who hold a token; what needs a write is answered with
// the reason. The log says so once, doctor and status as long as it lasts.
func TestServeFullDisk(t *testing.T) {
	t.Parallel()
	ns := netlab.ForTest(t).MustNamespace(t, "disk")
	data := t.TempDir()
	if err := unix.Mount("tmpfs", data, "tmpfs", 0, "size=768m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(data, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	server := start(t, ns, serveAt("127.0.0.1", data)...)
	admin := login(t, ns, "127.0.0.1", data)
	kept := admin.mustCreate(t, "network", map[string]any{"name": "blue"})
	occupy(t, filepath.Join(data, "of-another-program"), data, 32<<20)
	server.waitLog(t, "the disk is nearly full; accepting no writes")
	for range 3 {
		if _, err := admin.create(t.Context(), "network", map[string]any{"name": "red"}); err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), "the disk of "+data) {
			t.Errorf("a create on a full disk: %v, want 503 and why", err)
		}
	}
	if err := newClient(ns, "127.0.0.1", "").login(t.Context(), "http://127.0.0.1:5000", readCloud(t, data)); err == nil || !strings.Contains(err.Error(), "the disk of "+data) {
		t.Errorf("a log-in on a full disk: %v, want the reason", err)
	}
	if err := admin.call(t.Context(), http.MethodGet, "/v2.0/networks/"+kept.ID, nil, nil); err != nil {
		t.Error("reading on a full disk:", err)
	}
	if text := succeed(t, ns, "store", "status", "--data", data); !strings.Contains(text, "disk full: accepts no writes") {
		t.Errorf("status:\n%s", text)
	}
	if text, code := output(t, ns, "status", "--config", "", "--data", data); code != 1 || !strings.Contains(text, "its disk is full, and it accepts no writes") && !strings.Contains(text, "the disk of "+data) {
		t.Errorf("heddle status: exit code %d, want the disk named\n%s", code, text) // a log-in may be refused
	}
	if text, code := output(t, ns, "doctor", "--config", "", "--data", data); code != 1 || !strings.Contains(text, "make room on the disk of "+data) || strings.Contains(text, "heddle store reclaim") {
		t.Errorf("doctor: exit code %d, want the disk named and nothing about reclaiming\n%s", code, text)
	}
	for _, step := range []string{"reclaim", "compact"} {
		if text, code := output(t, ns, "store", step, "--data", data); code != 1 || !strings.Contains(text, "the disk of "+data+" has") || !strings.Contains(text, "make room there") || strings.Contains(text, "reclaim") {
			t.Errorf("store %s on a full disk: exit code %d, want the disk named and nothing about reclaiming\n%s", step, code, text)
		}
	}
	server.waitFor(t, "/readyz", http.StatusOK, "ready")
	if log := server.text(t); strings.Count(log, "the disk is nearly full") != 1 || strings.Contains(log, "request not served") {
		t.Errorf("want one line about the full disk in the log:\n%s", log)
	}
}

// occupy makes a file that leaves some bytes free on the disk of a directory.
func occupy(t *testing.T, file, dir string, free int64) {
	t.Helper()
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(file, unix.O_CREAT|unix.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Fallocate(fd, 0, 0, int64(disk.Bavail)*disk.Bsize-free); err != nil {
		t.Fatal(err)
	}
}
