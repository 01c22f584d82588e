package backend_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"

	"heddle/internal/store/backend"
)

// TestKeepCertificate: a server's certificate is made once, is good for the addresses by which it
// is reached, and made anew when these are others.
func TestKeepCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keep := func(listen string) *x509.Certificate {
		t.Helper()
		cert, key, err := backend.KeepCertificate(dir, "xapi", listen, []string{"pool.example.org"})
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf
	}
	first := keep("192.0.2.1:8443")
	pem, err := os.ReadFile(backend.AuthorityFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	for _, name := range []string{"192.0.2.1", "pool.example.org", "localhost", "127.0.0.1"} {
		if _, err := first.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("as %s: %v", name, err)
		}
	}
	if !keep("192.0.2.1:8443").Equal(first) {
		t.Error("made anew although it suits")
	}
	if keep("192.0.2.2:8443").Equal(first) {
		t.Error("kept although the server is reached elsewhere")
	}
}
