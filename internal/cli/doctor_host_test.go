package cli

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
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

// wantUndecided: the check cannot find out, and says why.
func wantUndecided(t *testing.T, c Check, words string) {
	t.Helper()
	if err := c.Run(t.Context()); !errors.As(err, new(undecided)) {
		t.Errorf("%s: found %v, want that it is unknown", c.Name, err)
	}
	wantFinding(t, c, words)
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
	want("", "", "", "", "")
	set("proc/sys/net/ipv4/conf/all/rp_filter", "1")
	set("proc/sys/net/bridge/bridge-nf-call-iptables", "1")
	set("proc/sys/net/netfilter/nf_conntrack_count", "80")
	set("proc/sys/net/netfilter/nf_conntrack_max", "100")
	set("sys/class/net/br-int", "")
	set("sys/class/net/cilium_host", "")
	set("run/netns/qrouter-1", "")
	set("run/netns/web", "")
	set("var/log/kern.log", denied(`apparmor="DENIED" operation="open" profile="/usr/sbin/dnsmasq" name="/var/lib/heddle-agent/x" pid=7 comm="dnsmasq"`))
	set("var/log/audit/audit.log", denied(`type=AVC msg=audit(1:2): avc:  denied  { write } for  pid=9 comm="heddle" name="bpf" scontext=system_u`))
	want("rp_filter is 1: strict", "bridge-nf-call-iptables is 1", "80 of 100 connections",
		"interface br-int of Neutron's or OVN's Open vSwitch agent, interface cilium_host of Cilium, network namespace qrouter-1 of Neutron's L3 agent",
		`2 denials, at last /var/log/audit/audit.log: type=AVC`)
	set("proc/sys/net/ipv4/conf/all/rp_filter", "2")
	set("proc/sys/net/bridge/bridge-nf-call-iptables", "0")
	set("proc/sys/net/netfilter/nf_conntrack_count", "79")
	if err := os.RemoveAll(filepath.Join(root, "sys/class/net/br-int")); err != nil {
		t.Fatal(err)
	}
	set("var/log/kern.log", denied(""))
	if err := os.Remove(filepath.Join(root, "var/log/audit/audit.log")); err != nil {
		t.Fatal(err)
	}
	want("", "", "", "cilium_host", "")
	set("proc/sys/net/netfilter/nf_conntrack_count", "many")
	wantFinding(t, all[2], "many")
}

// denied is a log with a denial to another program, and a line.
func denied(line string) string {
	return `audit: avc:  denied  { read } for  pid=3 comm="nginx"` + "\n" + line + "\nheddle: permission denied"
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

// TestDirectoriesOfSecrets: a directory of secrets, or one above, that others may write to is
// found.
func TestDirectoriesOfSecrets(t *testing.T) {
	t.Parallel()
	above := filepath.Join(t.TempDir(), "above")
	data := filepath.Join(above, "data")
	put(t, filepath.Join(data, "tls", "ca.key"), "x", 0o600)
	wantFinding(t, secretsCheck("serve", data), "")
	for _, tt := range []struct {
		dir   string
		mode  os.FileMode
		found bool
	}{
		{data, 0o777, true}, {data, 0o777 | os.ModeSticky, true}, {filepath.Join(data, "tls"), 0o722, true},
		{above, 0o777, true}, {above, 0o777 | os.ModeSticky, false}, {above, 0o755, false},
	} {
		if err := os.Chmod(tt.dir, tt.mode); err != nil {
			t.Fatal(err)
		}
		want := ""
		if tt.found {
			want = "others may write to the directory " + tt.dir + ", which has mode"
		}
		wantFinding(t, secretsCheck("serve", data), want)
		if err := os.Chmod(tt.dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("giving a directory to another user or group takes root")
	}
	if err := errors.Join(os.Chown(above, -1, 12345), os.Chmod(above, 0o770)); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, secretsCheck("serve", data), "has mode 770 and group 12345")
	if err := os.Chown(above, 12345, 0); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, secretsCheck("serve", data), "the directory "+above+" belongs to user 12345, want root or 0")
}

// TestSecretFilesCheck: files that settings name and credentials in /etc/heddle that others can
// read, or that are another user's than root and the data's; what is not there is passed over.
func TestSecretFilesCheck(t *testing.T) {
	t.Parallel()
	root, data := t.TempDir(), t.TempDir()
	key, token, clouds := filepath.Join(root, "server.key"), filepath.Join(root, "token"), filepath.Join(root, "etc/heddle/nova-clouds.yaml")
	check := kernelFiles(root).secretFilesCheck(data, func() ([]SecretFile, error) {
		return []SecretFile{{"serve.tls-key", key}, {"agent.join-file", token}}, nil
	})
	put(t, key, "x", 0o600)
	put(t, clouds, "x", 0o600)
	wantFinding(t, check, "")
	for _, path := range []string{key, clouds} {
		if err := os.Chmod(path, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	wantFinding(t, check, "serve.tls-key: "+key+" has mode 640; "+clouds+" has mode 640")
	wantUndecided(t, kernelFiles(root).secretFilesCheck(data, func() ([]SecretFile, error) { return nil, errors.New("no settings") }), "no settings")
	if os.Geteuid() != 0 {
		t.Skip("giving a file to another user takes root")
	}
	for _, path := range []string{key, clouds} {
		if err := errors.Join(os.Chmod(path, 0o600), os.Chown(path, 12345, -1)); err != nil {
			t.Fatal(err)
		}
	}
	wantFinding(t, check, key+" belongs to user 12345, want one of [0]")
	if err := os.Chown(data, 12345, -1); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, check, "")
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
}

// TestNameCheck asks a real DNS server.
func TestNameCheck(t *testing.T) {
	t.Parallel()
	ns := netlab.ForTest(t).MustNamespace(t, "dns")
	dns := exec.Command("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--local=/in-addr.arpa/", "--pid-file=", "--user=root", "--bind-interfaces", "--listen-address=127.0.0.1",
		"--host-record=good.example,192.0.2.1", "--address=/lost.example/192.0.2.2", "--address=/other.example/192.0.2.3", "--ptr-record=3.2.0.192.in-addr.arpa,elsewhere.example")
	if err := ns.Start(dns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dns.Process.Kill(); _ = dns.Wait() })
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (c net.Conn, err error) {
		err = ns.Do(func() error {
			c, err = new(net.Dialer).DialContext(ctx, network, "127.0.0.1:53")
			return err
		})
		return c, err
	}}
	named := func(name string) Check { return nameCheck(r, func() (string, error) { return name, nil }) }
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := netlab.Until(ctx, "dnsmasq to answer", func() (bool, error) {
		_, err := r.LookupHost(ctx, "good.example")
		return err == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, named("good.example"), "")
	wantFinding(t, named("nowhere.example"), "nowhere.example has no address")
	wantFinding(t, named("lost.example"), "no address of lost.example leads back to it: 192.0.2.2 has no name")
	wantFinding(t, named("other.example"), "192.0.2.3 has elsewhere.example.")
	if !isSameHost("H1.example.", "h1") || isSameHost("h10.example", "h1") {
		t.Error("names with and without a domain are compared wrongly")
	}
}
