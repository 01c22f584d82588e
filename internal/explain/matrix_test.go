package explain

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"heddle/internal/neutron"
	"heddle/internal/reach"
	"heddle/internal/store/schema"
	"heddle/internal/topology/packet"
)

// TestMatrix holds the fates between classes of ports to those between all pairs of ports, in
// random clouds. Classes that leave something out of account would be found out.
func TestMatrix(t *testing.T) {
	t.Parallel()
	mistakes := map[string]int{} // found with classes that leave something out
	asked, pairs := 0, 0         // of classes, in all clouds: in one with few that are alike less is spared
	for seed := range uint64(5) {
		c, ids := randomCloud(t, seed)
		r := rand.New(rand.NewPCG(seed, 3))
		for i := range 16 { // some that are alike
			p, _ := schema.Ports.Peek(c.view(), ids[i%4])
			groups := ""
			for _, g := range p.SecurityGroups {
				groups += fmt.Sprintf(`,%q`, g)
			}
			if p.PortSecurityEnabled {
				ids = append(ids, c.port(p.NetworkID, fmt.Sprintf("like%d", i), []string{"h1", "h2"}[r.IntN(2)], fmt.Sprintf(`,"security_groups":[%s]`, groups[min(1, len(groups)):])).ID)
			}
		}
		ids = append(ids, c.addSenders(r)...)
		p := c.newProbe()
		var ends []*reach.End
		for _, id := range ids {
			ends = append(ends, p.end(id))
		}
		partition := reach.NewPartition(c.world.world)
		for _, e := range ends {
			partition.Set(e)
		}
		for _, s := range []reach.Service{{Protocol: packet.ProtoTCP, Port: 80}, {Protocol: packet.ProtoUDP, Port: 1500}, {Protocol: packet.ProtoICMP}} {
			fates := p.allFates(ends, s)
			m := reach.NewMatrix(t.Context(), c.world.world, partition, s, true, p.end)
			p.compare(m, fates)
			asked, pairs = asked+m.Asked, pairs+len(m.Classes)*len(m.Classes)
			if len(m.Classes) == len(ends) {
				t.Errorf("no two of %d ports are alike", len(ends))
			}
			keys := c.world.world.NewClasses()
			for what, key := range map[string]func(e *reach.End) string{
				"addresses": func(e *reach.End) string {
					return string(keys.Key(e.PortID, e.MAC, e.Addresses, netip.Addr{})) + fmt.Sprint(e.Routes)
				},
				"filters": func(e *reach.End) string { return e.NetworkID },
				"networks": func(e *reach.End) string {
					q, _ := schema.Ports.Peek(p.snap, e.PortID)
					return fmt.Sprint(q.SecurityGroups)
				},
			} {
				first := map[string]*reach.End{}
				for _, e := range ends {
					if one := first[key(e)]; one == nil {
						first[key(e)] = e
					} else if !alike(fates, ends, one, e) {
						mistakes[what]++
					}
				}
			}
		}
	}
	if asked >= pairs*3/4 {
		t.Errorf("asked about %d of %d pairs of classes: no answer stands for another", asked, pairs)
	}
	for _, what := range []string{"addresses", "filters", "networks"} {
		if mistakes[what] == 0 {
			t.Errorf("classes that leave %s out of account would pass", what)
		}
	}
}

// addSenders adds ports that differ by what they receive, and host routes by one of them.
func (c *cloud) addSenders(r *rand.Rand) (ids []string) {
	var subnets []*neutron.Subnet
	for s := range schema.Subnets.All(c.view()) {
		if s.CIDR.Addr().Is4() && s.CIDR.Bits() == 24 && s.CIDR.Addr().As4()[0] == 10 {
			subnets = append(subnets, s)
		}
	}
	for i := range 12 {
		made := create(c, c.SecurityGroups(), neutron.SecurityGroups, `{"name":"receiver","stateful":%t}`, r.IntN(3) > 0)
		g := made.ID
		if r.IntN(3) == 0 { // what it may send is up to the rules below
			for _, rule := range made.Rules {
				if err := c.SecurityGroupRules().Delete(c.t.Context(), admin, rule.ID, nil); err != nil {
					c.t.Fatal(err)
				}
			}
		}
		low := 70 + r.IntN(20)
		create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress","protocol":"tcp","port_range_min":%d,"port_range_max":%d,"remote_ip_prefix":"10.0.%d.0/%d"}`,
			g, low, low+r.IntN(20), 1+r.IntN(2), 24+r.IntN(3))
		if r.IntN(2) == 0 {
			direction := []string{"ingress", "egress"}[r.IntN(2)]
			create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":%q,"protocol":"tcp"}`, g, direction)
		}
		ids = append(ids, c.port(subnets[i%2].NetworkID, "sender", "h1", fmt.Sprintf(`,"security_groups":[%q]`, g)).ID)
	}
	for i, s := range subnets {
		hop, _ := schema.Ports.Peek(c.view(), ids[i%len(ids)])
		if hop.NetworkID == s.NetworkID {
			base := s.CIDR.Addr().As4()
			base[3] = byte(64 * r.IntN(4))
			route := fmt.Sprintf(`{"host_routes":[{"destination":"%s/26","nexthop":%q}]}`, netip.AddrFrom4(base), hop.FixedIPs[0].IPAddress)
			update(c, c.Subnets(), neutron.Subnets, s.ID, route)
		}
	}
	return ids
}

type endPair struct{ from, to *reach.End }

// allFates asks about each pair.
func (p *probe) allFates(ends []*reach.End, s reach.Service) map[endPair]reach.Fate {
	fates := map[endPair]reach.Fate{}
	for _, from := range ends {
		for _, to := range ends {
			if from == to {
				continue
			}
			q := reach.Question{From: from, Source: from.Address(true), Target: to.Address(true), To: to, Protocol: s.Protocol, Port: s.Port}
			a := p.asker.Ask(&q)
			switch {
			case !a.Always.IsEmpty():
				fates[endPair{from, to}] = reach.Always
			case !a.May.IsEmpty():
				fates[endPair{from, to}] = reach.May
			case !a.OneWay.IsEmpty():
				fates[endPair{from, to}] = reach.OneWay
			}
		}
	}
	return fates
}

// compare holds a matrix to the fates of all pairs.
func (p *probe) compare(m *reach.Matrix, fates map[endPair]reach.Fate) {
	p.t.Helper()
	for i, senders := range m.Classes {
		for j, receivers := range m.Classes {
			for _, from := range senders {
				for _, to := range receivers {
					if want := fates[endPair{from, to}]; from != to && m.Fate(i, j) != want {
						p.t.Fatalf("%v → %v: %d, want %d (classes %d and %d)", from, to, m.Fate(i, j), want, i, j)
					}
				}
			}
		}
	}
}

// alike reports whether two ends have the same fates with all others.
func alike(fates map[endPair]reach.Fate, ends []*reach.End, a, b *reach.End) bool {
	for _, x := range ends {
		if x != a && x != b && (fates[endPair{a, x}] != fates[endPair{b, x}] || fates[endPair{x, a}] != fates[endPair{x, b}]) {
			return false
		}
	}
	return true
}
