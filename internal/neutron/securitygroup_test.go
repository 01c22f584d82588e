package neutron_test

import (
	"errors"
	"testing"

	"heddle/internal/neutron"
)

func newRule(t *testing.T, attributes string) (neutron.SecurityGroupRule, error) {
	t.Helper()
	v, err := neutron.Parse(member, neutron.SecurityGroupRules, neutron.Create,
		decode(t, `{"security_group_id":"`+uuid1+`","direction":"ingress"`+attributes+`}`))
	if err != nil {
		t.Fatalf("%s: %v", attributes, err)
	}
	return neutron.NewSecurityGroupRule(v)
}

func TestSecurityGroupRuleRefuses(t *testing.T) {
	t.Parallel()
	const range_ = "For TCP/UDP protocols, port_range_min must be <= port_range_max"
	tests := []struct{ attributes, typ, want string }{
		{`,"protocol":"tcp","port_range_min":9,"port_range_max":8`, "SecurityGroupInvalidPortRange", range_},
		{`,"protocol":"tcp","port_range_max":8`, "SecurityGroupInvalidPortRange", range_},
		{`,"protocol":"17","port_range_min":8`, "SecurityGroupInvalidPortRange", range_},
		{`,"port_range_min":8,"port_range_max":8`, "SecurityGroupProtocolRequiredWithPorts", "Must also specify protocol if port range is given."},
		{`,"protocol":"udp","port_range_min":0,"port_range_max":8`, "SecurityGroupInvalidPortValue", "Invalid value for port 0"},
		{`,"protocol":"icmp","port_range_min":300`, "SecurityGroupInvalidIcmpValue", "Invalid value for ICMP type (port_range_min) 300. It must be 0 to 255."},
		{`,"protocol":"icmp","port_range_min":3,"port_range_max":300`, "SecurityGroupInvalidIcmpValue", "Invalid value for ICMP code (port_range_max) 300. It must be 0 to 255."},
		{`,"protocol":"icmp","port_range_max":3`, "SecurityGroupMissingIcmpType", "ICMP code (port-range-max) 3 is provided but ICMP type (port-range-min) is missing."},
		{`,"protocol":"esp","port_range_min":3,"port_range_max":3`, "SecurityGroupInvalidProtocolForPort", "Ports cannot be specified for protocol 50. Ports are only supported for DCCP, SCTP, TCP, UDP, UDPLITE."},
		{`,"protocol":"icmpv6"`, "SecurityGroupEthertypeConflictWithProtocol", "Invalid ethertype IPv4 for protocol icmpv6."},
		{`,"remote_ip_prefix":"10.0.0.0/8","remote_group_id":"` + uuid1 + `"`, "SecurityGroupMultipleRemoteEntites", "Only one of remote_ip_prefix or remote_group_id or remote_address_group_id may be provided."},
		{`,"remote_ip_prefix":"fd00::/64"`, "SecurityGroupRuleParameterConflict", "Conflicting value ethertype IPv4 for CIDR fd00::/64"},
	}
	for _, tt := range tests {
		_, err := newRule(t, tt.attributes)
		var got *neutron.Error
		if !errors.As(err, &got) || got.Type != tt.typ || got.Message != tt.want {
			t.Errorf("%s: %v, want %s: %s", tt.attributes, err, tt.typ, tt.want)
		}
	}
}

func TestSecurityGroupRuleMeaning(t *testing.T) {
	t.Parallel()
	tests := []struct {
		a, b string
		same bool
	}{
		{`,"protocol":"tcp"`, `,"protocol":6`, true},
		{`,"protocol":"tcp","port_range_min":1,"port_range_max":65535`, `,"protocol":"TCP"`, true},
		{`,"remote_ip_prefix":"0.0.0.0/0"`, ``, true},
		{`,"remote_ip_prefix":"10.0.0.1"`, `,"remote_ip_prefix":"10.0.0.1/32","description":"d"`, true},
		{`,"protocol":"icmp","ethertype":"IPv6"`, `,"protocol":"ipv6-icmp","ethertype":"IPv6"`, true},
		{`,"protocol":1,"ethertype":"IPv6"`, `,"protocol":"58","ethertype":"IPv6"`, true},
		{`,"remote_ip_prefix":"10.0.0.7/8"`, `,"remote_ip_prefix":"10.0.0.0/8"`, false},
		{`,"ethertype":"IPv6"`, ``, false},
		{`,"protocol":"tcp","port_range_min":1,"port_range_max":2`, `,"protocol":"tcp"`, false},
	}
	for _, tt := range tests {
		a, err := newRule(t, tt.a)
		if err != nil {
			t.Fatal(err)
		}
		b, err := newRule(t, tt.b)
		if err != nil {
			t.Fatal(err)
		}
		if same := a.Meaning() == b.Meaning(); same != tt.same {
			t.Errorf("%q and %q: same is %v, want %v", tt.a, tt.b, same, tt.same)
		}
	}
}
