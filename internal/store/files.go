package store

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"time"
)

// ServerCertificate names the PEM files of the certificate, and its key, that the embedded store in dataDir presents to
// agents: those of the server's other doors for hosts may be the same. They exist once the store was opened with Agents.
func ServerCertificate(dataDir string) (cert, key string) {
	o := Embedded{DataDir: dataDir}
	return o.serverCert(), o.serverKey()
}

// AuthorityFile names the PEM file of the authority that signed it.
func AuthorityFile(dataDir string) string { return Embedded{DataDir: dataDir}.caCert() }

// KeepCertificate sees that there is a certificate for a server of this machine beside the store's, called name, that is
// reached at the address listen and by names, signed by the authority of dataDir; the first makes that too. It returns the
// PEM files of the certificate and its key. Certificates are renewed here alone: call it at each start and while the server runs.
func KeepCertificate(dataDir, name, listen string, names []string) (cert, key string, err error) {
	o := Embedded{DataDir: dataDir, Agents: listen, Names: names}
	return o.keep(name, func(now time.Time) *x509.Certificate { return serverTemplate(o.names(), now) })
}

func (o Embedded) keep(name string, template func(now time.Time) *x509.Certificate) (cert, key string, err error) {
	if err := os.MkdirAll(o.tlsDir(), 0o700); err != nil {
		return "", "", err
	}
	now := time.Now()
	a, err := keepAuthority(o.caCert(), o.caKey(), now)
	if err != nil {
		return "", "", err
	}
	cert, key = filepath.Join(o.tlsDir(), name+".crt"), filepath.Join(o.tlsDir(), name+".key")
	return cert, key, a.keepPair(cert, key, template(now), now)
}
