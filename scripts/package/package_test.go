package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// heddle is the binary that `make build` made.
const heddle = "../../bin/heddle"

// small stands in for a heddle where only the package counts.
const small = "package_test.go"

// pack makes the package of a binary, and returns its path.
func pack(t *testing.T, version, binary string) string {
	t.Helper()
	out := t.TempDir()
	if err := run([]string{"--version", version, "--time", "1700000000", "--out", out, "amd64=" + binary}); err != nil {
		t.Fatalf("%v (make build comes first)", err)
	}
	debs, err := filepath.Glob(filepath.Join(out, "*.deb"))
	if err != nil || len(debs) != 1 {
		t.Fatalf("packages %q, %v", debs, err)
	}
	return debs[0]
}

// TestSameBytes: a package and an archive are the same bytes whenever they are made.
func TestSameBytes(t *testing.T) {
	t.Parallel()
	first, second := pack(t, "v0.1.0", small), pack(t, "v0.1.0", small)
	sums := func(deb string) string {
		raw, err := os.ReadFile(filepath.Join(filepath.Dir(deb), "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	if sums(first) != sums(second) || strings.Count(sums(first), "\n") != 2 {
		t.Errorf("the sums differ:\n%s\n%s", sums(first), sums(second))
	}
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = filepath.Dir(first)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestContents: what a package installs, with modes and owners, and what it says of itself.
func TestContents(t *testing.T) {
	t.Parallel()
	deb := pack(t, "v0.1.0-3-g1a2b3c4", small)
	out, err := exec.Command("dpkg-deb", "--contents", deb).Output()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line) // mode owner size date time name, or name -> target
		if f[1] != "root/root" {
			t.Errorf("owner: %s", line)
		}
		if strings.HasPrefix(f[0], "d") && f[0] != "drwxr-xr-x" {
			t.Errorf("mode: %s", line)
		}
		got[strings.Join(f[5:], " ")] = f[0]
	}
	for name, mode := range map[string]string{
		"./usr/bin/heddle": "-rwxr-xr-x",
		"./usr/lib/heddle/bin/xe -> ../../../bin/heddle":                  "lrwxrwxrwx",
		"./usr/lib/heddle/bin/calico-dhcp-agent -> ../../../bin/heddle":   "lrwxrwxrwx",
		"./usr/lib/heddle/bin/heddle-cni -> ../../../bin/heddle":          "lrwxrwxrwx",
		"./usr/lib/heddle/bin/heddle-libvirt-hook -> ../../../bin/heddle": "lrwxrwxrwx",
		"./lib/systemd/system/heddle.service":                             "-rw-r--r--",
		"./lib/systemd/system/heddle.socket":                              "-rw-r--r--",
		"./lib/systemd/system/heddle.target":                              "-rw-r--r--",
		"./lib/systemd/system/heddle-agent.service":                       "-rw-r--r--",
		"./lib/systemd/system/heddle-backup.timer":                        "-rw-r--r--",
		"./lib/systemd/system/heddle-drill.timer":                         "-rw-r--r--",
		"./usr/lib/sysusers.d/heddle.conf":                                "-rw-r--r--",
		"./usr/lib/tmpfiles.d/heddle.conf":                                "-rw-r--r--",
		"./etc/heddle/conf.d/":                                            "drwxr-xr-x",
		"./usr/share/heddle/heddle.yaml":                                  "-rw-r--r--",
		"./usr/share/man/man1/heddle-serve.1.gz":                          "-rw-r--r--",
		"./usr/share/man/man5/heddle.yaml.5.gz":                           "-rw-r--r--",
		"./usr/share/man/man7/heddle.7.gz":                                "-rw-r--r--",
		"./usr/share/bash-completion/completions/heddle":                  "-rw-r--r--",
		"./usr/share/zsh/vendor-completions/_heddle":                      "-rw-r--r--",
		"./usr/share/fish/vendor_completions.d/heddle.fish":               "-rw-r--r--",
		"./usr/share/doc/heddle/copyright":                                "-rw-r--r--",
		"./usr/share/doc/heddle/changelog.gz":                             "-rw-r--r--",
		"./usr/share/doc/heddle/CHANGELOG.md":                             "-rw-r--r--",
		"./usr/share/lintian/overrides/heddle":                            "-rw-r--r--",
		"./usr/share/doc/heddle/docs/guides/install.md":                   "-rw-r--r--",
		"./usr/share/heddle/prometheus/heddle.rules.yml":                  "-rw-r--r--",
		"./usr/share/heddle/grafana/overview.json":                        "-rw-r--r--",
		"./usr/share/doc/heddle/docs/runbooks/HeddleProcessDown.md":       "-rw-r--r--",
	} {
		if got[name] != mode {
			t.Errorf("%s has mode %q, want %s", name, got[name], mode)
		}
	}
	for name := range got {
		if strings.HasPrefix(name, "./etc/") && !strings.HasSuffix(name, "/") {
			t.Errorf("%s: dpkg asks about files in /etc that an operator wrote before", name)
		}
	}
	if text, err := exec.Command("dpkg-deb", "--field", deb).Output(); err != nil || !strings.Contains(string(text), "Version: 0.1.0+3.g1a2b3c4\n") || !strings.Contains(string(text), "Depends: adduser, iproute2\n") ||
		!strings.Contains(string(text), "Suggests: bash-completion, libvirt-daemon, prometheus, python3-openstackclient\n") {
		t.Errorf("%v: %s", err, text)
	}
}

// TestSize: a package with the binary of `make package`, but for its shorter paths, is small
// enough to be copied to each host without a thought.
func TestSize(t *testing.T) {
	t.Parallel()
	const most = 25_000_000
	stripped := filepath.Join(t.TempDir(), "heddle")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", stripped, "./cmd/heddle")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(pack(t, "v0.1.0", stripped))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > most {
		t.Errorf("the package has %d bytes, want %d at most", info.Size(), most)
	}
}

func TestDebianVersion(t *testing.T) {
	t.Parallel()
	at := time.Unix(1700000000, 0).UTC()
	rising := []struct{ described, want string }{
		{"1a2b3c4", "0~git20231114.221320.1a2b3c4"}, {"v0.1.0-rc1", "0.1.0~rc1"}, {"v0.1.0-rc2-4-gabcdef0", "0.1.0~rc2+4.gabcdef0"}, {"v0.1.0", "0.1.0"},
		{"v0.1.0-3-g1a2b3c4", "0.1.0+3.g1a2b3c4"}, {"v0.1.0-12-g0a2b3c4-dirty", "0.1.0+12.g0a2b3c4+dirty"}, {"v0.2.0", "0.2.0"},
	}
	last := "0~"
	for _, c := range rising {
		got, err := debianVersion(c.described, at)
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %s", c.described, got, err, c.want)
		}
		if err := exec.Command("dpkg", "--compare-versions", last, "lt", got).Run(); err != nil {
			t.Errorf("dpkg orders %s not before %s: %v", last, got, err)
		}
		last = got
	}
	for _, wrong := range []string{"", "unknown", "v1", "1.2.3", "v1.2.3-4", "v1.2.3; rm"} {
		if got, err := debianVersion(wrong, at); err == nil {
			t.Errorf("%q: took it for %s", wrong, got)
		}
	}
}
