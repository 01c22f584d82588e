package control_test

import (
	"slices"
	"testing"

	"heddle/internal/neutron"
)

func TestSecurityGroups(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"g","description":"d"}`)
	if len(g.Rules) != 2 || g.Rules[0].Direction != "egress" || !g.Rules[0].Implicit || g.RevisionNumber != 1 || !g.Stateful {
		t.Errorf("group %+v", g.SecurityGroup)
	}
	peer := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"peer"}`)
	rule := must[*neutron.SecurityGroupRule](w, w.member, neutron.SecurityGroupRules,
		`{"security_group_id":"`+g.ID+`","direction":"ingress","remote_group_id":"`+peer.ID+`"}`)
	count := func() (ingress int) { return len(w.bundle("security-group", g.ID).Chains[1].Rules) }
	if got := count(); got != 1 {
		t.Errorf("%d ingress rules in the topology", got)
	}
	if v, err := w.change(w.member, neutron.SecurityGroupRules, rule.ID, `{"description":"why"}`); err != nil || v.(*neutron.SecurityGroupRule).RevisionNumber != 1 {
		t.Errorf("described rule %+v, %v", v, err)
	}
	if v, err := w.change(w.member, neutron.SecurityGroups, g.ID, `{"name":"h"}`); err != nil || v.(*neutron.SecurityGroupView).RevisionNumber != 4 {
		t.Errorf("renamed group %+v, %v", v, err)
	}
	if b := w.bundle("security-group", g.ID); b.IPAddrGroups[0].Name != "h" {
		t.Errorf("address group %+v", b.IPAddrGroups)
	}

	// A group that goes takes along what lets its members into others.
	if err := w.remove(w.member, neutron.SecurityGroups, peer.ID); err != nil {
		t.Fatal(err)
	}
	after, err := w.SecurityGroups().Show(t.Context(), w.member, g.ID)
	if err != nil || len(after.Rules) != 2 || after.RevisionNumber != 5 || count() != 0 {
		t.Errorf("after its peer went: %+v, %v, %d rules in the topology", after, err, count())
	}
	if err := w.remove(w.member, neutron.SecurityGroupRules, after.Rules[0].ID); err != nil {
		t.Error(err)
	}
	if got := len(w.bundle("security-group", g.ID).Chains[0].Rules); got != 1 {
		t.Errorf("%d egress rules left in the topology", got)
	}
}

func TestSecurityGroupRefusals(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"g"}`)
	foreign := must[*neutron.SecurityGroupView](w, w.other, neutron.SecurityGroups, `{"name":"f"}`)
	w.port(n.ID, `"security_groups":["`+g.ID+`"]`)
	groups, _ := all(w.SecurityGroups().List(t.Context(), w.member, neutron.Query{Names: []string{"default"}}))
	home := groups[0].ID

	_, err := w.create(w.member, neutron.SecurityGroups, `{"name":"default"}`)
	w.expect(err, "SecurityGroupDefaultAlreadyExists: Default security group already exists.")
	_, err = w.change(w.member, neutron.SecurityGroups, home, `{"name":"x"}`)
	w.expect(err, "SecurityGroupCannotUpdateDefault: Updating default security group not allowed.")
	if _, err = w.change(w.member, neutron.SecurityGroups, home, `{"description":"x"}`); err != nil {
		t.Error(err)
	}
	_, err = w.change(w.member, neutron.SecurityGroups, g.ID, `{"stateful":false}`)
	w.expect(err, "SecurityGroupInUse: Security Group "+g.ID+" in use.")
	if _, err = w.change(w.member, neutron.SecurityGroups, g.ID, `{"stateful":true}`); err != nil {
		t.Errorf("stateful as it is: %v", err)
	}
	w.expect(w.remove(w.member, neutron.SecurityGroups, g.ID), "SecurityGroupInUse: Security Group "+g.ID+" in use.")
	w.expect(w.remove(w.member, neutron.SecurityGroups, home), "SecurityGroupCannotRemoveDefault: Insufficient rights for removing default security group.")
	w.expect(w.remove(w.member, neutron.SecurityGroups, foreign.ID), "SecurityGroupNotFound: Security group "+foreign.ID+" does not exist")

	in := func(rest string) string {
		return `{"security_group_id":"` + g.ID + `","direction":"ingress",` + rest + `}`
	}
	ssh := must[*neutron.SecurityGroupRule](w, w.member, neutron.SecurityGroupRules, in(`"protocol":"tcp","port_range_min":22,"port_range_max":22`))
	for _, tt := range []struct {
		texts []string
		want  string
	}{
		{[]string{in(`"protocol":"6","port_range_min":22,"port_range_max":22`)}, "SecurityGroupRuleExists: Security group rule already exists. Rule id is " + ssh.ID + "."},
		{[]string{in(`"remote_group_id":"` + foreign.ID + `"`)}, "SecurityGroupNotFound: Security group " + foreign.ID + " does not exist"},
		{[]string{`{"security_group_id":"` + foreign.ID + `","direction":"ingress"}`}, "SecurityGroupNotFound: Security group " + foreign.ID + " does not exist"},
		{[]string{in(`"protocol":"udp"`), `{"security_group_id":"` + home + `","direction":"ingress","protocol":"udp"}`},
			"SecurityGroupNotSingleGroupRules: Only allowed to update rules for one security profile at a time"},
		{[]string{in(`"protocol":"udp"`), in(`"protocol":"17"`)}, "DuplicateSecurityGroupRuleInPost: Duplicate Security Group Rule in POST."},
	} {
		before := w.dump()
		_, err := w.create(w.member, neutron.SecurityGroupRules, tt.texts...)
		w.expect(err, tt.want)
		if !slices.Equal(before, w.dump()) {
			t.Errorf("%s: was refused, but changed the store", tt.texts)
		}
	}
	w.expect(w.remove(w.other, neutron.SecurityGroupRules, ssh.ID), "SecurityGroupRuleNotFound: Security group rule "+ssh.ID+" does not exist")
	_, err = w.change(w.member, neutron.SecurityGroupRules, "x", `{"description":"x"}`)
	w.expect(err, "SecurityGroupRuleNotFound: Security group rule x does not exist")
	if err := w.remove(w.admin, neutron.SecurityGroups, foreign.ID); err != nil {
		t.Error(err)
	}
}

// TestDefaultGroupIsNotForStrangers: a member's list of another project's groups makes none there.
func TestDefaultGroupIsNotForStrangers(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	before := w.dump()
	if groups, err := all(w.SecurityGroups().List(t.Context(), w.member, neutron.Query{ProjectIDs: []string{"other"}})); err != nil || len(groups) != 0 {
		t.Errorf("groups %v, %v", groups, err)
	}
	if !slices.Equal(before, w.dump()) {
		t.Error("it made a group")
	}
	if rules, err := all(w.SecurityGroupRules().List(t.Context(), w.admin, neutron.Query{ProjectIDs: []string{"other"}})); err != nil || len(rules) != 4 {
		t.Errorf("an admin's list of rules: %v, %v", rules, err)
	}
}
