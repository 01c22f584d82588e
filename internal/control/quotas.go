package control

import (
	"context"
	"maps"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// Names of the quotas that operations count (neutron-api §2).
const (
	quotaNetwork = "network"
	quotaSubnet  = "subnet"
	quotaPort    = "port"
	quotaGroup   = "security_group"
	quotaRule    = "security_group_rule"
	quotaRouter  = "router"

	quotaSubnetPool     = "subnetpool"
	quotaFloatingIP     = "floatingip"
	quotaTrunk          = "trunk"
	quotaFirewall       = "firewall"
	quotaFirewallGroup  = "firewall_group"
	quotaFirewallPolicy = "firewall_policy" // of FWaaS v1 and v2 together, as rules
	quotaFirewallRule   = "firewall_rule"
	quotaFirewallLog    = "firewall_log"
	quotaRBACPolicy     = "rbac_policy"

	quotaL2GatewayConnection = "l2-gateway-connection"

	quotaAddressGroup = "address_group"
	quotaAddressScope = "address_scope"
)

// slack is the distance from a limit within which creates of a project wait for each other. It
// bounds the concurrent creates of one kind for which a quota is exact, over all servers.
const slack = 64

// limitOf returns a project's limit; -1 is none, as of what no quota counts.
func (s *Service) limitOf(r records.Reader, project, quota string) int {
	if own, ok := schema.Quotas.Peek(r, project); ok {
		if limit, ok := own.Limits[quota]; ok {
			return limit
		}
	}
	if limit, counted := s.opts.Quotas[quota]; counted {
		return limit
	}
	return -1
}

// usage counts what a project has of a quota; what this version does not serve is 0.
func usage(r records.Reader, project, quota string) int {
	switch quota {
	case quotaNetwork:
		return schema.Networks.CountBy(r, "project", project)
	case quotaSubnet:
		return schema.Subnets.CountBy(r, "project", project)
	case quotaPort:
		return schema.Ports.CountBy(r, "project", project)
	case quotaGroup:
		return schema.SecurityGroups.CountBy(r, "project", project)
	case quotaRouter:
		return schema.Routers.CountBy(r, "project", project)
	case quotaFloatingIP:
		return schema.FloatingIPs.CountBy(r, "project", project)
	case quotaL2GatewayConnection:
		return schema.L2GatewayConnections.CountBy(r, "project", project)
	case quotaTrunk:
		return schema.Trunks.CountBy(r, "project", project)
	case quotaSubnetPool:
		return schema.SubnetPools.CountBy(r, "project", project)
	case quotaFirewall:
		return schema.Firewalls.CountBy(r, "project", project)
	case quotaFirewallGroup:
		return schema.FirewallGroups.CountBy(r, "project", project)
	case quotaFirewallPolicy:
		return schema.FirewallPolicies.CountBy(r, "project", project) + schema.FirewallGroupPolicies.CountBy(r, "project", project)
	case quotaFirewallRule:
		return schema.FirewallRules.CountBy(r, "project", project) + schema.FirewallGroupRules.CountBy(r, "project", project)
	case quotaFirewallLog:
		return schema.FirewallLogs.CountBy(r, "project", project)
	case quotaRBACPolicy:
		return schema.RBACPolicies.CountBy(r, "project", project)
	case quotaAddressGroup:
		return schema.AddressGroups.CountBy(r, "project", project)
	case quotaAddressScope:
		return schema.AddressScopes.CountBy(r, "project", project)
	case quotaRule:
		n := 0
		for g := range schema.SecurityGroups.By(r, "project", project) {
			n += len(g.Rules)
		}
		return n
	}
	return 0
}

// Room returns how many more objects of a resource a caller's quota allows the own project; -1 is
// no limit, which is also said to administrators: they make objects for any project.
func (s *Service) Room(ctx context.Context, c neutron.Caller, res neutron.Resource) (int, error) {
	if c.Admin() {
		return -1, nil
	}
	snap, err := s.view(ctx)
	if err != nil {
		return 0, err
	}
	limit := s.limitOf(snap, c.ProjectID, res.Name())
	if limit < 0 {
		return -1, nil
	}
	return max(0, limit-usage(snap, c.ProjectID, res.Name())), nil
}

// chargeEach charges every project for the objects that a request is to make for it.
func (o *operation) chargeEach(quota string, vs []neutron.Values) error {
	counts := map[string]int{}
	for _, v := range vs {
		counts[v.Text("project_id")]++
	}
	for _, project := range slices.Sorted(maps.Keys(counts)) {
		if err := o.charge(project, quota, counts[project]); err != nil {
			return err
		}
	}
	return nil
}

// charge refuses to make n more of what a quota counts if the project's limit does not allow it.
//
// The count comes from a snapshot, so it has to be held against creates that commit meanwhile. Far
// from the limit a create only marks that it happened, and heeds those near the limit; near it, and
// when it makes many at once, it heeds all and touches, so that it is alone.
func (o *operation) charge(project, quota string, n int) error {
	limit := o.limitOf(o.tx, project, quota)
	if o.within(limit, "quota/"+project+"/"+quota, n, func() int { return usage(o.tx, project, quota) }) {
		return nil
	}
	return overQuota(quota)
}

// within reports whether a limit allows n more of what usage counts, for all transactions together
// that charge under the same key.
func (o *operation) within(limit int, key string, n int, usage func() int) bool {
	if limit < 0 || n == 0 {
		return true
	}
	count := usage() + n
	o.charged[key] += n
	if o.charged[key] == 1 && count <= limit-slack {
		o.tx.Heed(key + "/near")
		o.tx.Mark(key + "/far")
		return true
	}
	o.tx.Heed(key)
	o.tx.Touch(key + "/near")
	return count <= limit
}

// Quotas lists the projects with limits of their own.
func (s *Service) Quotas(ctx context.Context, c neutron.Caller) ([]neutron.QuotaView, error) {
	if err := neutron.AuthorizeQuota(c, "get", ""); err != nil {
		return nil, err
	}
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	views := []neutron.QuotaView{}
	for q := range schema.Quotas.All(snap) {
		views = append(views, s.quotaView(snap, q.ProjectID))
	}
	return views, nil
}

// Quota returns a project's limits, own or default.
func (s *Service) Quota(ctx context.Context, c neutron.Caller, projectID string) (neutron.QuotaView, error) {
	if err := neutron.AuthorizeQuota(c, "get", projectID); err != nil {
		return neutron.QuotaView{}, err
	}
	snap, err := s.view(ctx)
	if err != nil {
		return neutron.QuotaView{}, err
	}
	return s.quotaView(snap, projectID), nil
}

// DefaultQuota returns the limits of a project that has none of its own.
func (s *Service) DefaultQuota(_ context.Context, c neutron.Caller, projectID string) (neutron.QuotaView, error) {
	if err := neutron.AuthorizeQuota(c, "get", projectID); err != nil {
		return neutron.QuotaView{}, err
	}
	return neutron.QuotaView{ProjectID: projectID, Limits: s.listedQuotas()}, nil
}

// QuotaDetails returns a project's limits with what is used of them. Nothing is ever reserved: a
// request is counted when it commits.
func (s *Service) QuotaDetails(ctx context.Context, c neutron.Caller, projectID string) (map[string]neutron.QuotaUse, error) {
	if err := neutron.AuthorizeQuota(c, "get", projectID); err != nil {
		return nil, err
	}
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	uses := map[string]neutron.QuotaUse{}
	for name, limit := range s.quotaView(snap, projectID).Limits {
		uses[name] = neutron.QuotaUse{Limit: limit, Used: usage(snap, projectID, name)}
	}
	return uses, nil
}

// SetQuota changes the limits that v names. With checkLimit a limit below what is used is refused.
func (s *Service) SetQuota(ctx context.Context, c neutron.Caller, projectID string, v neutron.Values, checkLimit bool) (neutron.QuotaView, error) {
	return transact(ctx, s, c, func(o *operation) (neutron.QuotaView, error) {
		if err := neutron.AuthorizeQuota(c, "update", projectID); err != nil {
			return neutron.QuotaView{}, err
		}
		q := &schema.Quota{ProjectID: projectID, Limits: map[string]int{}}
		if old, err := schema.Quotas.Get(o.tx, projectID); err == nil {
			q.Limits = maps.Clone(old.Limits)
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			limit := v.Number(name)
			if limit == nil {
				continue
			}
			if used := usage(o.tx, projectID, name); checkLimit && *limit >= 0 && used > *limit {
				return neutron.QuotaView{}, neutron.Errorf(neutron.Invalid, "HTTPBadRequest",
					"Quota limit %d for %s must be greater than or equal to already used %d", *limit, name, used)
			}
			q.Limits[name] = *limit
		}
		if err := schema.Quotas.Put(o.tx, q); err != nil {
			return neutron.QuotaView{}, err
		}
		return s.quotaView(o.tx, projectID), nil
	})
}

// ResetQuota makes the default limits a project's again.
func (s *Service) ResetQuota(ctx context.Context, c neutron.Caller, projectID string) error {
	return perform(ctx, s, c, func(o *operation) error {
		if err := neutron.AuthorizeQuota(c, "delete", projectID); err != nil {
			return err
		}
		if _, err := schema.Quotas.Get(o.tx, projectID); err != nil {
			return neutron.Errorf(neutron.NotFound, "TenantQuotaNotFound", "Quota for tenant %s could not be found.", projectID)
		}
		return schema.Quotas.Delete(o.tx, projectID)
	})
}

// listedQuotas returns the limits of a project without own ones, as they are answered.
func (s *Service) listedQuotas() map[string]int {
	limits := maps.Clone(s.opts.Quotas)
	for _, name := range neutron.UnlistedQuotaNames() {
		delete(limits, name)
	}
	return limits
}

func (s *Service) quotaView(r records.Reader, projectID string) neutron.QuotaView {
	v := neutron.QuotaView{ProjectID: projectID, Limits: s.listedQuotas()}
	if own, ok := schema.Quotas.Peek(r, projectID); ok {
		maps.Copy(v.Limits, own.Limits)
	}
	return v
}
