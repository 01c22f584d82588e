package cli

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
)

// wantFinding runs a check, which must find the words, or nothing for "".
func wantFinding(t *testing.T, c Check, words string) {
	t.Helper()
	err := c.Run(t.Context())
	if words == "" && err != nil {
		t.Errorf("%s: found %v", c.Name, err)
	} else if words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
		t.Errorf("%s: found %v, want %q", c.Name, err, words)
	}
	if c.Fix == "" {
		t.Errorf("%s has no fix", c.Name)
	}
}

func put(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// TestKernelChecks: each setting is found where it does harm, and not where it does none or where
// the kernel has no such setting.
func TestKernelChecks(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	all := kernelFiles(root).checks()
	want := func(words ...string) {
		t.Helper()
		for i, c := range all {
			wantFinding(t, c, words[i])
		}
	}
	set := func(path, text string) { put(t, filepath.Join(root, path), text+"\n", 0o644) }
	set("sys/class/net/eth0", "")
	want("", "", "", "")
	set("proc/sys/net/ipv4/conf/all/rp_filter", "1")
	set("proc/sys/net/bridge/bridge-nf-call-iptables", "1")
	set("proc/sys/net/netfilter/nf_conntrack_count", "80")
	set("proc/sys/net/netfilter/nf_conntrack_max", "100")
	set("sys/class/net/br-int", "")
	set("sys/class/net/cilium_host", "")
	want("rp_filter is 1: strict", "bridge-nf-call-iptables is 1", "80 of 100 connections", "br-int of Neutron's or OVN's Open vSwitch agent, cilium_host of Cilium")
	set("proc/sys/net/ipv4/conf/all/rp_filter", "2")
	set("proc/sys/net/bridge/bridge-nf-call-iptables", "0")
	set("proc/sys/net/netfilter/nf_conntrack_count", "79")
	if err := os.RemoveAll(filepath.Join(root, "sys/class/net/br-int")); err != nil {
		t.Fatal(err)
	}
	want("", "", "", "cilium_host")
	set("proc/sys/net/netfilter/nf_conntrack_count", "many")
	wantFinding(t, all[2], "many")
}

// TestSecretsCheck: files of keys and passwords that others can read, or that are not the owner's.
func TestSecretsCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	wantFinding(t, secretsCheck("serve", filepath.Join(dir, "none")), "")
	for _, name := range []string{"ca.key", "deep/root-password", "clouds.yaml", "ca.crt"} {
		put(t, filepath.Join(dir, name), "x", 0o600)
	}
	wantFinding(t, secretsCheck("serve", dir), "")
	if err := os.Chmod(filepath.Join(dir, "ca.crt"), 0o644); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, secretsCheck("serve", dir), "")
	if err := os.Chmod(filepath.Join(dir, "deep/root-password"), 0o640); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, secretsCheck("serve", dir), "deep/root-password has mode 640")
	if os.Geteuid() != 0 {
		t.Skip("giving a file to another user takes root")
	}
	if err := os.Chown(filepath.Join(dir, "ca.key"), 12345, -1); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, secretsCheck("serve", dir), "ca.key belongs to user 12345")
}

// TestSyncCheck: a disk is judged by the slowest of a hundred syncs, and left as it was.
func TestSyncCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if took, err := syncTimes(dir); err != nil || len(took) != syncTries {
		t.Errorf("%d syncs: %v", len(took), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	took := make([]time.Duration, syncTries)
	if err := judgeSyncs(took); err != nil {
		t.Error(err)
	}
	took[7] = 11 * time.Millisecond
	if err := judgeSyncs(took); err == nil || !strings.Contains(err.Error(), "takes 11ms, at most 10ms") {
		t.Errorf("slow: %v", err)
	}
	wantFinding(t, syncCheck(filepath.Join(dir, "none")), "")
	wantFinding(t, syncCheck(os.DevNull), "not a directory")
}

// TestPathCheck: packets that the way between two hosts does not carry are found.
func TestPathCheck(t *testing.T) {
	t.Parallel()
	lab := netlab.ForTest(t)
	here, there := lab.MustNamespace(t, "here"), lab.MustNamespace(t, "there")
	lab.MustVeth(t, here, "eth0", there, "eth0")
	here.MustIP(t, "addr add 192.0.2.1/24 dev eth0")
	there.MustIP(t, "addr add 192.0.2.2/24 dev eth0")
	ping := func(to string, mtu int) error {
		return here.Do(func() error { return pingWhole(t.Context(), netip.MustParseAddr(to), mtu) })
	}
	if err := ping("192.0.2.2", 1500); err != nil {
		t.Errorf("whole: %v", err)
	}
	if err := ping("192.0.2.2", 1501); err == nil || !strings.Contains(err.Error(), "larger than the MTU") {
		t.Errorf("larger than the interface's: %v", err)
	}
	there.MustIP(t, "link set eth0 mtu 1400") // it drops what is larger
	if err := ping("192.0.2.2", 1500); err == nil || !strings.Contains(err.Error(), "none of 3 was answered") {
		t.Errorf("larger than the way: %v", err)
	}
	wantFinding(t, pathCheck("h2", 1500), `--peer "h2": want the IPv4 address`)
}
