package cli

import (
	"fmt"
	"os"
	"path/filepath"
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

	boot := time.Now().Add(-2 * time.Hour).Unix()
	put(t, filepath.Join(root, "proc/stat"), fmt.Sprintf("cpu 1 2\nbtime %d\n", boot), 0o444)
	run := func(after time.Duration) {
		put(t, filepath.Join(root, "proc/77/stat"), fmt.Sprintf("77 (libvirtd) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %d 20\n", int64(after.Seconds())*userTicks), 0o644)
	}
	run(time.Hour)
	wantFinding(t, check, "libvirtd has run since")
	run(3 * time.Hour)
	wantFinding(t, check, "")
}

// TestStarted reads the start of this process from the real files.
func TestStarted(t *testing.T) {
	t.Parallel()
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	boot, err1 := kernelFiles("/").bootTime()
	began, err2 := kernelFiles("/").started(string(name[:len(name)-1]))
	if err1 != nil || err2 != nil || began.Before(boot) || began.After(time.Now().Add(time.Second)) {
		t.Errorf("began %s, %v; the machine %s, %v", began, err2, boot, err1)
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
