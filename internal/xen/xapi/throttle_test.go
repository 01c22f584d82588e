package xapi

import (
	"net/netip"
	"strings"
	"testing"
)

// TestGuesserLogsIn: with the right password too one has to wait, and is told for how long, on
// loopback as elsewhere. Other accounts can log in from there.
func TestGuesserLogsIn(t *testing.T) {
	t.Parallel()
	s, _ := served(t)
	for _, from := range []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("127.0.0.1")} {
		s.throttle.Succeeded(RootAccount, from)
		for s.throttle.Wait(RootAccount, from) == 0 {
			s.throttle.Failed(RootAccount, from)
		}
		a := s.dispatch(t.Context(), from, "session.login_with_password", []any{RootAccount, "whatever"})
		if a.failure == nil || a.failure.Code != "SESSION_AUTHENTICATION_FAILED" || !strings.Contains(a.failure.Params[1], "try again in 2s") {
			t.Errorf("%v: %v", from, a.failure)
		}
		if s.refusals.Metrics()[2].Value == 0 {
			t.Errorf("%v: the refusal is not counted", from)
		}
		if wait := s.throttle.Wait("ada", from); wait != 0 {
			t.Errorf("%v: guesses at root keep another account out for %v", from, wait)
		}
	}
}
