package xapi

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/crypto/argon2"
)

// The cost of an argon2id hash (RFC 9106) is OWASP's first choice: about 20 ms of one core.
const (
	hashMemory  = 19 << 10 // KiB
	hashPasses  = 2
	hashThreads = 1
	hashSalt    = 16   // bytes
	hashKey     = 32   // bytes
	maxPassword = 4096 // bytes
	maxWaiting  = 128  // log-ins at once; more would only wait longer than a client does
)

var (
	errBadHash = errors.New("the stored hash of the password cannot be read")
	errBusy    = errors.New("too many clients log in at once; try again")
)

// passwords checks passwords, a few at a time: each takes memory, and anyone may ask.
type passwords struct {
	slots   chan struct{}
	waiting chan struct{}
	nobody  string // looks like a hash, and no password has it: checked for accounts that do not exist
}

func newPasswords() *passwords {
	salt, key := make([]byte, hashSalt), make([]byte, hashKey)
	_, _ = rand.Read(salt) // never fails (crypto/rand)
	_, _ = rand.Read(key)
	return &passwords{slots: make(chan struct{}, runtime.GOMAXPROCS(0)), waiting: make(chan struct{}, maxWaiting), nobody: encodeHash(salt, key)}
}

// check says whether the password belongs to the hash; "" is no password's, and to find that out takes as long.
func (p *passwords) check(ctx context.Context, hash, password string) (bool, error) {
	if len(password) > maxPassword {
		return false, nil
	}
	select {
	case p.waiting <- struct{}{}:
		defer func() { <-p.waiting }()
	default:
		return false, errBusy
	}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	there := hash != ""
	if !there {
		hash = p.nobody
	}
	salt, key, err := decodeHash(hash)
	if err != nil {
		return false, err
	}
	got := argon2.IDKey([]byte(password), salt, hashPasses, hashMemory, hashThreads, uint32(len(key)))
	return subtle.ConstantTimeCompare(got, key) == 1 && there, nil
}

// hashPassword makes what is stored of a password.
func hashPassword(password string) (string, error) {
	if password == "" || len(password) > maxPassword {
		return "", fmt.Errorf("a password has 1 to %d bytes", maxPassword)
	}
	salt := make([]byte, hashSalt)
	_, _ = rand.Read(salt) // never fails (crypto/rand)
	return encodeHash(salt, argon2.IDKey([]byte(password), salt, hashPasses, hashMemory, hashThreads, hashKey)), nil
}

// hashHead begins each hash: the PHC form, which other tools read too.
func hashHead() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$", argon2.Version, hashMemory, hashPasses, hashThreads)
}

func encodeHash(salt, key []byte) string {
	b64 := base64.RawStdEncoding
	return hashHead() + b64.EncodeToString(salt) + "$" + b64.EncodeToString(key)
}

func decodeHash(hash string) (salt, key []byte, err error) {
	rest, known := strings.CutPrefix(hash, hashHead())
	left, right, two := strings.Cut(rest, "$")
	if !known || !two {
		return nil, nil, errBadHash
	}
	if salt, err = base64.RawStdEncoding.DecodeString(left); err == nil {
		key, err = base64.RawStdEncoding.DecodeString(right)
	}
	if err != nil || len(key) != hashKey {
		return nil, nil, errBadHash
	}
	return salt, key, nil
}
