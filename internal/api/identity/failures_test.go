package identity

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func TestFailures(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	f := newFailures(func() time.Time { return now })
	addr := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}) }
	allowed := func(user string, a netip.Addr) bool { return f.attempt(user, a) == nil }
	guess := func(user string, a netip.Addr) bool {
		if !allowed(user, a) {
			return false
		}
		f.failed(user, a)
		return true
	}
	f.succeeded("ann", addr(1))

	// Guessing one user's password from many addresses stops at the user's limit …
	n := 0
	for i := 10; i < 200 && guess("ann", addr(i)); i++ {
		n++
	}
	if n != failuresPerUser {
		t.Errorf("%d guesses at one user were borne, want %d", n, failuresPerUser)
	}
	// … but she still gets in from where she was before, and others get in at all.
	if !allowed("ann", addr(1)) {
		t.Error("guessing elsewhere locked ann out of her own address")
	}
	if !allowed("bob", addr(250)) {
		t.Error("guessing at ann locked bob out")
	}
	// Then one an interval.
	now = now.Add(failureInterval * 2)
	if !allowed("ann", addr(251)) {
		t.Error("the limit did not ease with time")
	}
	// One address that tries every user stops at the address's limit.
	n = 0
	for i := range 1000 {
		if !guess(fmt.Sprintf("user%d", i), netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i))) {
			break
		}
		n++
	}
	if n != failuresPerAddress {
		t.Errorf("%d guesses from one network were borne, want %d", n, failuresPerAddress)
	}
	// A flood of names stays within bounds.
	for i := range 3 * maxRemembered {
		remember(f.byUser, fmt.Sprint(i), now.Add(time.Hour), func(time.Time) bool { return false })
	}
	if len(f.byUser) > maxRemembered {
		t.Errorf("%d users remembered", len(f.byUser))
	}
}
