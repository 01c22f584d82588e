package control_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/task"
)

// grant makes a policy and returns its id.
func (w *world) grant(c neutron.Caller, typ neutron.Resource, id, action, target string) string {
	w.t.Helper()
	return must[*neutron.RBACPolicy](w, c, neutron.RBACPolicies, policyText(typ, id, action, target)).ID
}

func policyText(typ neutron.Resource, id, action, target string) string {
	return `{"object_type":"` + typ.Name() + `","object_id":"` + id + `","action":"` + action + `","target_tenant":"` + target + `"}`
}

// TestRefusedPolicies: who may share what, in the reference's words.
func TestRefusedPolicies(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"g"}`).ID
	w.grant(w.member, neutron.SecurityGroups, g, "access_as_shared", "other")
	missing := "5e7a04b4-84a4-4bd9-a51c-3d9c6d9c0b4f"
	for _, c := range []struct {
		caller neutron.Caller
		text   string
		want   string
	}{
		{w.member, policyText(neutron.SecurityGroups, g, "access_as_shared", "other"), "DuplicateRbacPolicy: An RBAC policy already exists with those values."},
		{w.member, policyText(neutron.SecurityGroups, g, "access_as_shared", "*"), "PolicyNotAuthorized: ((((rule:create_rbac_policy and " +
			"rule:create_rbac_policy:object_type) and rule:create_rbac_policy:object_id) and rule:create_rbac_policy:target_tenant) and " +
			"rule:create_rbac_policy:action) is disallowed by policy"},
		{w.member, policyText(neutron.SecurityGroups, g, "zzz", "a"), "InvalidActionForType: Invalid action 'zzz' for object type 'security_group'. " +
			"Valid actions: ('access_as_shared',)"},
		{w.member, policyText(neutron.Ports, g, "access_as_shared", "a"), "InvalidInput: Invalid input for operation: 'port' is not a valid RBAC object type."},
		{w.other, policyText(neutron.SecurityGroups, g, "access_as_shared", "a"), "InvalidInput: Invalid input for operation: " +
			"Only admins can manipulate policies on objects they do not own."},
		{w.member, policyText(neutron.SecurityGroups, missing, "access_as_shared", "a"), "InvalidInput: Invalid input for operation: " +
			"Security group " + missing + " does not exist."},
		{w.member, `{"object_type":"security_group","object_id":"x","action":"access_as_shared","target_tenant":"a"}`,
			"HTTPBadRequest: Invalid input for object_id. Reason: 'x' is not a valid UUID."},
		{w.member, `{"object_type":"security_group","object_id":"` + g + `","action":"access_as_shared","target_tenant":null}`,
			"HTTPBadRequest: Invalid input for target_tenant. Reason: 'None' is not a valid string."},
		{w.member, `{"object_id":"` + g + `","action":"access_as_shared","target_tenant":"a"}`,
			"HTTPBadRequest: Failed to parse request. Required attribute 'object_type' not specified"},
	} {
		_, err := w.create(c.caller, neutron.RBACPolicies, c.text)
		w.expect(err, c.want)
	}
	w.verifyStore()
}

// TestOddTargets: a policy's target may be any text, as in the reference; * alone is everyone.
func TestOddTargets(t *testing.T) {
	t.Parallel()
	st := inEtcd(t, false)
	w := open(t, st, control.Options{Quotas: map[string]int{"rbac_policy": -1}})
	g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"g"}`).ID
	long := strings.Repeat("é", 255)
	targets := []string{"", " ", "* ", "**", "/", "a/b", "other/", "..", `\u0000`, `\n`, "%2f", "Other", " other", long}
	var ids []string
	for _, target := range targets {
		ids = append(ids, w.grant(w.member, neutron.SecurityGroups, g, "access_as_shared", target))
		_, err := w.create(w.member, neutron.RBACPolicies, policyText(neutron.SecurityGroups, g, "access_as_shared", target))
		w.expect(err, "DuplicateRbacPolicy: An RBAC policy already exists with those values.")
	}
	_, err := w.create(w.member, neutron.RBACPolicies, policyText(neutron.SecurityGroups, g, "access_as_shared", long+"é"))
	w.expect(err, "HTTPBadRequest: Invalid input for target_tenant. Reason: '"+long+"é' exceeds maximum length of 255.")
	for _, caller := range []neutron.Caller{w.other, {Roles: []string{"member"}}} {
		if _, err := w.SecurityGroups().Show(t.Context(), caller, g); problem(err) != "SecurityGroupNotFound: Security group "+g+" does not exist" {
			t.Errorf("project %q, which no policy names: %v", caller.ProjectID, err)
		}
	}
	w = open(t, st, control.Options{})
	w.verifyStore()
	if found, err := all(w.RBACPolicies().List(t.Context(), w.member, neutron.Query{})); len(found) != len(targets) || err != nil {
		t.Errorf("%d policies after a restart, %v: want %d", len(found), err, len(targets))
	}
	for i, id := range ids {
		text := fmt.Sprintf(`{"target_tenant":"%s"}`, targets[i]+"x")
		if targets[i] == long {
			text = `{"target_tenant":"y"}`
		}
		_, err := w.change(w.member, neutron.RBACPolicies, id, text)
		w.expect(err, "")
		w.expect(w.remove(w.member, neutron.RBACPolicies, id), "")
	}
	w.verifyStore()
}

// TestSharedGroup: a project uses another's group as long as a policy shares it, which goes with
// the group.
func TestSharedGroup(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"g"}`).ID
	ctx := t.Context()
	if _, err := w.SecurityGroups().Show(ctx, w.other, g); problem(err) != "SecurityGroupNotFound: Security group "+g+" does not exist" {
		t.Fatal(err)
	}
	policy := w.grant(w.member, neutron.SecurityGroups, g, "access_as_shared", "other")
	for caller, want := range map[*neutron.Caller]bool{&w.other: true, &w.member: false, &w.admin: false} {
		v, err := w.SecurityGroups().Show(ctx, *caller, g)
		if err != nil || v.Shared != want {
			t.Errorf("shared as %s sees it: %+v, %v", caller.ProjectID, v, err)
		}
		listed, err := all(w.SecurityGroups().List(ctx, *caller, neutron.Query{OnlyShared: true}))
		if err != nil || want != (len(listed) == 1) {
			t.Errorf("%s lists %d shared groups, %v", caller.ProjectID, len(listed), err)
		}
	}
	if _, err := w.RBACPolicies().Show(ctx, w.other, policy); problem(err) != "RbacPolicyNotFound: RBAC policy of type unknown with ID "+policy+" not found" {
		t.Errorf("the policy, by its target: %v", err)
	}
	_, err := w.change(w.other, neutron.SecurityGroups, g, `{"description":"d"}`)
	w.expect(err, "PolicyNotAuthorized: rule:update_security_group is disallowed by policy")

	n := must[*neutron.NetworkView](w, w.other, neutron.Networks, `{}`).ID
	p := must[*neutron.PortView](w, w.other, neutron.Ports, `{"network_id":"`+n+`","security_groups":["`+g+`"]}`).ID
	inUse := "RbacPolicyInUse: RBAC policy on object " + g + " cannot be removed because other objects depend on it.\nDetails: project_id=other"
	w.expect(w.remove(w.member, neutron.RBACPolicies, policy), inUse)
	_, err = w.change(w.member, neutron.RBACPolicies, policy, `{"target_tenant":"third"}`)
	w.expect(err, inUse)
	wide := w.grant(w.admin, neutron.SecurityGroups, g, "access_as_shared", "*")
	w.expect(w.remove(w.member, neutron.RBACPolicies, policy), "")
	w.expect(w.remove(w.admin, neutron.RBACPolicies, wide), inUse)
	_, err = w.change(w.admin, neutron.RBACPolicies, wide, `{"target_tenant":"other"}`)
	w.expect(err, "")
	w.expect(w.remove(w.other, neutron.Ports, p), "")
	w.verifyStore()
	w.expect(w.remove(w.member, neutron.SecurityGroups, g), "")
	if left, _ := all(w.RBACPolicies().List(ctx, w.admin, neutron.Query{})); len(left) > 0 {
		t.Errorf("policies of a deleted group: %+v", left)
	}
	w.verifyStore()
}

// TestPolicyLeavesNothing: a policy made and deleted leaves the store as it was.
func TestPolicyLeavesNothing(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"g"}`).ID
	before := w.dump()
	policy := w.grant(w.member, neutron.SecurityGroups, g, "access_as_shared", "a/b *")
	_, err := w.change(w.member, neutron.RBACPolicies, policy, `{"target_tenant":""}`)
	w.expect(err, "")
	w.expect(w.remove(w.member, neutron.RBACPolicies, policy), "")
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Error(d)
	}
}

// policies returns what is granted on an object, by id of the policy.
func (w *world) policies(id string) map[string]string {
	w.t.Helper()
	found, err := all(w.RBACPolicies().List(w.t.Context(), w.admin, neutron.Query{ObjectIDs: []string{id}}))
	if err != nil {
		w.t.Fatal(err)
	}
	grants := map[string]string{}
	for _, p := range found {
		grants[p.ID] = p.ProjectID + ": " + p.Action + " to " + p.Target
	}
	return grants
}

// granted returns what is granted on an object, sorted.
func (w *world) granted(id string) string {
	return strings.Join(slices.Sorted(maps.Values(w.policies(id))), ", ")
}

// sees reports whether a caller sees a network, by itself and in the list, and as shared.
func (w *world) sees(c neutron.Caller, id string) (visible, shared bool) {
	w.t.Helper()
	v, err := w.Networks().Show(w.t.Context(), c, id)
	listed, listErr := all(w.Networks().List(w.t.Context(), c, neutron.Query{}))
	inList := slices.ContainsFunc(listed, func(n *neutron.NetworkView) bool { return n.ID == id && (err != nil || n.Shared == v.Shared) })
	if listErr != nil || inList != (err == nil) {
		w.t.Errorf("%s lists other networks than it sees: %v, %v", c.ProjectID, err, listErr)
	}
	return err == nil, err == nil && v.Shared
}

// expectSeen checks who sees a network, and who sees it as shared.
func (w *world) expectSeen(id string, visible, shared string) {
	w.t.Helper()
	var seen, seenShared []string
	for _, c := range []neutron.Caller{w.admin, w.member, w.other, {ProjectID: "third", Roles: []string{"member"}}} {
		v, s := w.sees(c, id)
		if v {
			seen = append(seen, c.ProjectID)
		}
		if s {
			seenShared = append(seenShared, c.ProjectID)
		}
	}
	if got := strings.Join(seen, " "); got != visible {
		w.t.Errorf("seen by %s, want %s", got, visible)
	}
	if got := strings.Join(seenShared, " "); got != shared {
		w.t.Errorf("seen as shared by %s, want %s", got, shared)
	}
}

// TestNetworkSharedWithOneProject: it sees the network and its subnets, has ports there, and keeps
// the policy as long.
func TestNetworkSharedWithOneProject(t *testing.T) {
	t.Parallel()
	w, ctx := inMemory(t), t.Context()
	n := w.network(`{}`)
	s := w.subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/24"`)
	w.expectSeen(n.ID, "ops mine", "")
	policy := w.grant(w.member, neutron.Networks, n.ID, "access_as_shared", "other")
	w.expectSeen(n.ID, "ops mine other", "other")
	if v, err := w.Networks().Show(ctx, w.admin, n.ID); err != nil || v.RevisionNumber <= n.RevisionNumber {
		t.Errorf("revision of the network: %d, %v", v.RevisionNumber, err)
	}
	for c, want := range map[*neutron.Caller]bool{&w.other: true, &w.member: false} {
		if v, err := w.Subnets().Show(ctx, *c, s.ID); err != nil || v.Shared != want {
			t.Errorf("its subnet, as %s sees it: %+v, %v", c.ProjectID, v, err)
		}
	}
	if listed, err := all(w.Subnets().List(ctx, w.other, neutron.Query{OnlyShared: true})); err != nil || len(listed) != 1 || !listed[0].Shared {
		t.Errorf("list of shared subnets: %v, %v", listed, err)
	}
	p := must[*neutron.PortView](w, w.other, neutron.Ports, `{"network_id":"`+n.ID+`","fixed_ips":[{"subnet_id":"`+s.ID+`"}]}`)
	_, err := w.create(w.other, neutron.Ports, `{"network_id":"`+n.ID+`","fixed_ips":[{"ip_address":"10.0.0.9"}]}`)
	w.expect(err, "PolicyNotAuthorized: (rule:create_port and (rule:create_port:fixed_ips and (rule:create_port:fixed_ips:ip_address))) is disallowed by policy")
	_, err = w.change(w.other, neutron.Networks, n.ID, `{"name":"x"}`)
	w.expect(err, "PolicyNotAuthorized: rule:update_network is disallowed by policy")
	_, err = w.create(w.other, neutron.RBACPolicies, policyText(neutron.Networks, n.ID, "access_as_shared", "third"))
	w.expect(err, "InvalidInput: Invalid input for operation: Only admins can manipulate policies on objects they do not own.")

	inUse := "RbacPolicyInUse: RBAC policy on object " + n.ID + " cannot be removed because other objects depend on it.\nDetails: project_id=other"
	w.expect(w.remove(w.member, neutron.RBACPolicies, policy), inUse)
	_, err = w.change(w.admin, neutron.Networks, n.ID, `{"shared":true}`)
	w.expect(err, "")
	w.expectSeen(n.ID, "ops mine other third", "ops mine other third")
	_, err = w.change(w.admin, neutron.Networks, n.ID, `{"shared":false}`) // other has a policy of its own
	w.expect(err, "")
	_, err = w.change(w.admin, neutron.Networks, n.ID, `{"shared":true}`)
	w.expect(err, "")
	if got := w.granted(n.ID); got != "mine: access_as_shared to *, mine: access_as_shared to other" {
		t.Error(got)
	}
	w.expect(w.remove(w.member, neutron.RBACPolicies, policy), "")
	_, err = w.change(w.admin, neutron.Networks, n.ID, `{"shared":false}`)
	w.expect(err, "InvalidSharedSetting: Unable to reconfigure sharing settings for network "+n.ID+". Multiple tenants are using it.")
	w.expect(w.remove(w.other, neutron.Ports, p.ID), "")
	_, err = w.change(w.admin, neutron.Networks, n.ID, `{"shared":false}`)
	w.expect(err, "")
	w.expectSeen(n.ID, "ops mine", "")
	w.verifyStore()
}

// TestNetworkExternalForOneProject: a policy makes a network external, and the last one internal
// again; only who is named by one sees it, and gives routers a gateway there.
func TestNetworkExternalForOneProject(t *testing.T) {
	t.Parallel()
	w, ctx := inMemory(t), t.Context()
	n := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"router:external":true}`).ID
	if got := w.granted(n); got != "ops: access_as_external to *" {
		t.Error(got)
	}
	w.expectSeen(n, "ops mine other third", "")
	_, err := w.change(w.admin, neutron.Networks, n, `{"router:external":false}`)
	w.expect(err, "")
	w.expectSeen(n, "ops", "")
	must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+n+`","ip_version":4,"cidr":"203.0.113.0/24"}`)

	one := w.grant(w.admin, neutron.Networks, n, "access_as_external", "mine")
	if v, err := w.Networks().Show(ctx, w.admin, n); err != nil || !v.External {
		t.Fatalf("%+v, %v", v, err)
	}
	w.expectSeen(n, "ops mine", "")
	for c, want := range map[*neutron.Caller]int{&w.member: 1, &w.other: 0, &w.admin: 1} {
		listed, err := all(w.Networks().List(ctx, *c, neutron.Query{OnlyExternal: true}))
		pools, poolsErr := all(w.FloatingIPPools().List(ctx, *c, neutron.Query{}))
		if err != nil || len(listed) != want || poolsErr != nil || len(pools) != want {
			t.Errorf("%s lists %d external networks, %v, and %d pools, %v", c.ProjectID, len(listed), err, len(pools), poolsErr)
		}
	}
	r := w.routerTo(w.member, n)
	missing := "NetworkNotFound: Network " + n + " could not be found."
	_, err = w.create(w.other, neutron.Routers, `{"external_gateway_info":{"network_id":"`+n+`"}}`)
	w.expect(err, missing)
	_, err = w.create(w.other, neutron.FloatingIPs, `{"floating_network_id":"`+n+`"}`)
	w.expect(err, missing)

	inUse := "RbacPolicyInUse: RBAC policy on object " + n + " cannot be removed because other objects depend on it.\nDetails: "
	w.expect(w.remove(w.admin, neutron.RBACPolicies, one), inUse+"project_id=mine")
	every := w.grant(w.admin, neutron.Networks, n, "access_as_external", "*")
	w.expect(w.remove(w.admin, neutron.RBACPolicies, one), "")
	w.expect(w.remove(w.admin, neutron.RBACPolicies, every), inUse+"project_id=mine")
	_, err = w.change(w.admin, neutron.Networks, n, `{"router:external":false}`)
	w.expect(err, "ExternalNetworkInUse: External network "+n+" cannot be updated to be made non-external, since it has existing gateway ports.")
	w.expect(w.remove(w.member, neutron.Routers, r), "")
	_, err = w.change(w.admin, neutron.Networks, n, `{"is_default":true}`)
	w.expect(err, "")
	w.expect(w.remove(w.admin, neutron.RBACPolicies, every), inUse+"Default external networks must be shared to everyone.")
	_, err = w.change(w.admin, neutron.Networks, n, `{"is_default":false}`)
	w.expect(err, "")
	w.expect(w.remove(w.admin, neutron.RBACPolicies, every), "")
	if v, err := w.Networks().Show(ctx, w.admin, n); err != nil || v.External {
		t.Errorf("after its last policy: %+v, %v", v, err)
	}
	w.verifyStore()
}

// TestNetworksWithoutPolicies: networks in the form of a version without policies, found at the
// start or written later by such a server, are given the policies that they stand for.
func TestNetworksWithoutPolicies(t *testing.T) {
	t.Parallel()
	const plain, shared, external, late = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002",
		"00000000-0000-4000-8000-000000000003", "00000000-0000-4000-8000-000000000004"
	st := store.NewMemory()
	write := func(id, project string, shared, external bool) {
		t.Helper()
		record := fmt.Sprintf(`{"id":%q,"project_id":%q,"mtu":1450,"shared":%t,"router:external":%t,"provider:network_type":"vxlan"}`, id, project, shared, external)
		if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: schema.Networks.Key(id), Value: []byte(record)}}); err != nil {
			t.Fatal(err)
		}
	}
	write(plain, "mine", false, false)
	write(shared, "mine", true, false)
	write(external, "mine", false, true)
	for i := range 500 {
		write(fmt.Sprintf("00000000-0000-4000-8001-%012d", i), "fourth", true, false)
	}
	w := followWith(t, st, func(s *control.Service, r *replica.Replica, log *slog.Logger) task.Task {
		return control.NewNetworkSharing(s, r, log)
	})
	settled := func(ids ...string) {
		t.Helper()
		w.until("policies of networks", func(r records.Reader) bool {
			return !slices.ContainsFunc(ids, func(id string) bool {
				n, ok := schema.Networks.Peek(r, id)
				return !ok || n.WithoutPolicies()
			})
		})
	}
	snap, err := w.db.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for n := range schema.Networks.All(snap) {
		if n.WithoutPolicies() {
			t.Fatalf("network %s has no policies once the task is ready", n.ID)
		}
	}
	write(late, "mine", true, true)
	settled(late)
	w.expectSeen(plain, "ops mine", "")
	w.expectSeen(shared, "ops mine other third", "ops mine other third")
	w.expectSeen(external, "ops mine other third", "")
	w.expectSeen(late, "ops mine other third", "ops mine other third")
	if got := w.granted(late); got != "mine: access_as_external to *, mine: access_as_shared to *" {
		t.Error(got)
	}

	// A plain one in the old form becomes external for one project, and not for all.
	w.grant(w.member, neutron.Networks, plain, "access_as_external", "other")
	w.expectSeen(plain, "ops mine other", "")
	_, err = w.change(w.admin, neutron.Networks, shared, `{"shared":false}`)
	w.expect(err, "")
	w.expectSeen(shared, "ops mine", "")
	w.verifyStore()
}

// fullStore is a store that takes no commits.
type fullStore struct{ store.Store }

func (fullStore) Commit(context.Context, []store.Cond, []store.Op) (int64, error) {
	return 0, store.ErrFull
}

// TestNetworkSharingWithFullStore: the task becomes ready although it can make no policies, so that
// the server that waits for it serves those who reclaim space.
func TestNetworkSharingWithFullStore(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	const shared = "00000000-0000-4000-8000-000000000001"
	record := `{"id":"` + shared + `","project_id":"mine","mtu":1450,"shared":true,"provider:network_type":"vxlan"}`
	if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: schema.Networks.Key(shared), Value: []byte(record)}}); err != nil {
		t.Fatal(err)
	}
	w := followWith(t, fullStore{st}, func(s *control.Service, r *replica.Replica, log *slog.Logger) task.Task {
		return control.NewNetworkSharing(s, r, log)
	})
	w.expectSeen(shared, "ops mine", "")
}

// TestDeleteObjectOfManyPolicies: they go with it, however many they are.
func TestDeleteObjectOfManyPolicies(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.unlimited()
	for _, typ := range []neutron.Resource{neutron.Networks, neutron.SecurityGroups} {
		views, err := w.create(w.member, typ, `{"name":"n"}`)
		if err != nil {
			t.Fatal(err)
		}
		var id string
		switch v := views[0].(type) {
		case *neutron.NetworkView:
			id = v.ID
		case *neutron.SecurityGroupView:
			id = v.ID
		}
		texts := make([]string, 300)
		for i := range texts {
			texts[i] = policyText(typ, id, "access_as_shared", fmt.Sprint("project-", i))
		}
		if _, err := w.create(w.member, neutron.RBACPolicies, texts...); err != nil {
			t.Fatal(err)
		}
		w.expect(w.remove(w.member, typ, id), "")
		if left := w.policies(id); len(left) > 0 {
			t.Errorf("%d policies of a deleted %s are left", len(left), typ)
		}
		w.verifyStore()
	}
}
