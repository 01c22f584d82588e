package control_test

import (
	"net/netip"
	"slices"
	"testing"

	"heddle/internal/control/addresses"
	"heddle/internal/neutron"
)

const slaac = `"ip_version":6,"cidr":"fd00:20::/64","ipv6_ra_mode":"slaac","ipv6_address_mode":"slaac"`

func TestSubnetDefaults(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	for _, tt := range []struct{ text, gateway, pools string }{
		{`"ip_version":4,"cidr":"10.20.0.7/24"`, "10.20.0.1", "10.20.0.2-10.20.0.254"},
		{`"ip_version":4,"cidr":"10.20.0.0/24","gateway_ip":"10.20.0.9"`, "10.20.0.9", "10.20.0.1-10.20.0.8 10.20.0.10-10.20.0.254"},
		{`"ip_version":4,"cidr":"10.20.0.0/24","gateway_ip":null`, "", "10.20.0.1-10.20.0.254"},
		{`"ip_version":4,"cidr":"10.20.0.0/24","gateway_ip":"10.99.0.1"`, "10.99.0.1", "10.20.0.1-10.20.0.254"},
		{`"ip_version":4,"cidr":"10.20.0.0/31","gateway_ip":null,"enable_dhcp":false`, "", "10.20.0.0-10.20.0.1"},
		{`"ip_version":6,"cidr":"fd00:20::/64"`, "fd00:20::", "fd00:20::1-fd00:20::ffff:ffff:ffff:ffff"},
	} {
		s := w.subnet(w.network(`{}`).ID, tt.text)
		var gateway, pools string
		if s.GatewayIP != nil {
			gateway = s.GatewayIP.String()
		}
		for i, p := range s.AllocationPools {
			if i > 0 {
				pools += " "
			}
			pools += p.Start.String() + "-" + p.End.String()
		}
		if gateway != tt.gateway || pools != tt.pools || s.RevisionNumber != 0 {
			t.Errorf("%s: gateway %q, pools %q, revision %d", tt.text, gateway, pools, s.RevisionNumber)
		}
	}
}

func TestSubnetUpdates(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	s := w.subnet(n.ID, `"ip_version":4,"cidr":"10.20.0.0/24"`)
	auto := w.subnet(n.ID, slaac)
	for _, tt := range []struct{ id, text, want string }{
		{s.ID, `{"gateway_ip":"10.20.0.5"}`, "GatewayConflictWithAllocationPools: Gateway ip 10.20.0.5 conflicts with allocation pool 10.20.0.2-10.20.0.254."},
		{s.ID, `{"gateway_ip":"10.20.0.255"}`, "InvalidInput: Invalid input for operation: Gateway is not valid on subnet."},
		{s.ID, `{"allocation_pools":[{"start":"10.20.0.1","end":"10.20.0.9"}]}`,
			"GatewayConflictWithAllocationPools: Gateway ip 10.20.0.1 conflicts with allocation pool 10.20.0.1-10.20.0.9."},
		{s.ID, `{"gateway_ip":"10.20.0.9","allocation_pools":[{"start":"10.20.0.1","end":"10.20.0.8"}]}`, ""},
		{s.ID, `{"dns_nameservers":["10.0.0.1","10.0.0.2","10.0.0.3","10.0.0.4","10.0.0.5","10.0.0.6"]}`,
			"DNSNameServersExhausted: Unable to complete operation for " + s.ID + ". The number of DNS nameservers exceeds the limit 5."},
		{s.ID, `{"dns_nameservers":["10.0.0.1"],"host_routes":[{"destination":"10.9.0.0/16","nexthop":"10.20.0.7"}]}`, ""},
		{auto.ID, `{"enable_dhcp":false}`,
			"InvalidInput: Invalid input for operation: ipv6_ra_mode or ipv6_address_mode cannot be set when enable_dhcp is set to False."},
	} {
		before := w.dump()
		_, err := w.change(w.member, neutron.Subnets, tt.id, tt.text)
		w.expect(err, tt.want)
		if err != nil && !slices.Equal(before, w.dump()) {
			t.Errorf("%s: was refused, but changed the store", tt.text)
		}
	}
	d := w.bundle("subnet", s.ID).Dhcps[0]
	if d.DefaultGateway.String() != "10.20.0.9" || d.ServerAddress.String() != "10.20.0.9" || len(d.Opt121Routes) != 1 || len(d.DNSServerAddress) != 1 {
		t.Errorf("after updates machines are told %+v", d)
	}
	after, _ := w.Networks().Show(t.Context(), w.member, n.ID)
	if after.RevisionNumber != 5 { // created, two subnets, two updates
		t.Errorf("the network has revision %d", after.RevisionNumber)
	}

	p := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+n.ID+
		`","device_owner":"network:router_interface","device_id":"r","fixed_ips":[{"ip_address":"10.20.0.9"}]}`)
	_, err := w.change(w.member, neutron.Subnets, s.ID, `{"gateway_ip":"10.20.0.10"}`)
	w.expect(err, "GatewayIpInUse: Current gateway ip 10.20.0.9 already in use by port "+p.ID+". Unable to update.")
}

// TestAutomaticAddresses: ports have them on every subnet that wants it, also on later ones, and
// lose them with it.
func TestAutomaticAddresses(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	v4 := w.subnet(n.ID, `"ip_version":4,"cidr":"10.20.0.0/24"`)
	early := w.port(n.ID, "")
	router := w.port(n.ID, `"device_owner":"network:router_interface"`)
	auto := w.subnet(n.ID, slaac)
	late := w.port(n.ID, `"fixed_ips":[]`)

	has := func(id string) []netip.Addr {
		t.Helper()
		p, err := w.Ports().Show(t.Context(), w.member, id)
		if err != nil {
			t.Fatal(err)
		}
		var on6 []netip.Addr
		for _, f := range p.FixedIPs {
			if f.SubnetID == auto.ID {
				on6 = append(on6, f.IPAddress)
			}
		}
		return on6
	}
	for _, p := range []*neutron.PortView{early, late} {
		if got := has(p.ID); len(got) != 1 || got[0] != addresses.EUI64(auto.CIDR, p.MACAddress) {
			t.Errorf("port %s has %v", p.MACAddress, got)
		}
		if b := w.bundle("port", p.ID); len(b.Neighbours) == 0 || len(b.Memberships) != len(b.Neighbours) {
			t.Errorf("port %s in the topology: %+v", p.MACAddress, b)
		}
	}
	if got := has(router.ID); len(got) != 0 {
		t.Errorf("the router's port has %v", got)
	}
	if p, _ := w.Ports().Show(t.Context(), w.member, early.ID); p.RevisionNumber != 2 {
		t.Errorf("revision %d after an address came", p.RevisionNumber)
	}
	moved := w.update(late.ID, `{"mac_address":"fa:16:3e:00:00:05"}`)
	if got := has(late.ID); len(got) != 1 || got[0].String() != "fd00:20::f816:3eff:fe00:5" {
		t.Errorf("after its MAC changed, port %+v has %v", moved.Port, got)
	}
	if v, err := w.change(w.member, neutron.Ports, early.ID, `{"fixed_ips":[{"subnet_id":"`+v4.ID+`"}]}`); err != nil ||
		!slices.Equal(v.(*neutron.PortView).FixedIPs[:1], early.FixedIPs[:1]) || len(has(early.ID)) != 1 {
		t.Errorf("asked for any address of the subnet it has one on: %+v, %v", v, err)
	}
	if err := w.remove(w.member, neutron.Subnets, auto.ID); err != nil {
		t.Error(err)
	}
	if got := has(early.ID); len(got) != 0 {
		t.Errorf("after the subnet went: %v", got)
	}
	w.expect(w.remove(w.member, neutron.Subnets, v4.ID),
		"SubnetInUse: Unable to complete operation on subnet "+v4.ID+": One or more ports have an IP allocation from this subnet.")
}

// TestDHCPPorts: the subnet tells their address as its server's, as long as they have it.
func TestDHCPPorts(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	s := w.subnet(n.ID, `"ip_version":4,"cidr":"10.20.0.0/24"`)
	server := func() string {
		d := w.bundle("subnet", s.ID).Dhcps[0]
		if len(d.Opt121Routes) == 0 && d.ServerAddress.String() != "10.20.0.1" || len(d.Opt121Routes) == 1 && d.Opt121Routes[0].Gateway != *d.ServerAddress {
			t.Errorf("server %s with routes %v", d.ServerAddress, d.Opt121Routes)
		}
		return d.ServerAddress.String()
	}
	p := w.port(n.ID, `"device_owner":"network:dhcp","fixed_ips":[{"ip_address":"10.20.0.2"}]`)
	if got := server(); got != "10.20.0.2" {
		t.Errorf("server %s", got)
	}
	w.update(p.ID, `{"fixed_ips":[{"ip_address":"10.20.0.3"}]}`)
	if got := server(); got != "10.20.0.3" {
		t.Errorf("server %s after its address changed", got)
	}
	w.update(p.ID, `{"device_owner":""}`)
	if got := server(); got != "10.20.0.1" {
		t.Errorf("server %s after the port became another's", got)
	}
	w.update(p.ID, `{"device_owner":"network:dhcp"}`)
	if err := w.remove(w.member, neutron.Ports, p.ID); err != nil {
		t.Error(err)
	}
	if got := server(); got != "10.20.0.1" {
		t.Errorf("server %s after the port went", got)
	}
	w.port(n.ID, `"device_owner":"network:dhcp"`)
	if err := w.remove(w.member, neutron.Subnets, s.ID); err != nil {
		t.Errorf("a subnet with nothing but its DHCP server: %v", err)
	}
}

// TestServiceTypes: a subnet for some owners gives addresses to them first, and to no others.
func TestServiceTypes(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	special := must[*neutron.SubnetView](w, w.admin, neutron.Subnets,
		`{"network_id":"`+n.ID+`","ip_version":4,"cidr":"10.1.0.0/24","service_types":["compute:special"]}`)
	plain := w.subnet(n.ID, `"ip_version":4,"cidr":"10.2.0.0/24"`)
	if p := w.port(n.ID, `"device_owner":"compute:special"`); p.FixedIPs[0].SubnetID != special.ID {
		t.Errorf("the special port is on %+v", p.FixedIPs)
	}
	if p := w.port(n.ID, `"device_owner":"compute:nova"`); p.FixedIPs[0].SubnetID != plain.ID {
		t.Errorf("the plain port is on %+v", p.FixedIPs)
	}
	only := w.network(`{}`)
	must[*neutron.SubnetView](w, w.admin, neutron.Subnets,
		`{"network_id":"`+only.ID+`","ip_version":4,"cidr":"10.1.0.0/24","service_types":["compute:special"]}`)
	_, err := w.create(w.member, neutron.Ports, `{"network_id":"`+only.ID+`","device_owner":"compute:nova"}`)
	w.expect(err, "IpAddressGenerationFailureNoMatchingSubnet: No valid service subnet for the given device owner, network "+only.ID+
		", service type compute:nova.")
}
