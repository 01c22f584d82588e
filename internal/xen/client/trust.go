package client

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// Authorities returns the TLS configuration that trusts the certificate authorities in a PEM file.
func Authorities(file string) (*tls.Config, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("certificate authorities: %w", err)
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !conf.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("certificate authorities: %s holds no certificate in PEM form", file)
	}
	return conf, nil
}

// fingerprint is the SHA-256 of a certificate in DER form.
type fingerprint [sha256.Size]byte

// parseFingerprint reads one, with or without colons.
func parseFingerprint(text string) (fingerprint, error) {
	digits := strings.ReplaceAll(strings.TrimPrefix(strings.ToLower(text), "sha256:"), ":", "")
	raw, err := hex.DecodeString(digits)
	if err != nil || len(raw) != sha256.Size {
		return fingerprint{}, fmt.Errorf("fingerprint %q: want the SHA-256 of a certificate, 64 hexadecimal digits", text)
	}
	return fingerprint(raw), nil
}

// errOtherCertificate is a server whose certificate is not the one that was named.
var errOtherCertificate = errors.New("no certificate of the server has the fingerprint that was given")

// dialPinned dials servers that are known by a fingerprint; of conf, what else it says counts.
func dialPinned(dialer *net.Dialer, conf *tls.Config, pin fingerprint) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		own := &tls.Config{MinVersion: tls.VersionTLS12}
		if conf != nil {
			own = conf.Clone()
		}
		own.ServerName = host
		own.InsecureSkipVerify = true // VerifyConnection checks instead: the certificate needs no authority
		own.VerifyConnection = func(cs tls.ConnectionState) error { return pin.check(cs.PeerCertificates, host) }
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		return (&tls.Dialer{NetDialer: dialer, Config: own}).DialContext(ctx, network, address)
	}
}

// check accepts a chain that holds the certificate. When that is an authority, the server's own
// must follow from it and be for the host.
func (pin fingerprint) check(chain []*x509.Certificate, host string) error {
	for i, cert := range chain {
		if sha256.Sum256(cert.Raw) != pin {
			continue
		}
		if i == 0 {
			return nil
		}
		o := x509.VerifyOptions{DNSName: host, Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
		o.Roots.AddCert(cert)
		for _, c := range chain[1:] {
			o.Intermediates.AddCert(c)
		}
		_, err := chain[0].Verify(o)
		return err
	}
	return errOtherCertificate
}

// Presented is the fingerprint, for Options, of what a server presented when err is that it is not
// trusted: of the authority in its chain, which outlives the server's own certificate, or of that.
// It is "" of other errors.
func Presented(err error) string {
	var refused *tls.CertificateVerificationError
	if !errors.As(err, &refused) || len(refused.UnverifiedCertificates) == 0 {
		return ""
	}
	chain := refused.UnverifiedCertificates
	named := chain[0]
	if last := chain[len(chain)-1]; last.IsCA && !errors.As(err, &x509.HostnameError{}) {
		named = last
	}
	sum := sha256.Sum256(named.Raw)
	return hex.EncodeToString(sum[:])
}
