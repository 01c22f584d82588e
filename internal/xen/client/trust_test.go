package client_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
)

// TestTrust: only a server that is known by its authority or its fingerprint gets the password.
func TestTrust(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(c call) (any, *model.Error) { return nil, nil })
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that the client breaks off
	s.StartTLS()
	der := s.Certificate().Raw
	sum := sha256.Sum256(der)
	print := hex.EncodeToString(sum[:])
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	authorities, err := client.Authorities(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		options client.Options
		ok      bool
	}{
		"system":              {client.Options{}, false},
		"authority":           {client.Options{TLS: authorities}, true},
		"fingerprint":         {client.Options{Fingerprint: print}, true},
		"colons":              {client.Options{Fingerprint: "SHA256:" + colons(print), TLS: &tls.Config{MinVersion: tls.VersionTLS13}}, true},
		"another fingerprint": {client.Options{Fingerprint: strings.Repeat("00", 32), TLS: authorities}, false},
	} {
		c.options.URL = s.URL
		session, err := client.Dial(context.Background(), c.options)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v, want to be let in: %v", name, err, c.ok)
		}
		if err == nil {
			session.Close(context.Background())
		} else if name == "system" && client.Presented(err) != print {
			t.Errorf("presented %q, want %q", client.Presented(err), print)
		}
	}
	if n := s.count("session.login_with_password"); n != 3 {
		t.Errorf("%d logins were sent, want 3", n)
	}
	for _, bad := range []string{"12", strings.Repeat("z", 64)} {
		if _, err := client.Dial(context.Background(), client.Options{URL: s.URL, Fingerprint: bad}); err == nil || !strings.Contains(err.Error(), "64 hexadecimal digits") {
			t.Errorf("fingerprint %q: %v", bad, err)
		}
	}
	for _, bad := range []string{file + ".none", os.DevNull} {
		if _, err := client.Authorities(bad); err == nil {
			t.Errorf("authorities in %s are taken", bad)
		}
	}
}

func colons(digits string) string {
	var b strings.Builder
	for i := 0; i < len(digits); i += 2 {
		if i > 0 {
			b.WriteByte(':')
		}
		b.WriteString(strings.ToUpper(digits[i : i+2]))
	}
	return b.String()
}

// TestPinnedAuthority: an authority in the chain is named before the server's own certificate, and
// what follows from it is believed at the addresses that it is for, and nowhere else.
func TestPinnedAuthority(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{"127.0.0.1": true, "192.0.2.1": false} {
		authority, chain := issue(t, name)
		s := newServer(t, func(c call) (any, *model.Error) { return nil, nil })
		s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that the client breaks off
		s.TLS = &tls.Config{Certificates: []tls.Certificate{chain}}
		s.StartTLS()
		_, err := client.Dial(context.Background(), client.Options{URL: s.URL})
		sum, own := sha256.Sum256(authority), sha256.Sum256(chain.Certificate[0])
		print, want := hex.EncodeToString(sum[:]), hex.EncodeToString(sum[:])
		if !ok {
			want = hex.EncodeToString(own[:]) // the authority's would not help
		}
		if got := client.Presented(err); got != want {
			t.Errorf("%s: presented %q of %v, want %q", name, got, err, want)
		}
		session, err := client.Dial(context.Background(), client.Options{URL: s.URL, Fingerprint: print})
		if (err == nil) != ok {
			t.Errorf("a certificate for %s at 127.0.0.1: %v, want it believed: %v", name, err, ok)
		}
		if err == nil {
			session.Close(context.Background())
		}
	}
}

// issue makes an authority and a server's certificate of it for an address.
func issue(t *testing.T, address string) (authority []byte, chain tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	from, until := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: from, NotAfter: until, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	if authority, err = x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key); err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: from, NotAfter: until, IPAddresses: []net.IP{net.ParseIP(address)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	own, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return authority, tls.Certificate{Certificate: [][]byte{own, authority}, PrivateKey: key}
}
