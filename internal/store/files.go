package store

// ServerCertificate names the PEM files of the certificate, and its key, that the embedded store in dataDir presents to
// agents: those of the server's other doors for hosts may be the same. They exist once the store was opened with Agents.
func ServerCertificate(dataDir string) (cert, key string) {
	o := Embedded{DataDir: dataDir}
	return o.serverCert(), o.serverKey()
}

// AuthorityFile names the PEM file of the authority that signed it.
func AuthorityFile(dataDir string) string { return Embedded{DataDir: dataDir}.caCert() }
