package backend

import (
	"os"
	"path/filepath"
	"time"
)

// ServerCertificate returns the files (PEM) of the certificate and key that the embedded store in
// dataDir presents to agents. They exist once the store was opened with Agents.
func ServerCertificate(dataDir string) (cert, key string) {
	o := Embedded{DataDir: dataDir}
	return o.serverCert(), o.serverKey()
}

// AuthorityFile returns the file (PEM) of the authority that signed it.
func AuthorityFile(dataDir string) string { return Embedded{DataDir: dataDir}.caCert() }

// KeepCertificate makes or renews the certificate of a server of this machine, called name, which
// is reached at the address listen and by names. The authority in dataDir signs it, and is made if
// there is none. It returns the files (PEM) of certificate and key. Call it at each start and while
// the server runs.
func KeepCertificate(dataDir, name, listen string, names []string) (cert, key string, err error) {
	o := Embedded{DataDir: dataDir, Agents: listen, Names: names}
	if err := os.MkdirAll(o.tlsDir(), 0o700); err != nil {
		return "", "", err
	}
	now := time.Now()
	if err := o.makeAuthority(now); err != nil {
		return "", "", err
	}
	a, err := o.readAuthority()
	if err != nil {
		return "", "", err
	}
	cert, key = filepath.Join(o.tlsDir(), name+".crt"), filepath.Join(o.tlsDir(), name+".key")
	return cert, key, a.keepPair(cert, key, serverTemplate(o.names(), now), now)
}
