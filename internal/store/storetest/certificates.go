package storetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority signs certificates for tests.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority and writes it to ca.crt and ca.key in dir.
func NewAuthority(dir string) (*Authority, error) {
	now := time.Now()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority for tests"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a := &Authority{dir: dir}
	der, key, err := signed(template, nil, nil)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	a.key = key
	return a, writePair(dir, "ca", der, key)
}

// Pair makes a certificate for a server and client called name, with these names and addresses, in
// <name>.crt and <name>.key.
func (a *Authority) Pair(name string, hosts ...string) error {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, key, err := signed(template, a.cert, a.key)
	if err != nil {
		return err
	}
	return writePair(a.dir, name, der, key)
}

// makeCertificates makes a cluster's certificates. A member's socket is named by its file.
func makeCertificates(dir string, addresses []string) error {
	a, err := NewAuthority(dir)
	if err != nil {
		return err
	}
	hosts := append([]string{"127.0.0.1", "localhost"}, addresses...)
	for i := range addresses {
		hosts = append(hosts, filepath.Base(socket(dir, i)))
	}
	for _, name := range []string{"member", "root", "nobody"} {
		if err := a.Pair(name, hosts...); err != nil {
			return err
		}
	}
	return nil
}

// signed completes the template and signs it with the parent's key, or with its own.
func signed(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (der []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	if parent == nil {
		parent, by = template, key
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, err
	}
	der, err = x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	return der, key, err
}

func writePair(dir, name string, der []byte, key *ecdsa.PrivateKey) error {
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	for file, block := range map[string]*pem.Block{
		name + ".crt": {Type: "CERTIFICATE", Bytes: der},
		name + ".key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			return fmt.Errorf("certificate of %s: %w", name, err)
		}
	}
	return nil
}
