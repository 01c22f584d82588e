package cli

import (
	"net/netip"
	"strings"
	"testing"

	"heddle/internal/api/operator"
	"heddle/internal/topology/flow"
)

// TestSplitPort: a port ends a name or an address; that of an IPv6 address is behind brackets.
func TestSplitPort(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		name string
		port uint16
	}{
		"db": {"db", 0}, "db:5432": {"db", 5432}, "a:b": {"a:b", 0}, "a:b:1": {"a:b", 1}, "192.0.2.1:80": {"192.0.2.1", 80},
		"2001:db8::1": {"2001:db8::1", 0}, "[2001:db8::1]:80": {"2001:db8::1", 80}, "[2001:db8::1]": {"2001:db8::1", 0}, ":80": {":80", 0}, "": {"", 0},
	} {
		if name, port, err := splitPort(text); err != nil || name != want.name || port != want.port {
			t.Errorf("%q: %q %d %v, want %+v", text, name, port, err, want)
		}
	}
	for _, text := range []string{"db:0", "db:65536", "db:99999999999999999999"} {
		if _, _, err := splitPort(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestPrintWhy: the answer in words, with names.
func TestPrintWhy(t *testing.T) {
	t.Parallel()
	a := &operator.WhyAnswer{
		Verdict: operator.Denied, Service: "tcp 22", From: operator.WhyEnd{Port: "p1", Name: "web", Address: netip.MustParseAddr("10.0.0.5"), Host: "h1"},
		To: operator.WhyEnd{Address: netip.MustParseAddr("10.0.0.9")},
		There: operator.WhyLeg{Reason: "port p2: denied", By: []flow.Object{{Kind: "port", Name: "another project's"}, {Kind: "security-group-rule", ID: "r", Group: &flow.Object{Kind: "security-group", ID: "g", Name: "default"}}}, Nearest: []operator.NearestRule{{Group: "g", Text: "ingress IPv4 tcp 80", Fails: []string{"its ports are 80, not 22", "x"}}},
			Trace: flow.TraceAnswer{Code: flow.CodeNoRule, Walk: []flow.Step{{Device: "p2", Text: "dropped"}}}},
		Remedies: []operator.Remedy{{Command: []string{"heddle", "sg", "rule", "add", "g"}}},
		Names:    map[string]flow.TraceName{"g": {Kind: "security group", Name: "default"}, "p2": {Kind: "port", Name: "db"}},
	}
	var b strings.Builder
	printWhy(&b, a, true)
	const want = `denied: tcp 22 from web 10.0.0.5 on h1 to 10.0.0.9
there denied (no-rule): port p2 (db): denied
      by another project's port
      by security group rule r of security group g (default)
      nearest in group g (security group default): ingress IPv4 tcp 80: its ports are 80, not 22; x
  p2 (port db)  dropped
back  none: nothing arrives that could be answered
note   no agent answered; the server did, which knows no connections
with this it would pass, as tried in memory:
  heddle sg rule add g
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
