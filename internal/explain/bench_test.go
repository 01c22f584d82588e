package explain

import (
	"fmt"
	"strings"
	"testing"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
)

// BenchmarkWhy asks in a cloud of 10,000 ports on 50 networks, each in one of 1,000 groups of 10
// rules: about a connection that passes, about one that is denied, with its remedy, and after the
// change of a port. first is the question that builds the virtual network.
func BenchmarkWhy(b *testing.B) {
	c := newCloud(b)
	var networks, groups []string
	for i := range 50 {
		n := create(c, c.Networks(), neutron.Networks, `{"name":"n%d"}`, i).ID
		create(c, c.Subnets(), neutron.Subnets, `{"network_id":%q,"ip_version":4,"cidr":"10.%d.0.0/16"}`, n, i)
		networks = append(networks, n)
	}
	for i := range 1000 {
		g := create(c, c.SecurityGroups(), neutron.SecurityGroups, `{"name":"g%d"}`, i).ID
		for j := range 10 {
			create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress","protocol":"tcp","port_range_min":%[2]d,"port_range_max":%[2]d}`, g, 1000+j)
		}
		groups = append(groups, g)
	}
	var last string
	for i := range 10_000 {
		last = c.port(networks[i%50], fmt.Sprintf("p%d", i), []string{"h1", "h2"}[i/50%2], fmt.Sprintf(`,"security_groups":[%q]`, groups[i%1000])).ID
	}
	ask := func(b *testing.B, port uint16, verdict string) {
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
