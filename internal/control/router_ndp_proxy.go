package control

import (
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// attrNDPProxy is the attribute by which clients enable NDP proxies on a router.
const attrNDPProxy = "enable_ndp_proxy"

// enableNDPProxy enables NDP proxies on a new router if the request asks for it.
func (e routerEdit) enableNDPProxy(v neutron.Values) error {
	g := gatewayOf(e.r)
	switch {
	case !v.Flag(attrNDPProxy):
		return nil
	case g == nil:
		return proxyGatewayNotValid(e.r.ID, "The request body not contain external gateway information")
	case e.ipv6Scope(g.NetworkID) == "":
		return proxyGatewayNotValid(e.r.ID, "The external network "+g.NetworkID+" don't support IPv6 ndp proxy, "+
			"the network has no IPv6 subnets or has no IPv6 address scope")
	}
	e.r.EnableNDPProxy = true
	return nil
}

// applyNDPProxy enables or disables NDP proxies as a request asks, after its change of the
// gateways. A router that has lost its first gateway has them disabled.
func (e routerEdit) applyNDPProxy(old *neutron.Router, v neutron.Values) error {
	if had := gatewayOf(old); had != nil && e.gatewayAt(had.PortID) != 0 {
		switch {
		case len(schema.NDPProxies.Referrers(e.tx, "router", e.r.ID)) > 0:
			return conflict("RouterGatewayInUseByNDPProxy", "Unable to unset external gateway of router %s, "+
				"There are one or more ndp proxies still in use on the router.", e.r.ID)
		case v.Flag(attrNDPProxy):
			return proxyGatewayNotValid(e.r.ID, "The router's external gateway will be unset")
		}
		e.r.EnableNDPProxy = false
	}
	if !v.Has(attrNDPProxy) {
		return nil
	}
	if v.Flag(attrNDPProxy) {
		if err := e.checkProxyGateway(); err != nil {
			return err
		}
	}
	e.r.EnableNDPProxy = v.Flag(attrNDPProxy)
	return nil
}

// checkProxyGateway refuses NDP proxies on a router whose first gateway has no IPv6 address, or is
// in no address scope.
func (e routerEdit) checkProxyGateway() error {
	const reason = "The router has no external gateway or the external gateway port has no IPv6 address or IPv6 address scope"
	g := gatewayOf(e.r)
	if g == nil {
		return proxyGatewayNotValid(e.r.ID, reason)
	}
	p, err := schema.Ports.Get(e.tx, g.PortID)
	if err != nil {
		return err
	}
	if !hasIPv6(p) || e.ipv6Scope(g.NetworkID) == "" {
		return proxyGatewayNotValid(e.r.ID, reason)
	}
	return nil
}

// checkGatewayKeepsIPv6 refuses to leave the gateway of a router with NDP proxies enabled without
// IPv6 addresses, if a request names the addresses that it is to have.
func (e routerEdit) checkGatewayKeepsIPv6(i int, want *neutron.GatewayRequest) error {
	if !e.r.EnableNDPProxy || i != 0 || len(want.FixedIPs) == 0 {
		return nil
	}
	for _, f := range want.FixedIPs {
		if f.IPAddress.Is6() {
			return nil
		}
		if s, ok := schema.Subnets.Peek(e.tx, f.SubnetID); ok && s.IPVersion == 6 {
			return nil
		}
	}
	return conflict("RouterIPv6GatewayInUse", "Can't remove the IPv6 subnet from external gateway of router %s, "+
		"the IPv6 subnet in use by the router's ndp proxy.", e.r.ID)
}

// checkInterfaceUnproxied refuses to take a router from a subnet with proxied addresses.
func (o *operation) checkInterfaceUnproxied(router string, s *neutron.Subnet) error {
	for _, id := range schema.NDPProxies.Referrers(o.tx, "router", router) {
		x, err := schema.NDPProxies.Get(o.tx, id)
		if err != nil {
			return err
		}
		p, err := schema.Ports.Need(o.tx, x.PortID)
		if err != nil {
			return err
		}
		if slices.Contains(p.FixedIPs, neutron.FixedIP{SubnetID: s.ID, IPAddress: x.IPAddress}) {
			return conflict("RouterInterfaceInUseByNDPProxy", "Unable to remove subnet %s from router %s, "+
				"There are one or more ndp proxies still in use on the subnet.", s.ID, router)
		}
	}
	return nil
}

// followNDPProxy rewrites what depends on the gateway by which a router answers for proxied
// addresses, if it is another than before.
func (e routerEdit) followNDPProxy(before string) error {
	if before == translate.NDPProxyGateway(e.r) {
		return nil
	}
	return e.deriveNDPProxies(e.r.ID)
}

func proxyGatewayNotValid(router, reason string) error {
	return conflict("RouterGatewayNotValid", "Can not enable ndp proxy on router %s, %s.", router, reason)
}
