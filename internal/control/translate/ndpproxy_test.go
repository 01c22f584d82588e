package translate

import (
	"testing"

	"heddle/internal/neutron"
	"heddle/internal/topology"
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
