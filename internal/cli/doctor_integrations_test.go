package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestNoIntegrations: there are no checks of software that is not there, nor of container networks
// of others.
func TestNoIntegrations(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, filepath.Join(root, "etc/cni/net.d/bridge.conf"), `{"type": "bridge"`, 0o644)
	if checks := kernelFiles(root).integrationChecks(); len(checks) > 0 {
		t.Errorf("checks %v", checks)
	}
}

// TestHookCheck: libvirt's hook is found missing, leading nowhere, not executable, and younger than
// the libvirtd that runs.
func TestHookCheck(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, filepath.Join(root, "usr/sbin/libvirtd"), "", 0o755)
	checks := kernelFiles(root).integrationChecks()
	if len(checks) != 1 {
		t.Fatalf("checks %v", checks)
	}
	check, hook := checks[0], filepath.Join(root, libvirtHook)
	wantFinding(t, check, libvirtHook+" is missing")
	if err := os.MkdirAll(filepath.Dir(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("heddle", hook); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, check, "no such file")
	program := filepath.Join(filepath.Dir(hook), "heddle")
	put(t, program, "", 0o644)
	wantFinding(t, check, "has mode 644: it is not executable")
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, check, "")

	if !strings.Contains(check.Fix, "ln -sf ") {
		t.Errorf("%q does not replace a link that is wrong", check.Fix)
	}
	link, err := os.Lstat(hook)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := bootTime()
	if err != nil {
		t.Fatal(err)
	}
	run := func(state string, began time.Time) {
		put(t, filepath.Join(root, "proc/77/stat"), fmt.Sprintf("77 (libvirtd) %s 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %d 20\n", state, int64(began.Sub(boot).Seconds()*userTicks)), 0o644)
	}
	run("S", link.ModTime().Add(-time.Hour))
	wantFinding(t, check, "libvirtd has run since")
	run("S", link.ModTime().Add(-time.Second))
	wantFinding(t, check, "libvirtd has run since")
	run("Z", link.ModTime().Add(-time.Hour))
	wantFinding(t, check, "")
	run("S", link.ModTime()) // right after the hook was made
	wantFinding(t, check, "")
}

// TestStarted reads the start of a process from the real files, to the ticks of the kernel.
func TestStarted(t *testing.T) {
	t.Parallel()
	name := "heddle" + strconv.Itoa(os.Getpid()) // one that no other process has
	program := filepath.Join(t.TempDir(), name)
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(sleep, program); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	child := exec.Command("sleep", "60")
	child.Path = program
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	after := time.Now()
	defer func() { _ = child.Wait() }()
	defer func() { _ = child.Process.Kill() }()
	began, err := kernelFiles("/").started(name)
	if err != nil || began.Before(before.Add(-clockGrain)) || began.After(after.Add(clockGrain)) {
		t.Errorf("began %s, %v; want it between %s and %s", began, err, before, after)
	}
}

// TestNetworksCheck: in the networks of containers with Heddle's plug-in, plug-ins and credentials
// are found that are missing, and credentials that others than root can read.
func TestNetworksCheck(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	file := filepath.Join(root, "etc/cni/net.d/blue.conflist")
	put(t, file, `{"name": "blue", "plugins": [{"type": "heddle-cni"}, {"type": "bandwidth"}]}`, 0o644)
	want := func(words string) {
		t.Helper()
		checks := kernelFiles(root).integrationChecks()
		if len(checks) != 1 {
			t.Fatalf("checks %v", checks)
		}
		wantFinding(t, checks[0], words)
	}
	want(file + ": plug-in heddle-cni is in none of /usr")
	put(t, filepath.Join(root, "usr/local/lib/cni/heddle-cni"), "", 0o644)
	want("/usr/local/lib/cni/heddle-cni has mode 644: it is not executable")
	if err := os.Chmod(filepath.Join(root, "usr/local/lib/cni/heddle-cni"), 0o755); err != nil {
		t.Fatal(err)
	}
	want("credentials: ")
	want("plug-in bandwidth is in none of")
	put(t, filepath.Join(root, "opt/cni/bin/bandwidth"), "", 0o755)
	credentials := filepath.Join(root, cniCredentials)
	put(t, credentials, "", 0o604)
	want(cniCredentials + " has mode 604")
	if err := os.Chmod(credentials, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		want("")
	}
	put(t, file, `{"name": "blue", "type": "heddle-cni", "credentials": "/root/clouds.yaml"}`, 0o644)
	want("/root/clouds.yaml: no such file")
	put(t, file, `{"type": "heddle-cni"`, 0o644)
	want(file + ": unexpected end of JSON input")
}
