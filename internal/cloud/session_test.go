package cloud

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/api/apitest"
)

// TestServerAway: an error of a refused connection says where to look.
func TestServerAway(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	client := http.Client{Transport: connectionHint{http.DefaultTransport, ""}}
	answer, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	server.Close()
	answer, err = client.Get(server.URL)
	if err == nil {
		answer.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "systemctl status heddle") {
		t.Errorf("got %v, want a hint whether the server runs", err)
	}
}

// TestEndedCertificate: the error of a server whose certificate has ended says what to do.
func TestEndedCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	der := apitest.SelfSignedUntil(t, cert, key, 1, time.Now().Add(-time.Hour))
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	authority, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(authority)
	client := http.Client{Transport: connectionHint{&http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, ""}}
	answer, err := client.Get(server.URL)
	if err == nil {
		answer.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "renew the certificate in the server's --tls-cert") {
		t.Errorf("got %v, want what to do", err)
	}
}
