package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// selfSigned returns a certificate (PEM) that ends at a time.
func selfSigned(t *testing.T, end time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.Add(-time.Hour), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestCertificateEnds: the metric has the earliest end of a file's certificates, and none of a file
// that has none; the check refuses what ends too soon, and files without a certificate.
func TestCertificateEnds(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	early, late := selfSigned(t, now.Add(13*24*time.Hour)), selfSigned(t, now.Add(300*24*time.Hour))
	const key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
	dir := t.TempDir()
	for _, test := range []struct {
		name, label, text string
		end               time.Time // zero: no metric
		refused           string    // what the check says; "": nothing
	}{
		{"late", "api", late, now.Add(300 * 24 * time.Hour), ""},
		{"chain", "api", key + late + early, now.Add(13 * 24 * time.Hour), "chain ends on " + now.Add(13*24*time.Hour).UTC().Format(time.RFC3339)},
		{"authority", "hosts-authority", selfSigned(t, now.Add(170*24*time.Hour)), now.Add(170 * 24 * time.Hour), "authority ends on"},
		{"renewed by its host", "host", early, now.Add(13 * 24 * time.Hour), ""},
		{"ended", "host", selfSigned(t, now.Add(-time.Hour)), now.Add(-time.Hour), "ended ends on"},
		{"key alone", "api", key, time.Time{}, "no certificate in PEM found"},
		{"damaged", "api", strings.Replace(late, "M", "!", 3), time.Time{}, "damaged"},
		{"missing", "store", "", time.Time{}, ""},
	} {
		file := filepath.Join(dir, test.name)
		if test.text != "" {
			writeFile(t, file, test.text)
		}
		files := certificateFiles{test.label: file, "etcd-client": ""}
		values := files.metrics()
		if want := !test.end.IsZero(); want != (len(values) == 1) || want && (int64(values[0].Value) != test.end.Unix() || values[0].Label("certificate") != test.label) {
			t.Errorf("%s: %v, want the end %v", test.name, values, test.end)
		}
		checks := files.checks("serve")
		if len(checks) != 1 || checks[0].Name != "certificate "+test.label {
			t.Fatalf("%s: %d checks", test.name, len(checks))
		}
		if err := checks[0].Run(t.Context()); (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%s: %v, want %q", test.name, err, test.refused)
		}
	}
}
