package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"
)

// TestFollows: hosts of other pools have certificates that each made for itself, with or without the right to sign others. Who
// has the file with all of them knows them, and nobody else.
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
