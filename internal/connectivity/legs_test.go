package connectivity

import (
	"net/netip"
	"strings"
	"testing"
)

// TestProbesBetween: both versions of IP are tried, and IPv6 is not with a workload that has none.
func TestProbesBetween(t *testing.T) {
	t.Parallel()
	of := func(name string, hasIPv6, down bool) *end {
		return &end{host: Host{Name: name}, address: netip.MustParseAddr("198.18.0.1"), address6: netip.MustParseAddr("2001:2::1"), hasIPv6: hasIPv6, down: down}
	}
	for _, c := range []struct {
		what     string
		from, to *end
		untried  string // the reason
	}{
		{"both have it", of("h1", true, false), of("h2", true, false), ""},
		{"the target has none", of("h1", true, false), of("h2", false, false), "h2 has no IPv6: "},
		{"neither has it", of("h1", false, false), of("h2", false, false), "h1 has no IPv6: "},
		{"the target is down, and says nothing", of("h1", true, false), of("h2", false, true), ""},
	} {
		probes, untried := probesBetween(c.from, c.to)
		if len(probes)+len(untried) != len(pairProbes) {
			t.Errorf("%s: %d probes and %d untried legs of %d", c.what, len(probes), len(untried), len(pairProbes))
		}
		for i, p := range probes {
			if p.Kind != pairProbes[i].kind || p.Target.Is6() != pairProbes[i].ipv6 {
				t.Errorf("%s: probe %d is %s of %s, want %+v", c.what, i, p.Kind, p.Target, pairProbes[i])
			}
		}
		if (len(untried) > 0) != (c.untried != "") {
			t.Errorf("%s: untried are %+v", c.what, untried)
		}
		for i, leg := range untried {
			if leg.Result != Untried || !strings.HasPrefix(leg.Found, c.untried) || leg.Name != pairProbes[len(probes)+i].name() || leg.From != "h1" || leg.To != "h2" {
				t.Errorf("%s: got %+v, want it untried since %s", c.what, leg, c.untried)
			}
		}
	}
}
