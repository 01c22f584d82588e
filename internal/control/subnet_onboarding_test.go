package control_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
)

func (w *world) onboard(c neutron.Caller, pool, network string) error {
	w.t.Helper()
	_, err := w.OnboardSubnets(w.t.Context(), c, pool, network)
	return err
}

func (w *world) poolPrefixes(id string) []netip.Prefix {
	w.t.Helper()
	p, err := w.SubnetPools().Show(w.t.Context(), w.admin, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return p.Prefixes
}

// TestOnboardSubnets: a network's subnets of the pool's version are the pool's afterwards, which
// has their ranges then and gives them to no other subnet, until they go.
func TestOnboardSubnets(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	a := w.subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/25"`)
	b := w.subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.128/25"`)
	six := w.subnet(n.ID, `"ip_version":6,"cidr":"fd00::/64"`)
	p := w.pool(w.member, `"prefixes":["10.0.1.0/24"],"min_prefixlen":24`)
	moved, err := w.OnboardSubnets(t.Context(), w.member, p.ID, n.ID)
	if err != nil || len(moved) != 2 {
		t.Fatalf("moved %v: %v", moved, err)
	}
	if got := w.poolPrefixes(p.ID); !slices.Equal(got, prefixes("10.0.0.0/23")) {
		t.Errorf("prefixes %v", got)
	}
	for id, want := range map[string]string{a.ID: p.ID, b.ID: p.ID, six.ID: ""} {
		s, err := w.Subnets().Show(t.Context(), w.member, id)
		if err != nil || s.SubnetPoolID != want {
			t.Errorf("subnet %s of pool %q, want %q: %v", s.CIDR, s.SubnetPoolID, want, err)
		}
	}
	next := w.subnet(w.network(`{}`).ID, `"ip_version":4,"subnetpool_id":"`+p.ID+`"`)
	if next.CIDR.String() != "10.0.1.0/24" {
		t.Errorf("another subnet is %s", next.CIDR)
	}
	if got := problem(w.onboard(w.member, p.ID, n.ID)); !strings.Contains(got, "IllegalSubnetPoolUpdate") {
		t.Errorf("moved again: %q", got)
	}
	other := w.pool(w.member, `"prefixes":["172.16.0.0/16"]`)
	if err := w.onboard(w.member, other.ID, n.ID); err != nil {
		t.Fatal(err)
	}
	if got := w.subnet(w.network(`{}`).ID, `"ip_version":4,"subnetpool_id":"`+p.ID+`"`); got.CIDR.String() != "10.0.0.0/24" {
		t.Errorf("a range that went to another pool is not free: %s", got.CIDR)
	}
	if err := w.remove(w.member, neutron.Networks, n.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.remove(w.member, neutron.SubnetPools, other.ID); err != nil {
		t.Error(err)
	}
	w.verifyStore()
}

// TestOnboardSubnetsRefusals: what is refused changes nothing.
func TestOnboardSubnetsRefusals(t *testing.T) {
	t.Parallel()
	w := open(t, store.NewMemory(), control.Options{})
	n := w.network(`{}`)
	w.subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/24"`)
	w.subnet(n.ID, `"ip_version":4,"cidr":"10.8.0.0/24"`)
	p := w.pool(w.member, `"prefixes":["10.8.0.0/16"],"min_prefixlen":16`)
	w.subnet(w.network(`{}`).ID, `"ip_version":4,"subnetpool_id":"`+p.ID+`","prefixlen":24`)
	scope := must[*neutron.AddressScopeView](w, w.member, neutron.AddressScopes, `{"name":"a","ip_version":4}`)
	inScope := `"address_scope_id":"` + scope.ID + `"`
	w.pool(w.member, `"prefixes":["10.0.0.0/16"],`+inScope)
	scoped := w.pool(w.member, `"prefixes":["10.9.0.0/16"],`+inScope)
	foreign := w.pool(w.other, `"prefixes":["10.9.0.0/16"]`)
	shared := w.pool(w.admin, `"prefixes":["10.9.0.0/16"],"shared":true`)
	open := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"shared":true}`)
	before := w.dump()
	for _, x := range []struct{ what, pool, network, want string }{
		{"a range of which a subnet of the pool has part", p.ID, n.ID, "conflicts with allocated prefixes in subnet pool " + p.ID},
		{"a range of another pool of the address scope", scoped.ID, n.ID, "AddressScopePrefixConflict"},
		{"a pool of another project", foreign.ID, n.ID, "SubnetPoolNotFound"},
		{"a shared pool", shared.ID, n.ID, "rule:onboard_network_subnets is disallowed by policy"},
		{"no network", p.ID, "x", "NetworkNotFound"},
		{"a shared network", p.ID, open.ID, "Not authorized."},
	} {
		if got := problem(w.onboard(w.member, x.pool, x.network)); !strings.Contains(got, x.want) {
			t.Errorf("%s: %q, want %q", x.what, got, x.want)
		}
	}
	if after := w.dump(); !slices.Equal(after, before) {
		t.Error("refusals have changed the store")
	}
	if moved, err := w.OnboardSubnets(t.Context(), w.admin, shared.ID, open.ID); err != nil || len(moved) > 0 {
		t.Errorf("a network without subnets: %v, %v", moved, err)
	}
}
