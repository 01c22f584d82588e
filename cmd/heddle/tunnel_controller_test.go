package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFollows: hosts of other pools have certificates that each made for itself, with or without
// the right to sign others. Only an owner of the file with all of them knows them.
func TestFollows(t *testing.T) {
	t.Parallel()
	made := func(serial int64, signs bool) *x509.Certificate {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "localhost"}, NotBefore: time.Now().Add(-time.Hour),
			NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: signs}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	h1, h2, stranger := made(1, true), made(2, false), made(3, true)
	roots := x509.NewCertPool()
	roots.AddCert(h1)
	roots.AddCert(h2)
	for _, known := range []*x509.Certificate{h1, h2} {
		if err := follows([]*x509.Certificate{known}, roots); err != nil {
			t.Errorf("certificate %s: %v", known.SerialNumber, err)
		}
	}
	if follows([]*x509.Certificate{stranger}, roots) == nil || follows(nil, roots) == nil {
		t.Error("a stranger's certificate, or none, was taken")
	}
}

// TestPoolURLs: help says that --xapi takes several URLs, and each of them is checked before
// anything is waited for.
func TestPoolURLs(t *testing.T) {
	t.Parallel()
	if usage := tunnelCommand().Flag("xapi").Usage; !strings.Contains(usage, "several with commas between") {
		t.Errorf("help says: %s", usage)
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := tunnelCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"--data", t.TempDir(), "--password-file", password, "--ovsdb", "unix:/none", "--xapi", "http://127.0.0.1:1,ftp://127.0.0.1"})
	err := cmd.ExecuteContext(t.Context())
	if wrong := (usageError{}); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "ftp://127.0.0.1") {
		t.Errorf("a URL that is none: %v", err)
	}
}
