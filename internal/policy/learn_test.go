package policy

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/calico"
)

// TestPartOf: what is read of an invalid object closes traffic where the object did, and not elsewhere.
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
