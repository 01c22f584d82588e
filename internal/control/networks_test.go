package control_test

import (
	"slices"
	"testing"

	"heddle/internal/neutron"
)

func TestNetworkLife(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{"name":"n"}`)
	if n.MTU != 1450 || n.NetworkType != "vxlan" || n.SegmentationID == nil || n.RevisionNumber != 1 || n.Status != "ACTIVE" || len(n.Subnets) != 0 {
		t.Errorf("network %+v", n)
	}
	groups, _ := all(w.SecurityGroups().List(t.Context(), w.member, neutron.Query{}))
	if len(groups) != 1 || groups[0].Name != "default" || groups[0].Description != "Default security group" || len(groups[0].Rules) != 4 {
		t.Errorf("groups after the first network: %+v", groups)
	}
	s := w.subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/24"`)
	s6 := w.subnet(n.ID, `"ip_version":6,"cidr":"fd00::/64"`)
	got, err := w.Networks().Show(t.Context(), w.member, n.ID)
	if err != nil || len(got.Subnets) != 2 || got.RevisionNumber != 3 {
		t.Errorf("network after its subnets: %+v, %v", got, err)
	}

	changed := func(text string) *neutron.NetworkView {
		t.Helper()
		v, err := w.change(w.member, neutron.Networks, n.ID, text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return v.(*neutron.NetworkView)
	}
	if v := changed(`{}`); v.RevisionNumber != 3 {
		t.Errorf("an empty update made revision %d", v.RevisionNumber)
	}
	if v := changed(`{"name":"n"}`); v.RevisionNumber != 3 {
		t.Errorf("an update to what is made revision %d", v.RevisionNumber)
	}
	if v := changed(`{"name":"m","admin_state_up":false,"mtu":1400}`); v.RevisionNumber != 4 || v.MTU != 1400 {
		t.Errorf("after an update: %+v", v.Network)
	}
	if b := w.bundle("network", n.ID).Networks[0]; b.Name != "m" || b.AdminStateUp {
		t.Errorf("topology network %+v", b)
	}
	if m4, m6 := w.bundle("subnet", s.ID).Dhcps[0].InterfaceMTU, w.bundle("subnet", s6.ID).DhcpV6s[0].InterfaceMTU; m4 != 1400 || m6 != 1400 {
		t.Errorf("machines are told MTU %d and %d", m4, m6)
	}

	stale := int64(2)
	v := neutron.Values{"name": "x"}
	_, err = w.Networks().Update(t.Context(), w.member, n.ID, v, &stale)
	w.expect(err, "RevisionNumberConstraintFailed: Constrained to 2, but current revision is 4")
	w.expect(w.Networks().Delete(t.Context(), w.member, n.ID, &stale), "RevisionNumberConstraintFailed: Constrained to 2, but current revision is 4")

	dhcp := w.port(n.ID, `"device_owner":"network:dhcp"`)
	a, b := w.port(n.ID, ""), w.port(n.ID, "")
	using := []string{a.ID, b.ID}
	slices.Sort(using)
	w.expect(w.remove(w.member, neutron.Networks, n.ID), "NetworkInUse: Unable to complete operation on network "+n.ID+
		". There are one or more ports still in use on the network, id for these ports is: "+using[0]+","+using[1]+".")
	for _, id := range using {
		if err := w.remove(w.member, neutron.Ports, id); err != nil {
			t.Error(err)
		}
	}
	if err := w.remove(w.member, neutron.Networks, n.ID); err != nil {
		t.Error(err)
	}
	_, err = w.Ports().Show(t.Context(), w.member, dhcp.ID)
	w.expect(err, "PortNotFound: Port "+dhcp.ID+" could not be found.")
	_, err = w.Subnets().Show(t.Context(), w.member, s.ID)
	w.expect(err, "SubnetNotFound: Subnet "+s.ID+" could not be found.")
}

func TestNetworkRefusals(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.carry("physnet1")
	n := w.network(`{}`)
	w.subnet(n.ID, `"ip_version":6,"cidr":"fd00::/64"`)
	vlan := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"provider:network_type":"vlan","provider:physical_network":"physnet1"}`)
	if id := *vlan.SegmentationID; id < 100 || id > 199 || vlan.MTU != 1500 {
		t.Errorf("vlan %d with mtu %d", id, vlan.MTU)
	}
	must[*neutron.NetworkView](w, w.admin, neutron.Networks,
		`{"provider:network_type":"vlan","provider:physical_network":"physnet1","provider:segmentation_id":1777}`)
	shared := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"shared":true}`)
	must[*neutron.PortView](w, w.other, neutron.Ports, `{"network_id":"`+shared.ID+`"}`)
	external := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"router:external":true}`)
	must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+external.ID+`","device_owner":"network:router_gateway"}`)

	for _, tt := range []struct {
		c              neutron.Caller
		id, text, want string
	}{
		{w.member, n.ID, `{"mtu":1279}`, "InvalidInput: Invalid input for operation: Requested MTU is too small for subnet "},
		{w.member, n.ID, `{"mtu":1451}`, "InvalidInput: Invalid input for operation: Requested MTU is too big, maximum is 1450."},
		{w.other, n.ID, `{"name":"x"}`, "NetworkNotFound: Network " + n.ID + " could not be found."},
		{w.other, shared.ID, `{"name":"x"}`, "PolicyNotAuthorized: rule:update_network is disallowed by policy"},
		{w.admin, n.ID, `{"provider:segmentation_id":7}`, "InvalidInput: Invalid input for operation: Only VLAN type networks can be updated.."},
		{w.admin, n.ID, `{"provider:network_type":"vlan"}`, "InvalidInput: Invalid input for operation: " +
			"Plugin does not support updating the following provider network attributes: provider:network_type, provider:physical_network."},
		{w.admin, vlan.ID, `{"provider:segmentation_id":1777}`,
			"VlanIdInUse: Unable to create the network. The VLAN 1777 on physical network physnet1 is in use."},
		{w.admin, vlan.ID, `{"provider:segmentation_id":5000}`, "InvalidInput: Invalid input for operation: segmentation_id out of range (1 through 4094)."},
		{w.admin, shared.ID, `{"shared":false}`, "InvalidSharedSetting: Unable to reconfigure sharing settings for network " + shared.ID +
			". Multiple tenants are using it."},
		{w.admin, external.ID, `{"router:external":false}`, "ExternalNetworkInUse: External network " + external.ID +
			" cannot be updated to be made non-external, since it has existing gateway ports."},
	} {
		before := w.dump()
		_, err := w.change(tt.c, neutron.Networks, tt.id, tt.text)
		if got := problem(err); got != tt.want && (tt.want[len(tt.want)-1] != ' ' || len(got) < len(tt.want) || got[:len(tt.want)] != tt.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", tt.text, got, tt.want)
		}
		if !slices.Equal(before, w.dump()) {
			t.Errorf("%s: was refused, but changed the store", tt.text)
		}
	}
	moved, err := w.change(w.admin, neutron.Networks, vlan.ID, `{"provider:segmentation_id":1778}`)
	if err != nil || *moved.(*neutron.NetworkView).SegmentationID != 1778 {
		t.Errorf("moved to %+v, %v", moved, err)
	}
	w.expect(w.remove(w.other, neutron.Networks, n.ID), "NetworkNotFound: Network "+n.ID+" could not be found.")
	w.expect(w.remove(w.other, neutron.Networks, shared.ID), "PolicyNotAuthorized: rule:delete_network is disallowed by policy")
}

// TestBulkIsAllOrNothing for every kind of object.
func TestBulkIsAllOrNothing(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.carry("public")
	n := w.network(`{}`)
	w.subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/24"`)
	g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"g"}`)
	on := `{"network_id":"` + n.ID + `",`
	rule := `{"security_group_id":"` + g.ID + `","direction":"ingress",`
	for _, tt := range []struct {
		r           neutron.Resource
		good, again string
		class       string
	}{
		{neutron.Networks, `{"provider:network_type":"flat","provider:physical_network":"public"}`, "", "FlatNetworkInUse"},
		{neutron.Subnets, on + `"ip_version":4,"cidr":"10.1.0.0/24"}`, "", "InvalidInput"},
		{neutron.Ports, on + `"fixed_ips":[{"ip_address":"10.0.0.9"}]}`, "", "IpAddressAlreadyAllocated"},
		{neutron.Ports, on + `"mac_address":"fa:16:3e:00:00:01"}`, "", "MacAddressInUse"},
		{neutron.SecurityGroupRules, rule + `"protocol":"tcp"}`, rule + `"protocol":"6"}`, "DuplicateSecurityGroupRuleInPost"},
	} {
		if tt.again == "" {
			tt.again = tt.good
		}
		before := w.dump()
		_, err := w.create(w.admin, tt.r, tt.good, tt.again)
		var class string
		if e, ok := err.(*neutron.Error); ok {
			class = e.Type
		}
		if class != tt.class {
			t.Errorf("%s: got %v, want %s", tt.good, err, tt.class)
		}
		if !slices.Equal(before, w.dump()) {
			t.Errorf("%s: was refused, but changed the store", tt.good)
		}
		if _, err := w.create(w.admin, tt.r, tt.good); err != nil {
			t.Errorf("%s alone: %v", tt.good, err)
		}
	}
}
