package api

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificateCheck is the least time between two looks at the files of a certificate.
const certificateCheck = 10 * time.Second

// keyPair is a certificate and key that follow their files, so that renewing them needs no restart.
type keyPair struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	cert    *tls.Certificate
	stamp   stamp // of the files that cert is from
	refused stamp // of files that could not be used
	checked time.Time
}

// stamp is the modification times of the two files of a pair.
type stamp [2]time.Time

func loadKeyPair(certFile, keyFile string, log *slog.Logger) (*keyPair, error) {
	k := &keyPair{certFile: certFile, keyFile: keyFile, log: log, checked: time.Now()}
	var err error
	k.cert, k.stamp, err = k.read()
	if err == nil {
		if ended := k.ended(k.cert, time.Now()); ended != nil {
			log.Warn("clients refuse this server", "err", ended)
		}
	}
	return k, err
}

// ended returns an error if a certificate has ended, or has yet to begin.
func (k *keyPair) ended(cert *tls.Certificate, now time.Time) error {
	switch at := cert.Leaf; {
	case now.After(at.NotAfter):
		return fmt.Errorf("TLS certificate %s has ended on %s: renew it", k.certFile, at.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(at.NotBefore):
		return fmt.Errorf("TLS certificate %s begins on %s: is this machine's clock right?", k.certFile, at.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// worse returns an error if a certificate is of no use now, and the one in force is. k.mu is held.
func (k *keyPair) worse(cert *tls.Certificate, now time.Time) error {
	if k.ended(k.cert, now) != nil {
		return nil
	}
	return k.ended(cert, now)
}

// read reads the files.
func (k *keyPair) read() (*tls.Certificate, stamp, error) {
	var at stamp
	for i, f := range []string{k.certFile, k.keyFile} {
		info, err := os.Stat(f)
		if err != nil {
			return nil, at, fmt.Errorf("TLS certificate: %w", err)
		}
		at[i] = info.ModTime()
	}
	cert, err := tls.LoadX509KeyPair(k.certFile, k.keyFile)
	if err != nil {
		return nil, at, fmt.Errorf("TLS certificate %s with key %s: %w", k.certFile, k.keyFile, err)
	}
	return &cert, at, nil
}

// changed reads the files, and returns a function that puts them in force; nil if they are.
func (k *keyPair) changed() (apply func(), err error) {
	cert, at, err := k.read()
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if at == k.stamp {
		return nil, nil
	}
	if err := k.worse(cert, time.Now()); err != nil {
		return nil, err
	}
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.cert, k.stamp = cert, at
	}, nil
}

// refresh reads the files again. Halfway through a renewal the two may not match: the pair in force
// stays, and the next look finds them both new.
func (k *keyPair) refresh(now time.Time) {
	k.checked = now
	cert, at, err := k.read()
	if err == nil {
		err = k.worse(cert, now)
	}
	switch {
	case err == nil:
		k.cert, k.stamp = cert, at
	case at != k.refused:
		k.refused = at
		k.log.Warn("cannot use the changed certificate; keeping the one in force", "err", err)
	}
}

func (k *keyPair) current(now time.Time) *tls.Certificate {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Sub(k.checked) >= certificateCheck {
		k.refresh(now)
	}
	return k.cert
}

func (k *keyPair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return k.current(time.Now()), nil
}

func (k *keyPair) fingerprint() string {
	chain := k.current(time.Now()).Certificate
	return Fingerprint(chain[len(chain)-1])
}

// Fingerprint is the SHA-256 of a certificate in DER form, in hex.
func Fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}
