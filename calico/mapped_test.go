package calico

import (
	"net/netip"
	"strings"
	"testing"
)

// TestMappedAddresses shows that no IPv4 address comes in as one of IPv6: to the kernel it would be
// the IPv4 address, which is another workload's.
func TestMappedAddresses(t *testing.T) {
	for kind, values := range map[Kind][]string{
		KindWorkloadEndpoint: {
			`{"state":"active","name":"tap1","ipv6_nets":["::ffff:10.0.0.1/128"]}`,
			`{"state":"active","name":"tap1","ipv6_nets":["::ffff:a00:1"]}`,
			`{"state":"active","name":"tap1","ipv4_nets":["::ffff:10.0.0.1"]}`,
			`{"state":"active","name":"tap1","ipv6_nets":["fd00::1"],"ipv6_nat":[{"int_ip":"fd00::1","ext_ip":"::ffff:10.0.0.1"}]}`,
			`{"state":"active","name":"tap1","ipv6_gateway":"::ffff:10.0.0.1"}`,
		},
		KindHostEndpoint: {`{"expected_ipv6_addrs":["::ffff:10.0.0.1"]}`},
		KindProfileRules: {`{"inbound_rules":[{"src_net":"::ffff:10.0.0.0/104"}]}`, `{"inbound_rules":[{"!dst_nets":["::ffff:10.0.0.1"]}]}`},
		KindIPPool:       {`{"cidr":"::ffff:10.0.0.0/104"}`},
		KindIPAMBlock:    {`{"cidr":"::ffff:10.0.0.0/122"}`},
		KindIPAMHandle:   {`{"block":{"::ffff:10.0.0.0/122":1}}`},
		KindBGPPeer:      {`{"ip":"::ffff:10.0.0.1","as_num":"1"}`},
		KindDHCPSubnet:   {`{"cidr":"::ffff:10.0.0.0/120","gateway_ip":"::ffff:10.0.0.1"}`},
		KindHostIP:       {`::ffff:10.0.0.1`},
	} {
		for _, value := range values {
			object, err := DecodeAs(kind, []byte(value))
			if err == nil {
				t.Errorf("%s: %s is taken as %+v", kind, value, object)
			} else if value[0] == '{' && kind != KindIPAMHandle && !strings.Contains(err.Error(), wantPlain) {
				t.Errorf("%s: %s: %v; want an error that says %q", kind, value, err, wantPlain)
			}
		}
	}
	mapped := addr("::ffff:10.0.0.1")
	one := []netip.Prefix{netip.PrefixFrom(mapped, 128)}
	for key, object := range map[Key]any{
		WorkloadEndpointKey{Host: "h", Orchestrator: "o", Workload: "w", Endpoint: "e"}: &WorkloadEndpoint{State: Active, Name: "tap1", IPv6Nets: one},
		HostEndpointKey{"h", "e"}:           &HostEndpoint{ExpectedIPv6Addrs: []netip.Addr{mapped}},
		ProfileRulesKey{Profile: "p"}:       &ProfileRules{InboundRules: []Rule{{SrcNets: one}}},
		BGPNodeConfigKey{"h", "ip_addr_v6"}: mapped,
	} {
		if text, err := Encode(key, object); err == nil {
			t.Errorf("%s: %s is written", key.Kind(), text)
		}
	}
	for _, path := range []string{
		"/calico/v1/ipam/v6/pool/::ffff:10.0.0.0-104", "/calico/ipam/v2/assignment/ipv6/block/::ffff:10.0.0.0-122", "/calico/bgp/v1/global/peer_v6/::ffff:10.0.0.1",
	} {
		if key, ok := ParseKey(path); ok {
			t.Errorf("ParseKey(%q) = %v; want none", path, key)
		}
	}
	for _, key := range []Key{BGPGlobalPeerKey{mapped}, PoolKey{netip.PrefixFrom(mapped, 128)}} {
		if path, err := key.Path(); err == nil {
			t.Errorf("%#v.Path() = %q; want an error", key, path)
		}
	}
}
