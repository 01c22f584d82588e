package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// qosPolicy makes a policy of a project, with rules as "<type> <body>".
func (w *world) qosPolicy(project, rest string, rules ...string) string {
	w.t.Helper()
	id := must[*neutron.QoSPolicyView](w, w.admin, neutron.QoSPolicies, `{"project_id":"`+project+`"`+rest+`}`).ID
	for _, r := range rules {
		w.qosRule(id, r)
	}
	return id
}

// addQoSRule makes the rule of "<type> <body>".
func (w *world) addQoSRule(policy, text string) (string, error) {
	w.t.Helper()
	name, body, _ := strings.Cut(text, " ")
	res := neutron.QoSRuleTypeNamed(name).Resource
	v, err := parse(w.admin, res, neutron.Create, body)
	if err != nil {
		w.t.Fatal(err)
	}
	made, err := w.QoSRules(policy, res).Create(w.t.Context(), w.admin, []neutron.Values{v})
	if err != nil {
		return "", err
	}
	return made[0].ID, nil
}

func (w *world) qosRule(policy, text string) string {
	w.t.Helper()
	id, err := w.addQoSRule(policy, text)
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// limitsOf returns the limits that the topology has of a port.
func (w *world) limitsOf(port string) string {
	w.t.Helper()
	ps := w.bundle("port", port).Ports
	if len(ps) != 1 {
		w.t.Fatalf("port %s has %d ports in the topology", port, len(ps))
	}
	return ps[0].LimitsID
}

// TestQoSLimits follows a policy's rules to the one record that everything with the policy names.
func TestQoSLimits(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	id := w.qosPolicy("mine", "")
	if b := w.bundle("qos-policy", id); len(b.Limits) != 0 {
		t.Errorf("limits of a policy without rules: %+v", b.Limits)
	}
	rule := w.qosRule(id, `bandwidth_limit {"max_kbps":1000}`)
	w.qosRule(id, `bandwidth_limit {"max_kbps":2000,"max_burst_kbps":300,"direction":"ingress"}`)
	w.qosRule(id, `packet_rate_limit {"max_kpps":4,"max_burst_kpps":1}`)
	w.qosRule(id, `dscp_marking {"dscp_mark":46}`)
	mark := uint8(46)
	want := topology.Limits{ID: id,
		Egress:  topology.Limit{Rate: 1_000_000, Packets: 4000, PacketBurst: 1000},
		Ingress: topology.Limit{Rate: 2_000_000, Burst: 300_000}, DSCP: &mark}
	if got := w.bundle("qos-policy", id).Limits; len(got) != 1 || got[0].String() != want.String() || got[0].ID != id {
		t.Errorf("limits %v: want %v", got, &want)
	}
	ops := w.QoSRules(id, neutron.QoSBandwidthLimitRules)
	if _, err := ops.Update(t.Context(), w.admin, rule, neutron.Values{"max_kbps": 5}, nil); err != nil {
		t.Fatal(err)
	}
	if got := w.bundle("qos-policy", id).Limits[0].Egress.Rate; got != 5000 {
		t.Errorf("egress %d bit/s after the update", got)
	}
	if err := w.QoSRules("", neutron.QoSBandwidthLimitAliases).Delete(t.Context(), w.admin, rule, nil); err != nil {
		t.Fatal(err)
	}
	if got := w.bundle("qos-policy", id).Limits[0].Egress.Rate; got != 0 {
		t.Errorf("egress %d bit/s after the rule has gone", got)
	}
	p, err := w.QoSPolicies().Show(t.Context(), w.admin, id)
	if err != nil || p.RevisionNumber != 6 || len(p.Rules) != 3 {
		t.Errorf("policy of revision %d with rules %+v, %v: want 6 and three", p.RevisionNumber, p.Rules, err)
	}
}

// TestQoSOfPorts: each kind of port has its policy, and follows a change of the network's.
func TestQoSOfPorts(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	own, nets, later := w.qosPolicy("mine", ""), w.qosPolicy("mine", ""), w.qosPolicy("mine", "")
	n := w.network(`{"qos_policy_id":"` + nets + `"}`)
	plain := w.port(n.ID, `"device_owner":"compute:nova"`)
	chosen := w.port(n.ID, `"qos_policy_id":"`+own+`"`)
	service := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+n.ID+`","device_owner":"network:dhcp"}`)
	balancer := w.port(n.ID, `"device_owner":"neutron:LOADBALANCERV2"`)
	check := func(when, network string) {
		t.Helper()
		for _, c := range []struct {
			name, id, want string
		}{{"plain", plain.ID, network}, {"with its own", chosen.ID, own}, {"service", service.ID, ""}, {"balancer", balancer.ID, ""}} {
			if got := w.limitsOf(c.id); got != c.want {
				t.Errorf("%s: port %s has limits %q: want %q", when, c.name, got, c.want)
			}
			if v, err := w.Ports().Show(t.Context(), w.member, c.id); err != nil || v.NetworkQoSPolicyID != network {
				t.Errorf("%s: port %s shows %q of the network, %v: want %q", when, c.name, v.NetworkQoSPolicyID, err, network)
			}
		}
	}
	check("at first", nets)
	for _, next := range []string{later, ""} {
		text := `{"qos_policy_id":"` + next + `"}`
		if next == "" {
			text = `{"qos_policy_id":null}`
		}
		if _, err := w.change(w.member, neutron.Networks, n.ID, text); err != nil {
			t.Fatal(err)
		}
		check("with "+next, next)
	}
	if _, err := w.change(w.member, neutron.Ports, chosen.ID, `{"qos_policy_id":null}`); err != nil {
		t.Fatal(err)
	}
	if got := w.limitsOf(chosen.ID); got != "" {
		t.Errorf("limits %q of a port whose policy was taken away", got)
	}
}

// TestQoSOfManyPorts changes the policy of a network of more ports than a step has.
func TestQoSOfManyPorts(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	made := w.many(w.member, neutron.Ports, 150, func(int) string { return `{"network_id":"` + n.ID + `"}` })
	policy := w.qosPolicy("mine", "")
	if _, err := w.change(w.member, neutron.Networks, n.ID, `{"qos_policy_id":"`+policy+`"}`); err != nil {
		t.Fatal(err)
	}
	for _, p := range made {
		if got := w.limitsOf(p.(*neutron.PortView).ID); got != policy {
			t.Fatalf("limits %q: want the policy's %s", got, policy)
		}
	}
}

// TestQoSOfRouters: limits of floating IPs and gateways are those of their NAT rules.
func TestQoSOfRouters(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	policy, other := w.qosPolicy("mine", ""), w.qosPolicy("mine", "")
	fixed := w.port(w.tenant, "")
	f := must[*neutron.FloatingIPView](w.world, w.member, neutron.FloatingIPs,
		`{"floating_network_id":"`+w.external+`","port_id":"`+fixed.ID+`","qos_policy_id":"`+policy+`"}`)
	limits := func(b topology.Bundle) []topology.RuleLimits {
		found := []topology.RuleLimits{}
		for _, e := range b.Rules {
			switch {
			case e.Rule.Type != topology.NAT && e.Rule.Limits != nil:
				t.Errorf("rule %+v has limits", e.Rule)
			case e.Rule.Type == topology.NAT && e.Rule.Limits != nil && !slices.Contains(found, *e.Rule.Limits):
				found = append(found, *e.Rule.Limits)
			}
		}
		return found
	}
	if got, want := limits(w.bundle("floating-ip", f.ID)), []topology.RuleLimits{{LimitsID: policy, LimitedID: f.ID}}; !slices.Equal(got, want) {
		t.Errorf("floating IP: limits %+v: want %+v", got, want)
	}
	gateway := func(want string) {
		t.Helper()
		r, err := w.Routers().Show(t.Context(), w.member, w.routerID)
		if err != nil {
			t.Fatal(err)
		}
		port := r.Gateways[0].PortID
		wanted := []topology.RuleLimits{{LimitsID: want, LimitedID: port}}
		if want == "" {
			wanted = []topology.RuleLimits{}
		}
		if got := limits(w.bundle("router-gateway", port)); !slices.Equal(got, wanted) {
			t.Errorf("gateway: limits %+v: want %+v", got, wanted)
		}
	}
	gateway("")
	set := func(text string) {
		t.Helper()
		if _, err := w.change(w.member, neutron.Routers, w.routerID, `{"external_gateway_info":{"network_id":"`+w.external+`"`+text+`}}`); err != nil {
			t.Fatal(err)
		}
	}
	set(`,"qos_policy_id":"` + other + `"`)
	gateway(other)
	set("")
	gateway(other)
	w.expect(w.remove(w.admin, neutron.QoSPolicies, other), "QosPolicyInUse: QoS Policy "+other+" is used by router "+w.routerID+".")
	if _, err := w.change(w.admin, neutron.Networks, w.external, `{"qos_policy_id":"`+policy+`"}`); err != nil {
		t.Fatal(err)
	}
	gateway(other)
	set(`,"qos_policy_id":null`)
	gateway(policy)
	if _, err := w.change(w.admin, neutron.Networks, w.external, `{"qos_policy_id":null}`); err != nil {
		t.Fatal(err)
	}
	gateway("")
	w.expect(w.remove(w.admin, neutron.QoSPolicies, policy), "QosPolicyInUse: QoS Policy "+policy+" is used by fip "+f.ID+".")
}

// TestQoSMinimums: what reserves something is stored, and applied to nothing.
func TestQoSMinimums(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	for _, rule := range []string{`minimum_bandwidth {"min_kbps":1}`, `minimum_packet_rate {"min_kpps":1}`} {
		name, _, _ := strings.Cut(rule, " ")
		policy := w.qosPolicy("mine", "", rule)
		with := `"qos_policy_id":"` + policy + `"`
		_, err := w.create(w.member, neutron.Networks, `{`+with+`}`)
		if got := problem(err); !strings.HasPrefix(got, "QosRuleNotSupportedByNetwork: Rule "+name+" is not supported by network ") {
			t.Errorf("network: %s", got)
		}
		_, err = w.create(w.member, neutron.Ports, `{"network_id":"`+w.tenant+`",`+with+`}`)
		if got := problem(err); !strings.HasPrefix(got, "QosRuleNotSupported: Rule "+name+" is not supported by port ") {
			t.Errorf("port: %s", got)
		}
		_, err = w.create(w.member, neutron.FloatingIPs, `{"floating_network_id":"`+w.external+`",`+with+`}`)
		if got := problem(err); !strings.HasPrefix(got, "QosRuleNotSupported: Rule "+name+" is not supported by floating IP ") {
			t.Errorf("floating IP: %s", got)
		}
		_, err = w.change(w.member, neutron.Routers, w.routerID, `{"external_gateway_info":{"network_id":"`+w.external+`",`+with+`}}`)
		w.expect(err, "QosRuleNotSupported: Rule "+name+" is not supported by router "+w.routerID)

		used := w.qosPolicy("mine", "", `bandwidth_limit {"max_kbps":10}`)
		p := w.port(w.tenant, `"qos_policy_id":"`+used+`"`)
		_, err = w.addQoSRule(used, rule)
		w.expect(err, "QosRuleNotSupported: Rule "+name+" is not supported by port "+p.ID)
	}
}

// TestQoSRights: policies are admins'; members see their own and shared ones, and may not take
// away what they do not see.
func TestQoSRights(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	ctx := t.Context()
	_, err := w.create(w.member, neutron.QoSPolicies, `{}`)
	w.expect(err, "PolicyNotAuthorized: rule:create_policy is disallowed by policy")
	mine, hidden := w.qosPolicy("mine", ""), w.qosPolicy("ops", "")
	_, err = w.change(w.member, neutron.QoSPolicies, mine, `{"name":"x"}`)
	w.expect(err, "PolicyNotAuthorized: rule:update_policy is disallowed by policy")
	_, err = w.change(w.member, neutron.QoSPolicies, hidden, `{"name":"x"}`)
	w.expect(err, "QosPolicyNotFound: QoS policy "+hidden+" could not be found.")

	rule := w.qosRule(mine, `bandwidth_limit {"max_kbps":1}`)
	secret := w.qosRule(hidden, `bandwidth_limit {"max_kbps":1}`)
	rules := func(policy string) error {
		_, err := w.QoSRules(policy, neutron.QoSBandwidthLimitRules).Create(ctx, w.member, []neutron.Values{{"max_kbps": 1}})
		return err
	}
	w.expect(rules("nothing"), "PolicyNotAuthorized: rule:create_policy_bandwidth_limit_rule is disallowed by policy")
	ops := w.QoSRules(mine, neutron.QoSBandwidthLimitRules)
	w.expect(ops.Delete(ctx, w.member, rule, nil), "PolicyNotAuthorized: rule:delete_policy_bandwidth_limit_rule is disallowed by policy")
	w.expect(ops.Delete(ctx, w.admin, secret, nil), "QosRuleNotFound: QoS rule "+secret+" for policy "+mine+" could not be found.")
	w.expect(w.QoSRules(hidden, neutron.QoSBandwidthLimitRules).Delete(ctx, w.member, secret, nil),
		"QosPolicyNotFound: QoS policy "+hidden+" could not be found.")
	alias := w.QoSRules("", neutron.QoSBandwidthLimitAliases)
	w.expect(alias.Delete(ctx, w.member, rule, nil), "PolicyNotAuthorized: rule:delete_alias_bandwidth_limit_rule is disallowed by policy")
	_, err = alias.Show(ctx, w.member, secret)
	w.expect(err, "QosRuleNotFound: QoS rule "+secret+" for policy  could not be found.")

	n := w.network(`{}`)
	_, err = w.change(w.member, neutron.Networks, n.ID, `{"qos_policy_id":"`+hidden+`"}`)
	w.expect(err, "QosPolicyNotFound: QoS policy "+hidden+" could not be found.")
	if _, err = w.change(w.admin, neutron.Networks, n.ID, `{"qos_policy_id":"`+hidden+`"}`); err != nil {
		t.Fatal(err)
	}
	_, err = w.change(w.member, neutron.Networks, n.ID, `{"qos_policy_id":null}`)
	w.expect(err, "PolicyRemoveAuthorizationError: Failed to remove provided policy "+hidden+" because you are not authorized.")
	w.port(n.ID, "") // a port that has it by its network

	must[*neutron.RBACPolicy](w, w.admin, neutron.RBACPolicies,
		`{"object_type":"qos_policy","object_id":"`+hidden+`","action":"access_as_shared","target_tenant":"mine"}`)
	if found, err := all(w.QoSPolicies().List(ctx, w.member, neutron.Query{})); err != nil || len(found) != 2 {
		t.Errorf("%d policies, %v: want the own and the shared one", len(found), err)
	}
	if v, err := w.QoSPolicies().Show(ctx, w.member, hidden); err != nil || !v.Shared {
		t.Errorf("shared %v, %v", v, err)
	}
	if _, err := w.change(w.member, neutron.Networks, n.ID, `{"qos_policy_id":null}`); err != nil {
		t.Error(err)
	}
}

// TestQoSDefault: a project's new networks have its default policy, of which there is one.
func TestQoSDefault(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	first := w.qosPolicy("mine", `,"is_default":true`)
	_, err := w.create(w.admin, neutron.QoSPolicies, `{"project_id":"mine","is_default":true}`)
	w.expect(err, "QoSPolicyDefaultAlreadyExists: A default QoS policy exists for project mine.")
	w.qosPolicy("other", `,"is_default":true`)
	if n := w.network(`{}`); n.QoSPolicyID != first {
		t.Errorf("a new network has policy %q: want the default, %s", n.QoSPolicyID, first)
	}
	given := w.qosPolicy("mine", "")
	if n := w.network(`{"qos_policy_id":"` + given + `"}`); n.QoSPolicyID != given {
		t.Errorf("a new network has policy %q: want %s", n.QoSPolicyID, given)
	}
	if _, err := w.change(w.admin, neutron.QoSPolicies, first, `{"is_default":false}`); err != nil {
		t.Fatal(err)
	}
	if n := w.network(`{}`); n.QoSPolicyID != "" {
		t.Errorf("a new network has policy %q after the default has gone", n.QoSPolicyID)
	}
}

// TestQoSLeavesNothing makes policies with rules and users, and takes all of it away again.
func TestQoSLeavesNothing(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	before := w.dump()
	var policies []string
	for i := range 3 {
		policies = append(policies, w.qosPolicy("mine", fmt.Sprintf(`,"name":"p%d","shared":true`, i), `bandwidth_limit {"max_kbps":1}`, `dscp_marking {"dscp_mark":8}`))
	}
	p := w.port(n.ID, `"qos_policy_id":"`+policies[0]+`"`)
	w.expect(w.remove(w.admin, neutron.QoSPolicies, policies[0]), "QosPolicyInUse: QoS Policy "+policies[0]+" is used by port "+p.ID+".")
	if err := w.remove(w.member, neutron.Ports, p.ID); err != nil {
		t.Fatal(err)
	}
	for _, id := range policies {
		if err := w.remove(w.admin, neutron.QoSPolicies, id); err != nil {
			t.Fatal(err)
		}
	}
	if after := w.dump(); !slices.Equal(after, before) {
		t.Errorf("left behind: %v", missing(after, before))
	}
}
