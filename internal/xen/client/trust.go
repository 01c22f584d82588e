package client

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Trust says by what a server's certificate is known to be its own. The zero Trust is the system's certificate
// authorities. There is none that takes any certificate: a password would go to whoever answers.
type Trust struct {
	CAFile string // certificates in PEM form of the authorities to believe, instead of the system's
	// Fingerprint is the SHA-256, in hex, with or without colons, of a certificate in the chain that the server
	// presents: its own, or that of an authority that the rest must follow from. It goes before CAFile.
	Fingerprint string
}

// Config is how connections are to be made.
func (t Trust) Config() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.Fingerprint != "" {
		pin, err := hex.DecodeString(strings.ReplaceAll(strings.TrimPrefix(strings.ToLower(t.Fingerprint), "sha256:"), ":", ""))
		if err != nil || len(pin) != sha256.Size {
			return nil, fmt.Errorf("fingerprint %q: want the SHA-256 of a certificate, 64 hexadecimal digits", t.Fingerprint)
		}
		conf.InsecureSkipVerify = true // in favour of VerifyConnection: nobody need vouch for this certificate
		conf.VerifyConnection = func(cs tls.ConnectionState) error { return pinned(cs, [sha256.Size]byte(pin)) }
		return conf, nil
	}
	if t.CAFile == "" {
		return conf, nil
	}
	pem, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, fmt.Errorf("certificate authorities: %w", err)
	}
	conf.RootCAs = x509.NewCertPool()
	if !conf.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("certificate authorities: %s holds no certificate in PEM form", t.CAFile)
	}
	return conf, nil
}

// errOtherCertificate is a server whose certificate is not the one that was named.
var errOtherCertificate = errors.New("no certificate of the server has the fingerprint that was given")

// pinned accepts a chain that holds the certificate. When that is an authority, the server's own must follow from it and
// be for this host.
func pinned(cs tls.ConnectionState, pin [sha256.Size]byte) error {
	for i, cert := range cs.PeerCertificates {
		if sha256.Sum256(cert.Raw) != pin {
			continue
		}
		if i == 0 {
			return nil
		}
		o := x509.VerifyOptions{DNSName: cs.ServerName, Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
		o.Roots.AddCert(cert)
		for _, c := range cs.PeerCertificates[1:] {
			o.Intermediates.AddCert(c)
		}
		_, err := cs.PeerCertificates[0].Verify(o)
		return err
	}
	return errOtherCertificate
}

// Presented is the fingerprint, as Trust takes it, of the certificate that a server presented when err is that it is not
// trusted; "" of other errors.
func Presented(err error) string {
	var refused *tls.CertificateVerificationError
	if !errors.As(err, &refused) || len(refused.UnverifiedCertificates) == 0 {
		return ""
	}
	sum := sha256.Sum256(refused.UnverifiedCertificates[0].Raw)
	return hex.EncodeToString(sum[:])
}
