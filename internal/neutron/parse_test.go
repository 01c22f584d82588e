package neutron_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/neutron"
	"heddle/internal/topology/packet"
)

const (
	uuid1 = "11111111-1111-1111-1111-111111111111"
	uuid2 = "22222222-2222-2222-2222-222222222222"
)

var (
	member = neutron.Caller{UserID: "u", ProjectID: "p", Roles: []string{"member", "reader"}}
	admin  = neutron.Caller{UserID: "a", ProjectID: "ap", Roles: []string{"admin"}}
)

// decode reads a body as the API does.
func decode(t testing.TB, text string) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var body map[string]any
	if err := d.Decode(&body); err != nil {
		t.Fatalf("body %s: %v", text, err)
	}
	return body
}

// TestParseRefuses holds the words of every refusal against those recorded of the reference.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	const (
		net    = neutron.Networks
		sub    = neutron.Subnets
		pool   = neutron.SubnetPools
		port   = neutron.Ports
		rule   = neutron.SecurityGroupRules
		subnet = `"network_id":"` + uuid1 + `","ip_version":4,"cidr":"10.24.0.0/24"`
		onNet  = `"network_id":"` + uuid1 + `"`
		inSG   = `"security_group_id":"` + uuid1 + `","direction":"ingress"`
		protos = "[None, 'ah', 'dccp', 'egp', 'esp', 'gre', 'hopopt', 'icmp', 'igmp', 'ip', 'ipip', 'ipv6-encap', 'ipv6-frag', 'ipv6-icmp', 'icmpv6', 'ipv6-nonxt', 'ipv6-opts', 'ipv6-route', 'ospf', 'pgm', 'rsvp', 'sctp', 'tcp', 'udp', 'udplite', 'vrrp']"
	)
	long := strings.Repeat("x", 256)
	tests := []struct {
		res  neutron.Resource
		op   neutron.Op
		body string
		typ  string
		want string
	}{
		{net, neutron.Create, `{"nme":"x"}`, "HTTPBadRequest", "Unrecognized attribute(s) 'nme'"},
		{net, neutron.Create, `{"bbb":"y","aaa":"x"}`, "HTTPBadRequest", "Unrecognized attribute(s) 'aaa, bbb'"},
		{net, neutron.Create, `{"tags-any":"y"}`, "HTTPBadRequest", "Unrecognized attribute(s) 'tags-any'"},
		{net, neutron.Create, `{"id":"x"}`, "HTTPBadRequest", "Attribute 'id' not allowed in POST"},
		{net, neutron.Create, `{"status":"ACTIVE"}`, "HTTPBadRequest", "Attribute 'status' not allowed in POST"},
		{net, neutron.Create, `{"tags":["a"]}`, "HTTPBadRequest", "Attribute 'tags' not allowed in POST"},
		{net, neutron.Create, `{"name":5}`, "HTTPBadRequest", "Invalid input for name. Reason: '5' is not a valid string."},
		{net, neutron.Create, `{"name":{"a":[null,true,"it's"]}}`, "HTTPBadRequest", `Invalid input for name. Reason: '{'a': [None, True, "it's"]}' is not a valid string.`},
		{net, neutron.Create, `{"name":"` + long + `"}`, "HTTPBadRequest", "Invalid input for name. Reason: '" + long + "' exceeds maximum length of 255."},
		{net, neutron.Create, `{"admin_state_up":"maybe"}`, "InvalidInput", "Invalid input for operation: 'maybe' cannot be converted to boolean."},
		{net, neutron.Create, `{"admin_state_up":null}`, "InvalidInput", "Invalid input for operation: 'None' cannot be converted to boolean."},
		{net, neutron.Create, `{"mtu":-1}`, "HTTPBadRequest", "Invalid input for mtu. Reason: '-1' should be non-negative."},
		{net, neutron.Create, `{"mtu":"x"}`, "InvalidInput", "Invalid input for operation: 'x' is not an integer."},
		{net, neutron.Create, `{"mtu":1e30}`, "InvalidInput", "Invalid input for operation: '1e30' is not an integer."},
		{net, neutron.Create, `{"tenant_id":"other"}`, "HTTPBadRequest", "Specifying 'project_id' or 'tenant_id' other than the authenticated project in request requires admin or advsvc privileges"},
		{net, neutron.Create, `{"tenant_id":"a","project_id":"b"}`, "HTTPBadRequest", "'project_id' and 'tenant_id' do not match"},
		{net, neutron.Update, `{"tenant_id":"other"}`, "HTTPBadRequest", "Specifying 'project_id' or 'tenant_id' other than the authenticated project in request requires admin or advsvc privileges"},
		{net, neutron.Update, `{"project_id":"p"}`, "HTTPBadRequest", "Cannot update read-only attribute tenant_id"},
		{net, neutron.Update, `{"status":"DOWN"}`, "HTTPBadRequest", "Cannot update read-only attribute status"},
		{net, neutron.Update, `{"foo":1}`, "HTTPBadRequest", "Unrecognized attribute(s) 'foo'"},
		{net, neutron.Create, `{"qos_policy_id":"x"}`, "HTTPBadRequest", "Invalid input for qos_policy_id. Reason: 'x' is not a valid UUID."},
		{net, neutron.Create, `{"availability_zone_hints":"z"}`, "HTTPBadRequest", "Invalid input for availability_zone_hints. Reason: 'z' is not a list."},
		{net, neutron.Create, `{"segments":[{},{}]}`, "HTTPBadRequest", "Invalid input for segments. Reason: 2 segments are not supported: a network is one LAN or one overlay, and so has one segment."},

		{sub, neutron.Create, `{"cidr":"10.21.0.0/24"}`, "HTTPBadRequest", "Failed to parse request. Required attribute 'ip_version' not specified"},
		{sub, neutron.Create, `{"ip_version":4}`, "HTTPBadRequest", "Failed to parse request. Required attribute 'network_id' not specified"},
		{sub, neutron.Create, `{` + onNet + `,"ip_version":5}`, "HTTPBadRequest", "Invalid input for ip_version. Reason: 5 is not in valid_values."},
		{sub, neutron.Create, `{` + onNet + `,"ip_version":4,"cidr":"10.21.0.0/33"}`, "InvalidInput", "Invalid input for operation: 10.21.0.0/33 is not in a CIDR format."},
		{sub, neutron.Create, `{` + onNet + `,"ip_version":4,"cidr":null}`, "InvalidInput", "Invalid input for operation: None is not in a CIDR format."},
		{sub, neutron.Create, `{` + subnet + `,"allocation_pools":[{"start":"10.24.0.9"}]}`, "HTTPBadRequest", "Invalid input for allocation_pools. Reason: Validation of dictionary's keys failed. Expected keys: {'end', 'start'} Provided keys: {'start'}."},
		{sub, neutron.Create, `{` + subnet + `,"allocation_pools":"x"}`, "HTTPBadRequest", "Invalid input for allocation_pools. Reason: Invalid data format for IP pool: 'x'."},
		{sub, neutron.Create, `{` + subnet + `,"dns_nameservers":["zz"]}`, "HTTPBadRequest", "Invalid input for dns_nameservers. Reason: 'zz' is not a valid nameserver. 'zz' is not a valid IP address."},
		{sub, neutron.Create, `{` + subnet + `,"dns_nameservers":["8.8.8.8","8.8.8.8"]}`, "HTTPBadRequest", "Invalid input for dns_nameservers. Reason: Duplicate nameserver '8.8.8.8'."},
		{sub, neutron.Create, `{` + subnet + `,"host_routes":[{"destination":"x","nexthop":"1.1.1.1"}]}`, "HTTPBadRequest", "Invalid input for host_routes. Reason: 'x' is not a valid CIDR."},
		{sub, neutron.Create, `{` + subnet + `,"host_routes":[{"destination":"10.0.0.1/8","nexthop":"1.1.1.1"}]}`, "HTTPBadRequest", "Invalid input for host_routes. Reason: '10.0.0.1/8' is not a recognized CIDR, '10.0.0.0/8' is recommended."},
		{sub, neutron.Create, `{` + subnet + `,"gateway_ip":"010.0.0.1"}`, "HTTPBadRequest", "Invalid input for gateway_ip. Reason: '010.0.0.1' is not an accepted IP address, '10.0.0.1' is recommended."},
		{sub, neutron.Create, `{` + subnet + `,"ipv6_ra_mode":"x"}`, "HTTPBadRequest", "Invalid input for ipv6_ra_mode. Reason: x is not in valid_values."},
		{sub, neutron.Create, `{` + subnet + `,"service_types":["compute:nova","x"]}`, "InvalidSubnetServiceType", "Subnet service type x does not correspond to a valid device owner."},
		{sub, neutron.Create, `{` + subnet + `,"subnetpool_id":"x"}`, "HTTPBadRequest", "Invalid input for subnetpool_id. Reason: 'x' is not a valid UUID."},
		{pool, neutron.Create, `{"prefixes":["10.0.0.0/8"]}`, "HTTPBadRequest", "Failed to parse request. Required attribute 'name' not specified"},
		{pool, neutron.Create, `{"name":" ","prefixes":["10.0.0.0/8"]}`, "HTTPBadRequest", "Invalid input for name. Reason: ' ' Blank strings are not permitted."},
		{pool, neutron.Create, `{"name":"p","prefixes":["10.0.0.0"]}`, "HTTPBadRequest", "Invalid input for prefixes. Reason: '10.0.0.0' isn't a recognized IP subnet cidr, '10.0.0.0/32' is recommended."},
		{pool, neutron.Create, `{"name":"p","prefixes":["x"]}`, "HTTPBadRequest", "Invalid input for prefixes. Reason: 'x' is not a valid IP subnet."},
		{pool, neutron.Create, `{"name":"p","prefixes":["10.0.0.0/8"],"default_quota":null}`, "InvalidInput", "Invalid input for operation: 'None' is not an integer."},
		{pool, neutron.Update, `{"shared":true}`, "HTTPBadRequest", "Cannot update read-only attribute shared"},
		{sub, neutron.Update, `{"cidr":"10.30.0.0/24"}`, "HTTPBadRequest", "Cannot update read-only attribute cidr"},

		{net, neutron.Create, `{"segments":"x"}`, "HTTPBadRequest", "Invalid input for segments. Reason: 'x' is not a list."},
		{net, neutron.Create, `{"segments":["x"]}`, "HTTPBadRequest", "Invalid input for segments. Reason: 'x' is not a dictionary."},
		{net, neutron.Create, `{"segments":[{"b":1,"a":2}]}`, "HTTPBadRequest", "Unrecognized attribute(s) 'a, b'"},
		{net, neutron.Create, `{"segments":[{"provider:segmentation_id":"x"}]}`, "InvalidInput", "Invalid input for operation: 'x' is not an integer."},
		{port, neutron.Create, `{"name":"x"}`, "HTTPBadRequest", "Failed to parse request. Required attribute 'network_id' not specified"},
		{port, neutron.Create, `{` + onNet + `,"fixed_ips":"x"}`, "HTTPBadRequest", "Invalid input for fixed_ips. Reason: Invalid data format for fixed IP: 'x'."},
		{port, neutron.Create, `{` + onNet + `,"fixed_ips":[{"foo":"x"}]}`, "InvalidInput", "Invalid input for operation: IP allocation requires subnet_id or ip_address."},
		{port, neutron.Create, `{` + onNet + `,"fixed_ips":[{"ip_address":"10.20.0.60"},{"ip_address":"10.20.0.60"}]}`, "HTTPBadRequest", "Invalid input for fixed_ips. Reason: Duplicate IP address '10.20.0.60'."},
		{port, neutron.Create, `{` + onNet + `,"mac_address":"zz"}`, "HTTPBadRequest", "Invalid input for mac_address. Reason: 'zz' is not a valid MAC address."},
		{port, neutron.Create, `{` + onNet + `,"mac_address":"ff:ff:ff:ff:ff:ff"}`, "HTTPBadRequest", "Invalid input for mac_address. Reason: 'ff:ff:ff:ff:ff:ff' is not a valid MAC address."},
		{port, neutron.Create, `{` + onNet + `,"binding:vnic_type":"zz"}`, "HTTPBadRequest", "Invalid input for binding:vnic_type. Reason: zz is not in valid_values."},
		{port, neutron.Create, `{` + onNet + `,"binding:profile":"zz"}`, "HTTPBadRequest", "Invalid input for binding:profile. Reason: 'zz' is not a dictionary."},
		{port, neutron.Create, `{` + onNet + `,"security_groups":["x"]}`, "HTTPBadRequest", "Invalid input for security_groups. Reason: 'x' is not a valid UUID."},
		{port, neutron.Create, `{` + onNet + `,"tags":"x"}`, "HTTPBadRequest", "Invalid input for tags. Reason: 'x' is not a list."},
		{port, neutron.Create, `{` + onNet + `,"tags":["x","x"]}`, "HTTPBadRequest", "Invalid input for tags. Reason: Duplicate items in the list: 'x'."},
		{port, neutron.Update, `{"allowed_address_pairs":[{"mac_address":"aa:bb:cc:dd:ee:ff"}]}`, "AllowedAddressPairsMissingIP", "AllowedAddressPair must contain ip_address"},
		{port, neutron.Update, `{"allowed_address_pairs":[{"ip_address":"1.1.1.1"},{"ip_address":"1.1.1.1"}]}`, "DuplicateAddressPairInRequest", "Request contains duplicate address pair: mac_address None ip_address 1.1.1.1."},
		{port, neutron.Update, `{"allowed_address_pairs":[{"ip_address":"x"}]}`, "HTTPBadRequest", "'x' is not a valid IP address"},
		{port, neutron.Update, `{"allowed_address_pairs":[{"ip_address":"1.1.1.1","z":1}]}`, "HTTPBadRequest", "Unrecognized attribute(s) 'z'"},
		{port, neutron.Update, `{"extra_dhcp_opts":[{"opt_name":"x"}]}`, "InvalidInput", "Invalid input for operation: No valid key specs matched for: {'opt_name': 'x'}."},
		{port, neutron.Update, `{"network_id":"` + uuid1 + `"}`, "HTTPBadRequest", "Cannot update read-only attribute network_id"},

		{neutron.SecurityGroups, neutron.Create, `{"name":"Default"}`, "SecurityGroupDefaultAlreadyExists", "Default security group already exists."},
		{rule, neutron.Create, `{"security_group_id":"` + uuid1 + `"}`, "HTTPBadRequest", "Failed to parse request. Required attribute 'direction' not specified"},
		{rule, neutron.Create, `{"security_group_id":"` + uuid1 + `","direction":"in"}`, "HTTPBadRequest", "Invalid input for direction. Reason: in is not in valid_values."},
		{rule, neutron.Create, `{` + inSG + `,"ethertype":"ip"}`, "SecurityGroupRuleInvalidEtherType", "Security group rule for ethertype 'ip' not supported. Allowed values are ['IPv4', 'IPv6']."},
		{rule, neutron.Create, `{` + inSG + `,"protocol":"zzz"}`, "SecurityGroupRuleInvalidProtocol", "Security group rule protocol zzz not supported. Only protocol values " + protos + " and integer representations [0 to 255] are supported."},
		{rule, neutron.Create, `{` + inSG + `,"protocol":300}`, "SecurityGroupRuleInvalidProtocol", "Security group rule protocol 300 not supported. Only protocol values " + protos + " and integer representations [0 to 255] are supported."},
		{rule, neutron.Create, `{` + inSG + `,"protocol":1.5}`, "SecurityGroupRuleInvalidProtocol", "Security group rule protocol 1.5 not supported. Only protocol values " + protos + " and integer representations [0 to 255] are supported."},
		{rule, neutron.Create, `{` + inSG + `,"protocol":true}`, "SecurityGroupRuleInvalidProtocol", "Security group rule protocol True not supported. Only protocol values " + protos + " and integer representations [0 to 255] are supported."},
		{rule, neutron.Create, `{` + inSG + `,"port_range_max":70000}`, "SecurityGroupInvalidPortValue", "Invalid value for port 70000"},
		{rule, neutron.Create, `{` + inSG + `,"remote_ip_prefix":"bad"}`, "InvalidCIDR", "Invalid CIDR bad given as IP prefix."},
		{rule, neutron.Update, `{"protocol":"udp"}`, "HTTPBadRequest", "Cannot update read-only attribute protocol"},

		{neutron.FirewallRules, neutron.Create, `{"protocol":1.5}`, "FirewallRuleInvalidProtocol", "Firewall Rule protocol 1.5 is not supported. Only protocol values [None, 'tcp', 'udp', 'icmp'] and their integer representation (0 to 255) are supported."},
		{neutron.FirewallRules, neutron.Update, `{"protocol":true}`, "FirewallRuleInvalidProtocol", "Firewall Rule protocol True is not supported. Only protocol values [None, 'tcp', 'udp', 'icmp'] and their integer representation (0 to 255) are supported."},
		{neutron.FirewallGroupRules, neutron.Create, `{"protocol":1.5}`, "InvalidInput", "Invalid input for operation: Input value 1.5 must be string type."},
		{neutron.FirewallGroupRules, neutron.Update, `{"protocol":true}`, "InvalidInput", "Invalid input for operation: Input value True must be string type."},
		{neutron.FirewallGroupRules, neutron.Create, `{"destination_port":80.5}`, "HTTPBadRequest", "Invalid input for destination_port. Reason: Invalid port: 80.5."},

		{neutron.Quotas, neutron.Update, `{"network":-5}`, "HTTPBadRequest", "Invalid input for network. Reason: '-5' is too small - must be at least '-1'."},
		{neutron.Quotas, neutron.Update, `{"zzz":5}`, "HTTPBadRequest", "Unrecognized attribute(s) 'zzz'"},
		{neutron.Agents, neutron.Update, `{"alive":true}`, "HTTPBadRequest", "Cannot update read-only attribute alive"},
	}
	for _, tt := range tests {
		caller := member
		if strings.Contains(tt.want, "do not match") {
			caller = admin
		}
		_, err := neutron.Parse(caller, tt.res, tt.op, decode(t, tt.body))
		var got *neutron.Error
		if !errors.As(err, &got) {
			t.Errorf("%s %s %s: error %v, want %s", tt.op, tt.res, tt.body, err, tt.want)
			continue
		}
		if got.Type != tt.typ || got.Message != tt.want {
			t.Errorf("%s %s %s:\n got %s: %s\nwant %s: %s", tt.op, tt.res, tt.body, got.Type, got.Message, tt.typ, tt.want)
		}
	}
}

// TestNumbersOfBalancers: numbers of load balancing are whole ones, by both versions of LBaaS; the
// error names the field. Lists have no nulls.
func TestNumbersOfBalancers(t *testing.T) {
	t.Parallel()
	bodies := map[neutron.Resource]string{
		neutron.Listeners:        `"loadbalancer_id":"` + uuid1 + `","protocol":"TCP","protocol_port":80`,
		neutron.LBMembers:        `"address":"10.0.0.1","protocol_port":80,"subnet_id":"` + uuid1 + `"`,
		neutron.HealthMonitors:   `"pool_id":"` + uuid1 + `","type":"TCP","delay":5,"timeout":3,"max_retries":2`,
		neutron.VIPs:             `"subnet_id":"` + uuid1 + `","pool_id":"` + uuid1 + `","protocol":"TCP","protocol_port":80`,
		neutron.V1Pools:          `"subnet_id":"` + uuid1 + `","protocol":"TCP","lb_method":"ROUND_ROBIN"`,
		neutron.V1Members:        `"pool_id":"` + uuid1 + `","address":"10.0.0.1","protocol_port":80`,
		neutron.V1HealthMonitors: `"type":"TCP","delay":5,"timeout":3,"max_retries":2`,
	}
	for res, body := range bodies {
		if _, err := neutron.Parse(member, res, neutron.Create, decode(t, "{"+body+"}")); err != nil {
			t.Errorf("%s {%s}: %v", res, body, err)
		}
	}
	refuse := func(res neutron.Resource, field, value, reason string) {
		t.Helper()
		body := "{" + bodies[res] + `,"` + field + `":` + value + "}" // of a field given twice the last counts
		_, err := neutron.Parse(member, res, neutron.Create, decode(t, body))
		if want := "Invalid input for " + field + ". Reason: " + reason; err == nil || err.Error() != want {
			t.Errorf("%s %s: %v, want %q", res, body, err, want)
		}
	}
	for field, resources := range map[string][]neutron.Resource{
		"protocol_port":    {neutron.Listeners, neutron.LBMembers, neutron.VIPs, neutron.V1Members},
		"connection_limit": {neutron.Listeners, neutron.VIPs},
		"weight":           {neutron.LBMembers, neutron.V1Members},
		"delay":            {neutron.HealthMonitors, neutron.V1HealthMonitors},
		"timeout":          {neutron.HealthMonitors, neutron.V1HealthMonitors},
		"max_retries":      {neutron.HealthMonitors, neutron.V1HealthMonitors},
	} {
		for _, res := range resources {
			for value, shown := range map[string]string{"1.5": "1.5", `"1.5"`: "1.5", "true": "True", "[1]": "[1]", "null": "None", "1e30": "1e30", `""`: ""} {
				refuse(res, field, value, "'"+shown+"' is not an integer.")
			}
		}
	}
	refuse(neutron.Listeners, "sni_container_refs", "[null]", "'None' is not a valid string.")
	refuse(neutron.V1Pools, "health_monitors", "[null]", "'None' is not a valid UUID.")
}

// TestMappedAddresses: IPv4-mapped IPv6 addresses, which no packet has, are refused wherever
// addresses are taken, by the attribute's name.
func TestMappedAddresses(t *testing.T) {
	t.Parallel()
	const one, some, wide = "::ffff:1.2.3.4", "::ffff:1.2.3.0/120", "::ffff:0:0/90"
	subnet := `"network_id":"` + uuid1 + `","ip_version":6,"cidr":"fd00::/64"`
	rule := `"security_group_id":"` + uuid1 + `","direction":"ingress","ethertype":"IPv6"`
	label := `"metering_label_id":"` + uuid1 + `","direction":"ingress"`
	tests := []struct {
		resource neutron.Resource
		given    string // attributes beside the one
		name     string // of the attribute
		value    string // JSON with %s for addresses
		with     []string
	}{
		{neutron.Subnets, `"network_id":"` + uuid1 + `","ip_version":6`, "cidr", `"%s"`, []string{some}},
		{neutron.Subnets, subnet, "gateway_ip", `"%s"`, []string{one}},
		{neutron.Subnets, subnet, "dns_nameservers", `["%s"]`, []string{one}},
		{neutron.Subnets, subnet, "allocation_pools", `[{"start":"%s","end":"fd00::9"}]`, []string{one}},
		{neutron.Subnets, subnet, "host_routes", `[{"destination":"%s","nexthop":"fd00::1"}]`, []string{some}},
		{neutron.Subnets, subnet, "host_routes", `[{"destination":"fd01::/64","nexthop":"%s"}]`, []string{one}},
		{neutron.Ports, `"network_id":"` + uuid1 + `"`, "fixed_ips", `[{"ip_address":"%s"}]`, []string{one}},
		{neutron.Ports, `"network_id":"` + uuid1 + `"`, "allowed_address_pairs", `[{"ip_address":"%s"}]`, []string{one, some}},
		{neutron.SubnetPools, `"name":"p"`, "prefixes", `["%s"]`, []string{some}},
		{neutron.AddressGroups, `"name":"g"`, "addresses", `["%s"]`, []string{some}},
		{neutron.SecurityGroupRules, rule, "remote_ip_prefix", `"%s"`, []string{one, some}},
		{neutron.FloatingIPs, `"floating_network_id":"` + uuid1 + `"`, "floating_ip_address", `"%s"`, []string{one}},
		{neutron.NDPProxies, `"router_id":"` + uuid1 + `","port_id":"` + uuid1 + `"`, "ip_address", `"%s"`, []string{one}},
		{neutron.MeteringLabelRules, label, "remote_ip_prefix", `"%s"`, []string{one, some}},
		{neutron.FirewallRules, "", "source_ip_address", `"%s"`, []string{one, some}},
		{neutron.FirewallGroupRules, "", "destination_ip_address", `"%s"`, []string{one, some}},
		{neutron.BGPPeers, `"remote_as":1,"auth_type":"none"`, "peer_ip", `"%s"`, []string{one}},
	}
	for _, tt := range tests {
		parse := func(address string) error {
			text := strings.TrimPrefix(tt.given+`,"`+tt.name+`":`+strings.ReplaceAll(tt.value, "%s", address), ",")
			_, err := neutron.Parse(admin, tt.resource, neutron.Create, decode(t, "{"+text+"}"))
			return err
		}
		for _, address := range tt.with {
			got, _ := errors.AsType[*neutron.Error](parse(address))
			if want := "'" + address + "' is IPv4-mapped IPv6, which no packet has: write it as IPv4."; got == nil || got.Kind != neutron.Invalid ||
				!strings.HasPrefix(got.Message, "Invalid input for "+tt.name+". Reason: ") || !strings.HasSuffix(got.Message, want) {
				t.Errorf("%s %s %s: %v, want it refused: %s", tt.resource.Path(), tt.name, address, got, want)
			}
			// Prefixes that have other addresses too are taken.
			if prefix := strings.Contains(address, "/"); prefix && tt.name != "host_routes" && parse(wide) != nil {
				t.Errorf("%s %s %s: %v", tt.resource.Path(), tt.name, wide, parse(wide))
			}
		}
	}
	if _, err := neutron.ParseAddresses(map[string]any{"addresses": []any{one}}); err == nil || !strings.HasPrefix(err.Error(), "Invalid input for addresses. ") {
		t.Errorf("addresses of a group: %v", err)
	}
}

func TestParseNormalises(t *testing.T) {
	t.Parallel()
	none := "x"
	tests := []struct {
		name string
		res  neutron.Resource
		op   neutron.Op
		body string
		want neutron.Values
	}{
		{"defaults of a network", neutron.Networks, neutron.Create, `{}`, neutron.Values{
			"name": "", "admin_state_up": true, "shared": false, "router:external": false, "mtu": 0, "port_security_enabled": true,
			"is_default": false, "qos_policy_id": nil, "dns_domain": "", "availability_zone_hints": []string{}, "description": "", "project_id": "p",
		}},
		{"defaults of a subnet, host bits", neutron.Subnets, neutron.Create,
			`{"network_id":"` + strings.ToUpper(strings.ReplaceAll(uuid1, "-", "")) + `","ip_version":"4","cidr":"10.22.0.7/255.255.255.0","tenant_id":"p"}`, neutron.Values{
				"name": "", "network_id": uuid1, "ip_version": 4, "cidr": netip.MustParsePrefix("10.22.0.0/24"), "subnetpool_id": nil,
				"use_default_subnetpool": false, "segment_id": nil, "enable_dhcp": true, "description": "", "project_id": "p",
			}},
		{"lists of a subnet", neutron.Subnets, neutron.Update,
			`{"gateway_ip":null,"allocation_pools":[{"start":"10.0.0.2","end":"10.0.0.9"}],"dns_nameservers":null,"host_routes":[{"destination":"10.1.0.0/16","nexthop":"10.0.0.3"}]}`, neutron.Values{
				"gateway_ip":       nil,
				"allocation_pools": []neutron.Pool{{Start: netip.MustParseAddr("10.0.0.2"), End: netip.MustParseAddr("10.0.0.9")}},
				"dns_nameservers":  []netip.Addr{},
				"host_routes":      []neutron.HostRoute{{Destination: netip.MustParsePrefix("10.1.0.0/16"), Nexthop: netip.MustParseAddr("10.0.0.3")}},
			}},
		{"lists of a port", neutron.Ports, neutron.Update,
			`{"mac_address":"AA-BB-CC-0-1-2","fixed_ips":[{"subnet_id":"` + uuid1 + `"},{"ip_address":"FD00::0:1"}],"security_groups":null,
			  "allowed_address_pairs":[{"ip_address":"10.0.0.0/24","mac_address":"aabb.cc00.0102"},{"ip_address":"10.0.0.1"}],
			  "extra_dhcp_opts":[{"opt_name":"bootfile-name","opt_value":"x"},{"opt_name":"y","opt_value":null,"ip_version":"6"}],
			  "binding:host_id":null,"binding:profile":null,"admin_state_up":"No"}`, neutron.Values{
				"mac_address":           packet.MAC{0xaa, 0xbb, 0xcc, 0, 1, 2},
				"fixed_ips":             []neutron.FixedIPRequest{{SubnetID: uuid1}, {IPAddress: netip.MustParseAddr("fd00::1")}},
				"security_groups":       []string{},
				"allowed_address_pairs": []neutron.AddressPair{{IPAddress: "10.0.0.0/24", MACAddress: packet.MAC{0xaa, 0xbb, 0xcc, 0, 1, 2}}, {IPAddress: "10.0.0.1"}},
				"extra_dhcp_opts":       []neutron.DHCPOptChange{{OptName: "bootfile-name", OptValue: &none, IPVersion: 4}, {OptName: "y", IPVersion: 6}},
				"binding:host_id":       "",
				"binding:profile":       nil,
				"admin_state_up":        false,
			}},
		{"a rule", neutron.SecurityGroupRules, neutron.Create,
			`{"security_group_id":"` + uuid1 + `","direction":"ingress","protocol":"TCP","ethertype":"ipv4","port_range_min":"80","port_range_max":80.0,"remote_ip_prefix":"10.0.0.7/8"}`, neutron.Values{
				"security_group_id": uuid1, "direction": "ingress", "protocol": "tcp", "ethertype": "IPv4", "port_range_min": 80, "port_range_max": 80,
				"remote_ip_prefix": "10.0.0.7/8", "remote_group_id": nil, "remote_address_group_id": nil, "description": "", "project_id": "p",
			}},
		{"nothing", neutron.Ports, neutron.Update, `{}`, neutron.Values{}},
		{"quota", neutron.Quotas, neutron.Update, `{"network":"-1","port":7}`, neutron.Values{"network": -1, "port": 7}},
	}
	for _, tt := range tests {
		got, err := neutron.Parse(member, tt.res, tt.op, decode(t, tt.body))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if d := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
			t.Errorf("%s: -want +got\n%s", tt.name, d)
		}
	}
}

// FuzzParse: no body of any resource panics, and what is refused is refused with an error for the
// client.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"name":"x","mtu":1400}`, `{"network_id":"` + uuid1 + `","ip_version":4,"cidr":"10.0.0.0/24","gateway_ip":null,"allocation_pools":[{"start":"a","end":1}]}`,
		`{"network_id":"` + uuid1 + `","fixed_ips":[{"ip_address":"::1","subnet_id":null}],"mac_address":"1:2:3:4:5:6","allowed_address_pairs":[{"ip_address":"1.1.1.1/0"}],"extra_dhcp_opts":[{}]}`,
		`{"security_group_id":"x","direction":"egress","protocol":-1,"port_range_min":1e400,"remote_ip_prefix":"1.2.3.4/255.0.255.0"}`,
		`{"name":"g","type":"router_vtep","resource_id":"` + uuid1 + `","tunnel_ips":["192.0.2.5",4],"management_ip":"::","management_port":-6640,"remote_mac_entries":[{}]}`,
		`{"devices":[{"device_name":"tor1","interfaces":[{"name":"eth7","segmentation_id":[0,"5",4095]},null]}],"network_id":"x","segmentation_id":16777215}`,
		`{"mac_address":"ff:ff:ff:ff:ff:ff","vtep_address":"","segmentation_id":"77"}`, `{"local_as":4294967296,"ip_version":6,"peer_ip":"203.0.113.1","remote_as":0,"auth_type":"md5"}`,
		`{"loadbalancer_id":"` + uuid1 + `","protocol":"TCP","lb_algorithm":"ROUND_ROBIN","session_persistence":{"type":"SOURCE_IP","cookie_name":1},"address":"0.0.0.0","protocol_port":65536,"weight":-1}`,
		`{"type":"HTTP","delay":0,"timeout":"1","max_retries":11,"url_path":"x","expected_codes":"200-","pool_id":null,"lb_method":"SOURCE_IP","vip_id":1}`,
		`null`, `{"binding:profile":{"a":[[]]},"tags":[null,{}],"service_types":[1],"description":null}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		var body map[string]any
		if d.Decode(&body) != nil {
			return
		}
		for _, r := range neutron.Resources() {
			for _, op := range []neutron.Op{neutron.Create, neutron.Update} {
				_, err := neutron.Parse(admin, r, op, body)
				var known *neutron.Error
				if err != nil && (!errors.As(err, &known) || known.Kind == 0 || known.Type == "") {
					t.Fatalf("%s %s %q: %v is no answer for a client", op, r, text, err)
				}
			}
		}
	})
}
