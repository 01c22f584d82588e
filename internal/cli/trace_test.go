package cli

import (
	"strings"
	"testing"

	"heddle/internal/topology/flow"
)

// TestPrintTrace: names stand beside ids, but not within the names of chains.
func TestPrintTrace(t *testing.T) {
	t.Parallel()
	a := &flow.TraceAnswer{
		LiveState: true, Verdict: "drop", Reason: "port p: down",
		Walk: []flow.Step{{Device: "n", Text: "MAC fa:16:3e:00:00:01 is behind port p"},
			{Device: "p", Chain: "c", Rule: "u", Text: "accepted by chain OS_SG_g, of g"}},
		Outputs: []flow.TraceOutput{{PortID: "p", HostID: "h"}},
		Names: map[string]flow.TraceName{"n": {Kind: "network", Name: "blue"}, "p": {Kind: "port", Name: "vm1"}, "g": {Kind: "security group", Name: "web"},
			"c": {Kind: "chain of security group", Name: "web"}, "h": {Kind: "host"}},
	}
	var b strings.Builder
	printTrace(&b, a)
	const want = `  n (network blue)  MAC fa:16:3e:00:00:01 is behind port p (vm1)
  p (port vm1)  chain c (chain of security group web)  rule u  accepted by chain OS_SG_g, of g (web)
verdict: drop: port p (vm1): down
out: port p (port vm1) on host h (host)
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", &b, want)
	}
}
