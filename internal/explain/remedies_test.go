package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
)

// TestRemedies: each thing that may be missing is offered as commands, after which the connection
// passes. Asking has changed nothing.
func TestRemedies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		damage   func(c *cloud, web, db *neutron.PortView)
		from, to string
		code     flow.Code
		commands []string // their beginnings
		ask      string   // in place of to, afterwards
	}{
		{name: "port", damage: func(c *cloud, _, db *neutron.PortView) {
			update(c, c.Ports(), neutron.Ports, db.ID, `{"admin_state_up":false}`)
		},
			code: flow.CodePortDown, commands: []string{"heddle port set"}},
		{name: "network", damage: func(c *cloud, web, _ *neutron.PortView) {
			update(c, c.Networks(), neutron.Networks, web.NetworkID, `{"admin_state_up":false}`)
		},
			code: flow.CodeNetworkDown, commands: []string{"heddle net set"}},
		{name: "router", damage: func(c *cloud, _, _ *neutron.PortView) {
			update(c, c.Routers().Operations, neutron.Routers, c.router("r"), `{"admin_state_up":false}`)
		},
			code: flow.CodeRouterDown, commands: []string{"heddle router set"}},
		{name: "firewall group", damage: func(c *cloud, web, _ *neutron.PortView) { c.firewallGroup() },
			code: flow.CodeFirewallDefault, commands: []string{"openstack firewall group rule create --name allow-tcp-1 --action allow --protocol tcp --source-ip-address ", "openstack firewall group policy add rule"}},
		{name: "interface of the receiver", damage: func(c *cloud, _, db *neutron.PortView) { c.detach(db) },
			code: flow.CodeNoRoute, commands: []string{"heddle router add-subnet"}},
		{name: "interface of the sender", damage: func(c *cloud, web, _ *neutron.PortView) { c.detach(web) },
			code: flow.CodeNoNeighbour, commands: []string{"heddle router add-subnet"}},
		{name: "both interfaces and a rule", from: "web", to: "lone2", damage: func(c *cloud, web, db *neutron.PortView) {
			c.port(db.NetworkID, "lone2", "h2", fmt.Sprintf(`,"security_groups":[%q]`, create(c, c.SecurityGroups(), neutron.SecurityGroups, `{"name":"other"}`).ID))
			c.detach(db)
		}, code: flow.CodeNoRoute, commands: []string{"heddle router add-subnet", "heddle sg rule add"}},
		{name: "route of the subnet", from: "vm", damage: func(c *cloud, web, _ *neutron.PortView) {
			n := create(c, c.Networks(), neutron.Networks, `{"name":"plain"}`).ID
			create(c, c.Subnets(), neutron.Subnets, `{"network_id":%q,"ip_version":4,"cidr":"10.0.3.0/24","gateway_ip":null}`, n)
			c.port(n, "vm", "h1", "")
			at := create(c, c.Ports(), neutron.Ports, `{"network_id":%q,"fixed_ips":[{"ip_address":"10.0.3.9"}]}`, n).ID
			if _, err := c.Routers().AddInterface(context.Background(), admin, c.router("r"), neutron.InterfaceRequest{PortID: at}); err != nil {
				c.t.Fatal(err)
			}
		}, code: flow.CodeNoRoute, commands: []string{"heddle subnet set"}},
		{name: "gateway of the router", to: "198.51.100.7", damage: func(c *cloud, _, _ *neutron.PortView) {
			update(c, c.Routers().Operations, neutron.Routers, c.router("r"), `{"external_gateway_info":null}`)
		}, code: flow.CodeNoRoute, commands: []string{"heddle router set-gateway"}},
		{name: "floating IP", from: "198.51.100.7", to: "web", damage: func(*cloud, *neutron.PortView, *neutron.PortView) {},
			code: flow.CodeNoRoute, commands: []string{"heddle fip create", "heddle fip attach 203.0.113.254", "heddle sg rule add"}, ask: "203.0.113.254"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			web, db := c.twoTiers()
			tt.damage(c, web, db)
			q := &operator.WhyRequest{From: "web", To: "db", Port: 5432}
			if tt.from != "" {
				q.From = tt.from
			}
			if tt.to != "" {
				q.To = tt.to
			}
			a := c.why(q.From, q.To, q.Port, operator.Denied)
			if a.There.Trace.Code != tt.code {
				t.Fatalf("denied by %s, want %s: %+v", a.There.Trace.Code, tt.code, a.There.Trace.Walk)
			}
			if len(a.Remedies) != len(tt.commands) {
				t.Fatalf("got %+v, want %q", a.Remedies, tt.commands)
			}
			for i, r := range a.Remedies {
				if text := strings.Join(r.Command, " "); !strings.HasPrefix(text, tt.commands[i]) || r.Text == "" {
					t.Errorf("the command is %q, want %q", text, tt.commands[i])
				}
			}
			if again := c.why(q.From, q.To, q.Port, operator.Denied); len(again.Remedies) != len(a.Remedies) {
				t.Errorf("asked again, it offers %+v", again.Remedies)
			}
			for _, r := range a.Remedies {
				c.do(r)
			}
			if tt.ask != "" {
				q.To = tt.ask
			}
			c.why(q.From, q.To, q.Port, operator.Allowed)
		})
	}
}

// TestNoRemedy: where no change that is known helps, none is offered.
func TestNoRemedy(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	_, db := c.twoTiers()
	c.firewall("deny", "tcp", "5433") // of version 1
	if a := c.why("web", "db", 5433, operator.Denied); len(a.Remedies) != 0 {
		t.Errorf("got %+v", a.Remedies)
	}
	update(c, c.Ports(), neutron.Ports, db.ID, `{"binding:host_id":""}`)
	if a := c.why("web", "db", 5432, operator.Denied); len(a.Remedies) != 0 {
		t.Errorf("got %+v", a.Remedies)
	}
}

// the returns the only object of a table with a value.
func the[T any](c *cloud, table *records.Table[T], index, value string) *T {
	c.t.Helper()
	for o := range table.By(c.view(), index, value) {
		return o
	}
	c.t.Fatalf("nothing has the %s %s", index, value)
	return nil
}

func (c *cloud) router(name string) string {
	c.t.Helper()
	return the(c, schema.Routers, "name", name).ID
}

// detach takes a port's subnet from router r.
func (c *cloud) detach(p *neutron.PortView) {
	c.t.Helper()
	if _, err := c.Routers().RemoveInterface(context.Background(), admin, c.router("r"), neutron.InterfaceRequest{SubnetID: p.FixedIPs[0].SubnetID}); err != nil {
		c.t.Fatal(err)
	}
}

// do carries out the command of a remedy.
func (c *cloud) do(r operator.Remedy) {
	c.t.Helper()
	words := r.Command
	flags := func(from int, special func(flag, value string) (string, any)) string {
		body := map[string]any{}
		for i := from; i < len(words); i += 2 {
			name, value := special(words[i], words[i+1])
			body[name] = value
		}
		text, err := json.Marshal(body)
		if err != nil {
			c.t.Fatal(err)
		}
		return string(text)
	}
	begins := func(text string) bool { return strings.HasPrefix(strings.Join(words, " ")+" ", text+" ") }
	switch {
	case begins("heddle sg rule add"):
		c.addRule(words)
	case begins("heddle port set"):
		update(c, c.Ports(), neutron.Ports, words[3], `{"admin_state_up":true}`)
	case begins("heddle net set"):
		update(c, c.Networks(), neutron.Networks, words[3], `{"admin_state_up":true}`)
	case begins("heddle router set"):
		update(c, c.Routers().Operations, neutron.Routers, words[3], `{"admin_state_up":true}`)
	case begins("heddle subnet set"):
		update(c, c.Subnets(), neutron.Subnets, words[3], fmt.Sprintf(`{"host_routes":[{"destination":"0.0.0.0/0","nexthop":%q}]}`, strings.TrimPrefix(words[5], "0.0.0.0/0=")))
	case begins("heddle router add-subnet"):
		if _, err := c.Routers().AddInterface(context.Background(), admin, words[3], neutron.InterfaceRequest{SubnetID: words[4]}); err != nil {
			c.t.Fatal(err)
		}
	case begins("heddle router set-gateway"):
		update(c, c.Routers().Operations, neutron.Routers, words[3], fmt.Sprintf(`{"external_gateway_info":{"network_id":%q}}`, words[4]))
	case begins("heddle fip create"):
		create(c, c.FloatingIPs(), neutron.FloatingIPs, `{"floating_network_id":%q,"floating_ip_address":%q}`, words[3], words[5])
	case begins("heddle fip attach"):
		update(c, c.FloatingIPs(), neutron.FloatingIPs, the(c, schema.FloatingIPs, "ip_address", words[3]).ID, fmt.Sprintf(`{"port_id":%q}`, words[4]))
	case begins("openstack firewall group rule create"):
		create(c, c.FirewallGroupRules(), neutron.FirewallGroupRules, "%s", flags(5, func(flag, value string) (string, any) {
			return strings.ReplaceAll(flag[2:], "-", "_"), value
		}))
	case begins("openstack firewall group policy add rule"):
		update(c, c.FirewallGroupPolicies(), neutron.FirewallGroupPolicies, words[6], fmt.Sprintf(`{"firewall_rules":[%q]}`, the(c, schema.FirewallGroupRules, "name", words[7]).ID))
	default:
		c.t.Fatalf("the command is %v", words)
	}
}

// addRule carries out heddle sg rule add GROUP FLAGS.
func (c *cloud) addRule(words []string) {
	c.t.Helper()
	body := map[string]any{"security_group_id": words[4]}
	for i := 5; i < len(words); i += 2 {
		switch value := words[i+1]; words[i] {
		case "--port":
			var port int
			if _, err := fmt.Sscan(value, &port); err != nil {
				c.t.Fatal(err)
			}
			body["port_range_min"], body["port_range_max"] = port, port
		case "--remote":
			body["remote_ip_prefix"] = value
		default:
			body[words[i][2:]] = value
		}
	}
	text, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, "%s", text)
}

// firewallGroup makes a firewall group whose empty policy denies what enters and leaves the
// interfaces of router r.
func (c *cloud) firewallGroup() {
	c.t.Helper()
	policy := create(c, c.FirewallGroupPolicies(), neutron.FirewallGroupPolicies, `{"name":"closed"}`).ID
	var ports []string
	for p := range schema.Ports.All(c.view()) {
		if p.DeviceOwner == "network:router_interface" {
			ports = append(ports, p.ID)
		}
	}
	text, err := json.Marshal(ports)
	if err != nil {
		c.t.Fatal(err)
	}
	create(c, c.FirewallGroups(), neutron.FirewallGroups, `{"name":"g","ingress_firewall_policy_id":%[1]q,"egress_firewall_policy_id":%[1]q,"ports":%[2]s}`, policy, text)
}
