package control_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/schema"
)

// defaultRule makes a default rule.
func (w *world) defaultRule(text string) *neutron.DefaultSecurityGroupRule {
	w.t.Helper()
	return must[*neutron.DefaultSecurityGroupRule](w, w.admin, neutron.DefaultRules, text)
}

// listDefaultRules returns the default rules by their shapes.
func (w *world) listDefaultRules(t fataler) map[string]*neutron.DefaultSecurityGroupRule {
	found, err := all(w.DefaultSecurityGroupRules().List(context.Background(), w.member, neutron.Query{}))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(found, func(a, b *neutron.DefaultSecurityGroupRule) int { return strings.Compare(a.ID, b.ID) }) {
		t.Fatalf("not in order of ids: %+v", found)
	}
	byShape := map[string]*neutron.DefaultSecurityGroupRule{}
	for _, r := range found {
		byShape[ruleShape(&r.SecurityGroupRule)] = r
	}
	return byShape
}

// ruleShape returns what a rule or a default rule allows, with a group's own id as PARENT.
func ruleShape(r *neutron.SecurityGroupRule) string {
	words := []string{r.Direction, r.Ethertype}
	if n, ok := neutron.ProtocolNumber(r.Protocol); ok {
		words = append(words, fmt.Sprint("proto ", n))
	}
	if r.PortRangeMin != nil {
		words = append(words, fmt.Sprint("port ", *r.PortRangeMin))
	}
	switch r.RemoteGroupID {
	case "":
	case r.SecurityGroupID, neutron.ParentGroup:
		words = append(words, "PARENT")
	default:
		words = append(words, r.RemoteGroupID)
	}
	return strings.Join(append(words, r.RemoteIPPrefix+r.RemoteAddressGroupID), " ")
}

// shapesOf returns the shapes of a group's rules, sorted.
func shapesOf(g *neutron.SecurityGroup) []string {
	var shapes []string
	for i := range g.Rules {
		shapes = append(shapes, ruleShape(&g.Rules[i]))
	}
	slices.Sort(shapes)
	return shapes
}

// groupShapes returns the shapes of a new group, and those of its project's default group, which is
// new too if the project is.
func (w *world) groupShapes(t fataler, project string) (made, byDefault []string) {
	c := neutron.Caller{ProjectID: project, Roles: []string{"member"}}
	views, err := w.create(c, neutron.SecurityGroups, `{"name":"g"}`)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := all(w.SecurityGroups().List(context.Background(), c, neutron.Query{Names: []string{"default"}}))
	if err != nil || len(groups) != 1 {
		t.Fatalf("default groups of %s: %+v, %v", project, groups, err)
	}
	return shapesOf(views[0].(*neutron.SecurityGroupView).SecurityGroup), shapesOf(groups[0].SecurityGroup)
}

// TestDefaultRules: new groups have the default rules of their kind, older ones keep theirs, and a
// server that starts later finds the default rules as they were left.
func TestDefaultRules(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	w := open(t, st, control.Options{})
	out := []string{"egress IPv4 ", "egress IPv6 "}
	between := append(slices.Clone(out), "ingress IPv4 PARENT ", "ingress IPv6 PARENT ")
	initial := w.listDefaultRules(t)
	if got := slices.Sorted(maps.Keys(initial)); !slices.Equal(got, between) {
		t.Fatalf("initial default rules %q", got)
	}
	made, byDefault := w.groupShapes(t, "one")
	if !slices.Equal(made, out) || !slices.Equal(byDefault, between) {
		t.Errorf("groups with the initial default rules have %q and, by default, %q", made, byDefault)
	}

	for _, shape := range []string{"egress IPv6 ", "ingress IPv4 PARENT "} {
		if err := w.remove(w.admin, neutron.DefaultRules, initial[shape].ID); err != nil {
			t.Fatal(err)
		}
		w.expect(w.remove(w.admin, neutron.DefaultRules, initial[shape].ID),
			"DefaultSecurityGroupRuleNotFound: Default Security Group rule "+initial[shape].ID+" does not exist.")
	}
	ssh := w.defaultRule(`{"direction":"ingress","protocol":"tcp","port_range_min":22,"port_range_max":22,"description":"ssh",
		"remote_ip_prefix":"192.0.2.0/24","used_in_default_sg":true}`)
	if ssh.ProjectID != "" || !ssh.UsedInDefaultGroup || !ssh.UsedInOtherGroups {
		t.Errorf("made %+v", ssh)
	}
	w.defaultRule(`{"direction":"ingress","remote_group_id":"PARENT"}`)

	for _, server := range []*world{w, open(t, st, control.Options{})} {
		project := fmt.Sprintf("%p", server)
		made, byDefault = server.groupShapes(t, project)
		if want := []string{"egress IPv4 ", "ingress IPv4 PARENT ", "ingress IPv4 proto 6 port 22 192.0.2.0/24"}; !slices.Equal(made, want) {
			t.Errorf("a group has %q, want %q", made, want)
		}
		if want := []string{"egress IPv4 ", "ingress IPv4 proto 6 port 22 192.0.2.0/24", "ingress IPv6 PARENT "}; !slices.Equal(byDefault, want) {
			t.Errorf("a default group has %q, want %q", byDefault, want)
		}
	}
	if _, byDefault = w.groupShapes(t, "one"); !slices.Equal(byDefault, between) {
		t.Errorf("an older default group has %q", byDefault)
	}

	// A deleted initial rule can be made again, and is one like any other.
	if err := w.remove(w.admin, neutron.DefaultRules, ssh.ID); err != nil {
		t.Fatal(err)
	}
	again := w.defaultRule(`{"direction":"egress","ethertype":"IPv6","used_in_default_sg":true}`)
	if made, _ = w.groupShapes(t, "one"); !slices.Equal(made, append(out, "ingress IPv4 PARENT ")) {
		t.Errorf("after all a group has %q", made)
	}
	if err := w.remove(w.admin, neutron.DefaultRules, again.ID); err != nil {
		t.Fatal(err)
	}
	shown, err := w.DefaultSecurityGroupRules().Show(t.Context(), w.member, initial["egress IPv4 "].ID)
	if err != nil || shown.Direction != "egress" {
		t.Errorf("showed %+v, %v", shown, err)
	}
}

// TestDefaultRulesOfAGroup: the rules of a new group are its own, with its project, the description
// of the default rule, and chains in the topology.
func TestDefaultRulesOfAGroup(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	d := w.defaultRule(`{"direction":"ingress","protocol":"icmp","description":"ping"}`)
	g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"g"}`)
	i := slices.IndexFunc(g.Rules, func(r neutron.SecurityGroupRule) bool { return r.Protocol == "icmp" })
	if i < 0 {
		t.Fatalf("rules %+v", g.Rules)
	}
	r := g.Rules[i]
	if r.ID == d.ID || r.ProjectID != w.member.ProjectID || r.SecurityGroupID != g.ID || r.Description != "ping" || !r.Implicit {
		t.Errorf("rule %+v", r)
	}
	if chains := w.bundle("security-group", g.ID).Chains; len(chains[0].Rules) != 2 || len(chains[1].Rules) != 1 {
		t.Errorf("chains %+v", chains)
	}
	if err := w.remove(w.member, neutron.SecurityGroupRules, r.ID); err != nil {
		t.Error(err)
	}
	if kept := w.listDefaultRules(t); len(kept) != 5 {
		t.Errorf("default rules %v", kept)
	}
}

// TestDefaultRuleRefusals: what default rules cannot be, as other rules, and which repeat others.
func TestDefaultRuleRefusals(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	foreign := w.addressGroup("192.0.2.0/24").ID
	initial := w.listDefaultRules(t)
	in := func(rest string) string { return `{"direction":"ingress"` + rest + `}` }
	ssh := in(`,"protocol":"tcp","port_range_min":22,"port_range_max":22`)
	there := w.defaultRule(ssh).ID
	exists := func(id string) string {
		return "DefaultSecurityGroupRuleExists: Default Security group rule already exists. Rule id is " + id + "."
	}
	const twice = "DuplicateDefaultSgRuleInPost: Duplicate Default Security Group Rule in POST."
	for _, tt := range []struct {
		texts []string
		want  string
	}{
		{[]string{in(`,"protocol":6,"port_range_min":22,"port_range_max":22,"description":"x"`)}, exists(there)},
		{[]string{in(`,"protocol":"tcp","port_range_min":22,"port_range_max":22,"used_in_default_sg":true`)}, exists(there)},
		{[]string{`{"direction":"egress"}`}, exists(initial["egress IPv4 "].ID)},
		{[]string{`{"direction":"egress","remote_ip_prefix":"0.0.0.0/0"}`}, exists(initial["egress IPv4 "].ID)},
		{[]string{in(`,"protocol":"udp"`), in(`,"protocol":"17"`)}, twice},
		{[]string{in(`,"used_in_non_default_sg":false`), in(`,"used_in_non_default_sg":false`)}, twice},
		{[]string{in(`,"protocol":"udp"`), ssh}, exists(there)},
		{[]string{in(`,"port_range_min":22,"port_range_max":22`)}, "SecurityGroupProtocolRequiredWithPorts: Must also specify protocol if port range is given."},
		{[]string{in(`,"protocol":"icmpv6"`)}, "SecurityGroupEthertypeConflictWithProtocol: Invalid ethertype IPv4 for protocol icmpv6."},
		{[]string{in(`,"remote_ip_prefix":"10.0.0.0/8","remote_group_id":"PARENT"`)},
			"SecurityGroupMultipleRemoteEntites: Only one of remote_ip_prefix or remote_group_id or remote_address_group_id may be provided."},
		{[]string{in(`,"remote_group_id":"` + foreign + `"`)},
			"HTTPBadRequest: Invalid input for remote_group_id. Reason: '" + foreign + "' is not PARENT, the only group that a default rule can name."},
		{[]string{in(`,"remote_address_group_id":"x"`)}, "AddressGroupNotFound: Address group x could not be found."},
		{[]string{in(`,"used_in_default_sg":"sometimes"`)}, "InvalidInput: Invalid input for operation: 'sometimes' cannot be converted to boolean."},
		{[]string{in(`,"security_group_id":"` + foreign + `"`)}, "HTTPBadRequest: Unrecognized attribute(s) 'security_group_id'"},
	} {
		before := w.dump()
		_, err := w.create(w.admin, neutron.DefaultRules, tt.texts...)
		w.expect(err, tt.want)
		if !slices.Equal(before, w.dump()) {
			t.Errorf("%s: was refused, but changed the store", tt.texts)
		}
	}
	_, err := w.create(w.member, neutron.DefaultRules, in(``))
	w.expect(err, "PolicyNotAuthorized: rule:create_default_security_group_rule is disallowed by policy")
	w.expect(w.remove(w.member, neutron.DefaultRules, there), "PolicyNotAuthorized: rule:delete_default_security_group_rule is disallowed by policy")

	// The same rule for the other kind of groups repeats none.
	w.defaultRule(in(`,"protocol":"tcp","port_range_min":22,"port_range_max":22,"used_in_default_sg":true,"used_in_non_default_sg":false`))
}

// TestDefaultRulesCount: the rules of a new group count against its project's quota, as many as
// there are.
func TestDefaultRulesCount(t *testing.T) {
	t.Parallel()
	w := open(t, store.NewMemory(), control.Options{Quotas: map[string]int{"security_group_rule": 7}})
	for port := range 2 {
		w.defaultRule(fmt.Sprintf(`{"direction":"ingress","protocol":"tcp","port_range_min":%[1]d,"port_range_max":%[1]d}`, port+1))
	}
	before := w.dump()
	_, err := w.create(w.member, neutron.SecurityGroups, `{"name":"a"}`) // 4 of the default group, and 4
	w.expect(err, "OverQuota: Quota exceeded for resources: ['security_group_rule'].")
	if !slices.Equal(before, w.dump()) {
		t.Error("a refused group changed the store")
	}
	initial := w.listDefaultRules(t)
	if err := w.remove(w.admin, neutron.DefaultRules, initial["ingress IPv6 PARENT "].ID); err != nil {
		t.Fatal(err)
	}
	must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"a"}`)
	for _, r := range w.listDefaultRules(t) {
		if err := w.remove(w.admin, neutron.DefaultRules, r.ID); err != nil {
			t.Fatal(err)
		}
	}
	if empty := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"b"}`); len(empty.Rules) != 0 {
		t.Errorf("rules without any default rule: %+v", empty.Rules)
	}
}

// TestDefaultRulesCountTogether: of requests at once for many groups with one rule each, those
// succeed for which the quota has room.
func TestDefaultRulesCountTogether(t *testing.T) {
	t.Parallel()
	w := open(t, store.NewMemory(), control.Options{Quotas: map[string]int{"security_group_rule": 180, "security_group": -1}})
	for shape, r := range w.listDefaultRules(t) {
		if shape == "egress IPv4 " {
			continue
		}
		if err := w.remove(w.admin, neutron.DefaultRules, r.ID); err != nil {
			t.Fatal(err)
		}
	}
	w.groupShapes(t, w.member.ProjectID) // and the default group
	groups := slices.Repeat([]string{`{"name":"g"}`}, 100)
	got := together(6, func(int) error {
		_, err := w.create(w.member, neutron.SecurityGroups, groups...)
		return err
	})
	if got[""] != 1 || got["OverQuota"] != 5 {
		t.Errorf("outcomes %v", got)
	}
}

// TestDefaultRuleOfAddressGroup: an address group is not deleted while a default rule names it. If
// a server that knows no default rules has deleted it, groups are made without that rule.
func TestDefaultRuleOfAddressGroup(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	ag := w.addressGroup("192.0.2.0/24").ID
	d := w.defaultRule(`{"direction":"ingress","remote_address_group_id":"` + ag + `"}`)
	w.expect(w.remove(w.member, neutron.AddressGroups, ag), "AddressGroupInUse: Address group "+ag+" is in use on one or more security group rules.")
	if made, _ := w.groupShapes(t, "other"); !slices.Contains(made, "ingress IPv4 "+ag) {
		t.Errorf("a group of another project has %q", made)
	}
	groups, _ := all(w.SecurityGroups().List(t.Context(), w.admin, neutron.Query{Names: []string{"g"}}))
	if err := w.remove(w.admin, neutron.SecurityGroups, groups[0].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.st.Commit(t.Context(), nil, []store.Op{{Key: schema.AddressGroups.Key(ag), Delete: true}}); err != nil {
		t.Fatal(err)
	}
	if made, _ := w.groupShapes(t, "other"); !slices.Equal(made, []string{"egress IPv4 ", "egress IPv6 "}) {
		t.Errorf("without the address group, a group has %q", made)
	}
	if err := w.remove(w.admin, neutron.DefaultRules, d.ID); err != nil {
		t.Error(err)
	}
}

// TestDefaultRulesOfServers: of the same default rule made at several servers at once there is one,
// and a group has what was committed before it, by whichever server.
func TestDefaultRulesOfServers(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	ws := [2]*world{open(t, st, control.Options{}), open(t, st, control.Options{})}
	got := together(16, func(i int) error {
		w := ws[i%2]
		_, err := w.create(w.admin, neutron.DefaultRules, `{"direction":"ingress","protocol":"tcp"}`)
		return err
	})
	if got[""] != 1 || got["DefaultSecurityGroupRuleExists"] != 15 {
		t.Errorf("outcomes %v", got)
	}
	for i := range 20 {
		changes, groups := ws[i%2], ws[1-i%2]
		d := changes.defaultRule(`{"direction":"ingress","protocol":"udp"}`)
		if made, _ := groups.groupShapes(t, fmt.Sprint("with", i)); !slices.Contains(made, "ingress IPv4 proto 17 ") {
			t.Errorf("after the rule was made, a group has %q", made)
		}
		if err := changes.remove(changes.admin, neutron.DefaultRules, d.ID); err != nil {
			t.Fatal(err)
		}
		if made, _ := groups.groupShapes(t, fmt.Sprint("without", i)); slices.Contains(made, "ingress IPv4 proto 17 ") {
			t.Errorf("after the rule was deleted, a group has %q", made)
		}
	}
}

// defaultRuleModel has the kinds of groups that get a rule, by its shape and the default rule's id.
type defaultRuleModel map[string]map[string][2]bool // for default groups, for others

// shapes returns what a group of a kind has.
func (m defaultRuleModel) shapes(kind int) []string {
	var shapes []string
	for shape, byID := range m {
		for _, used := range byID {
			if used[kind] {
				shapes = append(shapes, shape)
			}
		}
	}
	slices.Sort(shapes)
	return shapes
}

// repeated reports whether a default rule repeats another.
func (m defaultRuleModel) repeated(shape string, used [2]bool) bool {
	for _, other := range m[shape] {
		if used == other || used[0] && other[0] || used[1] && other[1] {
			return true
		}
	}
	return false
}

// TestDefaultRulesAnySequence: after any sequence of changes, new groups have the default rules of
// their kind, no rule twice.
func TestDefaultRulesAnySequence(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := inMemory(t)
		model := defaultRuleModel{}
		for shape, r := range w.listDefaultRules(rt) {
			model[shape] = map[string][2]bool{r.ID: {r.UsedInDefaultGroup, r.UsedInOtherGroups}}
		}
		projects := 0
		rt.Repeat(map[string]func(*rapid.T){
			"make": func(rt *rapid.T) {
				pick := func(name string, texts ...string) string { return rapid.SampledFrom(texts).Draw(rt, name) }
				used := [2]bool{rapid.Bool().Draw(rt, "default"), rapid.Bool().Draw(rt, "others")}
				text := fmt.Sprintf(`{"direction":%q,"ethertype":%q,"used_in_default_sg":%t,"used_in_non_default_sg":%t%s%s}`,
					pick("direction", "ingress", "egress"), pick("ethertype", "IPv4", "ipv6"), used[0], used[1],
					pick("protocol", ``, `,"protocol":"tcp"`, `,"protocol":6`, `,"protocol":"udp","port_range_min":53,"port_range_max":53`),
					pick("remote", ``, `,"remote_group_id":"PARENT"`))
				v, err := parse(w.admin, neutron.DefaultRules, neutron.Create, text)
				if err != nil {
					rt.Fatal(err)
				}
				wanted, err := neutron.NewDefaultSecurityGroupRule(v)
				if err != nil {
					rt.Fatal(err)
				}
				shape := ruleShape(&wanted.SecurityGroupRule)
				views, err := w.create(w.admin, neutron.DefaultRules, text)
				if repeated := model.repeated(shape, used); repeated != (err != nil) {
					rt.Fatalf("%s: %v; repeated is %v", text, err, repeated)
				}
				if err != nil {
					return
				}
				if model[shape] == nil {
					model[shape] = map[string][2]bool{}
				}
				model[shape][views[0].(*neutron.DefaultSecurityGroupRule).ID] = used
			},
			"delete": func(rt *rapid.T) {
				ids := map[string]string{}
				for shape, byID := range model {
					for id := range byID {
						ids[id] = shape
					}
				}
				if len(ids) == 0 {
					return
				}
				sorted := slices.Sorted(maps.Keys(ids))
				slices.SortFunc(sorted, func(a, b string) int { return strings.Compare(ids[a], ids[b]) })
				id := sorted[rapid.IntRange(0, len(sorted)-1).Draw(rt, "rule")]
				if err := w.remove(w.admin, neutron.DefaultRules, id); err != nil {
					rt.Fatal(err)
				}
				delete(model[ids[id]], id)
			},
			"": func(rt *rapid.T) {
				projects++
				made, byDefault := w.groupShapes(rt, fmt.Sprint("p", projects))
				if want := model.shapes(1); !slices.Equal(made, want) {
					rt.Fatalf("a group has %q, want %q", made, want)
				}
				if want := model.shapes(0); !slices.Equal(byDefault, want) {
					rt.Fatalf("a default group has %q, want %q", byDefault, want)
				}
			},
		})
	})
}

// TestManyDefaultRules: there are so many default rules, all of which a new group gets at once.
func TestManyDefaultRules(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	for n := range neutron.MaxList - len(neutron.InitialDefaultRules()) {
		w.defaultRule(fmt.Sprintf(`{"direction":"ingress","protocol":"tcp","port_range_min":%d,"port_range_max":%d}`, 1+n, 1+n))
	}
	_, err := w.create(w.admin, neutron.DefaultRules, `{"direction":"ingress","protocol":"udp"}`)
	w.expect(err, "HTTPBadRequest: Invalid input for default_security_group_rules. Reason: '101' entries are too many - there may be no more than '100'.")
}
