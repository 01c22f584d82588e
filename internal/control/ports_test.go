package control_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/neutron"
	"heddle/internal/topology/packet"
)

// TestFixedIPs: what may be asked for, and how it is refused (neutron-api §5).
func TestFixedIPs(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	s := w.subnet(n.ID, `"ip_version":4,"cidr":"10.20.0.0/24","allocation_pools":[{"start":"10.20.0.100","end":"10.20.0.200"}]`)
	auto := w.subnet(n.ID, slaac)
	elsewhere := w.subnet(w.network(`{}`).ID, `"ip_version":4,"cidr":"10.30.0.0/24"`)
	bare := w.network(`{}`)
	taken := w.port(n.ID, `"fixed_ips":[{"ip_address":"10.20.0.50"}]`)
	missing := "11111111-1111-1111-1111-111111111111"
	for _, tt := range []struct{ ips, want string }{
		{`[{"ip_address":"10.20.0.50"}]`, "IpAddressAlreadyAllocated: IP address 10.20.0.50 already allocated in subnet " + s.ID},
		{`[{"subnet_id":"` + s.ID + `","ip_address":"10.99.0.50"}]`, "InvalidIpForSubnet: IP address 10.99.0.50 is not a valid IP for the specified subnet."},
		{`[{"subnet_id":"` + s.ID + `","ip_address":"10.20.0.255"}]`, "InvalidIpForSubnet: IP address 10.20.0.255 is not a valid IP for the specified subnet."},
		{`[{"ip_address":"10.99.0.50"}]`,
			"InvalidIpForNetwork: IP address 10.99.0.50 is not a valid IP for any of the subnets on the specified network."},
		{`[{"subnet_id":"` + auto.ID + `","ip_address":"fd00:20::99"}]`, "AllocationOnAutoAddressSubnet: IPv6 address fd00:20::99 " +
			"cannot be directly assigned to a port on subnet " + auto.ID + " as the subnet is configured for automatic addresses"},
		{`[{"subnet_id":"` + elsewhere.ID + `"}]`, "InvalidInput: Invalid input for operation: Failed to create port on network " + n.ID +
			", because fixed_ips included invalid subnet " + elsewhere.ID + "."},
		{`[{"subnet_id":"` + missing + `"}]`, "SubnetNotFound: Subnet " + missing + " could not be found."},
		{`[{"ip_address":"10.20.0.60"},{"ip_address":"10.20.0.60"}]`,
			"HTTPBadRequest: Invalid input for fixed_ips. Reason: Duplicate IP address '10.20.0.60'."},
		{`[{"ip_address":"10.20.0.1"}]`, ""},
		{`[{"subnet_id":"` + s.ID + `"},{"subnet_id":"` + s.ID + `"}]`, ""},
		{`[]`, ""},
	} {
		before := w.dump()
		_, err := w.create(w.member, neutron.Ports, `{"network_id":"`+n.ID+`","fixed_ips":`+tt.ips+`}`)
		w.expect(err, tt.want)
		if err != nil && !slices.Equal(before, w.dump()) {
			t.Errorf("%s: was refused, but changed the store", tt.ips)
		}
	}
	_, err := w.create(w.member, neutron.Ports, `{"network_id":"`+bare.ID+`","fixed_ips":[{"ip_address":"10.20.0.9"}]}`)
	w.expect(err, "InvalidInput: Invalid input for operation: IP allocation requires subnets for network.")
	if p := w.port(bare.ID, ""); len(p.FixedIPs) != 0 {
		t.Errorf("a port on a network without subnets has %v", p.FixedIPs)
	}
	p := w.update(taken.ID, `{"fixed_ips":[{"ip_address":"10.20.0.51"},{"ip_address":"10.20.0.50"}]}`)
	if len(p.FixedIPs) != 3 || p.FixedIPs[0].IPAddress.String() != "10.20.0.51" || p.FixedIPs[1].IPAddress.String() != "10.20.0.50" {
		t.Errorf("after adding an address: %v", p.FixedIPs)
	}
}

// TestPortRefusals beside those of addresses.
func TestPortRefusals(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	w.subnet(n.ID, `"ip_version":4,"cidr":"10.20.0.0/24"`)
	p := w.port(n.ID, `"mac_address":"fa:16:3e:00:00:01"`)
	stateless := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"s","stateful":false}`)
	foreign := must[*neutron.SecurityGroupView](w, w.other, neutron.SecurityGroups, `{"name":"f"}`)
	shared := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"shared":true}`)
	must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+shared.ID+`","ip_version":4,"cidr":"10.20.0.0/24"}`)
	on := func(rest string) string { return `{"network_id":"` + n.ID + `",` + rest + `}` }
	for _, tt := range []struct{ text, want string }{
		{on(`"mac_address":"fa:16:3e:00:00:01"`), "MacAddressInUse: Unable to complete operation for network " + n.ID +
			". The mac address fa:16:3e:00:00:01 is in use."},
		{on(`"security_groups":["` + foreign.ID + `"]`), "SecurityGroupNotFound: Security group " + foreign.ID + " does not exist"},
		{on(`"security_groups":["` + stateless.ID + `","` + p.SecurityGroups[0] + `"]`), "SecurityGroupConflict: Error Cannot apply both " +
			"stateful and stateless security groups on the same port at the same time while attempting the operation."},
		{on(`"port_security_enabled":false,"security_groups":["` + stateless.ID + `"]`), "PortSecurityAndIPRequiredForSecurityGroups: " +
			"Port security must be enabled and port must have an IP address in order to use security groups."},
		{on(`"port_security_enabled":false,"allowed_address_pairs":[{"ip_address":"10.0.0.1"}]`), "AddressPairAndPortSecurityRequired: " +
			"Port Security must be enabled in order to have allowed address pairs on a port."},
		{`{"network_id":"` + shared.ID + `","fixed_ips":[{"ip_address":"10.20.0.9"}]}`, "PolicyNotAuthorized: (rule:create_port and " +
			"(rule:create_port:fixed_ips and (rule:create_port:fixed_ips:ip_address))) is disallowed by policy"},
		{`{"network_id":"` + shared.ID + `","device_owner":"network:dhcp"}`,
			"PolicyNotAuthorized: (rule:create_port and rule:create_port:device_owner) is disallowed by policy"},
	} {
		_, err := w.create(w.member, neutron.Ports, tt.text)
		w.expect(err, tt.want)
	}
	for _, tt := range []struct{ text, want string }{
		{`{"port_security_enabled":false}`, "PortSecurityPortHasSecurityGroup: Port has security group associated. " +
			"Cannot disable port security or IP address until security group is removed."},
		{`{"security_groups":["` + foreign.ID + `"]}`, "SecurityGroupNotFound: Security group " + foreign.ID + " does not exist"},
	} {
		_, err := w.change(w.member, neutron.Ports, p.ID, tt.text)
		w.expect(err, tt.want)
	}
	_, err := w.change(w.other, neutron.Ports, p.ID, `{"name":"x"}`)
	w.expect(err, "PortNotFound: Port "+p.ID+" could not be found.")
	guest := must[*neutron.PortView](w, w.member, neutron.Ports, `{"network_id":"`+shared.ID+`"}`)
	if _, err := w.change(w.member, neutron.Ports, guest.ID, `{"name":"x"}`); err != nil {
		t.Errorf("own port on another's network: %v", err)
	}

	r := w.router(`{}`).ID
	for _, owner := range []string{"network:router_interface", "network:router_gateway", "network:floatingip"} {
		id := must[*neutron.PortView](w, w.admin, neutron.Ports, on(`"device_owner":"`+owner+`","device_id":"`+r+`"`)).ID
		w.expect(w.remove(w.admin, neutron.Ports, id), "ServicePortInUse: Port "+id+" cannot be deleted directly via the port API: has device owner "+owner+".")
		_, err := w.change(w.admin, neutron.Ports, id, `{"mac_address":"fa:16:3e:00:00:09"}`)
		w.expect(err, "UnsupportedPortDeviceOwner: Operation mac address update is not supported for device_owner "+owner+" on port "+id+".")
		w.update(id, `{"device_id":""}`)
		if err := w.remove(w.admin, neutron.Ports, id); err != nil {
			t.Errorf("a stale port of a service: %v", err)
		}
	}
}

func TestPortDefaults(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	secure, open := w.network(`{}`), w.network(`{"port_security_enabled":false}`)
	p := w.port(secure.ID, `"allowed_address_pairs":[{"ip_address":"10.0.0.0/24"},{"ip_address":"10.1.0.1","mac_address":"fa:16:3e:00:00:07"}]`)
	if !p.PortSecurityEnabled || len(p.SecurityGroups) != 1 || p.RevisionNumber != 1 || p.TunnelKey == 0 || p.TunnelKey >= 1<<20 ||
		!strings.HasPrefix(p.MACAddress.String(), "fa:16:3e:") || p.VNICType != "normal" {
		t.Errorf("port %+v", p.Port)
	}
	want := []neutron.AddressPair{{IPAddress: "10.0.0.0/24", MACAddress: p.MACAddress}, {IPAddress: "10.1.0.1", MACAddress: packet.MAC{0xfa, 0x16, 0x3e, 0, 0, 7}}}
	if d := cmp.Diff(want, p.AllowedAddressPairs); d != "" {
		t.Errorf("pairs (-want +got):\n%s", d)
	}
	if p := w.port(open.ID, ""); p.PortSecurityEnabled || len(p.SecurityGroups) != 0 {
		t.Errorf("port on a network without port security: %+v", p.Port)
	}
	if p := w.port(secure.ID, `"device_owner":"network:dhcp"`); len(p.SecurityGroups) != 0 {
		t.Errorf("port of a service: %+v", p.Port)
	}
	if p := w.port(secure.ID, `"security_groups":[]`); len(p.SecurityGroups) != 0 {
		t.Errorf("port asked to be in no group: %+v", p.Port)
	}
	id := p.SecurityGroups[0]
	if p := w.port(secure.ID, `"security_groups":["`+id+`"],"tags":["a"]`); !slices.Equal(p.SecurityGroups, []string{id}) || !slices.Equal(p.Tags, []string{"a"}) {
		t.Errorf("port %+v", p.Port)
	}
	before := p.MACAddress
	if p := w.update(p.ID, `{"mac_address":null}`); p.MACAddress == before {
		t.Error("a new MAC was asked for, and not given")
	}
}

// TestExtraDHCPOptions: an update sets, adds, and removes by null.
func TestExtraDHCPOptions(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	p := w.port(w.network(`{}`).ID, `"extra_dhcp_opts":[{"opt_name":"mtu","opt_value":"1400"},{"opt_name":"tftp-server","opt_value":null}]`)
	for _, step := range []struct {
		opts string
		want []neutron.DHCPOpt
	}{
		{`[]`, []neutron.DHCPOpt{{OptName: "mtu", OptValue: "1400", IPVersion: 4}}},
		{`[{"opt_name":"mtu","opt_value":"1300"},{"opt_name":"mtu","opt_value":"1280","ip_version":6}]`,
			[]neutron.DHCPOpt{{OptName: "mtu", OptValue: "1300", IPVersion: 4}, {OptName: "mtu", OptValue: "1280", IPVersion: 6}}},
		{`[{"opt_name":"mtu","opt_value":null},{"opt_name":"gone","opt_value":null}]`, []neutron.DHCPOpt{{OptName: "mtu", OptValue: "1280", IPVersion: 6}}},
		{`[{"opt_name":"router","opt_value":""}]`, []neutron.DHCPOpt{{OptName: "mtu", OptValue: "1280", IPVersion: 6}, {OptName: "router", IPVersion: 4}}},
	} {
		if d := cmp.Diff(step.want, w.update(p.ID, `{"extra_dhcp_opts":`+step.opts+`}`).ExtraDHCPOpts); d != "" {
			t.Errorf("%s (-want +got):\n%s", step.opts, d)
		}
	}
}

// TestPoolRunsOut and is full again when ports go.
func TestPoolRunsOut(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	w.subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/28","allocation_pools":[{"start":"10.0.0.4","end":"10.0.0.6"}]`)
	var ids []string
	for range 3 {
		ids = append(ids, w.port(n.ID, "").ID)
	}
	_, err := w.create(w.member, neutron.Ports, `{"network_id":"`+n.ID+`"}`)
	w.expect(err, "IpAddressGenerationFailure: No more IP addresses available on network "+n.ID+".")
	for i, id := range ids {
		if err := w.remove(w.member, neutron.Ports, id); err != nil {
			t.Error(err)
		}
		w.port(n.ID, `"name":"`+strconv.Itoa(i)+`"`)
	}
}

// TestDataPlaneStatus: who monitors the data plane may report a port's status, which stays until
// the next report.
func TestDataPlaneStatus(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	p := w.port(w.network(`{}`).ID, "")
	monitor := neutron.Caller{ProjectID: w.member.ProjectID, Roles: []string{"member", "data_plane_integrator"}}
	set := func(c neutron.Caller, text string) error {
		_, err := w.change(c, neutron.Ports, p.ID, text)
		return err
	}
	w.expect(set(w.member, `{"data_plane_status":"DOWN"}`), "PolicyNotAuthorized: (rule:update_port and rule:update_port:data_plane_status) is disallowed by policy")
	w.expect(set(w.admin, `{"data_plane_status":"BUILD"}`), "HTTPBadRequest: Invalid input for data_plane_status. Reason: BUILD is not in valid_values.")
	for _, step := range []struct {
		by   neutron.Caller
		text string
		want string
	}{{monitor, `{"data_plane_status":"DOWN"}`, "DOWN"}, {w.member, `{"name":"x"}`, "DOWN"}, {w.admin, `{"data_plane_status":null}`, ""}} {
		w.expect(set(step.by, step.text), "")
		if got := w.showPort(p.ID); got.DataPlaneStatus != step.want {
			t.Errorf("after %s: %q, want %q", step.text, got.DataPlaneStatus, step.want)
		}
	}
}
