package backend

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	authorityLife = 20 * 365 * 24 * time.Hour
	serverLife    = 365 * 24 * time.Hour
	// ClockSkew bounds how far other hosts' clocks may be behind: certificates begin so much
	// earlier.
	ClockSkew = time.Hour
	// formerLeft is the time before its end in which the certificate of the authority before is no
	// longer presented, so that no alert takes it for one in use.
	formerLeft = 30 * 24 * time.Hour
)

// Authority is a certificate authority that signs the certificates of the server and of hosts.
type Authority struct {
	cert    *x509.Certificate
	pem     []byte // of cert
	trusted []byte // PEM: cert and, during a rotation, the authority before or after it
	former  []byte // PEM: cert's key certified by the authority before it, and that authority; nil: none
	key     crypto.Signer
}

// LoadAuthority reads an authority from PEM files, such as an etcd cluster's. The first file may
// hold other authorities that are trusted as well.
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

// parseAuthority reads an authority from PEM: of the certificates, it is the one that the key is
// for. Which one that is, the key alone decides, so that a rotation replaces a single file.
func parseAuthority(certsPEM, keyPEM []byte) (*Authority, error) {
	var failure error
	for _, cert := range splitPEM(certsPEM) {
		pair, err := tls.X509KeyPair(cert, keyPEM)
		if err != nil {
			failure = cmp.Or(failure, err)
			continue
		}
		signer, ok := pair.PrivateKey.(crypto.Signer)
		switch {
		case !ok:
			return nil, errors.New("a key that cannot sign")
		case !pair.Leaf.IsCA:
			return nil, errors.New("not a certificate of an authority")
		}
		return &Authority{cert: pair.Leaf, pem: cert, trusted: certsPEM, key: signer}, nil
	}
	return nil, cmp.Or(failure, errors.New("no certificate in PEM found"))
}

// splitPEM returns the certificates in a PEM text, each as PEM.
func splitPEM(text []byte) (all [][]byte) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all
		}
		if block.Type == "CERTIFICATE" {
			all = append(all, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
		}
	}
}

// makeAuthority makes the authority in the data directory if there is none.
func (o Embedded) makeAuthority(now time.Time) error {
	_, certErr := os.Stat(o.caCert())
	_, keyErr := os.Stat(o.caKey())
	if !errors.Is(certErr, os.ErrNotExist) || !errors.Is(keyErr, os.ErrNotExist) {
		return nil
	}
	certPEM, keyPEM, err := newAuthority("Heddle store", now)
	if err == nil {
		err = writeFile(o.caKey(), keyPEM)
	}
	if err == nil { // last: with it, the authority is complete
		err = writeFile(o.caCert(), certPEM)
	}
	if err != nil {
		return fmt.Errorf("make certificate authority: %w", err)
	}
	return nil
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
		MaxPathLen:            1, // the authority after it
	}
	certPEM, err = sign(template, template, key.Public(), key)
	return certPEM, keyPEM, err
}

// PEM returns the certificates of all authorities that are trusted, with this one among them.
func (a *Authority) PEM() []byte { return a.trusted }

// Certificate returns the authority's certificate.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// Fingerprint returns the SHA-256 of the authority's certificate, in hex.
func (a *Authority) Fingerprint() string { return fingerprint(a.cert.Raw) }

// KeyID returns what certificates that the authority signs have as their authority key identifier,
// in hex; "" for an authority without a subject key identifier.
func (a *Authority) KeyID() string { return hex.EncodeToString(a.cert.SubjectKeyId) }

// Signed reports whether the authority has signed a certificate.
func (a *Authority) Signed(cert *x509.Certificate) bool {
	return cert.CheckSignatureFrom(a.cert) == nil
}

// certifiedBefore returns the certificates that lead from the authority to the one before it, for
// clients that trust only that one; nil when they are of no more use.
func (a *Authority) certifiedBefore(now time.Time) []byte {
	for _, one := range splitPEM(a.former) {
		if cert, err := parseCertificate(one); err != nil || now.Add(formerLeft).After(cert.NotAfter) {
			return nil
		}
	}
	return a.former
}

// chain returns what follows a server's certificate: the authority is last, so that clients can pin
// it and outlive a renewal.
func (a *Authority) chain(now time.Time) []byte { return slices.Concat(a.certifiedBefore(now), a.pem) }

func parseCertificate(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no certificate in PEM found")
	}
	return x509.ParseCertificate(block.Bytes)
}

func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

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

// host signs a host's request with the etcd user and the host's name as a server.
func (a *Authority) host(csrPEM []byte, user, server string, now time.Time, life time.Duration) ([]byte, error) {
	csr, err := ReadRequest(csrPEM)
	if err != nil {
		return nil, err
	}
	cert, err := a.issue(user, server, csr.PublicKey, now, life)
	if err != nil {
		return nil, err
	}
	if first := splitPEM(a.certifiedBefore(now)); len(first) > 0 {
		cert = slices.Concat(cert, first[0]) // servers know the authority before it themselves
	}
	return cert, nil
}

// issue makes a certificate for a client, an etcd user, and a server, which does not outlive the
// authority's.
func (a *Authority) issue(user, server string, public crypto.PublicKey, now time.Time, life time.Duration) ([]byte, error) {
	t := certificate(user, now, life, x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth)
	t.DNSNames = []string{server}
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
// authority and is valid for another third of its life. The chain to the authority follows it in
// the file.
func (a *Authority) keepPair(certFile, keyFile string, template *x509.Certificate, now time.Time) error {
	if leaf := a.suitable(certFile, keyFile, template, now); leaf != nil {
		return a.keepChain(certFile, leaf, now)
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
	return errors.Join(writeFile(keyFile, keyPEM), writeFile(certFile, slices.Concat(certPEM, a.chain(now))))
}

// keepChain replaces the chain behind a certificate that stays.
func (a *Authority) keepChain(certFile string, leaf *x509.Certificate, now time.Time) error {
	return keepFile(certFile, slices.Concat(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}), a.chain(now)))
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

// keepFile writes a file unless it has the content already.
func keepFile(name string, content []byte) error {
	if there, err := os.ReadFile(name); err == nil && bytes.Equal(there, content) {
		return nil
	}
	return writeFile(name, content)
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
