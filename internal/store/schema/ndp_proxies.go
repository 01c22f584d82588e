package schema

import (
	"net/netip"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// NDPProxies have an address each, of which a router has one. The router cannot be deleted.
var NDPProxies = records.NewTable("ndp-proxy", NeutronPrefix+"ndp-proxies/", func(x *neutron.NDPProxy) string { return x.ID },
	records.Ref("router", Routers, func(x *neutron.NDPProxy) []string { return []string{x.RouterID} }, records.Refuse()),
	records.Ref("port", Ports, func(x *neutron.NDPProxy) []string { return []string{x.PortID} }, records.Refuse()),
	records.Unique("address", func(x *neutron.NDPProxy) []string { return []string{NDPProxyAddress(x.RouterID, x.IPAddress)} }),
	records.Index("name", func(x *neutron.NDPProxy) []string { return []string{x.Name} }),
	records.Index("project", func(x *neutron.NDPProxy) []string { return []string{x.ProjectID} }),
)

// NDPProxyAddress returns the unique key "address" of an NDP proxy.
func NDPProxyAddress(routerID string, ip netip.Addr) string { return routerID + "/" + ip.String() }
