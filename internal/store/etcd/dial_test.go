package etcd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"
)

// authority signs certificates whose lives begin at some time from now.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, key: key}
	a.cert = &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	a.cert, err = x509.ParseCertificate(a.sign(a.cert, key))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) sign(what *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, what, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// pair returns a certificate for localhost that is good for half an hour.
func (a *authority) pair(from time.Duration) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(from + time.Hour/2),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	return tls.Certificate{Certificate: [][]byte{a.sign(leaf, key)}, PrivateKey: key}
}

// TestDiagnoseClocks: an error about the life of a certificate, by the clock of either side, tells
// of clocks.
func TestDiagnoseClocks(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	for _, test := range []struct {
		name           string
		server, client time.Duration // when their certificates begin
		want           string        // "": nothing is wrong
	}{
		{"right clocks", 0, 0, ""},
		{"this machine's clock is behind", time.Minute, 0, "set it by NTP"},
		{"this machine's clock is ahead", -time.Hour, 0, "set it by NTP"},
		{"the server's clock is behind", 0, time.Minute, "by the clock of that server"},
		{"the server's clock is ahead", 0, -time.Hour, "by the clock of that server"},
	} {
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
			Certificates: []tls.Certificate{a.pair(test.server)}, ClientCAs: a.pool(), ClientAuth: tls.RequireAndVerifyClientCert,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, c) // the client says how the handshake ends
				c.Close()
			}
		}()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		own := a.pair(test.client)
		err = Diagnose([]string{"https://localhost:" + port}, &tls.Config{RootCAs: a.pool(), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}
