package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/calico"
	"heddle/calico/selector"
	"heddle/internal/policy/calc"
)

// TestTwoSpellings: of an object whose key somebody has written in another way too, the one at the
// key's own path counts, and the other neither hides it nor takes it away.
func TestTwoSpellings(t *testing.T) {
	t.Parallel()
	const own, other = "/calico/v1/host/h1/workload/o/100%25/endpoint/e", "/calico/v1/host/h1/workload/o/100%/endpoint/e"
	b := newBench(t)
	b.link("cali1")
	b.snapshot(ready, "true", other, valueA2, own, valueA)
	b.want("with both", "10.0.0.1@cali1")
	b.change(other, "")
	b.want("without the other", "10.0.0.1@cali1")
	b.change(own, "")
	b.want("without both", "")
	if b.relisted > 0 {
		t.Error("a snapshot was asked for, though nothing was behind")
	}
	b.change(other, valueA2)
	b.want("with the other alone", "10.0.0.2@cali1")
	b.change(own, valueA, other, "") // as who moves it
	b.want("moved", "10.0.0.1@cali1")
	b.change(other, valueA2)
	b.want("with both again", "10.0.0.1@cali1")
	b.change(own, "")
	if b.relisted != 1 {
		t.Errorf("a snapshot was asked for %d times, want once", b.relisted)
	}
	b.snapshot(ready, "true", other, valueA2)
	b.want("with the other alone again", "10.0.0.2@cali1")
}

// TestPartOf: what is read of an invalid object closes traffic where the object did, and not
// elsewhere.
func TestPartOf(t *testing.T) {
	t.Parallel()
	order := func(o float64) *float64 { return &o }
	policy, host := calico.PolicyKey{Tier: "default", Policy: "p"}, calico.HostEndpointKey{Host: "h", Endpoint: "e"}
	for _, c := range []struct {
		key   calico.Key
		value string
		want  any
	}{
		{policy, `{"selector": "a=='x'", "order": 2.5, "colour": "red"}`, &calico.Policy{Selector: `a == "x"`, Order: order(2.5)}},
		{policy, `{"selector": "", "order": "default", "colour": "red"}`, &calico.Policy{Selector: "all()"}},
		{policy, `{"selector": "all()", "order": null, "untracked": true, "colour": "red"}`, &calico.Policy{Selector: "all()", Untracked: true}},
		{policy, `{"selector": "all()", "order": "10"}`, &calico.Policy{Selector: "all()", Order: order(math.Inf(-1))}}, // before all others
		{policy, `{"selector": "has("}`, nil},
		{policy, `{"selector": null, "inbound_rules": []}`, nil}, // silence does not close everything
		{policy, `{"order": 1}`, nil},
		{policy, `{"selector": "all()"`, nil},
		{host, `{"name": "eth0", "state": "active"}`, &calico.HostEndpoint{Name: "eth0"}},
		{host, `{"name": 7}`, nil},
		{host, `{"name": null}`, nil},
		{calico.TierKey{Tier: "t"}, `{"order": "x"}`, nil},
	} {
		if d := cmp.Diff(c.want, PartOf(c.key, []byte(c.value))); d != "" {
			t.Errorf("of %s at %v (want -, got +):\n%s", c.value, c.key, d)
		}
	}
}

// TestOversizedSelectorCloses: a policy whose selector is too large denies everything to the
// endpoints that it selects; where it cannot be told which these are, to all. Selectors of rules
// close the policy, or the profile, that has them.
func TestOversizedSelectorCloses(t *testing.T) {
	t.Parallel()
	const policy = "/calico/v1/policy/tier/default/policy/p"
	long := `role == \"a\"` + strings.Repeat(" ", selector.MaxLength)
	deep := strings.Repeat("(", 300_000)
	huge := `role == \"a\"` + strings.Repeat(" ", calc.MaxSelector)
	rest := `, "inbound_rules": [{}], "outbound_rules": [{}]}`
	for _, c := range []struct {
		name, value   string
		closedA, allB string // how a and b, of roles a and b, are judged
		inForce       string
	}{
		{"too long", `{"selector": "` + long + `"` + rest, "p", "", `denied: all traffic of the endpoints selected by "role == \"a\""`},
		{"too deep", `{"selector": "` + deep + `"` + rest, "p", "p", "denied: all traffic of every endpoint"},
		{"far too long", `{"selector": "` + huge + `"` + rest, "p", "p", "denied: all traffic of every endpoint"},
		{"in a rule", `{"selector": "role == 'a'", "inbound_rules": [{"src_selector": "` + long + `"}], "outbound_rules": []}`, "p", "", "denied: all traffic of the endpoints selected by"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.snapshot(ready, "true", epA, labelled(valueA, "a"), epB, labelled(valueB, "b"))
			b.change(policy, c.value)
			for path, want := range map[string]string{epA: c.closedA, epB: c.allB} {
				got := ""
				if w := b.inRules[keyOf(t, path)]; len(w.Tiers) > 0 {
					got = w.Tiers[0].Inbound[0].Name
					if len(w.Errors) == 0 {
						t.Errorf("%s has no error", path)
					}
				}
				if got != want {
					t.Errorf("%s is judged by policy %q, want %q", path, got, want)
				}
			}
			told := strings.Join(b.reports.last.unreadable, "\n")
			for where, text := range map[string]string{"log": strings.ReplaceAll(b.logText.String(), `\\\"`, `\"`), "status": told} {
				if !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), strings.ReplaceAll(c.inForce, `\"`, `"`)) || !strings.Contains(text, policy) || len(text) > 4000 {
					t.Errorf("the %s does not name %s with %q:\n%.4000s", where, policy, c.inForce, text)
				}
			}
			b.change(policy, "")
			if told := b.reports.last.unreadable; len(told) > 0 || len(b.inRules[keyOf(t, epA)].Tiers) > 0 {
				t.Errorf("without it: %q, judged by %v", told, b.inRules[keyOf(t, epA)].Tiers)
			}
		})
	}
}

func labelled(endpoint, role string) string {
	return strings.TrimSuffix(endpoint, "}") + `, "labels": {"role": "` + role + `"}}`
}

// TestInForce: of each object that cannot be read, the log and the status say what is in force in
// its place.
func TestInForce(t *testing.T) {
	t.Parallel()
	const (
		policy  = "/calico/v1/policy/tier/default/policy/p"
		profile = "/calico/v1/policy/profile/web"
		host    = "/calico/v1/host/h1/endpoint/eth0"
		tier    = "/calico/v1/policy/tier/t/metadata"
		legacy  = "/calico/host/h1/workload/o/a/endpoint/e"
	)
	for _, c := range []struct {
		name  string
		pairs []string // two lots of news, by ";"
		key   string
		want  string
	}{
		{"policy with selector", []string{policy, `{"selector": "has(a)", "x": 1}`}, policy, `denied: all traffic of the endpoints selected by "has(a)"`},
		{"policy without", []string{policy, `{"selector": "has("}`}, policy, "nothing: the policy is absent"},
		{"policy with a valid version", []string{policy, `{"selector": "has(a)", "inbound_rules": [], "outbound_rules": []}`, ";", "", policy, `{"selector": "has("}`}, policy, "the last valid version of the policy"},
		{"rules", []string{profile + "/rules", "[]"}, profile + "/rules", "denied: all traffic that reaches the rules of profile web"},
		{"tags", []string{profile + "/tags", "{}"}, profile + "/tags", "no tags"},
		{"labels", []string{profile + "/labels", "[]"}, profile + "/labels", "no labels"},
		{"endpoint", []string{epA, "{}"}, epA, "closed: the interface of the endpoint passes nothing"},
		{"hidden endpoint", []string{epA, valueA, ";", "", legacy, "{}"}, legacy, "the object of v1 with the same name, " + epA},
		{"host endpoint", []string{host, `{"name": "eth0", "state": "x"}`}, host, "closed: only fail-safe ports of interface eth0 are open"},
		{"host endpoint without name", []string{host, `{"state": "x"}`}, host, "neither a valid version nor the name"},
		{"host endpoint with a valid version", []string{host, `{"name": "eth0"}`, ";", "", host, `{"name": "eth0", "state": "x"}`}, host, "its last valid version"},
		{"tier", []string{tier, `{"order": 7}`, ";", "", tier, `{"order": "x"}`}, tier, "its last valid order, 7"},
		{"tier without", []string{tier, `{"order": "x"}`}, tier, "no order"},
		{"pool", []string{"/calico/v1/ipam/v4/pool/10.66.0.0-16", "{}"}, "/calico/v1/ipam/v4/pool/10.66.0.0-16", "nothing: it counts as absent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.snapshot(ready, "true")
			if at := slices.Index(c.pairs, ";"); at > 0 {
				b.change(c.pairs[:at]...)
				c.pairs = c.pairs[at+2:]
			}
			b.change(c.pairs...)
			since := b.revision
			b.change(c.pairs...) // written again: it is bad since the first time
			begin := fmt.Sprintf("%s cannot be read since revision %d: ", c.key, since)
			if told := b.reports.last.unreadable; len(told) != 1 || !strings.HasPrefix(told[0], begin) ||
				!strings.Contains(told[0][strings.Index(told[0], "; in force: "):], c.want) {
				t.Errorf("the status says %q, want %q … %q", told, begin, c.want)
			}
			if n := strings.Count(b.logText.String(), "an object cannot be read"); n != 1 || !strings.Contains(b.logText.String(), "in_force=") || !strings.Contains(b.logText.String(), "since_revision=") {
				t.Errorf("%d log lines:\n%s", n, b.logText.String())
			}
		})
	}
}
