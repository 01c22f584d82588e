// Package sealing encrypts secrets that lie in the store: with a key that all servers have and the
// store has not, and for single hosts, whose agents have the private key.
package sealing

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/hpke"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const keySize = 32 // bytes, of any key here

// ServerKey is the key of the servers. It is safe for concurrent use.
type ServerKey struct {
	id     string
	box    cipher.AEAD // AES-256-GCM with random nonces
	digest []byte      // of the HMAC
}

// LoadServerKey reads the key from a file, and makes it if there is none.
func LoadServerKey(file string) (*ServerKey, error) {
	secret, err := loadKey(file, "put it back from a copy")
	if err != nil {
		return nil, err
	}
	return newServerKey(secret)
}

func newServerKey(secret []byte) (*ServerKey, error) {
	derived := map[string][]byte{}
	for _, purpose := range []string{"box", "digest", "id"} {
		k, err := hkdf.Key(sha256.New, secret, nil, "heddle server "+purpose, keySize)
		if err != nil {
			return nil, err
		}
		derived[purpose] = k
	}
	block, err := aes.NewCipher(derived["box"])
	if err != nil {
		return nil, err
	}
	box, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &ServerKey{id: hex.EncodeToString(derived["id"][:8]), box: box, digest: derived["digest"]}, nil
}

// ID names the key and says nothing about it.
func (k *ServerKey) ID() string { return k.id }

// Seal encrypts a secret that belongs to owner.
func (k *ServerKey) Seal(owner string, secret []byte) []byte {
	return k.box.Seal(nil, nil, secret, []byte(owner))
}

// Open returns what Seal has encrypted for the same owner.
func (k *ServerKey) Open(owner string, sealed []byte) ([]byte, error) {
	secret, err := k.box.Open(nil, nil, sealed, []byte(owner))
	if err != nil {
		return nil, fmt.Errorf("the secret of %s was not sealed with the servers' key %s, or was changed", owner, k.id)
	}
	return secret, nil
}

// Digest returns a value that is equal for equal secrets, and by which nobody without the key finds
// out which they are.
func (k *ServerKey) Digest(secret []byte) []byte {
	h := hmac.New(sha256.New, k.digest)
	h.Write(secret)
	return h.Sum(nil)
}

// HostKey is the private key of a host.
type HostKey struct{ private *ecdh.PrivateKey }

// NewHostKey returns a key that is in no file.
func NewHostKey() (*HostKey, error) {
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	return &HostKey{private}, err
}

// LoadHostKey reads the key from a file, and makes it if there is none.
func LoadHostKey(file string) (*HostKey, error) {
	secret, err := loadKey(file, "put it back from a copy, or remove it to have another key made, with which what was sealed before cannot be read")
	if err != nil {
		return nil, err
	}
	private, err := ecdh.X25519().NewPrivateKey(secret)
	return &HostKey{private}, err
}

// Public returns the host's public key, 32 bytes.
func (k *HostKey) Public() []byte { return k.private.PublicKey().Bytes() }

// Open returns what SealForHost has encrypted for this host and the same owner.
func (k *HostKey) Open(owner string, box []byte) ([]byte, error) {
	key, err := hpke.NewDHKEMPrivateKey(k.private)
	if err != nil {
		return nil, err
	}
	secret, err := hpke.Open(key, hpke.HKDFSHA256(), hpke.AES256GCM(), []byte(owner), box)
	if err != nil {
		return nil, fmt.Errorf("the secret of %s was not sealed for this host's key %s, or was changed", owner, Fingerprint(k.Public()))
	}
	return secret, nil
}

// SealForHost encrypts a secret that belongs to owner for the host with this public key (HPKE, RFC
// 9180, with X25519, HKDF-SHA256 and AES-256-GCM).
func SealForHost(public []byte, owner string, secret []byte) ([]byte, error) {
	key, err := ecdh.X25519().NewPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("public key of a host: %w", err)
	}
	to, err := hpke.NewDHKEMPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("public key of a host: %w", err)
	}
	return hpke.Seal(to, hpke.HKDFSHA256(), hpke.AES256GCM(), []byte(owner), secret)
}

// Fingerprint names a public key.
func Fingerprint(public []byte) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:8])
}

// loadKey returns the 32 bytes of a key file, which has them in base64. A missing file is made, so
// that of two processes that make it at once both have the same key. An error about a file that
// holds no key says what to do.
func loadKey(file, whatToDo string) ([]byte, error) {
	secret, err := readKey(file, whatToDo)
	if !errors.Is(err, os.ErrNotExist) {
		return secret, err
	}
	if err := makeKey(file); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return readKey(file, whatToDo)
}

func readKey(file, whatToDo string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("key file %s: others than its owner may use it: chmod 600 %s", file, file)
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("key file %s: this process, of user %d, may not read it: chown %d %s", file, os.Geteuid(), os.Geteuid(), file)
	} else if err != nil {
		return nil, err
	}
	secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(secret) != keySize {
		return nil, fmt.Errorf("key file %s: want %d bytes in base64: %s", file, keySize, whatToDo)
	}
	return secret, nil
}

// makeKey writes a random key. The file appears in whole; it is [os.ErrExist] if there is one.
func makeKey(file string) (err error) {
	secret := make([]byte, keySize)
	rand.Read(secret)
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = fmt.Fprintln(f, base64.StdEncoding.EncodeToString(secret))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), file)
}
