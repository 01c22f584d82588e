package translate

import (
	"fmt"
	"net/netip"
	"testing"

	"heddle/internal/neutron"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// From the gateway packets come in for proxied addresses alone, not even as replies to others; what
// is for subnets behind extra routes does, and between interfaces all pass.
func TestNDPProxyPackets(t *testing.T) {
	t.Parallel()
	machines := func() []*neutron.Port {
		return []*neutron.Port{machine("A", "net-if1", "2001:db8:1::a"), machine("B", "net-if1", "2001:db8:2::b"),
			machine("hop", "net-if1", "2001:db8:1::ff"), machine("up", "net-gw", "2001:db8:4::99")}
	}
	const file = "testdata/routers/ndp-proxies.txt"
	newSite(t, file, machines()...).packets(t, `
		up 2001:db8:4::99>2001:db8:1::a: A [2001:db8:4::99]:5000>[2001:db8:1::a]:80; up [2001:db8:1::a]:80>[2001:db8:4::99]:5000
		A 2001:db8:1::a>2001:db8:4::99: up [2001:db8:1::a]:5000>[2001:db8:4::99]:80; A [2001:db8:4::99]:80>[2001:db8:1::a]:5000
		up 2001:db8:4::99>2001:db8:2::b: drop
		B 2001:db8:2::b>2001:db8:4::99: up [2001:db8:2::b]:5000>[2001:db8:4::99]:80; drop
		B 2001:db8:2::b>2001:db8:1::a: A [2001:db8:2::b]:5000>[2001:db8:1::a]:80; B [2001:db8:1::a]:80>[2001:db8:2::b]:5000`)
	newSite(t, file, machines()...).packets(t, `
		up 2001:db8:4::99>2001:db8:ff::1: hop [2001:db8:4::99]:5000>[2001:db8:ff::1]:80`)

	// So it is when both sides have left their address scope; once one has, nothing comes in.
	for _, scopes := range [][2]string{{"", ""}, {"S", ""}, {"", "S"}} {
		s := newSite(t, file, machines()...)
		gateway, inside := s.Gateways[0], s.Interfaces[0]
		gateway.AddressScopes.IPv6, inside.AddressScopes.IPv6 = scopes[0], scopes[1]
		s.apply("bundle", "1", RouterGateway(&s.Router, gateway, false))
		s.apply("bundle", "2", RouterInterface(&s.Router, inside))
		proxied := "drop"
		if scopes[0] == scopes[1] {
			proxied = "A [2001:db8:4::99]:5000>[2001:db8:1::a]:80; up [2001:db8:1::a]:80>[2001:db8:4::99]:5000"
		}
		s.packets(t, `
			up 2001:db8:4::99>2001:db8:1::a: `+proxied+`
			up 2001:db8:4::99>2001:db8:2::b: drop`)
	}

	// Disabled, they have no rules: what comes in is routed to any machine.
	s := newSite(t, file, machines()...)
	disabled := s.Router
	disabled.EnableNDPProxy = false
	for i, b := range []topology.Bundle{Router(&disabled, append(s.Gateways, s.Interfaces...)), RouterGateway(&disabled, s.Gateways[0], false),
		RouterInterface(&disabled, s.Interfaces[0]), RouterInterface(&disabled, s.Interfaces[1])} {
		s.apply("bundle", string(rune('0'+i)), b)
	}
	s.packets(t, `
		up 2001:db8:4::99>2001:db8:2::b: B [2001:db8:4::99]:5000>[2001:db8:2::b]:80; up [2001:db8:2::b]:80>[2001:db8:4::99]:5000`)
}

// The first gateway alone answers for proxied addresses, and lets in nothing else; what comes in by
// another is routed.
func TestNDPProxiesOfTwoGateways(t *testing.T) {
	t.Parallel()
	s := newSite(t, "testdata/routers/ndp-proxies.txt", machine("A", "net-if1", "2001:db8:1::a"), machine("B", "net-if1", "2001:db8:2::b"),
		machine("up", "net-gw", "2001:db8:4::99"), machine("other", "net-gw2", "2001:db8:5::99"))
	second := s.Gateways[0]
	port, network, subnet := *second.Port, *second.Network, *second.Subnets[0]
	network.ID, subnet.ID, subnet.NetworkID, subnet.CIDR = "net-gw2", "sn7", "net-gw2", netip.MustParsePrefix("2001:db8:5::/64")
	port.ID, port.NetworkID, port.MACAddress = "gw2", "net-gw2", packet.MAC{0xfa, 0x16, 0x3e, 0, 5, 1}
	port.FixedIPs = []neutron.FixedIP{{SubnetID: "sn7", IPAddress: ip("2001:db8:5::2")}}
	second.Port, second.Network, second.Subnets = &port, &network, []*neutron.Subnet{&subnet}
	s.Router.Gateways = append(s.Router.Gateways, neutron.RouterGateway{NetworkID: "net-gw2", PortID: "gw2"})
	s.Gateways = append(s.Gateways, second)
	s.apply("bundle", "0", Router(&s.Router, append(s.Gateways, s.Interfaces...)))
	made := RouterGateway(&s.Router, second, false)
	for i, b := range []topology.Bundle{made, Network(&network), Port(&port, &network, nil), Subnet(&subnet, &network, nil, "")} {
		s.apply("second gateway", fmt.Sprint(i), b)
	}
	if len(made.Neighbours) > 0 {
		t.Errorf("the second gateway answers for %v", made.Neighbours)
	}
	s.packets(t, `
		up 2001:db8:4::99>2001:db8:1::a: A [2001:db8:4::99]:5000>[2001:db8:1::a]:80; up [2001:db8:1::a]:80>[2001:db8:4::99]:5000
		up 2001:db8:4::99>2001:db8:2::b: drop
		other 2001:db8:5::99>2001:db8:1::a: A [2001:db8:5::99]:5000>[2001:db8:1::a]:80; other [2001:db8:1::a]:80>[2001:db8:5::99]:5000
		other 2001:db8:5::99>2001:db8:2::b: B [2001:db8:5::99]:5000>[2001:db8:2::b]:80; other [2001:db8:2::b]:80>[2001:db8:5::99]:5000`)
}
