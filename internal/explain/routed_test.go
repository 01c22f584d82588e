package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"heddle/calico"
	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/topology/flow"
)

// put stores objects of Calico's model as JSON; "" deletes one.
func (c *cloud) put(objects map[calico.Key]string) {
	c.t.Helper()
	var ops []store.Op
	for key, value := range objects {
		path, err := key.Path()
		if err != nil {
			c.t.Fatal(err)
		}
		ops = append(ops, store.Op{Key: path, Value: []byte(value), Delete: value == ""})
	}
	if _, err := c.db.Store().Commit(c.t.Context(), nil, ops); err != nil {
		c.t.Fatal(err)
	}
}

// apply stores what a remedy has heddle calico apply read.
func (c *cloud) apply(r operator.Remedy) {
	c.t.Helper()
	var kind, name string
	text := r.Input
	for _, k := range []string{"tier", "policy", "profile"} {
		if _, rest, found := strings.Cut(text, fmt.Sprintf("%q:\"", k)); found {
			name += "/" + strings.SplitN(rest, `"`, 2)[0]
		}
	}
	_, rest, _ := strings.Cut(text, `"kind":"`)
	kind = strings.SplitN(rest, `"`, 2)[0]
	_, spec, ok := strings.Cut(text, `"spec":`)
	if !ok {
		c.t.Fatalf("no document: %+v", r)
	}
	path := map[string]string{"Policy": "/calico/v1/policy/tier%s/policy%s", "ProfileRules": "/calico/v1/policy/profile%s/rules"}[kind]
	parts := strings.SplitN(strings.TrimPrefix(name, "/"), "/", 2)
	args := []any{"/" + parts[0]}
	if len(parts) == 2 {
		args = append(args, "/"+parts[1])
	}
	if _, err := c.db.Store().Commit(c.t.Context(), nil, []store.Op{{Key: fmt.Sprintf(path, args...), Value: []byte(strings.TrimSuffix(spec, "}"))}}); err != nil {
		c.t.Fatal(err)
	}
}

func workload(host, id string) calico.WorkloadEndpointKey {
	return calico.WorkloadEndpointKey{Host: host, Orchestrator: "vm", Workload: id, Endpoint: "eth0"}
}

// routedHosts stores web on h1 and db on h2, which a policy closes, others on h1 that lack
// something, and a host endpoint of h2.
func (c *cloud) routedHosts() {
	c.t.Helper()
	c.put(map[calico.Key]string{
		workload("h1", "web"):                              `{"state":"active","name":"cali1","ipv4_nets":["10.65.0.1/32"],"profile_ids":["open"],"labels":{"role":"web"}}`,
		workload("h2", "db"):                               `{"state":"active","name":"cali2","ipv4_nets":["10.65.0.2/32"],"ipv4_nat":[{"int_ip":"10.65.0.2","ext_ip":"198.51.100.2"}],"profile_ids":["open"],"labels":{"role":"db"}}`,
		workload("h1", "lone"):                             `{"state":"active","name":"cali3","ipv4_nets":["10.65.0.3/32"],"profile_ids":[]}`,
		workload("h1", "lost"):                             `{"state":"active","name":"cali4","ipv4_nets":["10.65.0.4/32"],"profile_ids":["gone"]}`,
		workload("h1", "down"):                             `{"state":"inactive","name":"cali5","ipv4_nets":["10.65.0.5/32"],"profile_ids":["open"]}`,
		workload("h1", "other"):                            `{"state":"active","name":"eth7","ipv4_nets":["10.65.0.6/32"],"profile_ids":["open"]}`,
		calico.HostEndpointKey{Host: "h2", Endpoint: "up"}: `{"name":"eth0","expected_ipv4_addrs":["192.0.2.2"],"labels":{"edge":""}}`,
		calico.ProfileRulesKey{Profile: "open"}:            `{"inbound_rules":[{"action":"deny","protocol":"tcp","dst_ports":[23]},{}],"outbound_rules":[{}]}`,
		calico.PolicyKey{Tier: "default", Policy: "db"}:    `{"selector":"role == \"db\"","inbound_rules":[{"action":"deny","protocol":"tcp","dst_ports":[22]},{"protocol":"tcp","dst_ports":[5432],"src_selector":"role == \"web\""}],"outbound_rules":[{}]}`,
		calico.PolicyKey{Tier: "default", Policy: "edge"}:  `{"selector":"has(edge)","inbound_rules":[{"protocol":"icmp"}],"outbound_rules":[{}]}`,
		calico.HostIPKey{Host: "h2"}:                       `192.0.2.2`,
	})
}

// TestWhyRouted: the verdict between endpoints on routed hosts, by name or address, the reason with
// its code and the policy's rule, and the remedy, which works when it is carried out.
func TestWhyRouted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from, to string
		port     uint16
		verdict  operator.Verdict
		code     flow.Code
		by, text string
		remedies int
	}{
		{"web", "db", 5432, operator.Allowed, 0, "policy-rule inbound/2 default/db", "arrives at endpoint h2/vm/db/eth0", 0},
		{"h1/web/eth0", "10.65.0.2", 5432, operator.Allowed, 0, "policy-rule inbound/2 default/db", "", 0},
		{"web", "198.51.100.2", 5432, operator.Allowed, 0, "", "", 0},
		{"web", "db", 22, operator.Denied, flow.CodePolicy, "policy-rule inbound/1 default/db", "on host h2: policy default/db inbound rule 1", 1},
		{"web", "db", 80, operator.Denied, flow.CodeDefaultDeny, "tier default", "on host h2: default deny of tier default", 1},
		{"198.51.100.9", "web", 80, operator.Allowed, 0, "profile-rule inbound/2 open", "", 0},
		{"198.51.100.9", "web", 23, operator.Denied, flow.CodePolicy, "profile-rule inbound/1 open", "", 1},
		{"web", "198.51.100.9", 80, operator.Allowed, 0, "profile-rule outbound/1 open", "leaves the routed hosts for 198.51.100.9", 0},
		{"web", "lone", 80, operator.Denied, flow.CodeNoPolicyNoProfile, "", "", 0},
		{"web", "lost", 80, operator.Denied, flow.CodeMissingProfile, "profile gone", "", 1},
		{"web", "down", 80, operator.Denied, flow.CodePortDown, "", "", 0},
		{"web", "other", 80, operator.Denied, flow.CodeBadObject, "", "begins with none of the prefixes", 0},
		{"198.51.100.9", "h2/up", 22, operator.Allowed, 0, "", "arrives at host h2", 0}, // a fail-safe port
		{"198.51.100.9", "192.0.2.2", 80, operator.Denied, flow.CodeDefaultDeny, "tier default", "", 1},
		{"up", "web", 80, operator.Allowed, 0, "profile-rule inbound/2 open", "", 0},
	} {
		t.Run(fmt.Sprintf("%s to %s %d", strings.ReplaceAll(tt.from, "/", "."), strings.ReplaceAll(tt.to, "/", "."), tt.port), func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			c.routedHosts()
			a := c.why(tt.from, tt.to, tt.port, tt.verdict)
			if got := a.There.Trace.Code; got != tt.code {
				t.Errorf("code %s, want %s", got, tt.code)
			}
			by := ""
			for _, o := range a.There.By {
				if by = o.Kind + " " + o.ID; o.Group != nil {
					by += " " + o.Group.ID
				}
			}
			if tt.by != "" && by != tt.by {
				t.Errorf("by %s, want %s", by, tt.by)
			}
			if !strings.Contains(a.There.Reason, tt.text) {
				t.Errorf("reason %q, want %q in it", a.There.Reason, tt.text)
			}
			if len(a.Remedies) != tt.remedies {
				t.Fatalf("%d remedies, want %d: %+v", len(a.Remedies), tt.remedies, a)
			}
			if tt.remedies == 0 {
				return
			}
			for _, r := range a.Remedies {
				c.apply(r)
			}
			c.why(tt.from, tt.to, tt.port, operator.Allowed)
		})
	}
}

// TestWhyRoutedFaults: what is named twice, or not at all, is said.
func TestWhyRoutedFaults(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.routedHosts()
	c.put(map[calico.Key]string{workload("h2", "web"): `{"state":"active","name":"cali9","ipv4_nets":["10.65.0.9/32"],"profile_ids":["open"]}`})
	for _, tt := range []struct {
		q    operator.WhyRequest
		kind FaultKind
		text string
	}{
		{operator.WhyRequest{From: "web", To: "db", Port: 80}, Ambiguous, "from: 2 endpoints are called web: give one with more of its key, such as h1/vm/web/eth0, h2/vm/web/eth0"},
		{operator.WhyRequest{From: "h1/web/eth0", To: "nothing", Port: 80}, Missing, `no port has the id or name "nothing"`},
		{operator.WhyRequest{From: "h1/web/eth0", To: "db", Port: 80, Live: true}, Unfit, "routed hosts wait for no packets"},
		{operator.WhyRequest{From: "h1/web/eth0", To: "2001:db8::1", Port: 80}, Unfit, "no addresses of one version"},
	} {
		_, err := c.ask(&tt.q)
		var wrong *Fault
		if !errors.As(err, &wrong) || wrong.Kind != tt.kind || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%+v: %v, want %s", tt.q, err, tt.text)
		}
	}
	c.put(map[calico.Key]string{workload("h2", "web"): ""})
	c.why("web", "db", 5432, operator.Allowed)
}

// routedPorts makes two ports on a routed network, of a group each.
func (c *cloud) routedPorts() (front, back string) {
	c.t.Helper()
	n := create(c, c.Networks(), neutron.Networks, `{"name":"routed","provider:network_type":"routed"}`).ID
	create(c, c.Subnets(), neutron.Subnets, `{"network_id":%q,"ip_version":4,"cidr":"10.66.0.0/24"}`, n)
	for _, name := range []string{"front", "back"} {
		g := create(c, c.SecurityGroups(), neutron.SecurityGroups, `{"name":%q}`, name+"s").ID
		p := c.port(n, name, map[string]string{"front": "h1", "back": "h2"}[name], fmt.Sprintf(`,"security_groups":[%q],"device_owner":"compute:nova","device_id":"vm-%s"`, g, name))
		if name == "front" {
			front = p.ID
		} else {
			back = p.ID
		}
	}
	c.put(map[calico.Key]string{calico.GlobalConfigKey{Name: "InterfacePrefix"}: "tap"})
	return front, back
}

// TestWhyRoutedPorts: ports of routed networks are found as others are, and the remedy is a rule of
// their security group.
func TestWhyRoutedPorts(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.routedPorts()
	a := c.why("front", "back", 80, operator.Denied)
	if len(a.Remedies) != 1 || !strings.HasPrefix(strings.Join(a.Remedies[0].Command, " "), "heddle sg rule add ") || a.Remedies[0].Input != "" {
		t.Fatalf("remedies %+v", a.Remedies)
	}
	if a.There.Trace.Code != flow.CodeDefaultDeny || a.To.Port == "" || a.To.Endpoint == "" || a.To.Host != "h2" {
		t.Errorf("answer %+v", a)
	}
	words := a.Remedies[0].Command
	create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress","ethertype":"IPv4","protocol":"tcp","port_range_min":80,"port_range_max":80,"remote_ip_prefix":%q}`,
		words[4], words[len(words)-1])
	a = c.why("front", "back", 80, operator.Allowed)
	if by := a.There.By; len(by) == 0 || by[len(by)-1].Kind != "security-group-rule" || by[len(by)-1].Group.Name != "backs" {
		t.Errorf("allowed by %+v", by)
	}
}

// TestWhyAcross: between a virtual network and a routed host there are two parts of the way.
func TestWhyAcross(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.twoTiers()
	c.routedHosts()
	a := c.why("web", "10.65.0.2", 5432, operator.Denied)
	if !a.There.Allowed || a.There.Rest == nil || a.There.Rest.Trace.Code != flow.CodeDefaultDeny {
		t.Fatalf("answer %+v", a)
	}
	if !strings.Contains(a.There.Reason, "for a routed host") {
		t.Errorf("reason %q", a.There.Reason)
	}
	if len(a.Remedies) != 1 || !strings.Contains(a.Remedies[0].Input, `"src_net":"203.0.113.`) {
		t.Errorf("remedies %+v", a.Remedies)
	}
	c.apply(a.Remedies[0])
	c.why("web", "10.65.0.2", 5432, operator.Allowed)
}

// TestTenantOnRoutedHosts: a tenant gets answers about own ports on routed hosts, and learns of
// others only what was in the question.
func TestTenantOnRoutedHosts(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.routedHosts()
	n := create(c, c.Networks(), neutron.Networks, `{"name":"routed","provider:network_type":"routed","shared":true}`).ID
	create(c, c.Subnets(), neutron.Subnets, `{"network_id":%q,"ip_version":4,"cidr":"10.66.0.0/24"}`, n)
	group := create(c, c.SecurityGroups(), neutron.SecurityGroups, `{"name":"mine","tenant_id":"tenant"}`).ID
	mine := c.port(n, "mine", "h1", fmt.Sprintf(`,"tenant_id":"tenant","security_groups":[%q],"device_owner":"compute:nova","device_id":"vm-mine"`, group))
	mine2 := c.port(n, "mine2", "h2", fmt.Sprintf(`,"tenant_id":"tenant","security_groups":[%q],"device_owner":"compute:nova","device_id":"vm-mine2"`, group))
	theirs := c.port(n, "secret", "h2", `,"device_owner":"compute:nova","device_id":"vm-secret"`)
	c.put(map[calico.Key]string{calico.GlobalConfigKey{Name: "InterfacePrefix"}: "tap"})

	denied := func() *operator.WhyAnswer {
		a, err := c.asked(operator.WhyRequest{From: "mine", To: "mine2", Port: 22})
		if err != nil || a.Verdict != operator.Denied || a.There.Trace.Code != flow.CodeDefaultDeny || len(a.Remedies) != 1 {
			t.Fatalf("%+v, %v", a, err)
		}
		return a
	}
	c.do(denied().Remedies[0])
	if a, err := c.asked(operator.WhyRequest{From: "mine", To: "mine2", Port: 22}); err != nil || a.Verdict != operator.Allowed {
		t.Errorf("with the rule: %+v, %v", a, err)
	}

	at := func(p *neutron.PortView) string { return p.FixedIPs[0].IPAddress.String() }
	secrets := []string{theirs.ID, at(theirs), "secret", "h1", "h2", "vm-", "tap", "db", "edge", "10.65.0.2"}
	for _, from := range []string{"mine", mine.ID, at(theirs), "secret", "db", "10.65.0.2"} {
		for _, to := range []string{"mine2", at(mine2), at(theirs), "secret", "db", "10.65.0.2", "h2", "198.51.100.7"} {
			for _, port := range []uint16{0, 22, 5432} {
				q := operator.WhyRequest{From: from, To: to, Port: port}
				text := ""
				if a, err := c.asked(q); err != nil {
					text = err.Error()
				} else if raw, err := json.Marshal(a); err != nil {
					t.Fatal(err)
				} else {
					text = string(raw)
				}
				for _, s := range secrets {
					if !strings.Contains(from+" "+to, s) && regexp.MustCompile(`\b`+regexp.QuoteMeta(s)).MatchString(text) {
						t.Fatalf("%+v shows %s:\n%s", q, s, text)
					}
				}
			}
		}
	}
}
