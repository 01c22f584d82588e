package explain

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
)

// diffAfter returns what a change of the cloud makes of who reaches whom.
func (c *cloud) diffAfter(change func()) *operator.DiffAnswer {
	c.t.Helper()
	before := c.view()
	change()
	return c.world.Diff(before, c.view(), netip.Addr{})
}

// rows returns changes in short, such as "IPv4 never→always tcp 22: web → db (1)".
func rows(all []operator.ReachChange) (texts []string) {
	ends := func(e *operator.ChangeEnds) (text string) {
		for _, p := range e.Ports {
			text += p.Name + " "
		}
		return text + e.Text
	}
	for _, r := range all {
		text := fmt.Sprintf("IPv%d %s→%s ", r.Version, r.Before, r.After)
		for _, s := range r.Services {
			text += s.Text + ","
		}
		texts = append(texts, fmt.Sprintf("%s: %s→ %s(%d)", text, ends(&r.From), ends(&r.To), r.Pairs))
	}
	return texts
}

func TestDiff(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	web, db := c.twoTiers()
	show := func(a *operator.DiffAnswer) {
		t.Logf("gained %q\nlost %q\nwarnings %+v omitted %d", rows(a.Gained), rows(a.Lost), a.Warnings, a.PairsOmitted)
		for _, r := range append(a.Gained, a.Lost...) {
			t.Logf("%+v %s %v", r.Example.From, r.Example.Service, r.Example.Why != nil)
		}
	}
	var rule string
	show(c.diffAfter(func() {
		rule = create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress","protocol":"tcp","port_range_min":22,"port_range_max":22}`, db.SecurityGroups[0]).ID
	}))
	show(c.diffAfter(func() {
		create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress","protocol":"tcp","port_range_min":22,"port_range_max":22,"remote_ip_prefix":"10.0.0.0/8"}`, db.SecurityGroups[0])
	}))
	show(c.diffAfter(func() {
		if err := c.SecurityGroupRules().Delete(context.Background(), admin, rule, nil); err != nil {
			t.Fatal(err)
		}
	}))
	show(c.diffAfter(func() { update(c, c.Ports(), neutron.Ports, web.ID, `{"admin_state_up":false}`) }))
}
