package control_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// TestOptionsForFiles: with the options that the offline commands set, everything that an operation
// chooses follows from the operations before it.
func TestOptionsForFiles(t *testing.T) {
	t.Parallel()
	w := open(t, store.NewMemory(), control.Options{Ordered: true, NoDefaultGroups: true, AnyUnderlay: true})
	one := func(v neutron.Values, err error) []neutron.Values {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return []neutron.Values{v}
	}
	n := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"provider:network_type":"flat","provider:physical_network":"anything","mtu":9000}`)
	if n.MTU != 9000 {
		t.Errorf("the MTU is %d, not the one asked for", n.MTU)
	}
	if v := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"provider:network_type":"vlan","provider:physical_network":"anything"}`); v.SegmentationID == nil || v.MTU != 0 {
		t.Errorf("a vlan network of a physical network that was not configured has segment %v and MTU %d", v.SegmentationID, v.MTU)
	}
	sub := must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+n.ID+`","ip_version":4,"cidr":"10.0.0.0/29"}`)

	var ids []string
	port := func(i int) *neutron.PortView {
		t.Helper()
		v := one(parse(w.admin, neutron.Ports, neutron.Create, `{"network_id":"`+n.ID+`","fixed_ips":[{"subnet_id":"`+sub.ID+`"}]}`))
		v[0]["id"] = fmt.Sprintf("90000000-0000-4000-8000-%012d", i)
		made, err := w.Ports().Create(t.Context(), w.admin, v)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, made[0].ID)
		return made[0]
	}
	for i := range 3 {
		p := port(i)
		want := neutron.FixedIP{SubnetID: sub.ID, IPAddress: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 2)})}
		if p.ID != fmt.Sprintf("90000000-0000-4000-8000-%012d", i) || p.TunnelKey != uint32(i+1) || !slices.Equal(p.FixedIPs, []neutron.FixedIP{want}) {
			t.Errorf("port %d: id %s, tunnel key %d, addresses %v; want %v", i, p.ID, p.TunnelKey, p.FixedIPs, want)
		}
		if len(p.SecurityGroups) > 0 {
			t.Errorf("port %d is in groups %v", i, p.SecurityGroups)
		}
	}
	// What is free again is chosen again; of the keys, one that was never given.
	if err := w.Ports().Delete(t.Context(), w.admin, ids[0], nil); err != nil {
		t.Fatal(err)
	}
	if p := port(4); p.FixedIPs[0].IPAddress != netip.MustParseAddr("10.0.0.2") || p.TunnelKey != 4 {
		t.Errorf("after a deletion: address %s, tunnel key %d", p.FixedIPs[0].IPAddress, p.TunnelKey)
	}

	// A group with its own rules, one of which names it.
	const group = "56000000-0000-4000-8000-000000000001"
	v := one(parse(w.admin, neutron.SecurityGroups, neutron.Create, `{"name":"g"}`))
	v[0]["id"] = group
	rules := one(parse(w.admin, neutron.SecurityGroupRules, neutron.Create,
		`{"security_group_id":"`+group+`","direction":"ingress","remote_group_id":"`+group+`"}`))
	v[0]["security_group_rules"] = append(rules, rules[0])
	if _, err := w.SecurityGroups().Create(t.Context(), w.admin, v); problem(err) != "DuplicateSecurityGroupRuleInPost: Duplicate Security Group Rule in POST." {
		t.Errorf("the same rule twice: %v", err)
	}
	v[0]["security_group_rules"] = rules
	made, err := w.SecurityGroups().Create(t.Context(), w.admin, v)
	if err != nil || len(made[0].Rules) != 1 || made[0].Rules[0].RemoteGroupID != group || made[0].Rules[0].SecurityGroupID != group {
		t.Errorf("got %+v, %v", made, err)
	}
	groups, err := all(w.SecurityGroups().List(t.Context(), w.admin, neutron.Query{}))
	if err != nil || len(groups) != 1 {
		t.Errorf("there are %d groups, %v; want no default ones", len(groups), err)
	}
}

// TestRebind binds ports to a host that has come, and takes them off one that has another name now.
func TestRebind(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	p := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+n.ID+`","binding:host_id":"late"}`)
	for _, step := range []struct{ name, bound string }{{"early", ""}, {"late", "h"}, {"gone", ""}} {
		h := &topology.Host{ID: "h", Name: step.name}
		if _, err := w.db.Update(t.Context(), func(tx *records.Tx) error { return schema.Hosts.Put(tx, h) }); err != nil {
			t.Fatal(err)
		}
		if err := w.Rebind(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		if got, err := w.Ports().Show(t.Context(), w.admin, p.ID); err != nil || got.BoundHostID != step.bound {
			t.Errorf("host %s: bound to %q, %v; want %q", step.name, got.BoundHostID, err, step.bound)
		}
	}
}
