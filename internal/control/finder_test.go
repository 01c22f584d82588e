package control_test

import (
	"errors"
	"slices"
	"testing"

	"heddle/internal/neutron"
)

// TestWhoSeesWhat lists everything as everybody.
func TestWhoSeesWhat(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	names := map[string]string{}
	note := func(name, id string) string { names[id] = name; return id }
	own := note("own", w.network(`{}`).ID)
	shared := note("shared", must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"shared":true}`).ID)
	external := note("external", must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"router:external":true}`).ID)
	hidden := note("hidden", must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{}`).ID)
	for i, id := range []string{own, shared, external, hidden} {
		cidr := string(rune('0'+i)) + ".0.0/24"
		s := must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+id+`","ip_version":4,"cidr":"10.`+cidr+`"}`)
		note(names[id]+" subnet", s.ID)
		p := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+id+`"}`)
		note(names[id]+" port", p.ID)
	}
	note("guest", must[*neutron.PortView](w, w.member, neutron.Ports, `{"network_id":"`+shared+`"}`).ID)

	lists := func(c neutron.Caller, q neutron.Query) map[string][]string {
		got, last := map[string][]string{}, map[string]string{}
		add := func(kind, id string) {
			if id <= last[kind] {
				t.Errorf("%s of %s by %+v: %s comes after %s", kind, c.ProjectID, q, id, last[kind])
			}
			got[kind], last[kind] = append(got[kind], names[id]), id
		}
		networks, err1 := all(w.Networks().List(t.Context(), c, q))
		subnets, err2 := all(w.Subnets().List(t.Context(), c, q))
		ports, err3 := all(w.Ports().List(t.Context(), c, q))
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		for _, n := range networks {
			add("networks", n.ID)
		}
		for _, s := range subnets {
			add("subnets", s.ID)
		}
		for _, p := range ports {
			add("ports", p.ID)
		}
		for _, l := range got {
			slices.Sort(l)
		}
		return got
	}
	everyPort := []string{"external port", "guest", "hidden port", "own port", "shared port"}
	for _, tt := range []struct {
		name string
		c    neutron.Caller
		q    neutron.Query
		want map[string][]string
	}{
		{"member", w.member, neutron.Query{}, map[string][]string{
			"networks": {"external", "own", "shared"}, "subnets": {"own subnet", "shared subnet"}, "ports": {"guest", "own port"}}},
		{"other", w.other, neutron.Query{}, map[string][]string{"networks": {"external", "shared"}, "subnets": {"shared subnet"}}},
		{"admin", w.admin, neutron.Query{}, map[string][]string{
			"networks": {"external", "hidden", "own", "shared"},
			"subnets":  {"external subnet", "hidden subnet", "own subnet", "shared subnet"}, "ports": everyPort}},
		{"member by network", w.member, neutron.Query{NetworkIDs: []string{shared, hidden}}, map[string][]string{
			"networks": {"external", "own", "shared"}, "subnets": {"shared subnet"}, "ports": {"guest"}}},
		{"member by project", w.member, neutron.Query{ProjectIDs: []string{"ops"}}, map[string][]string{
			"networks": {"external", "shared"}, "subnets": {"own subnet", "shared subnet"}, "ports": {"own port"}}},
		{"member, external", w.member, neutron.Query{OnlyExternal: true}, map[string][]string{
			"networks": {"external"}, "subnets": {"own subnet", "shared subnet"}, "ports": {"guest", "own port"}}},
		{"admin, shared", w.admin, neutron.Query{OnlyShared: true}, map[string][]string{
			"networks": {"shared"}, "subnets": {"shared subnet"}, "ports": everyPort}},
		{"member by networks and subnets", w.member, neutron.Query{NetworkIDs: []string{own, shared, own}}, map[string][]string{
			"networks": {"external", "own", "shared"}, "subnets": {"own subnet", "shared subnet"}, "ports": {"guest", "own port"}}},
		{"other, shared", w.other, neutron.Query{OnlyShared: true}, map[string][]string{"networks": {"shared"}, "subnets": {"shared subnet"}}},
		{"other by id", w.other, neutron.Query{IDs: []string{own, hidden, shared, shared}}, map[string][]string{"networks": {"shared"}}},
		{"nobody's name", w.admin, neutron.Query{Names: []string{"zzz"}}, map[string][]string{}},
	} {
		got := lists(tt.c, tt.q)
		for _, kind := range []string{"networks", "subnets", "ports"} {
			if !slices.Equal(got[kind], tt.want[kind]) {
				t.Errorf("%s: %s\ngot  %q\nwant %q", tt.name, kind, got[kind], tt.want[kind])
			}
		}
	}

	// Everyone sees one by one what is in his list.
	for id := range names {
		for _, c := range []neutron.Caller{w.member, w.other, w.admin} {
			_, err1 := w.Networks().Show(t.Context(), c, id)
			_, err2 := w.Subnets().Show(t.Context(), c, id)
			_, err3 := w.Ports().Show(t.Context(), c, id)
			seen := err1 == nil || err2 == nil || err3 == nil
			all := lists(c, neutron.Query{})
			listed := slices.Contains(slices.Concat(all["networks"], all["subnets"], all["ports"]), names[id])
			if seen != listed {
				t.Errorf("%s and %s: seen %v, listed %v", c.ProjectID, names[id], seen, listed)
			}
		}
	}
}

// TestListsInParts: bounds of ids cut a list without a change of its order, also where it comes of
// several indexes.
func TestListsInParts(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	for range 3 { // the member's own ports on others' networks, and others' on his
		own, shared := w.network(`{}`).ID, must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"shared":true}`).ID
		for range 4 {
			w.port(own, "")
			w.port(shared, "")
			must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+own+`"}`)
			must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+shared+`"}`)
		}
	}
	ids := func(q neutron.Query) []string {
		ports, err := all(w.Ports().List(t.Context(), w.member, q))
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, p := range ports {
			ids = append(ids, p.ID)
		}
		return ids
	}
	whole := ids(neutron.Query{})
	if len(whole) != 36 || !slices.IsSorted(whole) || len(slices.Compact(slices.Clone(whole))) != 36 {
		t.Fatalf("ports of a member: %d %v", len(whole), whole)
	}
	for i, id := range whole {
		if got := ids(neutron.Query{After: id}); !slices.Equal(got, whole[i+1:]) {
			t.Errorf("after %d of %d: %v", i, len(whole), got)
		}
		if got := ids(neutron.Query{Before: id}); !slices.Equal(got, whole[:i]) {
			t.Errorf("before %d of %d: %v", i, len(whole), got)
		}
	}
}

// TestPortQueries: each field of a query finds its port, and no other field's.
func TestPortQueries(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	s := w.subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/24"`)
	g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"g"}`)
	a := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+n.ID+`","name":"a","mac_address":"fa:16:3e:00:00:01",
		"fixed_ips":[{"ip_address":"10.0.0.9"},{"ip_address":"10.0.0.10"}],"device_id":"d","device_owner":"compute:x",
		"binding:host_id":"h","security_groups":["`+g.ID+`"],"project_id":"mine"}`)
	w.port(w.network(`{}`).ID, `"name":"b"`)
	for name, q := range map[string]neutron.Query{
		"ids": {IDs: []string{a.ID, "x"}}, "names": {Names: []string{"a"}}, "networks": {NetworkIDs: []string{n.ID}},
		"subnets": {SubnetIDs: []string{s.ID}}, "addresses": {IPAddresses: []string{"10.0.0.9", "10.0.0.10"}},
		"macs": {MACAddresses: []string{"fa:16:3e:00:00:01"}}, "devices": {DeviceIDs: []string{"d"}},
		"owners": {DeviceOwners: []string{"compute:x"}}, "hosts": {HostIDs: []string{"h"}}, "groups": {SecurityGroupIDs: []string{g.ID, "x"}},
		"two at once": {ProjectIDs: []string{"mine"}, DeviceIDs: []string{"d"}}, "bare": {Names: []string{"a"}, WithoutComputed: true},
	} {
		for _, c := range []neutron.Caller{w.member, w.admin} {
			ports, err := all(w.Ports().List(t.Context(), c, q))
			if err != nil || len(ports) != 1 || ports[0].ID != a.ID {
				t.Errorf("%s by %s: %v, %v", name, c.ProjectID, ports, err)
			}
		}
		q.Names = append(q.Names, "b")
		q.ProjectIDs = []string{"other"}
		if ports, err := all(w.Ports().List(t.Context(), w.admin, q)); err != nil || len(ports) != 0 {
			t.Errorf("%s of another project: %v, %v", name, ports, err)
		}
	}
}

func TestRuleQueries(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"g"}`)
	r := must[*neutron.SecurityGroupRule](w, w.member, neutron.SecurityGroupRules,
		`{"security_group_id":"`+g.ID+`","direction":"ingress","remote_group_id":"`+g.ID+`"}`)
	for name, tt := range map[string]struct {
		q    neutron.Query
		want int
	}{
		"all": {neutron.Query{}, 7}, "id": {neutron.Query{IDs: []string{r.ID, g.Rules[0].ID}}, 2},
		"group": {neutron.Query{SecurityGroupIDs: []string{g.ID}}, 3}, "remote": {neutron.Query{RemoteGroupIDs: []string{g.ID}}, 1},
		"foreign project": {neutron.Query{ProjectIDs: []string{"ops"}}, 0},
	} {
		rules, err := all(w.SecurityGroupRules().List(t.Context(), w.member, tt.q))
		if err != nil || len(rules) != tt.want {
			t.Errorf("%s: %d rules, want %d, %v", name, len(rules), tt.want, err)
		}
	}
	if got, err := w.SecurityGroupRules().Show(t.Context(), w.member, r.ID); err != nil || got.RemoteGroupID != g.ID {
		t.Errorf("rule %+v, %v", got, err)
	}
	_, err := w.SecurityGroupRules().Show(t.Context(), w.other, r.ID)
	w.expect(err, "SecurityGroupRuleNotFound: Security group rule "+r.ID+" does not exist")
	_, err = w.SecurityGroups().Show(t.Context(), w.other, g.ID)
	w.expect(err, "SecurityGroupNotFound: Security group "+g.ID+" does not exist")
	if groups, err := all(w.SecurityGroups().List(t.Context(), w.admin, neutron.Query{Names: []string{"g"}})); err != nil || len(groups) != 1 {
		t.Errorf("by name: %v, %v", groups, err)
	}
	if groups, err := all(w.SecurityGroups().List(t.Context(), w.admin, neutron.Query{IDs: []string{g.ID}})); err != nil || len(groups) != 1 {
		t.Errorf("by id: %v, %v", groups, err)
	}
}

func TestTags(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	s := w.subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/24"`)
	p := w.port(n.ID, "")
	g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"g"}`)
	to := func(tags ...string) func([]string) ([]string, error) {
		return func([]string) ([]string, error) { return tags, nil }
	}
	for r, id := range map[neutron.Resource]string{neutron.Networks: n.ID, neutron.Subnets: s.ID, neutron.Ports: p.ID, neutron.SecurityGroups: g.ID} {
		if got, err := w.on(r).tags(w.member, id, to("blue", "red")); err != nil || !slices.Equal(got, []string{"blue", "red"}) {
			t.Errorf("%s: %v, %v", r, got, err)
		}
		refused := errors.New("no")
		if _, err := w.on(r).tags(w.member, id, func([]string) ([]string, error) { return nil, refused }); !errors.Is(err, refused) {
			t.Errorf("%s: %v", r, err)
		}
		_, err := w.on(r).tags(w.other, id, to())
		w.expect(err, problem(r.NotFound(id)))
		_, err = w.on(r).tags(w.member, "x", to())
		w.expect(err, problem(r.NotFound("x")))
	}
	tagged, _ := w.Ports().Show(t.Context(), w.member, p.ID)
	again, err := w.on(neutron.Ports).tags(w.member, p.ID, to("blue", "red"))
	after, _ := w.Ports().Show(t.Context(), w.member, p.ID)
	if tagged.RevisionNumber != 2 || after.RevisionNumber != 2 || len(again) != 2 || err != nil {
		t.Errorf("revision %d, and %d when nothing changes, %v", tagged.RevisionNumber, after.RevisionNumber, err)
	}
	shared := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"shared":true}`)
	_, err = w.on(neutron.Networks).tags(w.member, shared.ID, to("mine"))
	w.expect(err, "PolicyNotAuthorized: rule:update_networks_tags is disallowed by policy")
}
