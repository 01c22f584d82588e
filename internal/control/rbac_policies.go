package control

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// rbacPolicies are the operations on RBAC policies. Their records have other ids than the API's.
type rbacPolicies struct {
	*resource[neutron.RBACPolicy, neutron.RBACPolicy]
}

func newRBACPolicies(s *Service) *resource[neutron.RBACPolicy, neutron.RBACPolicy] {
	t := schema.RBACPolicies
	f := ofProject(t, by(t, "object_id", func(q *neutron.Query) []string { return q.ObjectIDs }), byProject(t))
	f.criteria[0] = by(t, "api_id", func(q *neutron.Query) []string { return q.IDs })
	return asStored(s, neutron.RBACPolicies, f, func(p *neutron.RBACPolicy) *neutron.Standard { return &p.Standard }, (*operation).createPolicy)
}

// RBACPolicies returns the operations on RBAC policies. Do not modify what they return.
func (s *Service) RBACPolicies() Operations[*neutron.RBACPolicy] {
	p := s.rbacPolicies
	return Operations[*neutron.RBACPolicy]{Create: p.create, Update: p.update, Delete: p.delete, Show: p.show, List: p.list}
}

// createPolicy shares an object of the caller, who as admin may share any.
func (o *operation) createPolicy(_ context.Context, v neutron.Values) (*neutron.RBACPolicy, error) {
	p := &neutron.RBACPolicy{
		Standard: o.standard(v, 0), ObjectType: v.Text("object_type"), ObjectID: v.Text("object_id"),
		Action: v.Text("action"), Target: v.Text("target_tenant"),
	}
	t, err := sharedTypeNamed(p.ObjectType)
	if err != nil {
		return nil, err
	}
	project, ok := t.project(o.tx, p.ObjectID)
	visible := o.caller.Owns(project) || sharedWith(o.tx, o.caller.ProjectID, t.Resource, p.ObjectID) ||
		granted(o.tx, o.caller.ProjectID, t.Resource, p.ObjectID, neutron.AccessExternal)
	switch {
	case !ok || !visible:
		return nil, invalid("%s", strings.TrimSuffix(t.NotFound(p.ObjectID).Message, "."))
	case !o.caller.Owns(project):
		return nil, invalid("Only admins can manipulate policies on objects they do not own")
	}
	if err := p.CheckAction(); err != nil {
		return nil, err
	}
	if t.admit != nil {
		if err := t.admit(o, p); err != nil {
			return nil, err
		}
	}
	return p, o.changePolicies(t, p.ObjectID, func() error { return o.putPolicy(p) })
}

// putPolicy stores a policy, unless there is one that grants the same.
func (o *operation) putPolicy(p *neutron.RBACPolicy) error {
	if _, err := schema.RBACPolicies.Get(o.tx, schema.RBACPolicies.ID(p)); err == nil {
		return conflict("DuplicateRbacPolicy", "An RBAC policy already exists with those values.")
	}
	return schema.RBACPolicies.Put(o.tx, p)
}

// update gives a policy another target.
func (s rbacPolicies) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.RBACPolicy, error) {
	return transact(ctx, s.service, c, func(o *operation) (*neutron.RBACPolicy, error) {
		old, t, err := s.toChange(o, id, neutron.Update, v, ifMatch)
		if err != nil || !v.Has("target_tenant") || v.Text("target_tenant") == old.Target {
			return old, err
		}
		if project, _ := t.project(o.tx, old.ObjectID); !c.Owns(project) {
			return nil, invalid("Only admins can manipulate policies on objects they do not own")
		}
		p := *old
		p.Target = v.Text("target_tenant")
		return &p, o.changePolicies(t, p.ObjectID, func() error {
			if err := o.checkWithdrawal(t, old, p.Target); err != nil {
				return err
			}
			return errors.Join(o.putPolicy(&p), schema.RBACPolicies.Delete(o.tx, schema.RBACPolicies.ID(old)))
		})
	})
}

// delete takes back what a policy grants.
func (s rbacPolicies) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return perform(ctx, s.service, c, func(o *operation) error {
		p, t, err := s.toChange(o, id, neutron.Delete, nil, ifMatch)
		if err != nil {
			return err
		}
		return o.changePolicies(t, p.ObjectID, func() error {
			if err := o.checkWithdrawal(t, p, ""); err != nil {
				return err
			}
			return schema.RBACPolicies.Delete(o.tx, schema.RBACPolicies.ID(p))
		})
	})
}

// toChange finds a policy for an update or a delete, and the type of its object.
func (s rbacPolicies) toChange(o *operation, id string, op neutron.Op, v neutron.Values, ifMatch *int64) (*neutron.RBACPolicy, sharedType, error) {
	found := s.find(o.tx, o.caller, id)
	if found == nil {
		return nil, sharedType{}, s.name.NotFound(id)
	}
	p, err := s.resource.toChange(o, schema.RBACPolicies.ID(found), op, v, ifMatch)
	if err != nil {
		return nil, sharedType{}, err
	}
	t, err := sharedTypeNamed(p.ObjectType)
	return p, t, err
}

// find returns the policy with an id of the API that the caller may see, or nil.
func (s rbacPolicies) find(r records.Reader, c neutron.Caller, id string) *neutron.RBACPolicy {
	for p := range schema.RBACPolicies.By(r, "api_id", id) {
		if s.sees(r, c, p) {
			return p
		}
	}
	return nil
}

func (s rbacPolicies) show(ctx context.Context, c neutron.Caller, id string) (*neutron.RBACPolicy, error) {
	snap, err := s.service.view(ctx)
	if err != nil {
		return nil, err
	}
	if p := s.find(snap, c, id); p != nil {
		return p, nil
	}
	return nil, s.name.NotFound(id)
}

// list lists the policies that the caller may see, in order of the API's ids.
func (s rbacPolicies) list(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.RBACPolicy], error) {
	snap, err := s.service.view(ctx)
	if err != nil {
		return nil, err
	}
	var found []*neutron.RBACPolicy
	candidates, met := s.candidates(snap, c, &q)
	for p := range candidates {
		if q.InRange(p.ID) && s.matches(p, &q, met) && s.sees(snap, c, p) {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b *neutron.RBACPolicy) int { return strings.Compare(a.ID, b.ID) })
	return slices.Values(found), nil
}
