package translate

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"heddle/internal/neutron"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// twoGateways is the router of the seed's cases with a second gateway, to another external network
// with the machine "other". X has a floating IP by the first gateway, V one by the second.
func twoGateways(t *testing.T) *site {
	t.Helper()
	s := newSite(t, "testdata/routers/snat.txt", machine("X", "net-if1", "10.1.0.5"), machine("W", "net-if1", "10.1.0.6"), machine("V", "net-if1", "10.1.0.8"),
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
	for i, floating := range s.FloatingIPs { // bound to their gateways, now that there are two
		s.apply("bundle", fmt.Sprint(len(s.Gateways)+len(s.Interfaces)+i), FloatingIP(&floating.FloatingIP, &s.Router, s.link(floating.By)))
	}
	f := neutron.FloatingIP{PortID: "V", FixedIPAddress: ip("10.1.0.8"), FloatingIPAddress: ip("192.0.2.9"), RouterID: "R", ServedBy: "gw2"}
	f.ID = "fip-v"
	for i, b := range []topology.Bundle{RouterGateway(&s.Router, second, true), Network(second.Network), Port(second.Port, second.Network, nil),
		Subnet(second.Subnets[0], second.Network, nil, ""), FloatingIP(&f, &s.Router, second)} {
		s.apply("second gateway", fmt.Sprint(i), b)
	}
	return s
}

// The default route is the first gateway's. What has a floating IP leaves by the gateway to the
// network of that, wherever it goes, and so do replies. The addresses are of the port it leaves by.
func TestSeveralGateways(t *testing.T) {
	t.Parallel()
	twoGateways(t).packets(t, `
		W 10.1.0.6>198.18.0.9: up 203.0.113.2:1024>198.18.0.9:80; W 198.18.0.9:80>10.1.0.6:5000
		W 10.1.0.6>192.0.2.1: other 192.0.2.2:1024>192.0.2.1:80; W 192.0.2.1:80>10.1.0.6:5000
		V 10.1.0.8>198.18.0.9: other 192.0.2.9:5000>198.18.0.9:80; V 198.18.0.9:80>10.1.0.8:5000
		V 10.1.0.8>203.0.113.1: other 192.0.2.9:5000>203.0.113.1:80; V 203.0.113.1:80>10.1.0.8:5000
		X 10.1.0.5>192.0.2.1: up 203.0.113.7:5000>192.0.2.1:80; X 192.0.2.1:80>10.1.0.5:5000
		other 198.18.0.9>192.0.2.9: V 198.18.0.9:5000>10.1.0.8:80; other 192.0.2.9:80>198.18.0.9:5000
		other 203.0.113.1>192.0.2.9: V 203.0.113.1:5000>10.1.0.8:80; other 192.0.2.9:80>203.0.113.1:5000
		up 192.0.2.1>203.0.113.7: X 192.0.2.1:5000>10.1.0.5:80; up 203.0.113.7:80>192.0.2.1:5000
		V 10.1.0.8>203.0.113.7: X 192.0.2.9:5000>10.1.0.5:80; V 203.0.113.7:80>10.1.0.8:5000
		W 10.1.0.6>192.0.2.9/81: V 192.0.2.2:1024>10.1.0.8:81; W 192.0.2.9:81>10.1.0.6:5000`)
}

// Without the first gateway's port connections take the other one, but not those that have a
// floating IP by the first.
func TestOneOfTwoGatewaysDown(t *testing.T) {
	t.Parallel()
	s := twoGateways(t)
	b := RouterGateway(&s.Router, s.Gateways[0], true)
	b.Ports[0].AdminStateUp = false
	s.apply("bundle", "1", b)
	s.packets(t, `
		W 10.1.0.6>198.18.0.9: other 192.0.2.2:1024>198.18.0.9:80; W 198.18.0.9:80>10.1.0.6:5000
		V 10.1.0.8>198.18.0.9: other 192.0.2.9:5000>198.18.0.9:80; V 198.18.0.9:80>10.1.0.8:5000
		X 10.1.0.5>198.18.0.9: error drop`)
}

// Of two gateways to one network the first is taken, whose port translates too; from outside both
// addresses answer, each by its own port.
func TestGatewaysToOneNetwork(t *testing.T) {
	t.Parallel()
	s := newSite(t, "testdata/routers/snat.txt", machine("W", "net-if1", "10.1.0.6"), machine("up", "net-gw", "203.0.113.1"), machine("peer", "net-gw", "203.0.113.77"))
	second := s.Gateways[0]
	p := *second.Port
	p.ID, p.MACAddress, p.FixedIPs = "gw2", packet.MAC{0xfa, 0x16, 0x3e, 0, 5, 1}, slices.Clone(p.FixedIPs)
	p.FixedIPs[0].IPAddress = ip("203.0.113.3")
	second.Port = &p
	s.Router.Gateways = append(s.Router.Gateways, neutron.RouterGateway{NetworkID: "net-gw", PortID: "gw2", EnableSNAT: true})
	s.Gateways = append(s.Gateways, second)
	for i, b := range []topology.Bundle{RouterGateway(&s.Router, second, true), Port(&p, second.Network, nil)} {
		s.apply("second gateway", fmt.Sprint(i), b)
	}
	s.packets(t, `
		W 10.1.0.6>198.18.0.9: up 203.0.113.2:1024>198.18.0.9:80; W 198.18.0.9:80>10.1.0.6:5000
		W 10.1.0.6>203.0.113.77: peer 203.0.113.2:1024>203.0.113.77:80; W 203.0.113.77:80>10.1.0.6:5000`)
	connected := s.Gateways[0].Subnets[0].CIDR
	for _, r := range RouterGateway(&s.Router, second, true).Routes {
		if r.DstSubnet == connected {
			t.Errorf("the second gateway has a route to %v beside the first", connected)
		}
	}
}
