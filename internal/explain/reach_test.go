package explain

import (
	"fmt"
	"testing"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

func TestReachTry(t *testing.T) {
	c := newCloud(t)
	web, _ := c.twoTiers()
	var public string
	for n := range schema.Networks.All(c.view()) {
		if n.Name == "public" {
			public = n.ID
		}
	}
	g := create(c, c.SecurityGroups(), neutron.SecurityGroups, `{"name":"front"}`).ID
	create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress","protocol":"tcp","port_range_min":443,"port_range_max":443}`, g)
	create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress","protocol":"icmp"}`, g)
	create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress","protocol":"tcp","port_range_min":22,"port_range_max":22,"remote_ip_prefix":"198.51.100.0/24"}`, g)
	update(c, c.Ports(), neutron.Ports, web.ID, fmt.Sprintf(`{"security_groups":[%q]}`, g))
	f := create(c, c.FloatingIPs(), neutron.FloatingIPs, `{"floating_network_id":%q,"port_id":%q}`, public, web.ID).FloatingIPAddress.String()
	_ = f
	for _, q := range []operator.ReachRequest{{To: "web"}, {From: "web"}, {To: "db", Port: 22}, {From: "web", To: "db"}} {
		a, err := c.world.Reach(c.view(), &q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range a.Reaches {
			t.Logf("%+v", r)
		}
		t.Log(a.Silent)
	}
}
