package api

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"os"
	"sync"
	"time"
)

// certificateCheck is the least time between two looks at the files of a certificate.
const certificateCheck = 10 * time.Second

// keyPair is a certificate and key that follow their files, so that renewing them needs no restart.
type keyPair struct {
	certFile, keyFile string

	mu      sync.Mutex
	cert    *tls.Certificate
	stamp   [2]time.Time // modification times of the two files when they were read
	checked time.Time
}

func loadKeyPair(certFile, keyFile string) (*keyPair, error) {
	k := &keyPair{certFile: certFile, keyFile: keyFile}
	if err := k.refresh(time.Now()); err != nil {
		return nil, err
	}
	return k, nil
}

// refresh reads the files again if they have changed. Halfway through a renewal the two may not
// match: the caller keeps the pair it has, and the next look finds them both new.
func (k *keyPair) refresh(now time.Time) error {
	k.checked = now
	var stamp [2]time.Time
	for i, f := range []string{k.certFile, k.keyFile} {
		info, err := os.Stat(f)
		if err != nil {
			return fmt.Errorf("TLS certificate: %w", err)
		}
		stamp[i] = info.ModTime()
	}
	if k.cert != nil && stamp == k.stamp {
		return nil
	}
	cert, err := tls.LoadX509KeyPair(k.certFile, k.keyFile)
	if err != nil {
		return fmt.Errorf("TLS certificate %s with key %s: %w", k.certFile, k.keyFile, err)
	}
	k.cert, k.stamp = &cert, stamp
	return nil
}

func (k *keyPair) current(now time.Time) *tls.Certificate {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Sub(k.checked) >= certificateCheck {
		_ = k.refresh(now) // on error the pair we have keeps serving; see refresh
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
