package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"heddle/internal/netlab"
)

// Beside a server, xe needs no settings but where its data is; from elsewhere it must be told by
// what to know the server.
func TestXE(t *testing.T) {
	t.Parallel()
	ns, data := netlab.ForTest(t).MustNamespace(t, "xapi"), t.TempDir()
	start(t, ns, "xapi", "--data", data, "--metrics", "127.0.0.1:9694")
	beside := []string{"HEDDLE_DATA=" + data, "HOME=" + t.TempDir()}
	if out, code := outputWith(t, ns, beside, "xe", "network-create", "name-label=private", "--minimal"); code != 0 || len(strings.TrimSpace(out)) != 36 {
		t.Errorf("beside the server: exit code %d, %q, want a UUID", code, out)
	}
	elsewhere := []string{"HEDDLE_DATA=" + t.TempDir(), "HOME=" + t.TempDir()}
	if out, code := outputWith(t, ns, elsewhere, "xe", "network-list"); code != 1 || out != "Authentication failed\nFor usage run: 'xe help'\n" {
		t.Errorf("without a password: exit code %d, %q", code, out)
	}

	password, err := os.ReadFile(filepath.Join(data, "xapi-root-password"))
	if err != nil {
		t.Fatal(err)
	}
	list := []string{"xe", "network-list", "name-label=private", "params=name-label", "--minimal", "-s", "127.0.0.1", "-p", "8443", "-u", "root", "-pw", strings.TrimSpace(string(password))}
	out, code := outputWith(t, ns, elsewhere, list...)
	told := regexp.MustCompile(`say (fingerprint=[0-9a-f]{64})`).FindStringSubmatch(out)
	if code != 1 || told == nil {
		t.Fatalf("a certificate that nothing is known of: exit code %d, %q, want to be told its fingerprint", code, out)
	}
	if out, code := outputWith(t, ns, elsewhere, append(list, told[1])...); code != 0 || out != "private\n" {
		t.Errorf("with the fingerprint: exit code %d, %q", code, out)
	}
}
