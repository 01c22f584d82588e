package policy

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/calico"
)

// TestTwoSpellings: of an object whose key somebody has written in another way too, the one at the key's own path counts,
// and the other neither hides it nor takes it away.
func TestTwoSpellings(t *testing.T) {
	t.Parallel()
	const own, other = "/calico/v1/host/h1/workload/o/100%25/endpoint/e", "/calico/v1/host/h1/workload/o/100%/endpoint/e"
	b := newBench(t)
	b.link("cali1")
	asked := false
	b.resync = func() { asked = true }
	b.snapshot(ready, "true", other, valueA2, own, valueA)
	b.want("with both", "10.0.0.1@cali1")
	b.change(other, "")
	b.want("without the other", "10.0.0.1@cali1")
	b.change(own, "")
	b.want("without both", "")
	if asked {
		t.Error("a snapshot was asked for, though nothing was behind")
	}
	b.change(other, valueA2)
	b.want("with the other alone", "10.0.0.2@cali1")
	b.change(own, valueA, other, "") // as who moves it
	b.want("moved", "10.0.0.1@cali1")
	b.change(other, valueA2)
	b.want("with both again", "10.0.0.1@cali1")
	b.change(own, "")
	if _, known := b.known.seen[other]; !asked || known {
		t.Errorf("what was behind is known: %v; a snapshot was asked for: %v", known, asked)
	}
	b.snapshot(ready, "true", other, valueA2)
	b.want("with the other alone again", "10.0.0.2@cali1")
}

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
