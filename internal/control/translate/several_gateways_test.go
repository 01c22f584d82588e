package translate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// twoGateways is the router of the seed's cases with a second gateway, of weight equal to the
// first's, to another external network with the machine "other".
func twoGateways(t *testing.T) *site {
	t.Helper()
	s := newSite(t, "testdata/routers/snat.txt", machine("X", "net-if1", "10.1.0.5"), machine("W", "net-if1", "10.1.0.6"),
		machine("up", "net-gw", "203.0.113.1"), machine("other", "net-gw2", "192.0.2.1"))
	var second RouterLink
	if err := json.Unmarshal([]byte(`{"port": {"id": "gw2", "device_owner": "network:router_gateway", "device_id": "R", "mac_address": "fa:16:3e:00:05:01",
		"network_id": "net-gw2", "admin_state_up": true, "fixed_ips": [{"subnet_id": "sn5", "ip_address": "192.0.2.2"}]},
		"network": {"id": "net-gw2", "admin_state_up": true, "router:external": true},
		"subnets": [{"id": "sn5", "network_id": "net-gw2", "ip_version": 4, "cidr": "192.0.2.0/24", "gateway_ip": "192.0.2.1"}]}`), &second); err != nil {
		t.Fatal(err)
	}
	s.Router.Gateways = append(s.Router.Gateways, neutron.RouterGateway{NetworkID: "net-gw2", PortID: "gw2", EnableSNAT: true})
	s.Gateways = append(s.Gateways, second)
	s.apply("router", "R", Router(&s.Router, nil))
	for i, b := range []topology.Bundle{RouterGateway(&s.Router, second, true), Network(second.Network), Port(second.Port, second.Network, nil), Subnet(second.Subnets[0], second.Network, nil)} {
		s.apply("second gateway", fmt.Sprint(i), b)
	}
	return s
}

// Connections spread over the gateways; each has the address of the gateway by which it leaves, and
// its packets and replies keep to that.
func TestConnectionsSpreadOverGateways(t *testing.T) {
	t.Parallel()
	s := twoGateways(t)
	count := map[string]int{}
	for port := range uint16(64) {
		c := conversation{"W", ip("10.1.0.6"), ip("198.18.0.9"), 5000 + port, 80}
		out := s.send(t, c)
		gateway, _, _ := strings.Cut(out, ":")
		count[gateway]++
		for range 2 {
			if back := s.reply(t); back != fmt.Sprintf("W 198.18.0.9:80>10.1.0.6:%d", c.srcPort) {
				t.Fatalf("%s is answered by %s", out, back)
			}
			if again := s.send(t, c); again != out {
				t.Fatalf("the first packet left as %s, another as %s", out, again)
			}
		}
	}
	if len(count) != 2 || count["up 203.0.113.2"] < 16 || count["other 192.0.2.2"] < 16 {
		t.Errorf("64 connections by gateways: %v", count)
	}
}

// Without its gateway's port every connection takes the other one.
func TestOneOfTwoGatewaysDown(t *testing.T) {
	t.Parallel()
	s := twoGateways(t)
	down := s.Gateways[0]
	b := RouterGateway(&s.Router, down, true)
	b.Ports[0].AdminStateUp = false
	s.apply("bundle", "1", b)
	for port := range uint16(16) {
		if out := s.send(t, conversation{"W", ip("10.1.0.6"), ip("198.18.0.9"), 5000 + port, 80}); !strings.HasPrefix(out, "other 192.0.2.2:") {
			t.Errorf("port %d: %s", 5000+port, out)
		}
	}
}
