package calico

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

const benchEndpoint = `{"state": "active", "name": "tap4dd4d3a5-44", "mac": "fa:16:3e:01:02:03", "profile_ids": ["openstack-sg-4a1f7c2e", "openstack-sg-77c0a1b2"],
 "ipv4_nets": ["10.65.12.34/32"], "ipv6_nets": ["2001:db8:a41:2::c22/128"], "ipv4_gateway": "10.65.0.1", "ipv6_gateway": "2001:db8:a41:2::1",
 "labels": {"role": "web", "zone": "eu-west-1a", "deployment": "prod"}}`

const benchPolicy = `{"selector": "role == 'web' && deployment in {'prod', 'stage'}", "order": 100, "inbound_rules": [
 {"action": "allow", "protocol": "tcp", "src_selector": "role == 'lb' && has(zone)", "dst_ports": [80, 443, "8000:8100"]},
 {"action": "allow", "protocol": "icmp", "icmp_type": 8, "src_net": "10.0.0.0/8"}, {"action": "deny", "log_prefix": "web-drop"}],
 "outbound_rules": [{"action": "allow", "protocol": "tcp", "dst_tag": "databases", "dst_ports": [5432]}, {"action": "next-tier", "protocol": "udp", "dst_ports": [53]}]}`

func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct {
		name  string
		key   Key
		value string
	}{
		{"endpoint", WorkloadEndpointKey{Host: "h", Orchestrator: "o", Workload: "w", Endpoint: "e"}, benchEndpoint},
		{"policy of 5 rules", PolicyKey{"default", "p"}, benchPolicy},
		{"block", BlockKey{cidr("10.0.0.0/26")}, benchBlock()},
	} {
		value := []byte(c.value)
		object, err := Decode(c.key, value)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(value)))
			for b.Loop() {
				if _, err := Decode(c.key, value); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/encode", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Encode(c.key, object); err != nil {
					b.Fatal(err)
				}
			}
		})
		// What the standard library takes for the syntax alone, as a measure.
		b.Run(c.name+"/encoding-json", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var v map[string]any
				if err := json.Unmarshal(value, &v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benchBlock returns a block that is half full, each address of another holder.
func benchBlock() string {
	taken, attributes := make([]string, BlockSize/2), make([]string, BlockSize/2)
	for i := range taken {
		taken[i] = strconv.Itoa(i)
		attributes[i] = `{"handle_id":"vm-` + taken[i] + `","secondary":{"node":"n"}}`
	}
	return `{"cidr":"10.0.0.0/26","affinity":"host:h","allocations":` + allocations(taken...) + `,"unallocated":` + ordinals(BlockSize/2, BlockSize-1) +
		`,"attributes":[` + strings.Join(attributes, ",") + `],"strictAffinity":false}`
}
