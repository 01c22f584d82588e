package store

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"path/filepath"
	"testing"
	"time"
)

// MakePairs makes an authority in dir, and signed by it the pairs <cn>.crt and <cn>.key for servers and clients alike.
func MakePairs(t testing.TB, dir string, cns ...string) {
	t.Helper()
	now := time.Now()
	a, err := keepAuthority(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"), now)
	if err != nil {
		t.Fatal(err)
	}
	for _, cn := range cns {
		template := serverTemplate([]string{"127.0.0.1", "localhost"}, now)
		template.Subject = pkix.Name{CommonName: cn}
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		if err := a.keepPair(filepath.Join(dir, cn+".crt"), filepath.Join(dir, cn+".key"), template, now); err != nil {
			t.Fatal(err)
		}
	}
}
