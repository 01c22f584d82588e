// Package apitest holds what the tests of all APIs share.
package apitest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"testing"
	"time"

	"heddle/internal/task"
)

// Run runs a part until the test ends, and waits until it is ready.
func Run(t testing.TB, part task.Task) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- part.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s ended with %v", part, err)
		}
	})
	select {
	case <-part.Ready():
	case err := <-done:
		done <- nil // for the cleanup
		t.Fatalf("%s ended with %v", part, err)
	}
}

// SelfSigned writes a certificate for 127.0.0.1 with the serial number, and its key, and returns it
// in DER form.
func SelfSigned(t testing.TB, certFile, keyFile string, serial int64) []byte {
	t.Helper()
	return SelfSignedUntil(t, certFile, keyFile, serial, time.Now().Add(time.Hour))
}

// SelfSignedUntil is SelfSigned with another end, two hours after the beginning.
func SelfSignedUntil(t testing.TB, certFile, keyFile string, serial int64, end time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"},
		NotBefore: end.Add(-2 * time.Hour), NotAfter: end, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return der
}
