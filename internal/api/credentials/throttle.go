// Package credentials hashes and checks passwords, slows down clients that guess them, and logs and
// counts refusals, for every API that takes them.
//
// Wrong passwords are counted three ways, each as a bucket that takes some at once and then one an
// interval:
//
//	account at an address   guesses of one client at one account; always applies
//	account                 guesses at one account from many addresses; does not apply
//	                        where the account has logged in from that address within a day
//	address                 guesses at many accounts from one address; applies only to
//	                        accounts with a wrong password of their own from there, and not
//	                        to those that have logged in from there within a day
//
// So a client that tries one account after another cannot keep the others behind its address, a
// proxy or a NAT, from logging in with the right password: an account's first attempt from an
// address is always checked. One that guesses at one account cannot keep its owner out elsewhere.
// No address is exempt.
//
// Addresses take turns at the work of checking, so that the attempts of one, at however many
// accounts, delay those of another by one check.
package credentials

import (
	"crypto/sha256"
	"net/netip"
	"sync"
	"time"
)

// How many wrong passwords are checked at once, and the interval after which one more is.
const (
	perPair     = 20
	perAccount  = 30
	perAddress  = 60
	interval    = 2 * time.Second
	knownFor    = 24 * time.Hour
	maxRemember = 10_000 // accounts, addresses and pairs each: a client that guesses cannot fill the memory
)

// Throttle counts wrong passwords. It is safe for concurrent use.
type Throttle struct {
	now func() time.Time

	mu        sync.Mutex
	byPair    map[pair]time.Time // when the failures are paid off, at one an interval
	byAccount map[string]time.Time
	byAddress map[netip.Prefix]time.Time
	known     map[pair]time.Time // until when
}

type pair struct {
	account string
	from    netip.Prefix
}

// maxName is the length in bytes up to which the name of an account is remembered as it is.
const maxName = 255

// newPair returns what is remembered of an account at an address: of a long name its hash, since
// clients choose names that no account has.
func newPair(account string, from netip.Addr) pair {
	if len(account) > maxName {
		sum := sha256.Sum256([]byte(account))
		account = string(sum[:])
	}
	return pair{account, network(from)}
}

// NewThrottle returns a throttle that goes by this clock.
func NewThrottle(now func() time.Time) *Throttle {
	return &Throttle{now: now, byPair: map[pair]time.Time{}, byAccount: map[string]time.Time{}, byAddress: map[netip.Prefix]time.Time{}, known: map[pair]time.Time{}}
}

// Wait returns how long a client at this address has to wait before its password for the account is
// checked; 0 = not at all.
func (t *Throttle) Wait(account string, from netip.Addr) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, p := t.now(), newPair(account, from)
	wait := over(now, t.byPair[p], perPair)
	if t.known[p].After(now) {
		return wait
	}
	wait = max(wait, over(now, t.byAccount[p.account], perAccount))
	if t.byPair[p].After(now) {
		wait = max(wait, over(now, t.byAddress[p.from], perAddress))
	}
	return wait
}

// over returns by how much a bucket of this size is overdrawn.
func over(now, paid time.Time, burst int) time.Duration {
	if !paid.After(now) {
		return 0
	}
	return max(0, paid.Sub(now)-time.Duration(burst-1)*interval)
}

// Failed charges a wrong password.
func (t *Throttle) Failed(account string, from netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, p := t.now(), newPair(account, from)
	past := func(at time.Time) bool { return !at.After(now) }
	charge := func(paid time.Time) time.Time { return later(now, paid).Add(interval) }
	remember(t.byPair, p, charge(t.byPair[p]), past)
	remember(t.byAccount, p.account, charge(t.byAccount[p.account]), past)
	remember(t.byAddress, p.from, charge(t.byAddress[p.from]), past)
}

// Succeeded remembers that the account has logged in from this address.
func (t *Throttle) Succeeded(account string, from netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	remember(t.known, newPair(account, from), now.Add(knownFor), func(until time.Time) bool { return !until.After(now) })
}

// network returns the addresses that one client controls: an IPv4 address, or the /64 of an IPv6
// address.
func network(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap()
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	p, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // the zero address: not over the network
	}
	return p
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// remember sets m[k], making room among what is past, and if need be among the rest: for many at
// once, so that a flood of names does not cost a pass over all for each.
func remember[K comparable, V any](m map[K]V, k K, v V, past func(V) bool) {
	if _, ok := m[k]; !ok && len(m) >= maxRemember {
		for old, v := range m {
			if past(v) {
				delete(m, old)
			}
		}
		for old := range m {
			if len(m) < maxRemember*9/10 {
				break
			}
			delete(m, old)
		}
	}
	m[k] = v
}
