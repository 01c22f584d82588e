package cloud

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"

	"heddle/internal/api/apitest"
)

// TestServerAway: an error of a refused connection says where to look.
func TestServerAway(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	client := http.Client{Transport: connectionHint{http.DefaultTransport, "clouds.yaml"}}
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
	client := http.Client{Transport: connectionHint{&http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, "clouds.yaml"}}
	answer, err := client.Get(server.URL)
	if err == nil {
		answer.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "renew the certificate in the server's --tls-cert") {
		t.Errorf("got %v, want what to do", err)
	}
}

// TestServerHangs: a server that accepts a connection and answers nothing is given up, by the login
// with a token that was kept, too, and so is one that cannot be reached; the errors say what to do.
func TestServerHangs(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(over)
	for what, transport := range map[string]*http.Transport{
		"no answer":     boundedTransport(time.Minute, time.Millisecond),
		"no connection": boundedTransport(time.Nanosecond, time.Minute),
	} {
		provider, err := openstack.NewClient(server.URL + "/v3")
		if err != nil {
			t.Fatal(err)
		}
		provider.HTTPClient = http.Client{Transport: connectionHint{transport, "clouds.yaml"}}
		auth := gophercloud.AuthOptions{IdentityEndpoint: server.URL + "/v3", Username: "admin", Password: "secret", DomainID: "default"}
		cache := newTokenCache(t.TempDir(), auth)
		if err := cache.write(cachedToken{"token", time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		err = cache.authenticate(t.Context(), provider, auth)
		if err == nil || !strings.Contains(err.Error(), "firewall") || !strings.Contains(err.Error(), "systemctl status heddle") {
			t.Errorf("%s: %v, want what to do", what, err)
		}
	}
}

// TestLimitsOfCommands: the transport that commands use waits for no server without end.
func TestLimitsOfCommands(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "clouds.yaml")
	if err := os.WriteFile(file, []byte("clouds: {heddle: {auth: {auth_url: 'http://192.0.2.1:5000/v3', username: admin, password: secret}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, transport, err := Config{File: file}.settings()
	if err != nil || transport.ResponseHeaderTimeout != answerTimeout {
		t.Errorf("%v, limit %s, want %s", err, transport.ResponseHeaderTimeout, answerTimeout)
	}
}

// TestWrongScheme: the errors of a server with an authority that is not known here, and of one that
// is asked without TLS, say what to set.
func TestWrongScheme(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	for url, want := range map[string]string{
		server.URL: "OS_CACERT=FILE",
		strings.Replace(server.URL, "https:", "http:", 1): "write https:// where ",
	} {
		file := filepath.Join(t.TempDir(), "clouds.yaml")
		text := "clouds: {heddle: {auth: {auth_url: '" + url + "/v3', username: admin, password: secret, project_name: admin, user_domain_name: Default, project_domain_name: Default}}}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Config{File: file}.Login(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want %q and the file", url, err, want)
		}
	}
}
