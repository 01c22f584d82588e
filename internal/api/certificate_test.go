package api

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"heddle/internal/api/apitest"
)

// writePair writes a certificate that looks written at mtime.
func writePair(t *testing.T, k *keyPair, serial int64, mtime time.Time) string {
	t.Helper()
	der := apitest.SelfSigned(t, k.certFile, k.keyFile, serial)
	for _, name := range []string{k.certFile, k.keyFile} {
		if err := os.Chtimes(name, mtime, mtime); err != nil {
			t.Fatal(err)
		}
	}
	return Fingerprint(der)
}

// TestRenewedCertificate proves that a renewed certificate is served without a restart, and that a
// half-written pair leaves the old one in service.
func TestRenewedCertificate(t *testing.T) {
	t.Parallel()
	dir, start := t.TempDir(), time.Unix(1_700_000_000, 0)
	k := &keyPair{certFile: filepath.Join(dir, "cert"), keyFile: filepath.Join(dir, "key")}
	first := writePair(t, k, 1, start)
	if err := k.refresh(start); err != nil {
		t.Fatal(err)
	}
	serving := func(after time.Duration) string { return Fingerprint(k.current(start.Add(after)).Certificate[0]) }

	second := writePair(t, k, 2, start.Add(time.Second))
	if got := serving(certificateCheck / 2); got != first {
		t.Errorf("files were looked at again within %s", certificateCheck)
	}
	if got := serving(certificateCheck); got != second {
		t.Errorf("the renewed certificate is not served")
	}
	if err := os.WriteFile(k.certFile, []byte("-----BEGIN"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := serving(2 * certificateCheck); got != second {
		t.Errorf("a broken file took the certificate out of service")
	}
}
