package store

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	authorityLife = 20 * 365 * 24 * time.Hour
	serverLife    = 365 * 24 * time.Hour
	// ClockSkew is by how much other hosts' clocks may be behind: certificates begin this long before they are made.
	ClockSkew = time.Hour
)

// Authority is a certificate authority of P-256 keys. It signs the server's certificate and those of the hosts.
type Authority struct {
	cert *x509.Certificate
	pem  []byte
	key  crypto.Signer
}

// LoadAuthority reads an authority from PEM files: that of an etcd cluster, if it is to sign hosts' certificates.
func LoadAuthority(certFile, keyFile string) (*Authority, error) {
	cert, certPEM, err := readCertificate(certFile)
	if err != nil {
		return nil, err
	}
	key, err := readKey(keyFile)
	if err != nil {
		return nil, err
	}
	if !cert.IsCA {
		return nil, fmt.Errorf("%s: not a certificate of an authority", certFile)
	}
	if public, ok := cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(key.Public()) {
		return nil, fmt.Errorf("%s is not the key of %s", keyFile, certFile)
	}
	return &Authority{cert, certPEM, key}, nil
}

// keepAuthority loads the authority, and makes it at the first time.
func keepAuthority(certFile, keyFile string, now time.Time) (*Authority, error) {
	_, certErr := os.Stat(certFile)
	_, keyErr := os.Stat(keyFile)
	if errors.Is(certErr, os.ErrNotExist) && errors.Is(keyErr, os.ErrNotExist) {
		if err := makeAuthority(certFile, keyFile, now); err != nil {
			return nil, fmt.Errorf("make certificate authority: %w", err)
		}
	}
	return LoadAuthority(certFile, keyFile)
}

// authorityKey is where the authority is also kept in the store, so that a backup has it: hosts that trust it need not
// join again after a restore. Only root can read it.
const authorityKey = "/heddle-authority"

type storedAuthority struct {
	Certificate string `json:"certificate"` // PEM
	Key         string `json:"key"`
}

// rememberAuthority sees that the store has the authority in the data directory.
func (o Embedded) rememberAuthority(ctx context.Context, s *Etcd) error {
	cert, err := os.ReadFile(o.caCert())
	if err != nil {
		return err
	}
	key, err := os.ReadFile(o.caKey())
	if err != nil {
		return err
	}
	value, err := json.Marshal(storedAuthority{string(cert), string(key)})
	if err != nil {
		return err
	}
	kv, err := s.Get(ctx, authorityKey)
	if err != nil && !errors.Is(err, ErrNotFound) || string(kv.Value) == string(value) {
		return err
	}
	_, err = s.Commit(ctx, nil, []Op{{Key: authorityKey, Value: value}})
	return err
}

// recallAuthority puts the store's authority into the data directory, if the store has one.
func (o Embedded) recallAuthority(ctx context.Context, s *Etcd) error {
	kv, err := s.Get(ctx, authorityKey)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	var a storedAuthority
	if err == nil {
		err = json.Unmarshal(kv.Value, &a)
	}
	if err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	return errors.Join(writeFile(o.caKey(), []byte(a.Key)), writeFile(o.caCert(), []byte(a.Certificate)))
}

func makeAuthority(certFile, keyFile string, now time.Time) error {
	certPEM, keyPEM, err := newAuthority("Heddle store", now)
	if err != nil {
		return err
	}
	// The certificate last: with it, the authority is complete.
	if err := writeFile(keyFile, keyPEM); err != nil {
		return err
	}
	return writeFile(certFile, certPEM)
}

// newAuthority makes an authority and returns it as PEM.
func newAuthority(name string, now time.Time) (certPEM, keyPEM []byte, err error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-ClockSkew),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
	}
	certPEM, err = sign(template, template, key.Public(), key)
	return certPEM, keyPEM, err
}

// PEM is the authority's certificate.
func (a *Authority) PEM() []byte { return a.pem }

// ReadRequest reads a certificate request (PEM) and checks that whoever made it has its key.
func ReadRequest(csrPEM []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(csrPEM)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("not a certificate request in PEM")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	return csr, nil
}

// host signs a host's request with CN as its only name, for a time that ends no later than the authority. The certificate
// is also good for what the host serves itself, to those who ask for it by that name.
func (a *Authority) host(csrPEM []byte, cn string, now time.Time, life time.Duration) ([]byte, error) {
	csr, err := ReadRequest(csrPEM)
	if err != nil {
		return nil, err
	}
	end := now.Add(life)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	return a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: cn},
		NotBefore:   now.Add(-ClockSkew),
		NotAfter:    end,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{cn},
	}, csr.PublicKey)
}

func (a *Authority) sign(template *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	return sign(template, a.cert, public, a.key)
}

// keepPair sees that certFile and keyFile hold a certificate signed by the authority that suits the template and is
// good for another third of its life; else a new one is made.
func (a *Authority) keepPair(certFile, keyFile string, template *x509.Certificate, now time.Time) error {
	if a.suits(certFile, keyFile, template, now) {
		return nil
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return err
	}
	certPEM, err := a.sign(template, key.Public())
	if err != nil {
		return err
	}
	// etcd reads the two at each handshake: for the moment between the writes a handshake may fail, and is tried again.
	return errors.Join(writeFile(keyFile, keyPEM), writeFile(certFile, certPEM))
}

func (a *Authority) suits(certFile, keyFile string, template *x509.Certificate, now time.Time) bool {
	cert, _, err := readCertificate(certFile)
	if err != nil || cert.CheckSignatureFrom(a.cert) != nil {
		return false
	}
	key, err := readKey(keyFile)
	if err != nil || !key.Public().(*ecdsa.PublicKey).Equal(cert.PublicKey) {
		return false
	}
	life := cert.NotAfter.Sub(cert.NotBefore)
	if now.After(cert.NotAfter.Add(-life / 3)) {
		return false
	}
	for _, name := range template.DNSNames {
		if cert.VerifyHostname(name) != nil {
			return false
		}
	}
	for _, ip := range template.IPAddresses {
		if cert.VerifyHostname(ip.String()) != nil {
			return false
		}
	}
	return cert.Subject.CommonName == template.Subject.CommonName
}

// serverTemplate is the certificate of a server that is reached by names and addresses.
func serverTemplate(names []string, now time.Time) *x509.Certificate {
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "heddle"},
		NotBefore:   now.Add(-ClockSkew),
		NotAfter:    now.Add(serverLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	return t
}

// rootTemplate is the certificate by which this machine's commands are etcd's root.
func rootTemplate(now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: rootUser},
		NotBefore:   now.Add(-ClockSkew),
		NotAfter:    now.Add(serverLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// sign completes the template with a random serial number and returns it signed, as PEM.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func readCertificate(file string) (*x509.Certificate, []byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, nil, fmt.Errorf("%s: no certificate in PEM found", file)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return cert, text, nil
}

func readKey(file string) (crypto.Signer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s: no key in PEM found", file)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		if key, ecErr := x509.ParseECPrivateKey(block.Bytes); ecErr == nil {
			return key, nil
		}
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: a key that cannot sign", file)
	}
	return signer, nil
}

// writeFile puts a file that only its owner can read in place, whole or not at all.
func writeFile(name string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
