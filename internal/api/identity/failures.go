package identity

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"heddle/internal/api"
)

// How many wrong passwords are borne: so many at once, then one an interval.
const (
	failuresPerUser    = 30
	failuresPerAddress = 60
	failureInterval    = 2 * time.Second
	knownFor           = 24 * time.Hour
	maxRemembered      = 10_000 // users, addresses and pairs each; who guesses cannot fill the memory
)

// failures slows down whoever guesses passwords, by user and by client address. Only wrong ones count, so nobody is
// held up for logging in a hundred times at once; those who guess a hundred at once, which passwords bounds, wait for
// that much longer. A client address from which a user has logged in before is not held to the user's limit: guessing
// elsewhere does not lock him out.
type failures struct {
	now func() time.Time

	mu        sync.Mutex
	byUser    map[string]time.Time // when the user's failures are paid off, at one an interval
	byAddress map[netip.Prefix]time.Time
	known     map[userAt]time.Time // until when the pair is known
}

type userAt struct {
	user string
	at   netip.Prefix
}

func newFailures(now func() time.Time) *failures {
	return &failures{now: now, byUser: map[string]time.Time{}, byAddress: map[netip.Prefix]time.Time{}, known: map[userAt]time.Time{}}
}

// attempt refuses a login of user from addr with 429 when too many have failed.
func (f *failures) attempt(user string, addr netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, at := f.now(), network(addr)
	wait := later(now, f.byAddress[at]).Sub(now) - failureInterval*(failuresPerAddress-1)
	if !f.known[userAt{user, at}].After(now) {
		wait = max(wait, later(now, f.byUser[user]).Sub(now)-failureInterval*(failuresPerUser-1))
	}
	if wait <= 0 {
		return nil
	}
	return &api.Error{Status: http.StatusTooManyRequests, RetryAfter: wait, Message: "Too many failed logins. Try again later."}
}

// failed charges user and addr for a wrong password.
func (f *failures) failed(user string, addr netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, at := f.now(), network(addr)
	past := func(t time.Time) bool { return !t.After(now) }
	remember(f.byUser, user, later(now, f.byUser[user]).Add(failureInterval), past)
	remember(f.byAddress, at, later(now, f.byAddress[at]).Add(failureInterval), past)
}

// succeeded remembers that user was at addr.
func (f *failures) succeeded(user string, addr netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	remember(f.known, userAt{user, network(addr)}, now.Add(knownFor), func(t time.Time) bool { return !t.After(now) })
}

// network is what one client commands: an IPv4 address, or the /64 of an IPv6 address.
func network(addr netip.Addr) netip.Prefix {
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

// remember sets m[k], making room among what is past, and if need be among the rest.
func remember[K comparable, V any](m map[K]V, k K, v V, past func(V) bool) {
	if _, ok := m[k]; !ok && len(m) >= maxRemembered {
		for old, v := range m {
			if past(v) {
				delete(m, old)
			}
		}
		for old := range m {
			if len(m) < maxRemembered {
				break
			}
			delete(m, old)
		}
	}
	m[k] = v
}
