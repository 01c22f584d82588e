package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"heddle/internal/api/apitest"
	"heddle/internal/api/operator"
	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/simulate"
)

var admin = neutron.Caller{UserID: "u", ProjectID: "ops", Roles: []string{"admin", "member", "reader"}}

// cloud is a store in memory with what Neutron's operations make of it.
type cloud struct {
	*control.Service
	t     testing.TB
	db    *records.DB
	world *World
	// agents answers in place of hosts' agents; nil: none is alive.
	agents Ask
	calico *replica.Replica
}

// sources returns those of answers beside the tables.
func (c *cloud) sources() Sources {
	return Sources{Ask: c.agents, Calico: c.calico.Fresh}
}

func newCloud(t testing.TB) *cloud {
	t.Helper()
	st := store.NewMemory()
	rep := replica.New(st, replica.Options{Watch: schema.Root}, schema.All()...)
	c := &cloud{t: t, db: records.NewDB(st, rep), world: NewWorld(), calico: replica.New(st, replica.Options{}, schema.CalicoObjects())}
	var err error
	if c.Service, err = control.New(c.db, control.Options{Quotas: map[string]int{"port": -1, "security_group": -1, "security_group_rule": -1, "network": -1, "subnet": -1},
		PhysicalNetworks: map[string]control.PhysicalNetwork{"public": {Flat: true}}}); err != nil {
		t.Fatal(err)
	}
	apitest.Run(t, rep)
	apitest.Run(t, c.calico)
	c.commit(func(tx *records.Tx) error {
		errs := []error{schema.TunnelZones.Put(tx, &topology.TunnelZone{ID: topology.DefaultTunnelZone, Name: "default", Type: "VXLAN"})}
		for i, name := range []string{"h1", "h2"} {
			errs = append(errs, schema.Hosts.Put(tx, &topology.Host{ID: "id-" + name, Name: name}), schema.HostStates.Put(tx, &topology.HostState{HostID: "id-" + name}),
				schema.Underlays.Put(tx, &topology.HostUnderlay{HostID: "id-" + name,
					Tunnels: []topology.HostTunnel{{ZoneID: topology.DefaultTunnelZone, IP: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})}}, PhysicalNetworks: map[string]string{"public": "eth1"}}))
		}
		return errors.Join(errs...)
	})
	return c
}

func (c *cloud) commit(change func(tx *records.Tx) error) {
	c.t.Helper()
	if _, err := c.db.Update(c.t.Context(), change); err != nil {
		c.t.Fatal(err)
	}
}

// parse reads the attributes of a request.
func parse(t testing.TB, r neutron.Resource, op neutron.Op, text string) neutron.Values {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	body := map[string]any{}
	if err := d.Decode(&body); err != nil {
		t.Fatal(err)
	}
	v, err := neutron.Parse(admin, r, op, body)
	if err != nil {
		t.Fatalf("%s %s: %v", r, text, err)
	}
	return v
}

func create[V any](c *cloud, ops control.Operations[V], r neutron.Resource, format string, args ...any) V {
	c.t.Helper()
	made, err := ops.Create(context.Background(), admin, []neutron.Values{parse(c.t, r, neutron.Create, fmt.Sprintf(format, args...))})
	if err != nil {
		c.t.Fatalf("%s %s: %v", r, format, err)
	}
	return made[0]
}

// port makes a port on a host.
func (c *cloud) port(network, name, host, rest string) *neutron.PortView {
	c.t.Helper()
	return create(c, c.Ports(), neutron.Ports, `{"network_id":%q,"name":%q,"binding:host_id":%q%s}`, network, name, host, rest)
}

// update changes an object.
func update[V any](c *cloud, ops control.Operations[V], r neutron.Resource, id, text string) {
	c.t.Helper()
	if _, err := ops.Update(context.Background(), admin, id, parse(c.t, r, neutron.Update, text), nil); err != nil {
		c.t.Fatal(err)
	}
}

// why asks, and checks the verdict.
func (c *cloud) why(from, to string, port uint16, verdict operator.Verdict) *operator.WhyAnswer {
	c.t.Helper()
	a, err := c.ask(&operator.WhyRequest{From: from, To: to, Port: port})
	if err != nil {
		c.t.Fatal(err)
	}
	if a.Verdict != verdict {
		c.t.Errorf("%s to %s port %d: %s, want %s: %+v", from, to, port, a.Verdict, verdict, a)
	}
	return a
}

func (c *cloud) ask(q *operator.WhyRequest) (*operator.WhyAnswer, error) {
	return c.world.Why(c.t.Context(), c.view(), admin, q, c.sources())
}

// twoTiers makes two networks behind a router: web on h1 and db on h2, with the default group, and
// lone on h1 in a group without rules. An address outside is routed by a network on a LAN.
func (c *cloud) twoTiers() (web, db *neutron.PortView) {
	c.t.Helper()
	subnet := func(network, cidr string) *neutron.SubnetView {
		return create(c, c.Subnets(), neutron.Subnets, `{"network_id":%q,"ip_version":4,"cidr":%q}`, network, cidr)
	}
	front := create(c, c.Networks(), neutron.Networks, `{"name":"front"}`).ID
	back := create(c, c.Networks(), neutron.Networks, `{"name":"back"}`).ID
	out := create(c, c.Networks(), neutron.Networks, `{"name":"public","router:external":true,"provider:network_type":"flat","provider:physical_network":"public"}`).ID
	s1, s2 := subnet(front, "10.0.1.0/24"), subnet(back, "10.0.2.0/24")
	subnet(out, "203.0.113.0/24")
	router := create(c, c.Routers().Operations, neutron.Routers, `{"name":"r","external_gateway_info":{"network_id":%q}}`, out).ID
	for _, s := range []*neutron.SubnetView{s1, s2} {
		if _, err := c.Routers().AddInterface(context.Background(), admin, router, neutron.InterfaceRequest{SubnetID: s.ID}); err != nil {
			c.t.Fatal(err)
		}
	}
	lonely := create(c, c.SecurityGroups(), neutron.SecurityGroups, `{"name":"lonely"}`).ID
	web, db = c.port(front, "web", "h1", ""), c.port(back, "db", "h2", "")
	c.port(front, "lone", "h1", fmt.Sprintf(`,"security_groups":[%q]`, lonely))
	return web, db
}

// TestWhy: the verdict in both directions, the reason, and the remedy, which works when it is
// carried out.
func TestWhy(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	web, db := c.twoTiers()
	a := c.why("web", "db", 5432, operator.Allowed) // the default group's members reach each other
	if a.From.Host != "h1" || a.To.Host != "h2" || a.Back == nil || !a.Back.Allowed || a.There.Port != db.ID || a.Service != "tcp 5432" {
		t.Errorf("got %+v", a)
	}
	if by := c.why(web.FixedIPs[0].IPAddress.String(), db.ID, 0, operator.Allowed); by.Service != "icmp" || by.From.Name != "web" {
		t.Errorf("by address, an echo: %+v", by)
	}

	a = c.why("web", "lone", 22, operator.Denied)
	if a.There.Trace.Code != flow.CodeNoRule || len(a.There.Nearest) != 1 || a.There.Nearest[0].Text != "it has no rule for ingress" || a.Back != nil {
		t.Errorf("got %+v", a.There)
	}
	if len(a.Remedies) != 1 {
		t.Fatalf("got remedies %+v, want one", a.Remedies)
	}
	c.why("web", "lone", 22, operator.Denied) // the first answer has changed nothing
	c.do(a.Remedies[0])
	c.why("web", "lone", 22, operator.Allowed)
	a = c.why("db", "lone", 22, operator.Denied)
	if n := a.There.Nearest; len(n) != 1 || len(n[0].Fails) != 1 || !strings.Contains(n[0].Fails[0], "its addresses are "+web.FixedIPs[0].IPAddress.String()+"/32, not "+db.FixedIPs[0].IPAddress.String()) {
		t.Errorf("the nearest rule: %+v", n)
	}
	if n := c.why("web", "lone", 23, operator.Denied).There.Nearest; len(n) != 1 || !slices.Equal(n[0].Fails, []string{"its ports are 22, not 23"}) {
		t.Errorf("the nearest rule: %+v", n)
	}

	mixed := create(c, c.SecurityGroups(), neutron.SecurityGroups, `{"name":"mixed"}`).ID
	for _, rule := range []string{`"protocol":"icmp"`, `"protocol":"tcp","port_range_min":22,"port_range_max":22`, `"protocol":"udp"`} { // each fails by one clause
		create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress",%s}`, mixed, rule)
	}
	c.port(web.NetworkID, "mixed", "h1", fmt.Sprintf(`,"security_groups":[%q]`, mixed))
	if n := c.why("web", "mixed", 23, operator.Denied).There.Nearest; len(n) != 1 || !slices.Equal(n[0].Fails, []string{"its ports are 22, not 23"}) {
		t.Errorf("the nearest rule meets most clauses: %+v", n)
	}
}

// TestWhyReply: the answer passes by what the first packet leaves at the other end. Within a
// connection that should be there, it passes by what the agent there knows.
func TestWhyReply(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	web, _ := c.twoTiers()
	c.do(c.why("web", "lone", 22, operator.Denied).Remedies[0])
	known := map[string]*simulate.Memory{"id-h1": simulate.NewMemory()}
	c.agents = func(_ context.Context, p *Probe) (*flow.TraceAnswer, error) {
		live := known[p.HostID]
		if live == nil {
			return nil, nil
		}
		var state simulate.State = live
		if p.State != nil {
			state = simulate.Assume(live, p.State)
		}
		a := flow.Answer(simulate.NewSimulator(c.world.world).Run(simulate.Input{PortID: p.PortID, HostID: p.HostID, Frame: p.Frame, State: state, Explain: true}))
		a.HostID, a.LiveState = p.HostID, true
		return &a, nil
	}
	a := c.why("web", "lone", 22, operator.Allowed)
	if a.Back == nil || !a.Back.Allowed || !a.Back.Trace.LiveState || !a.There.Trace.LiveState {
		t.Errorf("a new connection: %+v", a.Back)
	}
	reply := &operator.WhyRequest{From: "web", To: "lone", Port: 22, SourcePort: 40122, Reply: true}
	a, err := c.ask(reply)
	if err != nil || a.Verdict != operator.OneWay || a.Back.Trace.Code != flow.CodeNoRule || a.Back.Trace.Device != web.ID || len(a.Remedies) > 0 {
		t.Fatalf("no such connection: %+v, %v", a, err)
	}
	state := a.There.Trace.State
	if len(state.Connections) == 0 || state.Connections[0].DstPort != 40122 {
		t.Errorf("the first packet leaves %+v", state)
	}
	for _, k := range state.Connections {
		known["id-h1"].Commit(&flow.Decision{NewConns: []flow.ConnKey{k}})
	}
	if a, err = c.ask(reply); err != nil || a.Verdict != operator.Allowed {
		t.Fatalf("with the connection: %+v, %v", a, err)
	}
	step := slices.IndexFunc(a.Back.Trace.Walk, func(s flow.Step) bool { return s.Connection != nil })
	if step < 0 || !a.Back.Trace.Walk[step].Connection.Known || a.Back.Trace.Walk[step].Connection.Key.DstPort != 40122 {
		t.Errorf("the step about the connection: %+v", a.Back.Trace.Walk)
	}
}

// TestWhyOutside: what leaves and enters by a LAN, by floating addresses too.
func TestWhyOutside(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	web, _ := c.twoTiers()
	a := c.why("web", "198.51.100.7", 443, operator.Allowed)
	if want := "if 203.0.113.1 answers there"; a.Back != nil || !strings.Contains(a.There.Reason, want) {
		t.Errorf("got %+v, want %q", a.There, want)
	}
	if a, err := c.ask(&operator.WhyRequest{From: "198.51.100.7", To: "web", Port: 80}); err != nil || a.There.Trace.Code != flow.CodeNoRoute {
		t.Errorf("a tenant's address from outside: %+v, %v", a, err)
	}
	f := create(c, c.FloatingIPs(), neutron.FloatingIPs, `{"floating_network_id":%q,"port_id":%q}`, c.network("public"), web.ID).FloatingIPAddress.String()
	a = c.why("198.51.100.7", f, 80, operator.Denied)
	if a.There.Trace.Code != flow.CodeNoRule || len(a.Remedies) != 1 || a.To.Name != "web" {
		t.Errorf("got %+v", a)
	}
	if len(a.Remedies) == 1 {
		c.do(a.Remedies[0])
		c.why("198.51.100.7", f, 80, operator.Allowed)
		c.why("198.51.100.8", f, 80, operator.Denied)
	}
}

// TestWhyObjects: steps name the user's own objects: the rule of a group or of a firewall, the
// interface by which a route leads, the floating IP, the port.
func TestWhyObjects(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	web, _ := c.twoTiers()
	objects := func(l *operator.WhyLeg) (all []string) {
		for _, s := range l.Trace.Walk {
			if s.Object != nil {
				all = append(all, describe(s.Object)+" "+string(s.Kind))
			}
		}
		return all
	}
	has := func(got []string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !slices.Contains(got, w) {
				t.Errorf("no %q in %q", w, got)
			}
		}
	}
	a := c.why("web", "db", 5432, operator.Allowed)
	has(objects(&a.There), "port web in", "security-group-rule  of security-group default filter", "network front path", "router-interface 10.0.2.1 of router r route", "port db out")
	if len(a.There.By) != 2 || a.There.By[1].Group.Name != "default" {
		t.Errorf("let pass by %+v, want a rule at each end", a.There.By)
	}
	for _, r := range a.There.Trace.Walk {
		for i, x := range r.Routes {
			if (x.WhyNot == "") != (i == 0) || x.Object == nil {
				t.Errorf("route %d of a step: %+v", i, x)
			}
		}
	}

	c.firewall("deny", "tcp", "5433")
	a = c.why("web", "db", 5433, operator.Denied)
	if by := a.There.By; len(by) != 2 || describe(&by[1]) != "firewall-rule no-5433 of firewall fw" || a.There.Trace.Code != flow.CodeFirewall {
		t.Errorf("%s by %+v", a.There.Trace.Code, by)
	}
	if a = c.why("web", "db", 5434, operator.Denied); a.There.Trace.Code != flow.CodeFirewallDefault || describe(&a.There.By[len(a.There.By)-1]) != "firewall fw" {
		t.Errorf("%s by %+v", a.There.Trace.Code, a.There.By)
	}
	if a = c.why("lone", "web", 1, operator.Denied); describe(&a.There.By[len(a.There.By)-1]) != "port web" {
		t.Errorf("by %+v", a.There.By)
	}
	f := create(c, c.FloatingIPs(), neutron.FloatingIPs, `{"floating_network_id":%q,"port_id":%q}`, c.network("public"), web.ID).FloatingIPAddress.String()
	a = c.why("198.51.100.7", f, 80, operator.Denied)
	has(objects(&a.There), "floating-ip "+f+" translation")
}

func describe(o *flow.Object) string {
	text := o.Kind + " " + o.Name
	if o.Group != nil {
		text += " of " + describe(o.Group)
	}
	return text
}

// firewall makes a firewall fw on router r with one rule.
func (c *cloud) firewall(action, protocol, port string) {
	c.t.Helper()
	rule := create(c, c.FirewallRules(), neutron.FirewallRules, `{"name":"no-%s","action":%q,"protocol":%q,"destination_port":%q}`, port, action, protocol, port).ID
	policy := create(c, c.FirewallPolicies(), neutron.FirewallPolicies, `{"name":"p","firewall_rules":[%q]}`, rule).ID
	create(c, c.Firewalls(), neutron.Firewalls, `{"name":"fw","firewall_policy_id":%q}`, policy)
}

// TestWhyRefuses: questions without an answer say which part of them is wrong.
func TestWhyRefuses(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	web, _ := c.twoTiers()
	c.port(web.NetworkID, "twin", "h1", "")
	c.port(web.NetworkID, "twin", "", "")
	for _, tt := range []struct {
		q     operator.WhyRequest
		kind  FaultKind
		field string
		words string
	}{
		{operator.WhyRequest{From: "nope", To: "db"}, Missing, "from", `no port has the id or name "nope"`},
		{operator.WhyRequest{From: "web"}, Invalid, "to", "want a port"},
		{operator.WhyRequest{From: "web", To: "twin"}, Ambiguous, "to", "2 ports have the name"},
		{operator.WhyRequest{From: "web", To: "db", Protocol: "tcp"}, Invalid, "port", "tcp needs a port"},
		{operator.WhyRequest{From: "web", To: "db", Protocol: "icmp", Port: 1}, Invalid, "port", "icmp has no ports"},
		{operator.WhyRequest{From: "web", To: "db", SourcePort: 1}, Invalid, "sourcePort", "icmp has no ports"},
		{operator.WhyRequest{From: "web", To: "db", Protocol: "foo"}, Invalid, "protocol", "no protocol"},
		{operator.WhyRequest{From: "192.0.2.1", To: "192.0.2.2"}, Unfit, "to", "at least one end"},
		{operator.WhyRequest{From: "web", To: "2001:db8::1"}, Unfit, "to", "no addresses of one version"},
	} {
		var f *Fault
		if _, err := c.ask(&tt.q); !errors.As(err, &f) || f.Kind != tt.kind || f.Field != tt.field || !strings.Contains(f.Text, tt.words) {
			t.Errorf("%+v: %v, want field %s and %q", tt.q, err, tt.field, tt.words)
		}
	}
	update(c, c.Ports(), neutron.Ports, web.ID, `{"binding:host_id":""}`)
	if _, err := c.ask(&operator.WhyRequest{From: "web", To: "db"}); err == nil || !strings.Contains(err.Error(), "not bound to a host") {
		t.Errorf("from a port without a host: %v", err)
	}
}
