package translate

import (
	"net/netip"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// LoadBalancer translates a load balancer, whose address port p has on subnet s
// (midonet-translations §13): a router of its own with one arm, which no tenant sees.
//
//	client ──▶ VIP port ═ router: destination := member, source := VIP ──▶ VIP port ──▶ member
//	                       │
//	                       └─ container that checks the members (LoadBalancerContainer)
//
// The health container is an owner of its own, since the scheduler binds it to hosts.
func LoadBalancer(lb *neutron.LoadBalancer, p *neutron.Port, s *neutron.Subnet) topology.Bundle {
	r := LBRouter(lb.ID)
	q := topology.Port{
		ID: interfacePort(p.ID), RouterID: r, AdminStateUp: lb.AdminStateUp, PeerID: p.ID, PortMAC: p.MACAddress,
		PortAddress: lb.VIPAddress, PortSubnet: []netip.Prefix{netip.PrefixFrom(lb.VIPAddress, s.CIDR.Bits())},
	}
	return topology.Bundle{
		Routers: []topology.Router{{
			ID: r, TenantID: lb.ProjectID, Name: "LB_" + lb.ID, AdminStateUp: lb.AdminStateUp,
			InboundFilterID: routerChain(roleChainIn, r), OutboundFilterID: routerChain(roleChainOut, r),
		}},
		Chains: lbChains(lb, r, s),
		Ports:  []topology.Port{q},
		Routes: lbRoutes(lb, q.ID, s),
		LoadBalancers: []topology.LoadBalancer{{
			ID: lb.ID, RouterID: r, AdminStateUp: lb.AdminStateUp, ServiceContainerID: LBContainer(r),
		}},
	}
}

// LBRouter returns the router of a load balancer.
func LBRouter(loadBalancer string) string { return Derive(roleLBRouter, loadBalancer) }

// LBContainer returns the health container of a router that balances.
func LBContainer(router string) string { return Derive(roleLBContainer, router) }

// lbChains returns the chains of a load balancer's router, by which members see the VIP as their
// client.
func lbChains(lb *neutron.LoadBalancer, r string, s *neutron.Subnet) []topology.Chain {
	vip := single(lb.VIPAddress)
	container := single(LinkSpace{Subnets: []*neutron.Subnet{s}}.choose().second)
	out := unfragmented()
	out.NwSrcIP, out.NwSrcInv = &vip, true
	out.NwDstIP, out.NwDstInv = &container, true
	snat := dynamicSNAT(lb.VIPAddress, out)
	snat.ID = Derive(roleLBSNAT, r)
	reverse := reverseSNAT(unfragmented())
	reverse.ID = Derive(roleLBReverse, r)
	return []topology.Chain{
		{ID: routerChain(roleChainIn, r), Name: "OS_PRE_ROUTING_" + r, Purpose: topology.PurposePreRouting, TenantID: lb.ProjectID, Rules: []topology.Rule{reverse}},
		{ID: routerChain(roleChainOut, r), Name: "OS_POST_ROUTING_" + r, Purpose: topology.PurposePostRouting, TenantID: lb.ProjectID, Rules: []topology.Rule{snat}},
	}
}

// lbRoutes returns the routes by port q of a load balancer's router: those that DHCP gives to the
// machines of its subnet.
func lbRoutes(lb *neutron.LoadBalancer, q string, s *neutron.Subnet) []topology.Route {
	subnet := s.CIDR.Masked()
	routes := []topology.Route{
		localRoute(q, lb.VIPAddress),
		portRoute(Derive(roleLBRoute, q, subnet.String()), q, subnet),
	}
	if s.GatewayIP != nil {
		all := anywhere(lb.VIPAddress)
		route := portRoute(Derive(roleLBRoute, q, all.String()), q, all)
		route.NextHopGateway, route.GatewayDhcpID = *s.GatewayIP, s.ID
		routes = append(routes, route)
	}
	seen := map[string]bool{}
	for _, h := range s.HostRoutes {
		id := Derive(roleLBRoute, q, h.Destination.String(), h.Nexthop.String())
		if seen[id] || !h.Destination.Addr().Is4() || !OnLink(s.CIDR, h.Nexthop) {
			continue
		}
		seen[id] = true
		route := portRoute(id, q, h.Destination.Masked())
		route.NextHopGateway = h.Nexthop
		routes = append(routes, route)
	}
	return routes
}

// LoadBalancerContainer returns the container that checks the health of a load balancer's members,
// with the port and the routes by which its router reaches it. Whoever stores it gives the port its
// MAC address, its tunnel key and its host.
func LoadBalancerContainer(lb *neutron.LoadBalancer, s *neutron.Subnet) topology.Bundle {
	return lbContainer(LBRouter(lb.ID), lb.ID, LinkSpace{Subnets: []*neutron.Subnet{s}}.choose())
}

// lbContainer returns the health container of a load balancer on a router.
func lbContainer(r, lb string, link link) topology.Bundle {
	c := link.port(Derive(roleLBContainerPort, r), r)
	group := Derive(roleLBContainerGroup, r)
	return topology.Bundle{
		ServiceContainers: []topology.ServiceContainer{{
			ID: LBContainer(r), ServiceType: topology.ContainerHAProxy, PortID: c.ID, ConfigurationID: lb, ServiceGroupID: group,
		}},
		ServiceContainerGroups: []topology.ServiceContainerGroup{{ID: group}},
		Ports:                  []topology.Port{c},
		Routes: []topology.Route{
			localRoute(c.ID, link.first),
			portRoute(Derive(roleLBRoute, c.ID, link.prefix.String()), c.ID, link.prefix),
		},
	}
}

// Listener translates a listener of a load balancer.
func Listener(l *neutron.Listener, lb *neutron.LoadBalancer) topology.Bundle {
	return topology.Bundle{Vips: []topology.Vip{{
		ID: l.ID, LoadBalancerID: lb.ID, PoolID: l.DefaultPoolID, AdminStateUp: l.AdminStateUp, Address: lb.VIPAddress,
		Protocol: neutron.LBTransport(l.Protocol), ProtocolPort: uint16(l.ProtocolPort),
		AllowedSources: l.AllowedCIDRs, ConnectionLimit: connectionLimit(l.ConnLimit),
	}}}
}

func connectionLimit(n int) int { return max(n, 0) } // -1 is none

// LBPool translates a pool.
func LBPool(p *neutron.LBPool) topology.Bundle {
	pool := topology.Pool{
		ID: p.ID, LoadBalancerID: p.LoadBalancerID, AdminStateUp: p.AdminStateUp, Protocol: neutron.LBTransport(p.Protocol), LBMethod: p.Algorithm,
		HealthMonitorID: p.HealthMonitorID,
	}
	if p.V1() {
		pool.LoadBalancerID = LBOfRouter(p.RouterID)
	}
	if s := p.Persistence; s != nil {
		pool.SessionPersistence = s.Type
		if s.Timeout != nil {
			pool.PersistenceTimeout = *s.Timeout
		}
		pool.PersistenceBits, _ = neutron.GranularityBits(s.Granularity)
	}
	return topology.Bundle{Pools: []topology.Pool{pool}}
}

// LBMember translates a member of a pool; without a pool it means nothing to packets.
func LBMember(m *neutron.LBMember) topology.Bundle {
	status := topology.MemberMonitored
	if m.V1 {
		status = topology.MemberActive
	}
	return topology.Bundle{PoolMembers: []topology.PoolMember{{
		ID: m.ID, PoolID: m.PoolID, AdminStateUp: m.AdminStateUp, Status: status, Address: m.Address, ProtocolPort: uint16(m.ProtocolPort),
		Weight: m.Weight, Backup: m.Backup, MonitorAddress: m.MonitorAddress, MonitorPort: uint16(m.MonitorPort),
	}}}
}

// HealthMonitor translates a health monitor. Those of LBaaS count failures alone.
func HealthMonitor(m *neutron.HealthMonitor) topology.Bundle {
	t := topology.HealthMonitor{
		ID: m.ID, AdminStateUp: m.AdminStateUp, Type: m.Type, Delay: m.Delay, Timeout: m.Timeout,
		MaxRetries: m.MaxRetries, FailRetries: m.MaxRetriesDown,
		HTTPMethod: m.HTTPMethod, URLPath: m.URLPath, ExpectedCodes: m.ExpectedCodes, HTTPVersion: m.HTTPVersion, DomainName: m.DomainName,
	}
	if m.ByFailures {
		t.FailRetries = 0
	}
	return topology.Bundle{HealthMonitors: []topology.HealthMonitor{t}}
}

// LBOfRouter returns the load balancer of LBaaS v1 of a tenant's router.
func LBOfRouter(router string) string { return Derive(roleLBV1, router) }

// RouterLoadBalancer translates what LBaaS v1 adds to a tenant's router that has pools
// (midonet-translations §12).
func RouterLoadBalancer(router string, monitored bool) topology.Bundle {
	lb := topology.LoadBalancer{ID: LBOfRouter(router), RouterID: router, AdminStateUp: true}
	if monitored {
		lb.ServiceContainerID = LBContainer(router)
	}
	return topology.Bundle{LoadBalancers: []topology.LoadBalancer{lb}}
}

// RouterLoadBalancerContainer returns the health container of a tenant's router. vips are the
// addresses of its monitored pools, which the container checks from (services §5).
func RouterLoadBalancerContainer(router string, space LinkSpace, vips []netip.Addr) topology.Bundle {
	link := space.choose()
	b := lbContainer(router, LBOfRouter(router), link)
	c := b.Ports[0].ID
	for _, vip := range vips {
		route := portRoute(Derive(roleLBVIPRoute, c, vip.String()), c, single(vip))
		route.NextHopGateway = link.second
		b.Routes = append(b.Routes, route)
	}
	return b
}

// VIP translates a VIP of LBaaS v1, whose pool is of a router. gateway is the router's gateway port
// to the network of the VIP, if that is external, else nil.
func VIP(v *neutron.VIP, networkID string, gateway *neutron.Port) topology.Bundle {
	vip := topology.Vip{
		ID: v.ID, PoolID: v.PoolID, AdminStateUp: v.AdminStateUp, Address: v.Address, Protocol: neutron.LBTransport(v.Protocol),
		ProtocolPort: uint16(v.ProtocolPort), ConnectionLimit: connectionLimit(v.ConnLimit),
	}
	if v.Persistence != nil {
		vip.SessionPersistence = v.Persistence.Type
	}
	var b topology.Bundle
	if gateway != nil {
		vip.GatewayPortID = gateway.ID
		b.Neighbours = []topology.NeighbourEntry{{NetworkID: networkID, IP: v.Address, MAC: gateway.MACAddress}}
	}
	b.Vips = []topology.Vip{vip}
	return b
}
