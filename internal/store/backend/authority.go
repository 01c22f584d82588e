package backend

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
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
	"slices"
	"time"

	"heddle/internal/store"
)

const (
	authorityLife = 20 * 365 * 24 * time.Hour
	serverLife    = 365 * 24 * time.Hour
	// ClockSkew bounds how far other hosts' clocks may be behind: certificates begin so much
	// earlier.
	ClockSkew = time.Hour
)

// Authority is a certificate authority that signs the certificates of the server and of hosts.
type Authority struct {
	cert *x509.Certificate
	pem  []byte
	key  crypto.Signer
}

// LoadAuthority reads an authority from PEM files, such as an etcd cluster's.
func LoadAuthority(certFile, keyFile string) (*Authority, error) {
	cert, certErr := os.ReadFile(certFile)
	key, keyErr := os.ReadFile(keyFile)
	if err := cmp.Or(certErr, keyErr); err != nil {
		return nil, err
	}
	a, err := parseAuthority(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", certFile, keyFile, err)
	}
	return a, nil
}

// parseAuthority reads an authority from PEM.
func parseAuthority(certPEM, keyPEM []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	switch {
	case !ok:
		return nil, errors.New("a key that cannot sign")
	case !pair.Leaf.IsCA:
		return nil, errors.New("not a certificate of an authority")
	}
	return &Authority{pair.Leaf, certPEM, signer}, nil
}

// keepAuthority loads the authority, or makes it if there is none.
func keepAuthority(certFile, keyFile string, now time.Time) (*Authority, error) {
	_, certErr := os.Stat(certFile)
	_, keyErr := os.Stat(keyFile)
	if errors.Is(certErr, os.ErrNotExist) && errors.Is(keyErr, os.ErrNotExist) {
		certPEM, keyPEM, err := newAuthority("Heddle store", now)
		if err == nil {
			err = writeFile(keyFile, keyPEM)
		}
		if err == nil { // last: with it, the authority is complete
			err = writeFile(certFile, certPEM)
		}
		if err != nil {
			return nil, fmt.Errorf("make certificate authority: %w", err)
		}
	}
	return LoadAuthority(certFile, keyFile)
}

// authorityKey holds a copy of the authority, so that a backup has it and hosts need not join again
// after a restore. Only root can read it.
const authorityKey = "/heddle-authority"

type storedAuthority struct {
	Certificate string `json:"certificate"` // PEM
	Key         string `json:"key"`
}

// rememberAuthority copies the authority from the data directory into the store.
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
	return s.set(ctx, authorityKey, value)
}

// AuthorityPair returns the certificate and key (PEM) of the authority that rememberAuthority has
// copied. Only root may call it.
func (s *Etcd) AuthorityPair(ctx context.Context) (cert, key []byte, err error) {
	kv, err := s.Get(ctx, authorityKey)
	var a storedAuthority
	if err == nil {
		err = json.Unmarshal(kv.Value, &a)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("certificate authority: %w", err)
	}
	return []byte(a.Certificate), []byte(a.Key), nil
}

// set writes a key unless it already has the value.
func (s *Etcd) set(ctx context.Context, key string, value []byte) error {
	kv, err := s.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		err = nil // as if it were empty
	}
	if err != nil || bytes.Equal(kv.Value, value) {
		return err
	}
	_, err = s.Commit(ctx, nil, []store.Op{{Key: key, Value: value}})
	return err
}

// recallAuthority copies the authority, if any, from the store into the data directory.
func (o Embedded) recallAuthority(ctx context.Context, s *Etcd) error {
	cert, key, err := s.AuthorityPair(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	return errors.Join(writeFile(o.caKey(), key), writeFile(o.caCert(), cert))
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

// PEM returns the authority's certificate.
func (a *Authority) PEM() []byte { return a.pem }

// ReadRequest reads a certificate request (PEM) and verifies that its sender has the key.
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

// host signs a host's request with cn as the only name.
func (a *Authority) host(csrPEM []byte, cn string, now time.Time, life time.Duration) ([]byte, error) {
	csr, err := ReadRequest(csrPEM)
	if err != nil {
		return nil, err
	}
	return a.issue(cn, csr.PublicKey, now, life)
}

// issue makes a certificate for a client and server with cn as the only name, which does not
// outlive the authority's.
func (a *Authority) issue(cn string, public crypto.PublicKey, now time.Time, life time.Duration) ([]byte, error) {
	t := certificate(cn, now, life, x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth)
	t.DNSNames = []string{cn}
	if t.NotAfter.After(a.cert.NotAfter) {
		t.NotAfter = a.cert.NotAfter
	}
	return a.sign(t, public)
}

// certificate returns the template of a certificate that is valid from now on for life.
func certificate(cn string, now time.Time, life time.Duration, usages ...x509.ExtKeyUsage) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: cn},
		NotBefore:   now.Add(-ClockSkew),
		NotAfter:    now.Add(life),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: usages,
	}
}

func (a *Authority) sign(template *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	return sign(template, a.cert, public, a.key)
}

// keepPair makes a new certificate unless the one in the files suits the template, is signed by the
// authority and is valid for another third of its life. The authority's own certificate follows it
// in the file, so that clients can pin that and outlive a renewal.
func (a *Authority) keepPair(certFile, keyFile string, template *x509.Certificate, now time.Time) error {
	if leaf := a.suitable(certFile, keyFile, template, now); leaf != nil {
		return a.keepChain(certFile, leaf)
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return err
	}
	certPEM, err := a.sign(template, key.Public())
	if err != nil {
		return err
	}
	// etcd reads both at each handshake: one between the two writes may fail, and is retried.
	return errors.Join(writeFile(keyFile, keyPEM), writeFile(certFile, slices.Concat(certPEM, a.pem)))
}

// keepChain adds the authority to the file of a certificate that an earlier version made.
func (a *Authority) keepChain(certFile string, leaf *x509.Certificate) error {
	chain := slices.Concat(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}), a.pem)
	if there, err := os.ReadFile(certFile); err == nil && bytes.Equal(there, chain) {
		return nil
	}
	return writeFile(certFile, chain)
}

// suitable returns the certificate in the files, or nil if another is needed.
func (a *Authority) suitable(certFile, keyFile string, template *x509.Certificate, now time.Time) *x509.Certificate {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil || pair.Leaf.CheckSignatureFrom(a.cert) != nil {
		return nil
	}
	cert := pair.Leaf
	life := cert.NotAfter.Sub(cert.NotBefore)
	if now.After(cert.NotAfter.Add(-life/3)) || cert.Subject.CommonName != template.Subject.CommonName {
		return nil
	}
	for _, name := range template.DNSNames {
		if cert.VerifyHostname(name) != nil {
			return nil
		}
	}
	for _, ip := range template.IPAddresses {
		if cert.VerifyHostname(ip.String()) != nil {
			return nil
		}
	}
	return cert
}

// peerTemplate returns the certificate by which members of a cluster recognize one that listens at
// an address.
func peerTemplate(listen string, now time.Time) *x509.Certificate {
	t := certificate(peerName, now, serverLife, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	host, _, _ := net.SplitHostPort(listen)
	t.IPAddresses = []net.IP{net.ParseIP(host)}
	return t
}

// serverTemplate returns the certificate of a server with these names and addresses.
func serverTemplate(names []string, now time.Time) *x509.Certificate {
	t := certificate("heddle", now, serverLife, x509.ExtKeyUsageServerAuth)
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	return t
}

// rootTemplate returns the certificate by which this machine's commands are etcd's root.
func rootTemplate(now time.Time) *x509.Certificate {
	return certificate(rootUser, now, serverLife, x509.ExtKeyUsageClientAuth)
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

// writeFile replaces a file, whole or not at all, with one that only its owner can read.
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
