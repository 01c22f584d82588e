package translate

import (
	"testing"

	"heddle/internal/neutron"
)

// TestTakesQoSPolicy: what has an interface of a host has its network's policy, whatever service
// its owner calls it.
func TestTakesQoSPolicy(t *testing.T) {
	for _, tt := range []struct {
		owner, host, own string
		want             bool
	}{
		{"compute:nova", "", "", true},
		{"compute:nova", "", "own", false},
		{"neutron:x", "h1", "", true},
		{"neutron:LOADBALANCERV2", "", "", false},
		{"neutron:LOADBALANCERV2", "h1", "", true},
		{"network:x", "h1", "", true},
		{"network:dhcp", "", "", false},
		{"network:router_gateway", "", "", true},
		{"network:router_interface", "h1", "", false},
	} {
		p := &neutron.Port{DeviceOwner: tt.owner, BoundHostID: tt.host, QoSPolicyID: tt.own}
		if got := TakesQoSPolicy(p); got != tt.want {
			t.Errorf("owner %q on host %q with policy %q: %t", tt.owner, tt.host, tt.own, got)
		}
	}
}
