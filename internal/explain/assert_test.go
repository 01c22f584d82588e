package explain

import (
	"fmt"
	"strings"
	"testing"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
)

// TestAssert: rules about who must not and who must reach whom hold, or name pairs that break them
// with a trace, from outside too; rules that say nothing are refused by their place.
func TestAssert(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	web, db := c.twoTiers()
	g := create(c, c.SecurityGroups(), neutron.SecurityGroups, `{"name":"front"}`).ID
	create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress","protocol":"tcp","port_range_min":80,"port_range_max":81}`, g)
	update(c, c.Ports(), neutron.Ports, web.ID, fmt.Sprintf(`{"security_groups":[%q]}`, g))
	one := func(a operator.Assertion) operator.AssertResult {
		t.Helper()
		answer, err := c.world.Assert(c.t.Context(), c.view(), &operator.AssertRequest{Rules: []operator.Assertion{a}})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Results[0]
	}
	tcp := func(port uint16) []operator.AssertService {
		return []operator.AssertService{{Protocol: "tcp", Port: port}}
	}
	front, back, outside := operator.Selection{Network: "front"}, operator.Selection{Port: "db"}, operator.Selection{Outside: true}
	ends := func(from, to operator.Selection) *operator.AssertEnds {
		return &operator.AssertEnds{From: from, To: to}
	}

	if r := one(operator.Assertion{Never: ends(outside, back)}); r.Breaches != 0 || len(r.Examples) != 0 {
		t.Errorf("db: %+v", r)
	}
	if r := one(operator.Assertion{Never: ends(back, front), But: []operator.AssertService{{Protocol: "tcp", Port: 80, LastPort: 90}}}); r.Breaches != 0 || r.Pairs != 2 {
		t.Errorf("back to front but tcp 80-90: %+v", r)
	}
	r := one(operator.Assertion{Never: ends(back, front), But: tcp(80)})
	if r.Breaches != 1 || r.Pairs != 2 || len(r.Examples) != 1 || r.Examples[0].From.Port != db.ID || r.Examples[0].To.Port != web.ID ||
		len(r.Examples[0].Services) != 1 || r.Examples[0].Services[0].Text != "tcp 81" {
		t.Fatalf("back to front but tcp 80: %+v", r)
	}
	if w := r.Examples[0].Why; w == nil || w.Verdict != operator.Allowed || w.Service != "tcp 81" || len(w.There.Trace.Walk) == 0 {
		t.Errorf("the trace is %+v", w)
	}
	if r := one(operator.Assertion{Never: ends(outside, operator.Selection{Port: "web"}), But: tcp(80)}); r.Breaches == 0 || r.Examples[0].Services[0].Text != "tcp 81" || r.Examples[0].Why == nil {
		t.Errorf("web from outside: %+v", r)
	}
	if r := one(operator.Assertion{Always: ends(back, operator.Selection{Group: "front"}), By: tcp(80)}); r.Breaches != 0 || r.Pairs != 1 {
		t.Errorf("back to the group: %+v", r)
	}
	if r := one(operator.Assertion{Always: ends(back, operator.Selection{Group: g}), By: tcp(22)}); r.Breaches != 1 || r.Examples[0].Services[0].Text != "tcp 22" || r.Examples[0].Why.Verdict != operator.Denied {
		t.Errorf("tcp 22: %+v", r)
	}
	if r := one(operator.Assertion{Never: ends(front, outside), But: []operator.AssertService{{Protocol: "tcp"}, {Protocol: "udp"}, {Protocol: "icmp"}}}); r.Breaches != 0 {
		t.Errorf("out: %+v", r)
	}
	if r := one(operator.Assertion{Always: ends(outside, operator.Selection{Port: "web"}), By: tcp(80)}); r.Breaches != 0 || r.Pairs != 1 {
		t.Errorf("web from outside: %+v", r)
	}
	if r := one(operator.Assertion{Always: ends(outside, back), By: tcp(80)}); r.Breaches != 1 || r.Examples[0].Services[0].Text != "tcp 80" || r.Examples[0].Why.Verdict != operator.Denied {
		t.Errorf("db from outside: %+v", r)
	}
	for _, bad := range []struct {
		a    operator.Assertion
		want string
	}{
		{operator.Assertion{}, "rules[0]: want either never or always"},
		{operator.Assertion{Always: ends(front, back)}, "rules[0].by: want the services"},
		{operator.Assertion{Never: ends(front, back), By: tcp(1)}, "rules[0].by: a rule with never has but"},
		{operator.Assertion{Never: ends(outside, outside)}, "rules[0].never: at least one end"},
		{operator.Assertion{Never: ends(operator.Selection{}, back)}, `rules[0].never.from: want "outside", or one of`},
		{operator.Assertion{Never: ends(front, operator.Selection{Group: "none"})}, `rules[0].never.to.group: no security group has the id or name "none"`},
		{operator.Assertion{Never: ends(front, back), But: []operator.AssertService{{Protocol: "icmp", Port: 8}}}, "rules[0].but[0].port: icmp has no ports"},
		{operator.Assertion{Never: ends(front, back), But: []operator.AssertService{{Protocol: "tcp", Port: 8, LastPort: 7}}}, "rules[0].but[0].to_port"},
	} {
		_, err := c.world.Assert(c.t.Context(), c.view(), &operator.AssertRequest{Rules: []operator.Assertion{bad.a}})
		if err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%+v: %v, want %q", bad.a, err, bad.want)
		}
	}
}
