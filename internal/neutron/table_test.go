package neutron_test

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/neutron"
	"heddle/internal/topology/packet"
)

var aTime = time.Date(2026, 1, 2, 3, 4, 5, 678, time.FixedZone("x", 3600))

func aStandard() neutron.Standard {
	return neutron.Standard{ID: uuid1, ProjectID: "p", Name: "ü\"\n", Description: "d", Tags: []string{"red", "blue"}, CreatedAt: aTime, UpdatedAt: aTime, RevisionNumber: 3}
}

func aPort() *neutron.PortView {
	return &neutron.PortView{
		Port: &neutron.Port{
			Standard: aStandard(), NetworkID: uuid2, AdminStateUp: true, MACAddress: packet.MAC{0xfa, 0x16, 0x3e, 0, 1, 2},
			FixedIPs:       []neutron.FixedIP{{SubnetID: uuid1, IPAddress: netip.MustParseAddr("10.20.0.50")}, {SubnetID: uuid2, IPAddress: netip.MustParseAddr("fd00:20::1")}},
			SecurityGroups: []string{uuid1}, AllowedAddressPairs: []neutron.AddressPair{{IPAddress: "10.0.0.0/24"}},
			ExtraDHCPOpts: []neutron.DHCPOpt{{OptName: "n", OptValue: "v", IPVersion: 4}}, PortSecurityEnabled: true, VNICType: "normal",
			Profile: map[string]any{"interface_name": "eth0"},
		},
		Status: "DOWN", VIFType: "unbound",
	}
}

// keys decodes an answer and returns its attribute names.
func keys(t *testing.T, answer []byte) []string {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(answer, &o); err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	return slices.Sorted(maps.Keys(o))
}

// TestAnswerNames holds the names in answers against those recorded of the reference.
func TestAnswerNames(t *testing.T) {
	t.Parallel()
	tables := neutron.NewTables("example.org")
	network := "admin_state_up availability_zone_hints availability_zones created_at description dns_domain id ipv4_address_scope ipv6_address_scope l2_adjacency mtu name port_security_enabled project_id qos_policy_id revision_number router:external shared status subnets tags tenant_id updated_at"
	provider := " provider:network_type provider:physical_network provider:segmentation_id"
	port := "admin_state_up allowed_address_pairs binding:vnic_type created_at data_plane_status description device_id device_owner device_profile dns_assignment dns_domain dns_name extra_dhcp_opts fixed_ips id ip_allocation mac_address name network_id numa_affinity_policy port_security_enabled project_id propagate_uplink_status qos_network_policy_id qos_policy_id revision_number security_groups status tags tenant_id updated_at"
	subnet := "allocation_pools cidr created_at description dns_nameservers enable_dhcp gateway_ip host_routes id ip_version ipv6_address_mode ipv6_ra_mode name network_id project_id revision_number service_types subnetpool_id tags tenant_id updated_at"
	rule := "created_at description direction ethertype id normalized_cidr port_range_max port_range_min project_id protocol remote_address_group_id remote_group_id remote_ip_prefix revision_number security_group_id tenant_id updated_at"
	n := &neutron.NetworkView{Network: &neutron.Network{Standard: aStandard()}}
	external := &neutron.NetworkView{Network: &neutron.Network{Standard: aStandard(), External: true}}
	s := &neutron.SubnetView{Subnet: &neutron.Subnet{Standard: aStandard(), CIDR: netip.MustParsePrefix("10.0.0.0/24")}}
	r := &neutron.SecurityGroupRule{Standard: aStandard()}
	g := &neutron.SecurityGroupView{SecurityGroup: &neutron.SecurityGroup{Standard: aStandard(), Rules: []neutron.SecurityGroupRule{*r}}}
	tests := []struct {
		name   string
		answer []byte
		want   string
	}{
		{"network of a member", tables.Networks.Encoder(false, nil).Append(nil, n), network},
		{"network of an admin", tables.Networks.Encoder(true, nil).Append(nil, n), network + provider},
		{"created network", tables.Networks.Created(false).Append(nil, n), network + " is_default"},
		{"external network", tables.Networks.Encoder(false, nil).Append(nil, external), network + " is_default"},
		{"fields", tables.Networks.Encoder(false, []string{"name", "id", "nosuch", "provider:network_type"}).Append(nil, n), "id name"},
		{"no known field", tables.Networks.Encoder(false, []string{"nosuch"}).Append(nil, n), ""},
		{"subnet", tables.Subnets.Encoder(false, nil).Append(nil, s), subnet},
		{"port of a member", tables.Ports.Encoder(false, nil).Append(nil, aPort()), port},
		{"port of an admin", tables.Ports.Encoder(true, nil).Append(nil, aPort()), port + " binding:host_id binding:profile binding:vif_details binding:vif_type hints resource_request trusted"},
		{"rule", tables.SecurityGroupRules.Encoder(false, nil).Append(nil, r), rule},
		{"group", tables.SecurityGroups.Encoder(false, nil).Append(nil, g), "created_at description id name project_id revision_number security_group_rules shared stateful tags tenant_id updated_at"},
		{"agent", tables.Agents.Encoder(true, nil).Append(nil, &neutron.AgentView{}), "admin_state_up agent_type alive availability_zone binary configurations created_at description heartbeat_timestamp host id resources_synced started_at topic"},
	}
	for _, tt := range tests {
		want := strings.Fields(tt.want)
		slices.Sort(want)
		if d := cmp.Diff(want, keys(t, tt.answer), cmp.Transformer("", func(s []string) string { return strings.Join(s, " ") })); d != "" {
			t.Errorf("%s: -want +got\n%s", tt.name, d)
		}
	}
	var group struct {
		Rules []map[string]any `json:"security_group_rules"`
	}
	if err := json.Unmarshal(tables.SecurityGroups.Encoder(false, nil).Append(nil, g), &group); err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(rule + " tags")
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(group.Rules[0])); !slices.Equal(got, want) {
		t.Errorf("rule in its group: %v, want %v", got, want)
	}
}

func TestPortAnswer(t *testing.T) {
	t.Parallel()
	var got map[string]any
	if err := json.Unmarshal(neutron.NewTables("example.org").Ports.Encoder(true, nil).Append(nil, aPort()), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"name": "ü\"\n", "mac_address": "fa:16:3e:00:01:02", "created_at": "2026-01-02T02:04:05Z", "revision_number": 3.0,
		"fixed_ips":             []any{map[string]any{"subnet_id": uuid1, "ip_address": "10.20.0.50"}, map[string]any{"subnet_id": uuid2, "ip_address": "fd00:20::1"}},
		"allowed_address_pairs": []any{map[string]any{"ip_address": "10.0.0.0/24", "mac_address": "00:00:00:00:00:00"}},
		"extra_dhcp_opts":       []any{map[string]any{"opt_name": "n", "opt_value": "v", "ip_version": 4.0}},
		"dns_assignment": []any{
			map[string]any{"ip_address": "10.20.0.50", "hostname": "host-10-20-0-50", "fqdn": "host-10-20-0-50.example.org."},
			map[string]any{"ip_address": "fd00:20::1", "hostname": "host-fd00-20--1", "fqdn": "host-fd00-20--1.example.org."},
		},
		"binding:profile": map[string]any{"interface_name": "eth0"}, "binding:vif_details": map[string]any{}, "tags": []any{"red", "blue"},
	}
	for k, v := range want {
		if d := cmp.Diff(v, got[k]); d != "" {
			t.Errorf("%s: -want +got\n%s", k, d)
		}
	}
}

// TestNamedPortAnswer: all addresses of a port have its dns_name, below the server's domain unless
// it ends with a dot.
func TestNamedPortAnswer(t *testing.T) {
	t.Parallel()
	e := neutron.NewTables("example.org").Ports.Encoder(false, []string{"dns_name", "dns_domain", "dns_assignment"})
	for name, fqdn := range map[string]string{"vm": "vm.example.org.", "vm.example.org.": "vm.example.org."} {
		p := aPort()
		p.FixedIPs = p.FixedIPs[:1]
		p.DNSName, p.DNSDomain = name, "example.net."
		want := `{"dns_name":"` + name + `","dns_domain":"example.net.","dns_assignment":[{"ip_address":"10.20.0.50","hostname":"` + name + `","fqdn":"` + fqdn + `"}]}`
		if got := string(e.Append(nil, p)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	tables := neutron.NewTables("")
	tests := []struct {
		name, filter string
		values       []string
		want         bool
	}{
		{"text", "name", []string{"x", "ü\"\n"}, true},
		{"other text", "name", []string{"x"}, false},
		{"empty text", "device_id", []string{""}, true},
		{"empty text on text", "name", []string{""}, false},
		{"flag", "admin_state_up", []string{"True"}, true},
		{"other flag", "admin_state_up", []string{"0"}, false},
		{"number", "revision_number", []string{"3"}, true},
		{"no number", "revision_number", []string{"x"}, false},
		{"tenant", "tenant_id", []string{"p"}, true},
		{"mac in another spelling", "mac_address", []string{"FA-16-3E-00-01-02"}, true},
		{"no mac", "mac_address", []string{"x"}, false},
		{"address", "fixed_ips", []string{"ip_address=10.20.0.50"}, true},
		{"address in another spelling", "fixed_ips", []string{"ip_address=fd00:20:0::1"}, true},
		{"other address", "fixed_ips", []string{"ip_address=10.20.0.5"}, false},
		{"one of two addresses", "fixed_ips", []string{"ip_address=10.20.0.5", "ip_address=10.20.0.50"}, true},
		{"part of an address", "fixed_ips", []string{"ip_address_substr=20.0.5"}, true},
		{"address on its subnet", "fixed_ips", []string{"ip_address=10.20.0.50", "subnet_id=" + uuid1}, true},
		{"address on another subnet of the port", "fixed_ips", []string{"ip_address=10.20.0.50", "subnet_id=" + uuid2}, false},
		{"group", "security_groups", []string{uuid1}, true},
		{"other group", "security_groups", []string{uuid2}, false},
		{"all tags", "tags", []string{"red,blue"}, true},
		{"not all tags", "tags", []string{"red,green"}, false},
		{"any tag", "tags-any", []string{"green,red"}, true},
		{"no tag of any", "tags-any", []string{"green"}, false},
		{"not all of the tags", "not-tags", []string{"red,green"}, true},
		{"all of the tags", "not-tags", []string{"red,blue"}, false},
		{"none of the tags", "not-tags-any", []string{"green"}, true},
		{"one of the tags", "not-tags-any", []string{"green,red"}, false},
		{"changed since", "changed_since", []string{"2026-01-02T02:04:05Z"}, true},
		{"not changed since", "changed_since", []string{"2026-01-02T02:04:06"}, false},
	}
	for _, tt := range tests {
		pass, err := tables.Ports.Filter(false, tt.filter, tt.values)
		if err != nil || pass == nil {
			t.Errorf("%s: no filter: %v", tt.name, err)
			continue
		}
		if got := pass(aPort()); got != tt.want {
			t.Errorf("%s: %s=%v passes is %v, want %v", tt.name, tt.filter, tt.values, got, tt.want)
		}
	}
	for _, name := range []string{"nosuch", "binding:host_id", "allowed_address_pairs"} {
		if pass, err := tables.Ports.Filter(false, name, []string{"x"}); pass != nil || err != nil {
			t.Errorf("%s filters, %v", name, err)
		}
	}
	for name, value := range map[string]string{"admin_state_up": "maybe", "fixed_ips": "x", "changed_since": "yesterday"} {
		if _, err := tables.Ports.Filter(false, name, []string{value}); err == nil {
			t.Errorf("%s=%s is taken", name, value)
		}
	}
}

// TestAnswersAreJSON: whatever texts an object holds, its answer is JSON that says the same.
func TestAnswersAreJSON(t *testing.T) {
	t.Parallel()
	e := neutron.NewTables("").Ports.Encoder(true, nil)
	rapid.Check(t, func(t *rapid.T) {
		p := aPort()
		text := rapid.String()
		p.Name, p.Description, p.DeviceID, p.HostID = text.Draw(t, "name"), text.Draw(t, "description"), text.Draw(t, "device"), text.Draw(t, "host")
		p.Tags = rapid.SliceOf(text).Draw(t, "tags")
		var got map[string]any
		if err := json.Unmarshal(e.Append(nil, p), &got); err != nil {
			t.Fatal(err)
		}
		if got["name"] != p.Name || got["description"] != p.Description || got["device_id"] != p.DeviceID || got["binding:host_id"] != p.HostID {
			t.Fatalf("%v does not say %+v", got, p.Port)
		}
	})
}

func BenchmarkPortAnswer(b *testing.B) {
	e, p := neutron.NewTables("").Ports.Encoder(true, nil), aPort()
	p.Name, p.Profile = "port", nil
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = e.Append(buf[:0], p)
	}
}
