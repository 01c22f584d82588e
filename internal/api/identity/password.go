package identity

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/argon2"

	"heddle/internal/api"
)

// cost of an argon2id hash (RFC 9106). The default is OWASP's first choice: about 20 ms of one core.
type cost struct {
	memory  uint32 // KiB
	passes  uint32
	threads uint8
}

var errBadHash = fmt.Errorf("stored password hash is not argon2id in PHC form")

// Limits of what hashing may take of the machine.
const (
	maxHashesAtOnce  = 4       // times the memory of one
	maxHashesWaiting = 128     // more are refused: they would only wait longer than a client does
	maxHashMemory    = 1 << 18 // KiB that a stored hash may ask for
	maxPassword      = 4096    // bytes
	saltSize         = 16
	keySize          = 32
)

func defaultCost() cost { return cost{memory: 19 << 10, passes: 2, threads: 1} }

// passwords hashes and checks passwords, a few at a time: each takes memory, and anyone may ask.
type passwords struct {
	cost    cost
	slots   chan struct{}
	waiting atomic.Int32
	nobody  string // looks like a hash, and no password has it: checked in place of one that does not exist
}

func newPasswords(c cost) *passwords {
	p := &passwords{cost: c, slots: make(chan struct{}, min(maxHashesAtOnce, runtime.GOMAXPROCS(0)))}
	p.nobody = c.encode(random(saltSize), random(keySize))
	return p
}

// hash makes the stored form of a password.
func (p *passwords) hash(ctx context.Context, password string) (string, error) {
	if len(password) > maxPassword {
		return "", api.Errorf(http.StatusBadRequest, "Invalid input for field 'password': it may have %d bytes.", maxPassword)
	}
	leave, err := p.enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	return p.cost.hash(password), nil
}

// check says whether the password belongs to the stored hash. An empty hash belongs to no password, and finding that
// out takes as long as any other answer, so that the time tells nobody which users exist.
func (p *passwords) check(ctx context.Context, stored, password string) (bool, error) {
	if len(password) > maxPassword {
		return false, nil
	}
	leave, err := p.enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	exists := stored != ""
	if !exists {
		stored = p.nobody
	}
	c, salt, key, err := parseHash(stored)
	if err != nil {
		return false, err
	}
	got := argon2.IDKey([]byte(password), salt, c.passes, c.memory, c.threads, uint32(len(key)))
	return subtle.ConstantTimeCompare(got, key) == 1 && exists, nil
}

// enter waits for a slot; the function it returns gives the slot back.
func (p *passwords) enter(ctx context.Context) (leave func(), err error) {
	if p.waiting.Add(1) > maxHashesWaiting {
		p.waiting.Add(-1)
		return nil, &api.Error{Status: http.StatusServiceUnavailable, Message: "Too many logins at once; try again.", RetryAfter: time.Second}
	}
	defer p.waiting.Add(-1)
	select {
	case p.slots <- struct{}{}:
		return func() { <-p.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// hash makes the stored form of a password, with a salt of its own.
func (c cost) hash(password string) string {
	salt := random(saltSize)
	return c.encode(salt, argon2.IDKey([]byte(password), salt, c.passes, c.memory, c.threads, keySize))
}

// encode makes $argon2id$v=19$m=…,t=…,p=…$salt$key, the form that argon2's own tools print.
func (c cost) encode(salt, key []byte) string {
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, c.memory, c.passes, c.threads,
		b64.EncodeToString(salt), b64.EncodeToString(key))
}

func random(size int) []byte {
	b := make([]byte, size)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return b
}

func parseHash(s string) (c cost, salt, key []byte, err error) {
	parts := strings.Split(s, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return c, nil, nil, errBadHash
	}
	if n, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &c.memory, &c.passes, &c.threads); err != nil || n != 3 {
		return c, nil, nil, errBadHash
	}
	if c.passes == 0 || c.passes > 100 || c.threads == 0 || c.memory > maxHashMemory {
		return c, nil, nil, errBadHash
	}
	salt, err = base64.RawStdEncoding.DecodeString(parts[4])
	if err != nil {
		return c, nil, nil, errBadHash
	}
	key, err = base64.RawStdEncoding.DecodeString(parts[5])
	if err != nil || len(key) < 16 || len(key) > 64 {
		return c, nil, nil, errBadHash
	}
	return c, salt, key, nil
}
