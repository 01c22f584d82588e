package explain

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
)

// diffAfter returns what a change of the cloud makes of who reaches whom.
func (c *cloud) diffAfter(change func()) *operator.DiffAnswer {
	c.t.Helper()
	before := c.view()
	change()
	a, err := c.world.Diff(c.t.Context(), before, c.view(), netip.Addr{})
	if err != nil {
		c.t.Fatal(err)
	}
	return a
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

// TestDiff makes changes one after the other, and checks what each is said to do.
func TestDiff(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	web, db := c.twoTiers()
	group := db.SecurityGroups[0]
	var rule string
	check := func(what string, change func(), lost, gained, warnings []string) {
		t.Helper()
		a := c.diffAfter(change)
		var warned []string
		for _, w := range a.Warnings {
			warned = append(warned, string(w.Kind))
		}
		if d := cmp.Diff([][]string{lost, gained, warnings}, [][]string{rows(a.Lost), rows(a.Gained), warned}); d != "" {
			t.Errorf("%s: -want +got\n%s", what, d)
		}
		for _, r := range slices.Concat(a.Lost, a.Gained) {
			passes := r.After == operator.FateAlways
			if r.Example.Why == nil || (r.Example.Why.Verdict == operator.Allowed) != passes && r.Example.Why.Back != nil {
				t.Errorf("%s: the example %+v", what, r.Example)
			}
		}
	}
	ssh := `{"security_group_id":%q,"direction":"ingress","protocol":"tcp","port_range_min":22,"port_range_max":22%s}`
	check("a rule", func() { rule = create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, ssh, group, "").ID }, nil,
		[]string{"IPv4 never→always tcp 22,: any address but 10.0.1.0-10.0.2.255→ db web (2)", "IPv4 never→always tcp 22,: lone → db web (2)"}, []string{"opens-to-outside"})
	check("a rule that another one covers", func() {
		create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, ssh, group, `,"remote_ip_prefix":"10.0.0.0/8"`)
	}, nil, nil, []string{"rule-without-effect"})
	check("the wider rule goes", func() {
		if err := c.SecurityGroupRules().Delete(context.Background(), admin, rule, nil); err != nil {
			t.Fatal(err)
		}
	}, []string{"IPv4 always→never tcp 22,: any address but 10.0.0.0/8→ db web (2)"}, nil, nil)
	check("a port down", func() { update(c, c.Ports(), neutron.Ports, web.ID, `{"admin_state_up":false}`) }, []string{
		"IPv4 always→never tcp 22,: 10.0.0.0/24, 10.0.3.0-10.255.255.255→ web (1)",
		"IPv4 always→never tcp,udp,icmp 0,icmp 8,: web → any address but 10.0.1.0-10.0.2.255(1)",
		"IPv4 always→never all,: db → web (1)", "IPv4 always→never tcp 22,: lone → web (1)", "IPv4 always→never all,: web → db (1)"}, nil, nil)
	check("a name", func() { update(c, c.Ports(), neutron.Ports, web.ID, `{"name":"other"}`) }, nil, nil, nil)
}

// TestDiffOfAddressGroup: ports are affected by what their groups ask for, also if no packet has
// asked for it before.
func TestDiffOfAddressGroup(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	_, db := c.twoTiers()
	some := create(c, c.AddressGroups(), neutron.AddressGroups, `{"name":"some"}`).ID
	create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress","protocol":"tcp","port_range_min":22,"port_range_max":22,"remote_address_group_id":%q}`, db.SecurityGroups[0], some)
	a := c.diffAfter(func() {
		if _, err := c.AddAddresses(context.Background(), admin, some, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}); err != nil {
			t.Fatal(err)
		}
	})
	if d := cmp.Diff([]string{"IPv4 never→always tcp 22,: 198.51.100.0/24→ db web (2)"}, rows(a.Gained)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

// TestDiffInTime: a comparison that may take no time is refused, and the next one is whole.
func TestDiffInTime(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	web, _ := c.twoTiers()
	before := c.view()
	update(c, c.Ports(), neutron.Ports, web.ID, `{"admin_state_up":false}`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var late *Fault
	if _, err := c.world.Diff(ctx, before, c.view(), netip.Addr{}); !errors.As(err, &late) || late.Kind != Late {
		t.Errorf("got %v", err)
	}
	if a, err := c.world.Diff(t.Context(), before, c.view(), netip.Addr{}); err != nil || len(a.Lost) != 3 {
		t.Errorf("got %+v, %v", a, err)
	}
}

// TestDiffLocksOut: who asks is warned of losing a way in.
func TestDiffLocksOut(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	_, db := c.twoTiers()
	rule := create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress","protocol":"tcp","port_range_min":22,"port_range_max":22}`, db.SecurityGroups[0]).ID
	before := c.view()
	if err := c.SecurityGroupRules().Delete(context.Background(), admin, rule, nil); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]int{"198.51.100.7": 1, "127.0.0.1": 0} {
		a, err := c.world.Diff(t.Context(), before, c.view(), netip.MustParseAddr(address))
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Warnings) != want || want > 0 && a.Warnings[0].Kind != operator.WarnLockOut {
			t.Errorf("from %s: %+v", address, a.Warnings)
		}
	}
}

// TestCovers has pairs of rules, the first of which lets pass all that the second does, or not.
func TestCovers(t *testing.T) {
	t.Parallel()
	rule := func(protocol string, low, high int, remote string) *neutron.SecurityGroupRule {
		r := &neutron.SecurityGroupRule{Direction: ingress, Ethertype: "IPv4", Protocol: protocol, RemoteIPPrefix: remote}
		if high > 0 {
			r.PortRangeMin, r.PortRangeMax = &low, &high
		}
		return r
	}
	group := &neutron.SecurityGroupRule{Direction: ingress, Ethertype: "IPv4", RemoteGroupID: "g"}
	for _, x := range []struct {
		wide, narrow *neutron.SecurityGroupRule
		want         bool
	}{
		{rule("", 0, 0, ""), rule("tcp", 22, 22, "10.0.0.0/8"), true},
		{rule("tcp", 22, 22, ""), rule("", 0, 0, ""), false},
		{rule("tcp", 20, 30, ""), rule("6", 22, 22, ""), true},
		{rule("tcp", 20, 30, ""), rule("tcp", 22, 31, ""), false},
		{rule("tcp", 20, 30, ""), rule("tcp", 0, 0, ""), false},
		{rule("tcp", 0, 0, "10.0.0.0/8"), rule("tcp", 0, 0, "10.1.0.0/16"), true},
		{rule("tcp", 0, 0, "10.1.0.0/16"), rule("tcp", 0, 0, "10.0.0.0/8"), false},
		{rule("tcp", 0, 0, "10.1.0.0/16"), rule("tcp", 0, 0, ""), false},
		{rule("tcp", 0, 0, "0.0.0.0/0"), rule("tcp", 0, 0, ""), true},
		{rule("icmp", 3, 4, ""), rule("icmp", 3, 3, ""), false},
		{rule("", 0, 0, ""), group, true},
		{group, rule("", 0, 0, ""), false},
		{rule("", 0, 0, "10.0.0.0/8"), group, false},
	} {
		if got := covers(x.wide, x.narrow); got != x.want {
			t.Errorf("%s covers %s: %t", RuleText(x.wide), RuleText(x.narrow), got)
		}
	}
}
