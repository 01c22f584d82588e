package api

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func writePair(t *testing.T, k *keyPair, serial int64, mtime time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: mtime.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{k.certFile: {Type: "CERTIFICATE", Bytes: der}, k.keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, mtime, mtime); err != nil {
			t.Fatal(err)
		}
	}
	return Fingerprint(der)
}

// TestRenewedCertificate proves that a renewed certificate is served without a restart, and that a half-written pair
// leaves the old one in service.
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
