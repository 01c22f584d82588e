package explain

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"heddle/internal/api/operator"
	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// bigCloud makes a cloud of 10,000 ports on 50 networks, each in one of 1,000 groups of 10 rules,
// and returns the ids of the ports, in order, and of the groups. The ports of a network are in 20
// groups. With routed, one router connects the networks.
func bigCloud(b *testing.B, routed bool) (c *cloud, ports, groups []string) {
	b.Helper()
	c = newCloud(b)
	var networks []string
	router := create(c, c.Routers().Operations, neutron.Routers, `{"name":"r"}`).ID
	for i := range 50 {
		n := create(c, c.Networks(), neutron.Networks, `{"name":"n%d"}`, i).ID
		s := create(c, c.Subnets(), neutron.Subnets, `{"network_id":%q,"ip_version":4,"cidr":"10.%d.0.0/16"}`, n, i)
		networks = append(networks, n)
		if !routed {
			continue
		}
		if _, err := c.Routers().AddInterface(context.Background(), admin, router, neutron.InterfaceRequest{SubnetID: s.ID}); err != nil {
			b.Fatal(err)
		}
	}
	for i := range 1000 {
		g := create(c, c.SecurityGroups(), neutron.SecurityGroups, `{"name":"g%d"}`, i).ID
		for j := range 10 {
			remote := ""
			if j%2 == 1 && routed { // 200 prefixes in all
				remote = fmt.Sprintf(`,"remote_ip_prefix":"10.%d.%d.0/24"`, i%50, 64*(j/2%4))
			}
			create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress","protocol":"tcp","port_range_min":%[2]d,"port_range_max":%[2]d%[3]s}`, g, 1000+j, remote)
		}
		groups = append(groups, g)
	}
	for i := range 10_000 {
		p := c.port(networks[i%50], fmt.Sprintf("p%d", i), []string{"h1", "h2"}[i/50%2], fmt.Sprintf(`,"security_groups":[%q]`, groups[i%1000]))
		ports = append(ports, p.ID)
	}
	return c, ports, groups
}

// BenchmarkReach asks in such a cloud, with a router between the networks, who reaches a port by
// one service and by all, and by which of all pairs one service works; after the change of a rule,
// too. naive asks one packet a pair, for 1,000 of the 10,000 senders and 1 of the 10,000
// receivers.
func BenchmarkReach(b *testing.B) {
	c, _, groups := bigCloud(b, true)
	ask := func(b *testing.B, q operator.ReachRequest) *operator.ReachAnswer {
		b.Helper()
		a, err := c.world.Reach(c.t.Context(), c.view(), &q)
		if err != nil {
			b.Fatal(err)
		}
		return a
	}
	ask(b, operator.ReachRequest{To: "p0", Port: 1000})
	for name, q := range map[string]operator.ReachRequest{
		"one service": {To: "p0", Port: 1000}, "all services": {To: "p0"}, "from": {From: "p0"}, "matrix": {By: "network", Port: 1000}, "pair": {From: "p50", To: "p0"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if a := ask(b, q); len(a.Reaches)+len(a.Pairs) == 0 {
					b.Fatal("nothing is reached")
				}
			}
		})
	}
	b.Run("after a change", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress","protocol":"tcp","port_range_min":%[2]d,"port_range_max":%[2]d}`, groups[i%1000], 2000+i)
			b.StartTimer()
			ask(b, operator.ReachRequest{To: "p0", Port: 1000})
		}
	})
}

// BenchmarkDiff compares such a cloud with what one more rule makes of it, in a
// fork.
func BenchmarkDiff(b *testing.B) {
	c, _, groups := bigCloud(b, true)
	if _, err := c.world.Diff(b.Context(), c.view(), c.view(), netip.Addr{}); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		before := c.view()
		fork := records.NewFork(before, nil, schema.All()...)
		ops, err := control.New(fork.DB(), control.Options{Quotas: map[string]int{"security_group_rule": -1}})
		if err != nil {
			b.Fatal(err)
		}
		v := parse(b, neutron.SecurityGroupRules, neutron.Create, fmt.Sprintf(`{"security_group_id":%q,"direction":"ingress","protocol":"tcp","port_range_min":22,"port_range_max":22}`, groups[i%1000]))
		if _, err := ops.SecurityGroupRules().Create(b.Context(), admin, []neutron.Values{v}); err != nil {
			b.Fatal(err)
		}
		if a, err := c.world.Diff(b.Context(), before, fork.Snap(), netip.Addr{}); err != nil || len(a.Gained) == 0 {
			b.Fatal("nothing is gained", err)
		}
	}
}

// BenchmarkWhy asks in such a cloud about a connection that passes, about one that is denied, with
// its remedy, and after the change of a port. first is the question that builds the virtual
// network.
func BenchmarkWhy(b *testing.B) {
	c, ports, _ := bigCloud(b, false)
	last := ports[len(ports)-1]
	ask := func(b *testing.B, port uint16, verdict operator.Verdict) {
		b.Helper()
		if a, err := c.ask(&operator.WhyRequest{From: "p0", To: "p50", Port: port}); err != nil || a.Verdict != verdict {
			b.Fatalf("%+v, %v", a, err)
		}
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			c.world = NewWorld()
			ask(b, 1000, operator.Allowed)
		}
	})
	b.Run("passes", func(b *testing.B) {
		for b.Loop() {
			ask(b, 1000, operator.Allowed)
		}
	})
	b.Run("denied", func(b *testing.B) {
		for b.Loop() {
			ask(b, 22, operator.Denied)
		}
	})
	b.Run("after a change", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			update(c, c.Ports(), neutron.Ports, last, fmt.Sprintf(`{"name":%q}`, strings.Repeat("x", i%8)))
			b.StartTimer()
			ask(b, 1000, operator.Allowed)
		}
	})
}
