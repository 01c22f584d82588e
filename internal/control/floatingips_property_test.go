package control_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/control"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// TestRandomFloatingIPsAndFirewalls does anything around two routers in any order. After each step
// the bundles of floating IPs and firewalls are what these translate into now, and what they name
// is there; when all is deleted, the store is as it was.
func TestRandomFloatingIPsAndFirewalls(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := open(t, store.NewMemory(), routingLimits())
		w.network(`{}`) // brings the default group
		playRouting(rt, w)
	})
}

// TestRandomFloatingIPsAtTwoServers is the same over an etcd, each request at either server.
func TestRandomFloatingIPsAtTwoServers(t *testing.T) {
	t.Parallel()
	st := inEtcd(t, false)
	one, two := open(t, st, routingLimits()), open(t, st, routingLimits())
	one.network(`{}`)
	rapid.Check(t, func(rt *rapid.T) { playRouting(rt, one, two) })
}

// routingLimits let a game run into its quotas.
func routingLimits() control.Options {
	return control.Options{Quotas: map[string]int{"floatingip": 5, "port": 12}, ServiceMACs: true}
}

// routingGame is a random sequence of requests on what is around two routers.
type routingGame struct {
	*world
	servers                    []*world
	externals, externalSubnets []string
	tenants, subnets, routers  []string
	ports, floating, forwarded []string
	firewalls, policies, rules []string
}

func playRouting(rt *rapid.T, ws ...*world) {
	w := ws[0]
	before := w.dump()
	g := &routingGame{world: w, servers: ws}
	for _, cidr := range []string{"203.0.113.0/28", "198.51.100.0/28"} {
		n := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"router:external":true,"project_id":"mine"}`).ID
		g.externals = append(g.externals, n)
		g.externalSubnets = append(g.externalSubnets, w.subnet(n, `"ip_version":4,"cidr":"`+cidr+`"`).ID)
	}
	for _, cidr := range []string{"10.0.0.0/28", "10.0.1.0/28"} {
		n := w.network(`{}`).ID
		g.tenants = append(g.tenants, n)
		g.subnets = append(g.subnets, w.subnet(n, `"ip_version":4,"cidr":"`+cidr+`"`).ID)
	}
	g.routers = []string{w.routerTo(w.member, g.externals[0]), w.routerTo(w.member, "")}
	w.addInterface(g.routers[0], g.subnets[0])
	g.ports = []string{w.port(g.tenants[0], "").ID}
	rt.Repeat(map[string]func(*rapid.T){
		"":                   g.check,
		"create port":        g.createPort,
		"create floating IP": g.createFloatingIP,
		"associate":          g.associate,
		"associate again":    g.associate,
		"create forwarding":  g.createForwarding,
		"change forwarding":  g.changeForwarding,
		"change port":        g.changePort,
		"change gateway":     g.changeGateway,
		"change router":      g.changeRouter,
		"move router port":   g.moveRouterPort,
		"create several":     g.createFloatingIPs,
		"change interfaces":  g.changeInterfaces,
		"create rule":        g.createRule,
		"change rule":        g.changeRule,
		"create firewall":    g.createFirewall,
		"change firewall":    g.changeFirewall,
		"change policy":      g.changePolicy,
		"delete anything":    g.deleteAnything,
	})
	g.deleteAll(rt)
	if d := cmp.Diff(before, w.dump()); d != "" {
		rt.Fatalf("left in the store (+) or lost (-):\n%s", d)
	}
}

// try runs a request at some server, which may refuse it but then must leave no trace.
func (g *routingGame) try(rt *rapid.T, request func(w *world) error) bool {
	w := rapid.SampledFrom(g.servers).Draw(rt, "server")
	before := w.dump()
	err := request(w)
	if err == nil {
		return true
	}
	rt.Logf("refused: %s", problem(err))
	if strings.HasPrefix(problem(err), "not for clients") {
		rt.Fatal(err)
	}
	if d := cmp.Diff(before, w.dump()); d != "" {
		rt.Fatalf("refused with %v, but the store changed:\n%s", err, d)
	}
	return false
}

// one draws one of the ids, or one of nothing.
func one(rt *rapid.T, what string, ids []string) string {
	if len(ids) == 0 {
		return "11111111-1111-1111-1111-111111111111"
	}
	return rapid.SampledFrom(ids).Draw(rt, what)
}

// make creates an object and adds its id to a list.
func (g *routingGame) make(rt *rapid.T, list *[]string, r neutron.Resource, text string) {
	g.try(rt, func(w *world) error {
		views, err := w.create(w.member, r, text)
		if err != nil {
			return err
		}
		switch v := views[0].(type) {
		case *neutron.PortView:
			*list = append(*list, v.ID)
		case *neutron.FloatingIPView:
			*list = append(*list, v.ID)
		case *neutron.PortForwarding:
			*list = append(*list, v.ID)
		case *neutron.FirewallRuleView:
			*list = append(*list, v.FirewallRule.ID)
		case *neutron.FirewallPolicyView:
			*list = append(*list, v.ID)
		case *neutron.FirewallView:
			*list = append(*list, v.ID)
		}
		return nil
	})
}

func (g *routingGame) edit(rt *rapid.T, r neutron.Resource, id, text string) {
	g.editAs(rt, g.member, r, id, text)
}

func (g *routingGame) editAs(rt *rapid.T, c neutron.Caller, r neutron.Resource, id, text string) {
	rt.Logf("%s updates %s %s %s", c.ProjectID, r, id, text)
	g.try(rt, func(w *world) error { _, err := w.change(c, r, id, text); return err })
}

func (g *routingGame) createPort(rt *rapid.T) {
	g.make(rt, &g.ports, neutron.Ports, `{"network_id":"`+one(rt, "network", g.tenants)+`"`+
		rapid.SampledFrom([]string{``, `,"fixed_ips":[]`, `,"device_owner":"network:dhcp"`}).Draw(rt, "port")+`}`)
}

func (g *routingGame) createFloatingIP(rt *rapid.T) {
	text := `{"floating_network_id":"` + one(rt, "network", append(g.tenants[:1:1], g.externals...)) + `"`
	if rapid.Bool().Draw(rt, "associated") {
		text += `,"port_id":"` + one(rt, "port", g.ports) + `"`
	}
	g.make(rt, &g.floating, neutron.FloatingIPs, text+`}`)
}

func (g *routingGame) associate(rt *rapid.T) {
	text := `{"port_id":"` + one(rt, "port", g.ports) + `"`
	switch rapid.IntRange(0, 4).Draw(rt, "how") {
	case 0:
		text = `{"port_id":null`
	case 1:
		text += `,"fixed_ip_address":"10.0.0.5"`
	}
	g.edit(rt, neutron.FloatingIPs, one(rt, "floating IP", g.floating), text+`}`)
}

// someForwarding returns what a forwarding is about, as JSON.
func (g *routingGame) someForwarding(rt *rapid.T) string {
	return `"internal_port_id":"` + one(rt, "port", g.ports) + `","internal_ip_address":"` +
		rapid.SampledFrom([]string{"10.0.0.2", "10.0.0.5", "10.0.1.5"}).Draw(rt, "address") + `"` +
		rapid.SampledFrom([]string{`,"internal_port":80`, `,"internal_port_range":"80:82"`}).Draw(rt, "inside") +
		rapid.SampledFrom([]string{`,"external_port":80`, `,"external_port_range":"8080:8082"`, `,"external_port_range":"8082:8083"`}).Draw(rt, "outside")
}

func (g *routingGame) createForwarding(rt *rapid.T) {
	of := one(rt, "floating IP", g.floating)
	text := `{"protocol":"tcp",` + g.someForwarding(rt) + `}`
	rt.Logf("forward %s by %s", text, of)
	g.try(rt, func(w *world) error {
		v, err := parse(w.member, neutron.PortForwardings, neutron.Create, text)
		if err != nil {
			return err
		}
		made, err := w.PortForwardings(of).Create(context.Background(), w.member, []neutron.Values{v})
		for _, x := range made {
			g.forwarded = append(g.forwarded, x.ID)
		}
		return err
	})
}

func (g *routingGame) changeForwarding(rt *rapid.T) {
	g.edit(rt, neutron.PortForwardings, one(rt, "forwarding", g.forwarded), rapid.SampledFrom([]string{
		`{"description":"x"}`, `{"protocol":"udp"}`, `{"external_port":81}`, `{` + g.someForwarding(rt) + `}`,
	}).Draw(rt, "change"))
}

func (g *routingGame) changePort(rt *rapid.T) {
	g.edit(rt, neutron.Ports, one(rt, "port", g.ports), rapid.SampledFrom([]string{
		`{"fixed_ips":[]}`, `{"fixed_ips":[{"ip_address":"10.0.0.5"}]}`, `{"fixed_ips":[{"ip_address":"10.0.0.5"},{"ip_address":"10.0.0.6"}]}`,
		`{"fixed_ips":[{"ip_address":"10.0.1.5"}]}`, `{"mac_address":null}`, `{"name":"x"}`,
	}).Draw(rt, "change"))
}

func (g *routingGame) changeGateway(rt *rapid.T) {
	text := `{"external_gateway_info":null}`
	if rapid.Bool().Draw(rt, "gateway") {
		text = `{"external_gateway_info":{"network_id":"` + one(rt, "network", g.externals) + `"}}`
	}
	g.edit(rt, neutron.Routers, one(rt, "router", g.routers), text)
}

// changeRouter asks for what a router may be refused for others' sake, most often the first.
func (g *routingGame) changeRouter(rt *rapid.T) {
	network := one(rt, "network", g.externals)
	g.editAs(rt, g.admin, neutron.Routers, one(rt, "router", append(g.routers[:1:1], g.routers...)), rapid.SampledFrom([]string{
		`{"admin_state_up":false}`, `{"external_gateway_info":{"network_id":"` + network + `","enable_snat":false}}`,
		`{"external_gateway_info":{"network_id":"` + network + `","external_fixed_ips":[{"ip_address":"203.0.113.9"}]}}`,
		`{"external_gateway_info":{"network_id":"` + network + `","external_fixed_ips":[{"ip_address":"203.0.113.10"}],"enable_snat":false},"routes":[{"destination":"192.0.2.0/24","nexthop":"10.0.0.9"}]}`,
		`{"routes":[{"destination":"192.0.2.0/24","nexthop":"10.0.0.9"}]}`, `{"routes":[],"external_gateway_info":null}`,
		`{"routes":[{"destination":"192.0.2.0/24","nexthop":"203.0.113.1"}]}`, `{"routes":[]}`,
	}).Draw(rt, "change"))
}

// moveRouterPort changes the port of a gateway, an interface or a floating IP's address by itself.
func (g *routingGame) moveRouterPort(rt *rapid.T) {
	kvs, _, err := g.st.List(context.Background(), schema.Ports.Key(""))
	if err != nil {
		rt.Fatal(err)
	}
	slices.SortFunc(kvs, func(a, b store.KV) int { return int(a.CreateRevision - b.CreateRevision) })
	var ids []string
	for _, kv := range kvs {
		if strings.Contains(string(kv.Value), `"device_owner":"network:`) {
			ids = append(ids, strings.TrimPrefix(kv.Key, schema.Ports.Key("")))
		}
	}
	g.editAs(rt, g.admin, neutron.Ports, one(rt, "port", ids), rapid.SampledFrom([]string{
		`{"fixed_ips":[{"ip_address":"203.0.113.7"}]}`, `{"fixed_ips":[{"ip_address":"10.0.0.12"}]}`, `{"fixed_ips":[{"ip_address":"198.51.100.7"}]}`,
		`{"mac_address":null}`, `{"device_owner":"network:dhcp"}`, `{"device_id":""}`, `{"fixed_ips":[]}`, `{"admin_state_up":false}`,
	}).Draw(rt, "change"))
}

// createFloatingIPs makes several in one request, all or none.
func (g *routingGame) createFloatingIPs(rt *rapid.T) {
	text := func() string {
		return `{"floating_network_id":"` + one(rt, "network", g.externals) + `","port_id":"` + one(rt, "port", g.ports) + `"}`
	}
	texts := []string{text(), text()}
	g.try(rt, func(w *world) error {
		views, err := w.create(w.member, neutron.FloatingIPs, texts...)
		for _, v := range views {
			g.floating = append(g.floating, v.(*neutron.FloatingIPView).ID)
		}
		return err
	})
}

func (g *routingGame) changeInterfaces(rt *rapid.T) {
	router := one(rt, "router", g.routers)
	q := neutron.InterfaceRequest{SubnetID: one(rt, "subnet", append(g.externalSubnets[:1:1], g.subnets...))}
	add := rapid.Bool().Draw(rt, "add")
	rt.Logf("router %s: add %v subnet %s", router, add, q.SubnetID)
	g.try(rt, func(w *world) error {
		if add {
			_, err := w.Routers().AddInterface(context.Background(), w.member, router, q)
			return err
		}
		_, err := w.Routers().RemoveInterface(context.Background(), w.member, router, q)
		return err
	})
}

func (g *routingGame) createRule(rt *rapid.T) {
	g.make(rt, &g.rules, neutron.FirewallRules, rapid.SampledFrom([]string{
		`{}`, `{"shared":true}`, `{"protocol":"tcp","destination_port":"80:90","action":"allow"}`, `{"source_ip_address":"10.0.0.0/24"}`,
	}).Draw(rt, "rule"))
	if len(g.policies) < 2 {
		g.make(rt, &g.policies, neutron.FirewallPolicies, `{}`)
	}
}

func (g *routingGame) changeRule(rt *rapid.T) {
	g.edit(rt, neutron.FirewallRules, one(rt, "rule", g.rules),
		rapid.SampledFrom([]string{`{"enabled":false}`, `{"enabled":true}`, `{"action":"reject"}`, `{"shared":true}`, `{"shared":false}`}).Draw(rt, "change"))
}

func (g *routingGame) createFirewall(rt *rapid.T) {
	g.make(rt, &g.firewalls, neutron.Firewalls, `{"firewall_policy_id":"`+one(rt, "policy", g.policies)+`"`+g.someRouters(rt)+`}`)
}

func (g *routingGame) someRouters(rt *rapid.T) string {
	return `,"router_ids":` + quoted(rapid.SliceOfNDistinct(rapid.SampledFrom(g.routers), 0, 2, rapid.ID).Draw(rt, "routers"))
}

func (g *routingGame) changeFirewall(rt *rapid.T) {
	text := rapid.SampledFrom([]string{`"admin_state_up":false`, `"admin_state_up":true`, `"firewall_policy_id":"` + one(rt, "policy", g.policies) + `"`}).Draw(rt, "change")
	if rapid.Bool().Draw(rt, "names routers") {
		text += g.someRouters(rt)
	}
	g.edit(rt, neutron.Firewalls, one(rt, "firewall", g.firewalls), `{`+text+`}`)
}

func (g *routingGame) changePolicy(rt *rapid.T) {
	policy, rule := one(rt, "policy", g.policies), one(rt, "rule", g.rules)
	switch rapid.IntRange(0, 2).Draw(rt, "how") {
	case 0:
		g.try(rt, func(w *world) error {
			_, err := w.InsertFirewallRule(context.Background(), w.member, policy, neutron.RuleInsertion{RuleID: rule, After: one(rt, "after", g.rules)})
			return err
		})
	case 1:
		g.try(rt, func(w *world) error {
			_, err := w.RemoveFirewallRule(context.Background(), w.member, policy, rule)
			return err
		})
	default:
		rules := rapid.SliceOfNDistinct(rapid.IntRange(0, max(0, len(g.rules)-1)), 0, len(g.rules), rapid.ID).Draw(rt, "rules")
		var ids []string
		for _, i := range rules {
			ids = append(ids, g.rules[i])
		}
		g.edit(rt, neutron.FirewallPolicies, policy, `{"firewall_rules":`+quoted(ids)+`}`)
	}
}

// deletable are the kinds that a game deletes, dependants first.
func (g *routingGame) deletable() []struct {
	r   neutron.Resource
	ids *[]string
} {
	return []struct {
		r   neutron.Resource
		ids *[]string
	}{
		{neutron.PortForwardings, &g.forwarded}, {neutron.FloatingIPs, &g.floating}, {neutron.Ports, &g.ports}, {neutron.Firewalls, &g.firewalls},
		{neutron.FirewallPolicies, &g.policies}, {neutron.FirewallRules, &g.rules},
	}
}

func (g *routingGame) deleteAnything(rt *rapid.T) {
	kind := rapid.SampledFrom(g.deletable()).Draw(rt, "kind")
	id := one(rt, "which", *kind.ids)
	rt.Logf("delete %s %s", kind.r, id)
	if g.try(rt, func(w *world) error { return w.remove(w.member, kind.r, id) }) {
		*kind.ids = slices.DeleteFunc(*kind.ids, func(other string) bool { return other == id })
	}
}

func (g *routingGame) deleteAll(rt *rapid.T) {
	remove := func(r neutron.Resource, ids []string) {
		for _, id := range ids {
			err := g.remove(g.admin, r, id)
			if r == neutron.PortForwardings && strings.HasPrefix(problem(err), "PortForwardingNotFound") {
				continue // it went with its port
			}
			if err != nil {
				rt.Fatalf("delete %s %s: %v", r, id, err)
			}
		}
	}
	for _, kind := range g.deletable() {
		remove(kind.r, *kind.ids)
	}
	for _, router := range g.routers {
		if _, err := g.change(g.admin, neutron.Routers, router, `{"routes":[]}`); err != nil {
			rt.Fatal(err)
		}
		for _, subnet := range append(g.externalSubnets[:1:1], g.subnets...) {
			_, _ = g.Routers().RemoveInterface(context.Background(), g.admin, router, neutron.InterfaceRequest{SubnetID: subnet})
		}
	}
	remove(neutron.Routers, g.routers)
	remove(neutron.Networks, append(g.tenants, g.externals...))
}

// check derives every bundle anew and compares.
func (g *routingGame) check(rt *rapid.T) { g.checkDerived(rt) }

// derivedServices returns the bundles that floating IPs and firewalls should have, by id. What they
// name has to be there.
func derivedServices(rt fataler, snap *records.Snap) map[string]string {
	rt.Helper()
	want := map[string]string{}
	for f := range schema.FloatingIPs.All(snap) {
		var link translate.RouterLink
		var router *neutron.Router
		if f.PortID != "" {
			x, err := schema.RouterPorts.Get(snap, f.ServedBy)
			if err != nil || x.RouterID != f.RouterID {
				rt.Fatalf("floating IP %s is served by %+v, %v", f.ID, x, err)
			}
			port := must2(schema.Ports.Get(snap, f.ServedBy))
			link, router = translate.RouterLink{Port: port, Network: must2(schema.Networks.Get(snap, port.NetworkID))}, must2(schema.Routers.Get(snap, f.RouterID))
			owner := must2(schema.Ports.Get(snap, f.PortID))
			if !slices.ContainsFunc(owner.FixedIPs, func(a neutron.FixedIP) bool { return a.IPAddress == f.FixedIPAddress }) {
				rt.Fatalf("floating IP %s stands for %s, which port %s does not have", f.ID, f.FixedIPAddress, f.PortID)
			}
		}
		want["floating-ip/"+f.ID] = text(translate.FloatingIP(f, router, link))
		if (f.RouterID != "") != (f.PortID != "" || schema.PortForwardings.CountBy(snap, "floating_ip", f.ID) > 0) {
			rt.Fatalf("floating IP %s has router %q", f.ID, f.RouterID)
		}
	}
	for x := range schema.PortForwardings.All(snap) {
		f := must2(schema.FloatingIPs.Get(snap, x.FloatingIPID))
		port := must2(schema.Ports.Get(snap, f.ServedBy))
		link := translate.RouterLink{Port: port, Network: must2(schema.Networks.Get(snap, port.NetworkID))}
		owner := must2(schema.Ports.Get(snap, x.InternalPortID))
		if !slices.ContainsFunc(owner.FixedIPs, func(a neutron.FixedIP) bool { return a.IPAddress == x.InternalIPAddress }) {
			rt.Fatalf("forwarding %s leads to %s, which port %s does not have", x.ID, x.InternalIPAddress, x.InternalPortID)
		}
		want["port-forwarding/"+x.ID] = text(translate.PortForwarding(x, f, must2(schema.Routers.Get(snap, f.RouterID)), link))
	}
	for l := range schema.Logs.All(snap) {
		if l.Enabled {
			want["log/"+l.ID] = text(translate.Log(l))
		}
	}
	for f := range schema.Firewalls.All(snap) {
		var rules []neutron.FirewallRule
		for _, id := range must2(schema.FirewallPolicies.Get(snap, f.PolicyID)).Rules {
			rules = append(rules, *must2(schema.FirewallRules.Get(snap, id)))
		}
		if want["firewall/"+f.ID] = text(translate.Firewall(f, rules)); f.RoutersGone {
			want["firewall/"+f.ID] = `{}`
		}
	}
	return want
}
