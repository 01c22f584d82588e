package control

import (
	"errors"
	"iter"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// Objects are shared by RBAC policies, and by nothing else: an attribute "shared" is a view of
// them.
//
//	resource "subnetpool"        schema.RBACPolicies
//	  shared: true ──share──▶    subnetpool/<id>/access_as_shared/*
//	  shared ◀─────sharedWith──  subnetpool/<id>/access_as_shared/<project>  ◀── /rbac-policies
//
// A type of objects takes part when
//   - schema.RBACPolicies refers to its table, so that policies go with their object,
//   - sharedTypes has a line for it, with the projects that use an object,
//   - its attribute "shared" is Computed, its resource shareable, and its finder has onlyShared
//     among its criteria and sharedObjects among what is visible,
//   - create, after the object was put, and update call share, if clients may set "shared",
//   - whatever uses an object of another project finds it with resource.inTransaction, or asks
//     sharedWith in its transaction: both guard the policy that allows it, so that it cannot be
//     deleted meanwhile,
//   - the alias rbac-… is announced (neutronv2/sharing.go).

// sharedType is a type of objects that policies share.
type sharedType struct {
	neutron.Resource
	// project returns the project of an object.
	project func(r records.Reader, id string) (string, bool)
	// users returns the projects that use an object by an action, also repeatedly. New users that
	// come until the transaction commits must make it fail; see usersIn.
	users func(o *operation, id, action string) iter.Seq[string]

	// Those below may be nil. check refuses to take away a policy for other reasons than its users.
	check func(o *operation, p *neutron.RBACPolicy) error
	// admit refuses a new policy.
	admit func(o *operation, p *neutron.RBACPolicy) error
	// before and after run around changes of an object's policies by /rbac-policies.
	before, after func(o *operation, id string) error
	// strict counts the object's own project too, and the target that a policy is to get, among
	// those who need the policy for all, as the reference does of QoS policies.
	strict bool
}

// sharedTypes are the types of objects that policies share.
func sharedTypes() []sharedType {
	return []sharedType{
		sharedNetworks(),
		sharedTable(neutron.SecurityGroups, schema.SecurityGroups, func(g *neutron.SecurityGroup) string { return g.ProjectID },
			usersIn(schema.Ports, "security_group", func(p *neutron.Port) string { return p.ProjectID })),
		sharedQoSPolicies(),
		sharedTable(neutron.AddressGroups, schema.AddressGroups, func(g *neutron.AddressGroup) string { return g.ProjectID },
			usersIn(schema.SecurityGroups, "remote_address_group", func(g *neutron.SecurityGroup) string { return g.ProjectID })),
		sharedPools(),
		sharedTable(neutron.AddressScopes, schema.AddressScopes, func(a *neutron.AddressScope) string { return a.ProjectID },
			usersIn(schema.SubnetPools, "address_scope", func(p *neutron.SubnetPool) string { return p.ProjectID })),
	}
}

// sharedTable returns the type of the objects in a table, which others use by some references.
func sharedTable[T any](typ neutron.Resource, t *records.Table[T], project func(*T) string,
	users ...func(o *operation, id string) iter.Seq[string]) sharedType {
	return sharedType{
		Resource: typ,
		project: func(r records.Reader, id string) (string, bool) {
			object, ok := t.Peek(r, id)
			if !ok {
				return "", false
			}
			return project(object), true
		},
		users: func(o *operation, id, _ string) iter.Seq[string] {
			return func(yield func(string) bool) {
				for _, some := range users {
					for project := range some(o, id) {
						if !yield(project) {
							return
						}
					}
				}
			}
		},
	}
}

// usersIn returns the projects of the records in a table that refer to an object by a field.
func usersIn[U any](t *records.Table[U], field string, project func(*U) string) func(o *operation, id string) iter.Seq[string] {
	return func(o *operation, id string) iter.Seq[string] {
		t.Referrers(o.tx, field, id) // guards that no new ones come
		return func(yield func(string) bool) {
			for user := range t.By(o.tx, field, id) {
				if !yield(project(user)) {
					return
				}
			}
		}
	}
}

// sharedTypeNamed returns the type that a policy names.
func sharedTypeNamed(name string) (sharedType, error) {
	for _, t := range sharedTypes() {
		if t.ObjectType() == name {
			return t, nil
		}
	}
	return sharedType{}, neutron.InvalidObjectType(name)
}

// sharedWith reports whether policies share an object with a project, or with all. A transaction
// guards the policy that does.
func sharedWith(r records.Reader, project string, typ neutron.Resource, id string) bool {
	return granted(r, project, typ, id, neutron.AccessShared)
}

// granted is sharedWith for any action.
func granted(r records.Reader, project string, typ neutron.Resource, id, action string) bool {
	for _, target := range grantees(project) {
		grant := schema.Grant(typ.ObjectType(), id, action, target)
		if _, there := schema.RBACPolicies.Peek(r, grant); there {
			_, err := schema.RBACPolicies.Need(r, grant)
			return err == nil
		}
	}
	return false
}

// grantees returns the targets of policies that mean a project.
func grantees(project string) []string {
	if project == "" {
		return []string{neutron.EveryProject}
	}
	return []string{neutron.EveryProject, project}
}

// sharedObjects returns the objects of a type that policies share with the caller: sequences in
// order of ids, for the finder of a list. Their cost follows what is read of them.
func sharedObjects[T any](t *records.Table[T], typ neutron.Resource, r records.Reader, c neutron.Caller) []iter.Seq[*T] {
	return grantedObjects(t, typ, r, c, neutron.AccessShared)
}

// grantedObjects is sharedObjects for any action.
func grantedObjects[T any](t *records.Table[T], typ neutron.Resource, r records.Reader, c neutron.Caller, action string) []iter.Seq[*T] {
	var parts []iter.Seq[*T]
	for _, target := range grantees(c.ProjectID) {
		parts = append(parts, func(yield func(*T) bool) {
			for p := range schema.RBACPolicies.By(r, "grantee", schema.Grantee(typ.ObjectType(), action, target)) {
				if o, ok := t.Peek(r, p.ObjectID); ok && !yield(o) {
					return
				}
			}
		})
	}
	return parts
}

// onlyShared returns the criterion of lists of shared objects alone.
func onlyShared[T any](t *records.Table[T], typ neutron.Resource) criterion[T] {
	return criterion[T]{
		values: func(q *neutron.Query) []string { return flag(q.OnlyShared) },
		find: func(r records.Reader, c neutron.Caller, _ []string) iter.Seq[*T] {
			return union(t, sharedObjects(t, typ, r, c)...)
		},
	}
}

// shareable has a resource's objects seen by those whom policies share them with, and its answers
// say so in what shared returns.
func shareable[T, V any](res *resource[T, V], shared func(o *V) *bool) *resource[T, V] {
	res.shared = func(r records.Reader, c neutron.Caller, o *T) bool {
		return sharedWith(r, c.ProjectID, res.name, res.standard(o).ID)
	}
	res.mark = func(r records.Reader, c neutron.Caller, v *V) {
		*shared(v) = sharedWith(r, c.ProjectID, res.name, res.attributes(v).ID)
	}
	return res
}

// share does what the attribute "shared" of a create or an update asks for: it shares an object,
// which was put, with all projects, or takes that back unless they need it.
func (o *operation) share(typ neutron.Resource, id string, v neutron.Values) error {
	if !v.Has("shared") {
		return nil
	}
	_, err := o.grantAll(typ, id, neutron.AccessShared, v.Flag("shared"))
	return err
}

// grantAll makes or removes the policy that grants all projects an action on an object, and reports
// whether that changed anything.
func (o *operation) grantAll(typ neutron.Resource, id, action string, want bool) (changed bool, err error) {
	p, err := schema.RBACPolicies.Get(o.tx, schema.Grant(typ.ObjectType(), id, action, neutron.EveryProject))
	if had := err == nil; had == want {
		return false, nil
	}
	t, err := sharedTypeNamed(typ.ObjectType())
	if err != nil {
		return false, err
	}
	if !want {
		return true, errors.Join(o.checkWithdrawal(t, p, ""), schema.RBACPolicies.Delete(o.tx, schema.RBACPolicies.ID(p)))
	}
	project, _ := t.project(o.tx, id)
	return true, schema.RBACPolicies.Put(o.tx, &neutron.RBACPolicy{
		Standard: o.standard(neutron.Values{"project_id": project}, 0), ObjectType: typ.ObjectType(), ObjectID: id, Action: action, Target: neutron.EveryProject,
	})
}

// checkWithdrawal refuses to take a policy from projects that use its object by no other right. The
// policy goes, or gets another target.
func (o *operation) checkWithdrawal(t sharedType, p *neutron.RBACPolicy, target string) error {
	if target == neutron.EveryProject {
		return nil
	}
	if t.check != nil {
		if err := t.check(o, p); err != nil {
			return err
		}
	}
	owner := "" // who needs no policy to share, but one to have a network external
	if p.Action == neutron.AccessShared {
		owner, _ = t.project(o.tx, p.ObjectID)
	}
	if t.strict {
		if p.Target == owner {
			return nil
		}
		owner, target = "", ""
	}
	if project := o.dependent(p, owner, target, t.users(o, p.ObjectID, p.Action)); project != "" {
		return policyInUse(p, "project_id="+project)
	}
	return nil
}

// dependent returns a project that uses an object by a policy alone, or "". The owner does not, nor
// does the policy's new target.
func (o *operation) dependent(p *neutron.RBACPolicy, owner, target string, users iter.Seq[string]) string {
	other := func(to string) bool {
		if to == p.Target {
			return false
		}
		grant := schema.Grant(p.ObjectType, p.ObjectID, p.Action, to)
		if _, there := schema.RBACPolicies.Peek(o.tx, grant); !there {
			return false
		}
		_, err := schema.RBACPolicies.Need(o.tx, grant) // which must stay
		return err == nil
	}
	for project := range users {
		switch {
		case project == "", project == owner, project == target:
		case p.Target != neutron.EveryProject && p.Target != project:
		case other(neutron.EveryProject), other(project):
		default:
			return project
		}
	}
	return ""
}

// changePolicies changes policies of an object, with what else that means to it.
func (o *operation) changePolicies(t sharedType, id string, change func() error) error {
	for _, do := range []func(o *operation, id string) error{t.before, func(*operation, string) error { return change() }, t.after} {
		if do == nil {
			continue
		}
		if err := do(o, id); err != nil {
			return err
		}
	}
	return nil
}

// policiesOf counts the policies of an object.
func policiesOf(r records.Reader, id string) int {
	return schema.RBACPolicies.CountBy(r, "object_id", id)
}

// removePolicies deletes some policies of an object that is being deleted, so that a step can
// delete it. It reports whether that were all.
func (o steps) removePolicies(id string, room int) (done bool, err error) {
	policies := firstOf(schema.RBACPolicies.By(o.tx, "object_id", id), room+1)
	for _, p := range policies[:min(len(policies), room)] {
		if err := schema.RBACPolicies.Delete(o.tx, schema.RBACPolicies.ID(p)); err != nil {
			return false, err
		}
	}
	return len(policies) <= room, nil
}

// policyInUse is the refusal to take away a policy that is needed.
func policyInUse(p *neutron.RBACPolicy, details string) error {
	return conflict("RbacPolicyInUse",
		"RBAC policy on object %s cannot be removed because other objects depend on it.\nDetails: %s", p.ObjectID, details)
}
