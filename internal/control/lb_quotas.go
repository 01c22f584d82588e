package control

import (
	"context"
	"maps"

	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// Quotas returns the limits that projects have on load balancers: of the caller's project, which is
// there in any case, and of others if the caller sees these. Limits that are not set are missing.
func (s *LoadBalancing) Quotas(ctx context.Context, c neutron.Caller) ([]*schema.Quota, error) {
	snap, err := s.Service.view(ctx)
	if err != nil {
		return nil, err
	}
	var all []*schema.Quota
	own := c.ProjectID == ""
	for q := range schema.LBQuotas.All(snap) {
		if c.SeesLB(q.ProjectID) {
			all = append(all, q)
			own = own || q.ProjectID == c.ProjectID
		}
	}
	if !own {
		all = append(all, &schema.Quota{ProjectID: c.ProjectID})
	}
	return all, nil
}

// Quota returns the limits of a project; those that are not set are missing, and are -1.
func (s *LoadBalancing) Quota(ctx context.Context, c neutron.Caller, project string) (map[string]int, error) {
	if !c.SeesLB(project) && !c.LBQuotaAdmin() {
		return nil, neutron.LBForbidden("get_quota")
	}
	snap, err := s.Service.view(ctx)
	if err != nil {
		return nil, err
	}
	if q, ok := schema.LBQuotas.Peek(snap, project); ok {
		return q.Limits, nil
	}
	return nil, nil
}

// SetQuota sets some limits of a project, and removes those that are nil.
func (s *LoadBalancing) SetQuota(ctx context.Context, c neutron.Caller, project string, limits map[string]*int) (map[string]int, error) {
	if !c.LBQuotaAdmin() {
		return nil, neutron.LBForbidden("update_quota")
	}
	return transact(ctx, s.Service, c, func(o *operation) (map[string]int, error) {
		q := &schema.Quota{ProjectID: project, Limits: map[string]int{}}
		if old, err := schema.LBQuotas.Get(o.tx, project); err == nil {
			q.Limits = maps.Clone(old.Limits)
		}
		for name, limit := range limits {
			if limit == nil {
				delete(q.Limits, name)
				continue
			}
			q.Limits[name] = *limit
		}
		return q.Limits, schema.LBQuotas.Put(o.tx, q)
	})
}

// ResetQuota removes all limits of a project.
func (s *LoadBalancing) ResetQuota(ctx context.Context, c neutron.Caller, project string) error {
	if !c.LBQuotaAdmin() {
		return neutron.LBForbidden("delete_quota")
	}
	return perform(ctx, s.Service, c, func(o *operation) error {
		if _, err := schema.LBQuotas.Get(o.tx, project); err != nil {
			return nil // it has none
		}
		return schema.LBQuotas.Delete(o.tx, project)
	})
}
