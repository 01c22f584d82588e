package credentials

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestThrottle(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	f := NewThrottle(func() time.Time { return now })
	addr := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}) }
	allowed := func(account string, a netip.Addr) bool { return f.Wait(account, a) == 0 }
	guesses := func(most int, account func(int) string, a func(int) netip.Addr) (n int) {
		for ; n < most && allowed(account(n), a(n)); n++ {
			f.Failed(account(n), a(n))
		}
		return n
	}
	always := func(s string) func(int) string { return func(int) string { return s } }
	at := func(a netip.Addr) func(int) netip.Addr { return func(int) netip.Addr { return a } }
	f.Succeeded("ann", addr(1))

	// Guesses at one account from many addresses stop at the account's limit, but not where it has
	// logged in.
	if n := guesses(200, always("ann"), func(i int) netip.Addr { return addr(10 + i) }); n != perAccount {
		t.Errorf("%d guesses at one account were checked, want %d", n, perAccount)
	}
	if !allowed("ann", addr(1)) {
		t.Error("guesses elsewhere locked ann out of her own address")
	}
	if allowed("ann", addr(250)) || !allowed("bob", addr(250)) {
		t.Error("guesses at ann do not concern her alone")
	}
	now = now.Add(2 * interval)
	if !allowed("ann", addr(251)) {
		t.Error("the limit did not ease with time")
	}

	// Guesses at one account from one address stop, also where it has logged in.
	if n := guesses(200, always("ann"), at(addr(1))); n != perPair {
		t.Errorf("%d guesses at ann from her address were checked, want %d", n, perPair)
	}

	// Guesses at many accounts from one address, of two passwords each, stop at the address's
	// limit: each account but those has one attempt, and no other is locked out, by loopback
	// neither.
	for _, from := range []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("127.0.0.1")} {
		for i := range perAddress {
			f.Failed(fmt.Sprint("user", i), from)
		}
		if allowed("user0", from) {
			t.Errorf("%v: a second password for an account was checked beyond the limit of the address", from)
		}
		if !allowed("admin", from) {
			t.Errorf("%v: guesses at others locked the administrator out", from)
		}
		f.Failed("admin", from)
		if allowed("admin", from) {
			t.Errorf("%v: the limit of the address does not hold for an account that failed", from)
		}
		f.Succeeded("admin", from)
		if !allowed("admin", from) {
			t.Errorf("%v: an account that has logged in there is locked out by guesses at others", from)
		}
	}

	// A flood of names stays within bounds.
	for i := range 3 * maxRemember {
		f.Failed(fmt.Sprint(i), addr(i%250))
	}
	if len(f.byAccount) > maxRemember || len(f.byPair) > maxRemember {
		t.Errorf("%d accounts and %d pairs remembered", len(f.byAccount), len(f.byPair))
	}

	// So do long names, which are told apart all the same.
	long := strings.Repeat("x", 1<<20)
	for range perPair {
		f.Failed(long+"1", addr(251))
	}
	if allowed(long+"1", addr(251)) || !allowed(long+"2", addr(252)) {
		t.Error("guesses at long names are not counted each for itself")
	}
	for account := range f.byAccount {
		if len(account) > maxName {
			t.Fatalf("a name of %d bytes is remembered", len(account))
		}
	}
}
