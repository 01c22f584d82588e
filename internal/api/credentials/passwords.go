package credentials

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"

	"golang.org/x/crypto/argon2"
)

// Cost is that of an argon2id hash (RFC 9106). Each hash carries its own, so that another default
// changes new ones alone.
type Cost struct {
	Memory  uint32 // KiB
	Passes  uint32
	Threads uint8
}

var (
	// ErrBadHash: what is stored is no hash of a password.
	ErrBadHash = errors.New("stored password hash is not argon2id in PHC form")
	// ErrTooLong: a password has more than MaxPassword bytes.
	ErrTooLong = fmt.Errorf("a password may have %d bytes", MaxPassword)
	// ErrBusy: too many passwords are being checked.
	ErrBusy = errors.New("too many clients log in at once; try again")
)

// MaxPassword bounds a password, in bytes.
const MaxPassword = 4096

// Limits of what hashing may take of the machine.
const (
	maxHashesAtOnce = 4       // times the memory of one
	maxHashMemory   = 1 << 18 // KiB that a stored hash may ask for
	saltSize        = 16
	keySize         = 32
)

// DefaultCost is OWASP's first choice: about 20 ms of one core.
func DefaultCost() Cost { return Cost{Memory: 19 << 10, Passes: 2, Threads: 1} }

// Passwords hashes and checks passwords, a few at a time: each takes memory, and anyone may ask.
// Clients take turns, by the addresses that one controls.
type Passwords struct {
	cost  Cost
	turns *turns
	decoy string // a hash that no password has, checked for accounts that do not exist
}

// NewPasswords returns a Passwords that makes hashes of this cost.
func NewPasswords(c Cost) *Passwords {
	p := &Passwords{cost: c, turns: newTurns(min(maxHashesAtOnce, runtime.GOMAXPROCS(0)))}
	p.decoy = c.encode(random(saltSize), random(keySize))
	return p
}

// Hash returns the stored form of a password that a client at this address sent, or ErrTooLong or
// ErrBusy.
func (p *Passwords) Hash(ctx context.Context, from netip.Addr, password string) (string, error) {
	if len(password) > MaxPassword {
		return "", ErrTooLong
	}
	if err := p.turns.enter(ctx, network(from)); err != nil {
		return "", err
	}
	defer p.turns.leave()
	return p.cost.Hash(password), nil
}

// Check reports whether the password that a client at this address sent belongs to the stored hash.
// An empty hash belongs to no password; it takes as long to check as a hash of the default cost, so
// that timing does not reveal which accounts exist.
func (p *Passwords) Check(ctx context.Context, from netip.Addr, stored, password string) (bool, error) {
	if len(password) > MaxPassword {
		return false, nil
	}
	if err := p.turns.enter(ctx, network(from)); err != nil {
		return false, err
	}
	defer p.turns.leave()
	exists := stored != ""
	if !exists {
		stored = p.decoy
	}
	c, salt, key, err := parseHash(stored)
	if err != nil {
		return false, err
	}
	got := argon2.IDKey([]byte(password), salt, c.Passes, c.Memory, c.Threads, uint32(len(key)))
	return subtle.ConstantTimeCompare(got, key) == 1 && exists, nil
}

// Hash returns the stored form of a password, with a salt of its own.
func (c Cost) Hash(password string) string {
	salt := random(saltSize)
	return c.encode(salt, argon2.IDKey([]byte(password), salt, c.Passes, c.Memory, c.Threads, keySize))
}

// encode makes $argon2id$v=19$m=…,t=…,p=…$salt$key, the form that argon2's own tools print.
func (c Cost) encode(salt, key []byte) string {
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, c.Memory, c.Passes, c.Threads,
		b64.EncodeToString(salt), b64.EncodeToString(key))
}

func random(size int) []byte {
	b := make([]byte, size)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return b
}

func parseHash(s string) (c Cost, salt, key []byte, err error) {
	parts := strings.Split(s, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return c, nil, nil, ErrBadHash
	}
	if n, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &c.Memory, &c.Passes, &c.Threads); err != nil || n != 3 {
		return c, nil, nil, ErrBadHash
	}
	if c.Passes == 0 || c.Passes > 100 || c.Threads == 0 || c.Memory > maxHashMemory {
		return c, nil, nil, ErrBadHash
	}
	salt, err = base64.RawStdEncoding.DecodeString(parts[4])
	if err != nil {
		return c, nil, nil, ErrBadHash
	}
	key, err = base64.RawStdEncoding.DecodeString(parts[5])
	if err != nil || len(key) < 16 || len(key) > 64 {
		return c, nil, nil, ErrBadHash
	}
	return c, salt, key, nil
}
