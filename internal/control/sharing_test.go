package control_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/neutron"
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
