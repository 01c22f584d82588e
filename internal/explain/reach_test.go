package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// reached asks, and puts the answer into a line a row.
func (c *cloud) reached(q *operator.ReachRequest) string {
	c.t.Helper()
	a, err := c.world.Reach(c.t.Context(), c.view(), q)
	if err != nil {
		c.t.Fatal(err)
	}
	var lines []string
	texts := func(name string, ranges []operator.ServiceRange) string {
		text := ""
		for _, r := range ranges {
			text += "; " + r.Text
		}
		return strings.Replace(text, "; ", name, 1)
	}
	for _, r := range a.Reaches {
		line := fmt.Sprint("v", r.Version) + texts(" ", r.Always) + texts(" may ", r.May) + texts(" oneway ", r.OneWay)
		for _, p := range r.Ports {
			line += " " + p.Name
		}
		for _, o := range r.Outside {
			line += fmt.Sprintf(" [%s at %s]", o.Text, o.Address)
		}
		lines = append(lines, line)
	}
	return strings.Join(append(lines, fmt.Sprint("silent ", a.Silent)), "\n")
}

func (c *cloud) expectReach(q operator.ReachRequest, want ...string) {
	c.t.Helper()
	if got := c.reached(&q); got != strings.Join(want, "\n") {
		c.t.Errorf("%+v:\n%s\nwant\n%s", q, got, strings.Join(want, "\n"))
	}
}

// TestReach: all services to a machine and from it, from other machines and from outside, by a
// floating address too, with what rules allow in part.
func TestReach(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	web, _ := c.twoTiers()
	fixed := func(p *neutron.PortView) string { return p.FixedIPs[0].IPAddress.String() }
	g := create(c, c.SecurityGroups(), neutron.SecurityGroups, `{"name":"front"}`).ID
	for _, rule := range []string{
		`"protocol":"tcp","port_range_min":443,"port_range_max":443`, `"protocol":"icmp","port_range_min":8`, `"protocol":"47","remote_ip_prefix":"10.0.2.0/24"`,
		`"protocol":"tcp","port_range_min":22,"port_range_max":80,"remote_ip_prefix":"198.51.100.0/24"`,
	} {
		create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress",%s}`, g, rule)
	}
	update(c, c.Ports(), neutron.Ports, web.ID, fmt.Sprintf(`{"security_groups":[%q]}`, g))
	at := fixed(web)
	outside := func(text, at string) string { return fmt.Sprintf(" [%s at %s]", text, at) }
	c.expectReach(operator.ReachRequest{To: "web"},
		"v4 icmp 8; tcp 443 lone"+outside("any address but 10.0.1.0-10.0.2.255, 198.51.100.0/24", at),
		"v4 icmp 8; tcp 22-80; tcp 443"+outside("198.51.100.0/24", at),
		"v4 gre; icmp 8; tcp 443 db", "silent 0")
	c.expectReach(operator.ReachRequest{To: "web", Protocol: "tcp", Port: 23}, "v4 tcp 23"+outside("198.51.100.0/24", at), "silent 2")
	c.expectReach(operator.ReachRequest{From: "web"}, "v4 tcp; udp; icmp 0; icmp 8"+outside("any address but 10.0.1.0-10.0.2.255", at), "silent 2")
	c.expectReach(operator.ReachRequest{From: "db", To: "web"}, "v4 gre; icmp 8; tcp 443 db", "silent 0")
	c.expectReach(operator.ReachRequest{From: "web", To: "db"}, "silent 0")

	public := create(c, c.FloatingIPs(), neutron.FloatingIPs, `{"floating_network_id":%q,"port_id":%q}`, c.network("public"), web.ID).FloatingIPAddress.String()
	c.expectReach(operator.ReachRequest{To: public, Port: 443}, "v4 tcp 443 db lone"+outside("any address but 10.0.1.0-10.0.2.255", public), "silent 0")
	c.expectReach(operator.ReachRequest{To: public, Port: 22}, "v4 tcp 22"+outside("198.51.100.0/24", public), "silent 2")
	for _, bad := range []struct {
		q    operator.ReachRequest
		want string
	}{
		{operator.ReachRequest{}, "to: want the end that is asked about"},
		{operator.ReachRequest{To: "10.9.9.9"}, "to: no port has the address 10.9.9.9"},
		{operator.ReachRequest{From: "nothing"}, `from: no port has the id or name "nothing"`},
		{operator.ReachRequest{From: "web", Protocol: "tcp"}, "port: tcp needs a port"},
	} {
		if _, err := c.world.Reach(c.t.Context(), c.view(), &bad.q); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%+v: %v, want %q", bad.q, err, bad.want)
		}
	}
}

// network returns the id of a network.
func (c *cloud) network(name string) string {
	c.t.Helper()
	named := slices.Collect(schema.Networks.By(c.view(), "name", name))
	if len(named) != 1 {
		c.t.Fatalf("%d networks are named %s", len(named), name)
	}
	return named[0].ID
}

// TestReachDepends: what passes by some source ports alone, or by some of several ways, is said to.
func TestReachDepends(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.twoTiers()
	rule := func(text string) string {
		return fmt.Sprintf("%q", create(c, c.FirewallGroupRules(), neutron.FirewallGroupRules, "{%s}", text).ID)
	}
	rules := strings.Join([]string{rule(`"action":"deny","protocol":"tcp","source_port":"1:2000","destination_port":"80"`), rule(`"action":"allow","protocol":"tcp"`)}, ",")
	policy := create(c, c.FirewallGroupPolicies(), neutron.FirewallGroupPolicies, `{"firewall_rules":[%s]}`, rules).ID
	var ports []string
	for p := range schema.Ports.All(c.view()) {
		if p.DeviceOwner == "network:router_interface" {
			ports = append(ports, fmt.Sprintf("%q", p.ID))
		}
	}
	create(c, c.FirewallGroups(), neutron.FirewallGroups, `{"ports":[%s],"ingress_firewall_policy_id":%[2]q,"egress_firewall_policy_id":%[2]q}`, strings.Join(ports, ","), policy)
	c.expectReach(operator.ReachRequest{From: "web", To: "db"}, "v4 tcp 0-79; tcp 81-65535 may tcp 80 web", "silent 0")
	c.expectReach(operator.ReachRequest{From: "web", To: "db", Port: 80}, "v4 may tcp 80 web", "silent 0")
}

// TestReachPairs counts pairs by groups and by networks: of machines in several groups once for
// each.
func TestReachPairs(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	web, db := c.twoTiers()
	g := create(c, c.SecurityGroups(), neutron.SecurityGroups, `{"name":"front"}`).ID
	create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress","protocol":"tcp","port_range_min":443,"port_range_max":443}`, g)
	for i := range 3 {
		c.port(web.NetworkID, fmt.Sprintf("front%d", i), "h2", fmt.Sprintf(`,"security_groups":[%q]`, g))
	}
	lonely := slices.Collect(schema.SecurityGroups.By(c.view(), "name", "lonely"))[0].ID
	pairs := func(q operator.ReachRequest) map[[2]string]operator.ReachPairs {
		a, err := c.world.Reach(c.t.Context(), c.view(), &q)
		if err != nil {
			t.Fatal(err)
		}
		all := map[[2]string]operator.ReachPairs{}
		for _, p := range a.Pairs {
			all[[2]string{p.From, p.To}] = p
		}
		return all
	}
	def := db.SecurityGroups[0]
	groups := pairs(operator.ReachRequest{By: "group", Port: 443})
	for key, want := range map[[2]string][2]int{{def, g}: {6, 6}, {g, g}: {6, 6}, {lonely, g}: {3, 3}, {def, def}: {2, 2}, {g, def}: {0, 0}} {
		if p := groups[key]; p.Reached != want[0] || p.All != want[1] {
			t.Errorf("%v: %+v, want %v", key, p, want)
		}
	}
	networks := pairs(operator.ReachRequest{By: "network", Port: 443})
	if p := networks[[2]string{db.NetworkID, web.NetworkID}]; p.Reached != 4 || p.All != 5 {
		t.Errorf("back to front: %+v", p)
	}
	for _, bad := range []operator.ReachRequest{{By: "x", Port: 1}, {By: "group"}, {By: "group", Port: 1, To: "web"}, {By: "group", Port: 1, Version: 5}} {
		if _, err := c.world.Reach(c.t.Context(), c.view(), &bad); err == nil {
			t.Errorf("%+v is answered", bad)
		}
	}
}

// TestReachEndsInTime: a question of which the time has run out has no answer, rather than one that
// lacks something.
func TestReachEndsInTime(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	_, db := c.twoTiers()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, q := range []operator.ReachRequest{{To: db.ID}, {From: db.ID, Port: 22}, {By: "network", Port: 22}} {
		_, err := c.world.Reach(ctx, c.view(), &q)
		var fault *Fault
		if !errors.As(err, &fault) || fault.Kind != Late {
			t.Errorf("%+v: %v", q, err)
		}
	}
	always := operator.Assertion{Always: &operator.AssertEnds{From: operator.Selection{Outside: true}, To: operator.Selection{Port: db.ID}}, By: []operator.AssertService{{Protocol: "tcp"}}}
	if _, err := c.world.Assert(ctx, c.view(), &operator.AssertRequest{Rules: []operator.Assertion{always}}); err == nil {
		t.Error("rules are held to in no time")
	}
}
