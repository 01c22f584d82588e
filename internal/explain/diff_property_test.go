package explain

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// TestDiffIsWhole makes random changes of random clouds, and holds what is said of them, by those
// ends alone that they affect, to what each machine says about each other and about outside.
func TestDiffIsWhole(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c, ids := randomCloud(t, seed)
			r := rand.New(rand.NewPCG(seed, 5))
			x := c.newMutator(r, ids)
			differed := 0
			before := c.view()
			for range 6 {
				what := x.change()
				after := c.view()
				got, want := expand(c.world.diff(t.Context(), before, after, netip.Addr{}, (*comparison).choose)), expand(NewWorld().diff(t.Context(), before, after, netip.Addr{}, eachAlone))
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("%s: -by all +by those affected\n%s", what, d)
				}
				if len(got) > 0 {
					differed++
				}
				before = after
			}
			if differed == 0 {
				t.Error("no change made a difference: this proves little")
			}
		})
	}
}

// eachAlone has all machines affected, and takes none for another.
func eachAlone(c *comparison, after *records.Snap) {
	c.sides[1] = c.world.side(after)
	c.affectedEnds = affectedEnds{direct: map[string]bool{}, component: map[string]int{}}
	for i, id := range c.machineIDs() {
		c.direct[id] = true
		for _, s := range c.sides {
			for v := range s.class {
				if s.class[v][id] != 0 {
					s.class[v][id] = i + 1
				}
			}
		}
	}
}

// expand returns what an answer says, one line for each pair of ends.
func expand(a *operator.DiffAnswer) (lines []string) {
	for _, row := range slices.Concat(a.Lost, a.Gained) {
		services := ""
		for _, s := range row.Services {
			services += s.Text + ","
		}
		ends := func(e *operator.ChangeEnds) []string {
			if len(e.Outside) > 0 {
				return []string{e.Text}
			}
			var ports []string
			for _, p := range e.Ports {
				ports = append(ports, p.Name+" "+p.Port)
			}
			return ports
		}
		for _, from := range ends(&row.From) {
			for _, to := range ends(&row.To) {
				if from != to {
					lines = append(lines, fmt.Sprintf("IPv%d %s→%s %s: %s → %s", row.Version, row.Before, row.After, services, from, to))
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// mutator changes a cloud at random.
type mutator struct {
	*cloud
	r         *rand.Rand
	ports     []string
	addresses string // id of an address group
}

func (c *cloud) newMutator(r *rand.Rand, ports []string) *mutator {
	x := &mutator{cloud: c, r: r, ports: ports}
	x.addresses = create(c, c.AddressGroups(), neutron.AddressGroups, `{"name":"some","addresses":["10.0.1.0/25"]}`).ID
	for g := range schema.SecurityGroups.All(c.view()) {
		if r.IntN(3) == 0 {
			create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress","protocol":"tcp","remote_address_group_id":%q}`, g.ID, x.addresses)
		}
	}
	return x
}

// change makes one change, and returns what it is.
func (x *mutator) change() string {
	x.t.Helper()
	p, _ := schema.Ports.Peek(x.view(), x.ports[x.r.IntN(len(x.ports))])
	all := []func(p *neutron.Port) string{x.addRule, x.addRule, x.deleteRule, x.setGroup, x.setState, x.addAddress, x.setNetwork, x.addPort, x.deletePort, x.setFloating, x.setRouter, x.setGateway, x.setRoutes}
	return all[x.r.IntN(len(all))](p)
}

// group returns one of the groups, and all.
func (x *mutator) group() (one *neutron.SecurityGroup, ids []string) {
	all := slices.Collect(schema.SecurityGroups.All(x.view()))
	for _, g := range all {
		ids = append(ids, g.ID)
	}
	return all[x.r.IntN(len(all))], ids
}

func (x *mutator) router() *neutron.Router {
	return slices.Collect(schema.Routers.All(x.view()))[0]
}

func (x *mutator) addRule(*neutron.Port) string {
	g, all := x.group()
	x.randomRule(x.r, g.ID, all)
	return "a rule more in group " + g.Name
}

func (x *mutator) deleteRule(*neutron.Port) string {
	g, _ := x.group()
	if len(g.Rules) > 0 {
		x.must(x.SecurityGroupRules().Delete(context.Background(), admin, g.Rules[x.r.IntN(len(g.Rules))].ID, nil))
	}
	return "a rule less in group " + g.Name
}

func (x *mutator) setGroup(p *neutron.Port) string {
	g, _ := x.group()
	if p.PortSecurityEnabled {
		update(x.cloud, x.Ports(), neutron.Ports, p.ID, fmt.Sprintf(`{"security_groups":[%q]}`, g.ID))
	}
	return "group of port " + p.Name
}

func (x *mutator) setState(p *neutron.Port) string {
	update(x.cloud, x.Ports(), neutron.Ports, p.ID, fmt.Sprintf(`{"admin_state_up":%t}`, !p.AdminStateUp))
	return "state of port " + p.Name
}

func (x *mutator) addAddress(*neutron.Port) string {
	prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(1 + x.r.IntN(2)), byte(x.r.IntN(256))}), 25+x.r.IntN(8)).Masked()
	_, err := x.AddAddresses(context.Background(), admin, x.addresses, []netip.Prefix{prefix})
	x.must(err)
	return prefix.String() + " in the address group"
}

func (x *mutator) setNetwork(p *neutron.Port) string {
	n, _ := schema.Networks.Peek(x.view(), p.NetworkID)
	update(x.cloud, x.Networks(), neutron.Networks, n.ID, fmt.Sprintf(`{"admin_state_up":%t}`, !n.AdminStateUp))
	return "state of network " + n.Name
}

func (x *mutator) addPort(p *neutron.Port) string {
	g, _ := x.group()
	made := x.port(p.NetworkID, fmt.Sprintf("new%d", len(x.ports)), "h1", fmt.Sprintf(`,"security_groups":[%q]`, g.ID))
	x.ports = append(x.ports, made.ID)
	return "a port more"
}

func (x *mutator) deletePort(p *neutron.Port) string {
	x.must(x.Ports().Delete(context.Background(), admin, p.ID, nil))
	x.ports = slices.DeleteFunc(x.ports, func(id string) bool { return id == p.ID })
	return "without port " + p.Name
}

// setFloating gives a floating IP to a port that can have one, or to none.
func (x *mutator) setFloating(p *neutron.Port) string {
	for f := range schema.FloatingIPs.All(x.view()) {
		v := parse(x.t, neutron.FloatingIPs, neutron.Update, map[bool]string{true: `{"port_id":null}`, false: fmt.Sprintf(`{"port_id":%q}`, p.ID)}[f.PortID != ""])
		_, err := x.FloatingIPs().Update(context.Background(), admin, f.ID, v, nil)
		return fmt.Sprintf("floating IP to %s: %v", p.Name, err)
	}
	return ""
}

func (x *mutator) setRouter(*neutron.Port) string {
	update(x.cloud, x.Routers().Operations, neutron.Routers, x.router().ID, fmt.Sprintf(`{"admin_state_up":%t}`, !x.router().AdminStateUp))
	return "state of the router"
}

func (x *mutator) setGateway(*neutron.Port) string {
	update(x.cloud, x.Routers().Operations, neutron.Routers, x.router().ID, fmt.Sprintf(`{"external_gateway_info":{"network_id":%q,"enable_snat":%t}}`, x.network("public"), x.r.IntN(2) == 0))
	return "source NAT of the router"
}

func (x *mutator) setRoutes(p *neutron.Port) string {
	for s := range schema.Subnets.By(x.view(), "network", p.NetworkID) {
		if s.CIDR.Addr().Is4() {
			update(x.cloud, x.Subnets(), neutron.Subnets, s.ID, fmt.Sprintf(`{"host_routes":[{"destination":"10.0.%d.0/24","nexthop":%q}]}`, 1+x.r.IntN(3), s.CIDR.Addr().Next().Next()))
		}
	}
	return "routes of a subnet"
}

func (x *mutator) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}
