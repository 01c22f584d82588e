package translate

import (
	"fmt"
	"testing"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// groupSite is the router of a golden file without a v1 firewall, machines X and W behind if1 and Y
// behind if2, and firewall groups.
func groupSite(t *testing.T, bundles ...topology.Bundle) *site {
	t.Helper()
	s := newSite(t, "testdata/routers/snat.txt", machine("X", "net-if1", "10.1.0.5"), machine("W", "net-if1", "10.1.0.6"),
		machine("Y", "net-if2", "10.2.0.6"), machine("up", "net-gw", "203.0.113.1"))
	for i, b := range bundles {
		s.apply("firewall", fmt.Sprint(i), b)
	}
	return s
}

func groupPolicyOf(id string, rules ...neutron.FirewallRule) topology.Bundle {
	p := &neutron.FirewallPolicy{}
	p.ID = id
	for i := range rules {
		rules[i].ID, rules[i].Enabled = fmt.Sprint(id, i), true
		if rules[i].IPVersion == 0 {
			rules[i].IPVersion = 4
		}
	}
	return FirewallGroupPolicy(p, rules)
}

func groupOf(id, ingress, egress string, ports ...string) topology.Bundle {
	g := &neutron.FirewallGroup{AdminStateUp: true, IngressPolicyID: ingress, EgressPolicyID: egress}
	g.ID = id
	var on []GroupPort
	for _, p := range ports {
		on = append(on, GroupPort{PortID: p, RouterID: "R"})
	}
	return FirewallGroup(g, on)
}

var (
	allowAll = neutron.FirewallRule{Action: "allow"}
	allowWeb = neutron.FirewallRule{Action: "allow", Protocol: "udp", DestinationPort: "80"}
)

// Ingress policies decide on what leaves the router by the port, egress policies on what enters it
// there. Replies pass both.
func TestFirewallGroupDirections(t *testing.T) {
	t.Parallel()
	groupSite(t, groupPolicyOf("all", allowAll), groupPolicyOf("web", allowWeb), groupOf("g", "web", "all", "if1")).packets(t, `
		Y 10.2.0.6>10.1.0.6: W 10.2.0.6:5000>10.1.0.6:80; Y 10.1.0.6:80>10.2.0.6:5000
		Y 10.2.0.6>10.1.0.6/81: drop
		W 10.1.0.6>10.2.0.6/81: Y 10.1.0.6:5000>10.2.0.6:81; W 10.2.0.6:81>10.1.0.6:5000
		W 10.1.0.6>192.0.2.50/81: up 203.0.113.2:1024>192.0.2.50:81; W 192.0.2.50:81>10.1.0.6:5000`)
	groupSite(t, groupPolicyOf("all", allowAll), groupPolicyOf("web", allowWeb), groupOf("g", "all", "web", "if1")).packets(t, `
		Y 10.2.0.6>10.1.0.6/81: W 10.2.0.6:5000>10.1.0.6:81; Y 10.1.0.6:81>10.2.0.6:5000
		W 10.1.0.6>10.2.0.6/81: drop
		W 10.1.0.6>10.2.0.6: Y 10.1.0.6:5000>10.2.0.6:80; W 10.2.0.6:80>10.1.0.6:5000
		W 10.1.0.6>192.0.2.50/81: drop`)
}

// A direction without policy passes replies alone; ports of no group pass everything.
func TestFirewallGroupWithoutPolicy(t *testing.T) {
	t.Parallel()
	groupSite(t, groupPolicyOf("all", allowAll), groupOf("g", "", "all", "if1")).packets(t, `
		Y 10.2.0.6>10.1.0.6: drop
		up 192.0.2.50>203.0.113.7: drop
		W 10.1.0.6>10.2.0.6: Y 10.1.0.6:5000>10.2.0.6:80; W 10.2.0.6:80>10.1.0.6:5000
		Y 10.2.0.6>192.0.2.50: up 203.0.113.2:1024>192.0.2.50:80; Y 192.0.2.50:80>10.2.0.6:5000`)
	groupSite(t, groupPolicyOf("all", allowAll), groupOf("g", "all", "", "if1")).packets(t, `
		W 10.1.0.6>10.2.0.6: drop
		Y 10.2.0.6>10.1.0.6: W 10.2.0.6:5000>10.1.0.6:80; Y 10.1.0.6:80>10.2.0.6:5000`)
	if b := groupOf("g", "", "", "if1"); len(b.Rules)+len(b.Chains) > 0 {
		t.Errorf("a group without policies has %+v", b)
	}
}

// Rules see a floating IP's machine by its fixed address, and SNAT comes after them.
func TestFirewallGroupSeesFixedAddresses(t *testing.T) {
	t.Parallel()
	toX := neutron.FirewallRule{Action: "allow", SourceIPAddress: "192.0.2.0/24", DestinationIPAddress: "10.1.0.5"}
	fromX := neutron.FirewallRule{Action: "allow", SourceIPAddress: "10.1.0.5", DestinationIPAddress: "192.0.2.0/24"}
	groupSite(t, groupPolicyOf("in", toX), groupPolicyOf("out", fromX), groupOf("g", "in", "out", "if1")).packets(t, `
		up 192.0.2.50>203.0.113.7: X 192.0.2.50:5000>10.1.0.5:80; up 203.0.113.7:80>192.0.2.50:5000
		up 198.51.100.1>203.0.113.7: drop
		X 10.1.0.5>192.0.2.50: up 203.0.113.7:5000>192.0.2.50:80; X 192.0.2.50:80>10.1.0.5:5000
		W 10.1.0.6>192.0.2.50: drop`)
}

// A packet from one group's port to another's needs both groups' consent, also where both have one
// policy; rules decide in their order; IPv4's do not match IPv6.
func TestFirewallGroupsTogether(t *testing.T) {
	t.Parallel()
	deny := neutron.FirewallRule{Action: "deny", SourceIPAddress: "10.1.0.5"}
	six := neutron.FirewallRule{Action: "allow", IPVersion: 6}
	groupSite(t, groupPolicyOf("all", deny, allowAll), groupPolicyOf("web", six, allowWeb),
		groupOf("g", "all", "all", "if1"), groupOf("h", "web", "all", "if2")).packets(t, `
		W 10.1.0.6>10.2.0.6: Y 10.1.0.6:5000>10.2.0.6:80; W 10.2.0.6:80>10.1.0.6:5000
		W 10.1.0.6>10.2.0.6/81: drop
		X 10.1.0.5>10.2.0.6: drop
		Y 10.2.0.6>10.1.0.6/81: W 10.2.0.6:5000>10.1.0.6:81`)
}

// A change of a policy applies to the groups that have it; a group that is down drops everything.
func TestFirewallGroupChanges(t *testing.T) {
	t.Parallel()
	s := groupSite(t, groupPolicyOf("p", allowWeb), groupOf("g", "p", "p", "if1"))
	s.packets(t, `
		Y 10.2.0.6>10.1.0.6: W 10.2.0.6:5000>10.1.0.6:80; Y 10.1.0.6:80>10.2.0.6:5000
		Y 10.2.0.6>10.1.0.6/81: drop`)
	s.apply("firewall", "0", groupPolicyOf("p", neutron.FirewallRule{Action: "allow", Protocol: "udp", DestinationPort: "81"}))
	s.packets(t, `
		W 10.1.0.6>10.2.0.6: drop
		Y 10.2.0.6>10.1.0.6/81: W 10.2.0.6:5000>10.1.0.6:81; Y 10.1.0.6:81>10.2.0.6:5000`)
	down := &neutron.FirewallGroup{IngressPolicyID: "p", EgressPolicyID: "p"}
	down.ID = "g"
	s.apply("firewall", "1", FirewallGroup(down, []GroupPort{{"if1", "R"}}))
	s.packets(t, `
		Y 10.2.0.6>10.1.0.6/81: drop
		W 10.1.0.6>10.2.0.6/81: drop
		Y 10.2.0.6>192.0.2.50: up 203.0.113.2:1024>192.0.2.50:80`)
}

// Rules for IPv6 filter what is routed between IPv6 subnets.
func TestFirewallGroupIPv6(t *testing.T) {
	t.Parallel()
	s := newSite(t, "testdata/routers/ipv6.txt", machine("A", "net-if6", "2001:db8:1::a"), machine("up", "net-gw", "2001:db8:4::99"))
	s.apply("firewall", "0", groupPolicyOf("four", allowAll))
	web := allowWeb
	web.IPVersion, web.DestinationIPAddress = 6, "2001:db8:4::/64"
	s.apply("firewall", "1", groupPolicyOf("six", web))
	s.apply("firewall", "2", groupOf("g", "four", "six", "if6"))
	s.packets(t, `
		A 2001:db8:1::a>2001:db8:4::99: up [2001:db8:1::a]:5000>[2001:db8:4::99]:80; A [2001:db8:4::99]:80>[2001:db8:1::a]:5000
		A 2001:db8:1::a>2001:db8:4::99/81: drop
		up 2001:db8:4::99>2001:db8:1::a: drop`)
}

// A rule whose text this version cannot read allows nothing, or denies everything.
func TestUnreadableGroupRules(t *testing.T) {
	t.Parallel()
	chain := groupPolicyOf("p", neutron.FirewallRule{Action: "allow", SourceIPAddress: "x"}, neutron.FirewallRule{Action: "deny", Protocol: "x"},
		neutron.FirewallRule{Action: "reject", SourceIPAddress: "fd00::1"}, neutron.FirewallRule{Action: "allow", Protocol: "icmp", IPVersion: 6}).Chains[0]
	var got []string
	for i := range chain.Rules {
		got = append(got, fmt.Sprint(&chain.Rules[i]))
	}
	want := []string{"return replies", "drop", "reject", "return IPv6, ICMPv6", "drop"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("rules %q, want %q", got, want)
	}
}
