package schema

import (
	"strconv"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// Load balancers and what is below them. The operations delete what refers to a record before it,
// or take the reference out, since that changes bundles.
var (
	// LoadBalancers have a port each.
	LoadBalancers = records.NewTable("load-balancer", NeutronPrefix+"load-balancers/", func(b *neutron.LoadBalancer) string { return b.ID },
		records.Ref("vip_port", Ports, func(b *neutron.LoadBalancer) []string { return []string{b.VIPPortID} }, records.Refuse()),
		records.Unique("port", func(b *neutron.LoadBalancer) []string { return []string{b.VIPPortID} }),
		records.Index("vip_subnet", func(b *neutron.LoadBalancer) []string { return []string{b.VIPSubnetID} }),
		records.Index("project", func(b *neutron.LoadBalancer) []string { return []string{b.ProjectID} }),
	)

	// Listeners have a port of their load balancer's address, of TCP or UDP.
	Listeners = records.NewTable("listener", NeutronPrefix+"listeners/", func(l *neutron.Listener) string { return l.ID },
		records.Ref("load_balancer", LoadBalancers, func(l *neutron.Listener) []string { return []string{l.LoadBalancerID} }, records.Refuse()),
		records.Ref("default_pool", LBPools, func(l *neutron.Listener) []string { return []string{l.DefaultPoolID} }, records.Refuse()),
		records.Unique("protocol_port", func(l *neutron.Listener) []string {
			return []string{l.LoadBalancerID + "/" + neutron.LBTransport(l.Protocol) + "/" + strconv.Itoa(l.ProtocolPort)}
		}),
		records.Index("project", func(l *neutron.Listener) []string { return []string{l.ProjectID} }),
	)

	// LBPools are of a load balancer or, those of LBaaS v1, of a router.
	LBPools = records.NewTable("lb-pool", NeutronPrefix+"lb-pools/", func(p *neutron.LBPool) string { return p.ID },
		records.Ref("load_balancer", LoadBalancers, func(p *neutron.LBPool) []string { return []string{p.LoadBalancerID} }, records.Refuse()),
		records.Ref("router", Routers, func(p *neutron.LBPool) []string { return []string{p.RouterID} }, records.Refuse()),
		records.Ref("subnet", Subnets, func(p *neutron.LBPool) []string { return []string{p.SubnetID} }, records.Refuse()),
		records.Ref("health_monitor", HealthMonitors, func(p *neutron.LBPool) []string { return []string{p.HealthMonitorID} }, records.Refuse()),
		records.Index("project", func(p *neutron.LBPool) []string { return []string{p.ProjectID} }),
	)

	// LBMembers have different addresses and ports in a pool.
	LBMembers = records.NewTable("lb-member", NeutronPrefix+"lb-members/", func(m *neutron.LBMember) string { return m.ID },
		records.Ref("pool", LBPools, func(m *neutron.LBMember) []string { return []string{m.PoolID} }, records.Refuse()),
		records.Unique("address", func(m *neutron.LBMember) []string {
			if m.PoolID == "" {
				return nil
			}
			return []string{m.PoolID + "/" + m.Address.String() + "/" + strconv.Itoa(m.ProtocolPort)}
		}),
		records.Index("project", func(m *neutron.LBMember) []string { return []string{m.ProjectID} }),
	)

	// HealthMonitors are named by the pools that they check.
	HealthMonitors = records.NewTable("health-monitor", NeutronPrefix+"health-monitors/", func(m *neutron.HealthMonitor) string { return m.ID },
		records.Index("project", func(m *neutron.HealthMonitor) []string { return []string{m.ProjectID} }),
	)

	// VIPs are those of LBaaS v1. A pool has one at most.
	VIPs = records.NewTable("vip", NeutronPrefix+"vips/", func(v *neutron.VIP) string { return v.ID },
		records.Ref("port", Ports, func(v *neutron.VIP) []string { return []string{v.PortID} }, records.Refuse()),
		records.Ref("pool", LBPools, func(v *neutron.VIP) []string { return []string{v.PoolID} }, records.Refuse()),
		records.Unique("one_pool", func(v *neutron.VIP) []string { return []string{v.PoolID} }),
		records.Index("project", func(v *neutron.VIP) []string { return []string{v.ProjectID} }),
	)

	// LBQuotas has projects' limits on these objects that differ from the defaults.
	LBQuotas = records.NewTable("lb-quota", NeutronPrefix+"lb-quotas/", func(q *Quota) string { return q.ProjectID })
)
