package translate

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"heddle/internal/neutron"
)

// groupModel is a model of firewall groups: policies by id, and the group of each interface.
type groupModel struct {
	policies map[string][]neutron.FirewallRule
	groups   map[string]*neutron.FirewallGroup // by interface
}

// allows reports whether a policy lets the first packet of a conversation pass.
func (m groupModel) allows(policy string, c conversation) bool {
	for _, r := range m.policies[policy] {
		inside := func(text string, a netip.Addr) bool {
			return text == "" || netip.MustParsePrefix(text).Contains(a)
		}
		if r.Enabled && r.IPVersion == 4 && (r.Protocol == "" || r.Protocol == "udp") && inside(r.SourceIPAddress, c.src) && inside(r.DestinationIPAddress, c.dst) &&
			(r.DestinationPort == "" || r.DestinationPort == fmt.Sprint(c.dstPort)) {
			return r.Action == neutron.FirewallAllow
		}
	}
	return false
}

// passes reports whether the first packet of a conversation from one interface to another passes.
func (m groupModel) passes(from, to string, c conversation) bool {
	side := func(port string, policy func(g *neutron.FirewallGroup) string) bool {
		g := m.groups[port]
		return g == nil || len(g.Policies()) == 0 || g.AdminStateUp && m.allows(policy(g), c)
	}
	return side(from, func(g *neutron.FirewallGroup) string { return g.EgressPolicyID }) &&
		side(to, func(g *neutron.FirewallGroup) string { return g.IngressPolicyID })
}

// TestFirewallGroupsAgainstModel holds the simulated translation of random groups on two interfaces
// against the model, packet by packet, with replies.
func TestFirewallGroupsAgainstModel(t *testing.T) {
	t.Parallel()
	hosts := map[string]string{"X": "10.1.0.5", "W": "10.1.0.6", "Y": "10.2.0.6", "Z": "10.2.0.7"}
	network := map[string]string{"X": "if1", "W": "if1", "Y": "if2", "Z": "if2"}
	rapid.Check(t, func(r *rapid.T) {
		m := groupModel{map[string][]neutron.FirewallRule{}, map[string]*neutron.FirewallGroup{}}
		s := newSite(t, "testdata/routers/snat.txt", machine("X", "net-if1", hosts["X"]), machine("W", "net-if1", hosts["W"]),
			machine("Y", "net-if2", hosts["Y"]), machine("Z", "net-if2", hosts["Z"]))
		one := func(label string, values ...string) string { return rapid.SampledFrom(values).Draw(r, label) }
		for _, id := range []string{"p", "q"} {
			var rules []neutron.FirewallRule
			for i := range rapid.IntRange(0, 4).Draw(r, "rules") {
				rule := neutron.FirewallRule{
					IPVersion: rapid.SampledFrom([]int{4, 4, 4, 6}).Draw(r, "version"), Action: one("action", "allow", "deny", "reject"),
					Protocol: one("protocol", "", "udp", "tcp"), Enabled: one("enabled", "yes", "yes", "no") == "yes",
				}
				if rule.IPVersion == 4 {
					rule.SourceIPAddress = one("source", "", "10.1.0.0/24", "10.2.0.6/32", "10.1.0.5/32")
					rule.DestinationIPAddress = one("destination", "", "10.2.0.0/24", "10.1.0.6/32")
				}
				if rule.Protocol != "" {
					rule.DestinationPort = one("port", "", "80", "81")
				}
				rule.ID = fmt.Sprint(id, i)
				rules = append(rules, rule)
			}
			policy := &neutron.FirewallPolicy{}
			policy.ID = id
			m.policies[id] = rules
			s.apply("policy", id, FirewallGroupPolicy(policy, rules))
		}
		for _, port := range []string{"if1", "if2"} {
			if one("group", "yes", "yes", "no") == "no" {
				continue
			}
			g := &neutron.FirewallGroup{AdminStateUp: one("up", "yes", "yes", "yes", "no") == "yes",
				IngressPolicyID: one("ingress", "", "p", "q"), EgressPolicyID: one("egress", "", "p", "q")}
			g.ID = "group-of-" + port
			m.groups[port] = g
			s.apply("group", g.ID, FirewallGroup(g, []GroupPort{{port, "R"}}))
		}
		for i := range 12 {
			from := one("from", "X", "W", "Y", "Z")
			to := map[string][]string{"if1": {"Y", "Z"}, "if2": {"X", "W"}}[network[from]][rapid.IntRange(0, 1).Draw(r, "to")]
			c := conversation{from, ip(hosts[from]), ip(hosts[to]), uint16(5000 + i), rapid.SampledFrom([]uint16{80, 81}).Draw(r, "dport")}
			got, want := strings.HasPrefix(s.send(t, c), to+" "), m.passes(network[from], network[to], c)
			if got != want {
				r.Fatalf("%s to %s, port %d: passes %t, want %t; policies %+v, groups %+v", from, to, c.dstPort, got, want, m.policies, m.groups)
			}
			if got && !strings.HasPrefix(s.reply(t), from+" ") {
				r.Fatalf("%s to %s, port %d: the reply does not pass", from, to, c.dstPort)
			}
		}
	})
}
