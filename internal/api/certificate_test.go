package api

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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
	var log strings.Builder
	files := &keyPair{certFile: filepath.Join(dir, "cert"), keyFile: filepath.Join(dir, "key")}
	first := writePair(t, files, 1, start)
	k, err := loadKeyPair(files.certFile, files.keyFile, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	k.checked = start
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
	for looks := range 2 {
		if got := serving(time.Duration(2+looks) * certificateCheck); got != second {
			t.Errorf("a broken file took the certificate out of service")
		}
	}
	if n := strings.Count(log.String(), "keeping the one in force"); n != 1 || !strings.Contains(log.String(), k.certFile) {
		t.Errorf("logged %d times: %s", n, &log)
	}
}

// TestReloadedCertificate: changed files are put in force when the caller decides to, and broken
// ones are an error.
func TestReloadedCertificate(t *testing.T) {
	t.Parallel()
	dir, start := t.TempDir(), time.Unix(1_700_000_000, 0)
	files := &keyPair{certFile: filepath.Join(dir, "cert"), keyFile: filepath.Join(dir, "key")}
	first := writePair(t, files, 1, start)
	s, err := NewServer(Options{Name: "network", Listen: "192.0.2.1:0", CertFile: files.certFile, KeyFile: files.keyFile, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if file, apply, err := s.ReadCertificate(); file != files.certFile || apply != nil || err != nil {
		t.Fatalf("unchanged: %q, a change: %v, %v", file, apply != nil, err)
	}
	second := writePair(t, files, 2, start.Add(time.Second))
	_, apply, err := s.ReadCertificate()
	if err != nil || apply == nil || s.Fingerprint() != first {
		t.Fatalf("changed: %v; in force at once: %v", err, s.Fingerprint() != first)
	}
	if apply(); s.Fingerprint() != second {
		t.Error("the renewed certificate is not served")
	}
	if err := os.WriteFile(files.keyFile, []byte("-----BEGIN"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, apply, err := s.ReadCertificate(); err == nil || apply != nil || !strings.Contains(err.Error(), files.keyFile) {
		t.Errorf("broken: %v, a change: %v", err, apply != nil)
	}
}

// TestEndedCertificate: a certificate that has ended, or has yet to begin, replaces none that is
// good, and one that is served from the start is named.
func TestEndedCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	var log strings.Builder
	load := func() *keyPair {
		t.Helper()
		k, err := loadKeyPair(cert, key, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	good := Fingerprint(apitest.SelfSigned(t, cert, key, 1))
	k := load()
	for want, end := range map[string]time.Time{" has ended on ": time.Now().Add(-time.Hour), "is this machine's clock right?": time.Now().Add(24 * time.Hour)} {
		apitest.SelfSignedUntil(t, cert, key, 2, end)
		if _, err := k.changed(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("put in force on request: %v, want %q", err, want)
		}
		if got := Fingerprint(k.current(time.Now().Add(certificateCheck)).Certificate[0]); got != good {
			t.Errorf("put in force by itself, though it is worse: %q", want)
		}
		log.Reset()
		if load(); !strings.Contains(log.String(), want) {
			t.Errorf("served from the start: %q, want %q", &log, want)
		}
	}
	ended := load()
	apitest.SelfSigned(t, cert, key, 3)
	if apply, err := ended.changed(); err != nil || apply == nil {
		t.Errorf("a good one after it: %v", err)
	}
}
