package control

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// createNDPProxy makes a proxy. It only reads the router, which cannot lose its gateway or an
// interface meanwhile: both write it.
func (o *operation) createNDPProxy(_ context.Context, v neutron.Values) (*neutron.NDPProxy, error) {
	x := &neutron.NDPProxy{Standard: o.standard(v, 0), RouterID: v.Text("router_id"), PortID: v.Text("port_id")}
	x.IPAddress, _ = v["ip_address"].(netip.Addr)
	p, owner, err := o.ports.inTransaction(o, x.PortID)
	if err != nil {
		return nil, err
	}
	if err := neutron.AuthorizePortUse(o.caller, owner); err != nil {
		return nil, err
	}
	r, _, err := o.routers.inTransaction(o, x.RouterID)
	if err != nil {
		return nil, unreachableRouter(x) // as the reference says of a router that is not there
	}
	subnets, err := o.proxiedSubnets(r, p)
	switch {
	case err != nil:
		return nil, err
	case subnets == nil:
		return nil, unreachableRouter(x)
	case !r.EnableNDPProxy:
		return nil, conflict("RouterNDPProxyNotEnable",
			"The enable_ndp_proxy parameter of router %s must be set as True while create ndp proxy entry on it.", r.ID)
	}
	if x.IPAddress, err = proxiedAddress(x, p, subnets); err != nil {
		return nil, err
	}
	if err := o.checkProxyScope(r, p); err != nil {
		return nil, err
	}
	return x, o.putNDPProxy(x, r)
}

// proxiedSubnets returns the IPv6 subnets that a router is on by interfaces to a port's network,
// nil if it has no interface there.
func (o *operation) proxiedSubnets(r *neutron.Router, p *neutron.Port) ([]string, error) {
	var subnets []string
	for link := range schema.RouterPorts.By(o.tx, "router", r.ID) {
		if link.Gateway {
			continue
		}
		q, err := schema.Ports.Need(o.tx, link.PortID)
		if err != nil {
			return nil, err
		}
		if q.NetworkID != p.NetworkID {
			continue
		}
		if subnets == nil {
			subnets = []string{}
		}
		for _, f := range q.FixedIPs {
			if f.IPAddress.Is6() {
				subnets = append(subnets, f.SubnetID)
			}
		}
	}
	return subnets, nil
}

// proxiedAddress returns the address of port p that a proxy is for: the one that it asks for, or
// the first on one of the subnets.
func proxiedAddress(x *neutron.NDPProxy, p *neutron.Port, subnets []string) (netip.Addr, error) {
	var none netip.Addr
	reached := func(f neutron.FixedIP) bool { return f.IPAddress.Is6() && slices.Contains(subnets, f.SubnetID) }
	if !hasIPv6(p) {
		return none, neutron.Errorf(neutron.Invalid, "BadRequest",
			"Bad ndp_proxy request: Requested port %s must allocate one IPv6 address at least.", p.ID)
	}
	if !x.IPAddress.IsValid() {
		i := slices.IndexFunc(p.FixedIPs, reached)
		if i < 0 {
			return none, unreachableRouter(x)
		}
		return p.FixedIPs[i].IPAddress, nil
	}
	i := slices.IndexFunc(p.FixedIPs, func(f neutron.FixedIP) bool { return f.IPAddress.Is6() && f.IPAddress == x.IPAddress })
	switch {
	case i < 0:
		return none, invalidProxyAddress(x, "This address not belong to the port "+p.ID)
	case !reached(p.FixedIPs[i]):
		return none, invalidProxyAddress(x, "This address cannot reach the router "+x.RouterID)
	}
	return x.IPAddress, nil
}

// checkProxyScope refuses a proxy between networks of different address scopes.
func (o *operation) checkProxyScope(r *neutron.Router, p *neutron.Port) error {
	text := func(scope string) string {
		if scope == "" {
			return "None"
		}
		return scope
	}
	outside, inside := o.ipv6Scope(r.Gateways[0].NetworkID), o.ipv6Scope(p.NetworkID)
	if outside != inside {
		return conflict("AddressScopeConflict",
			"The IPv6 address scope %s of external network conflict with internal network's IPv6 address scope %s.", text(outside), text(inside))
	}
	return nil
}

// ipv6Scope returns the address scope of a network's IPv6 subnets, "" for none, and guards it.
func (o *operation) ipv6Scope(networkID string) string {
	for s := range schema.Subnets.By(o.tx, "network", networkID) {
		if s.IPVersion == 6 && s.SubnetPoolID != "" {
			return o.scopeOfPool(s.SubnetPoolID)
		}
	}
	return ""
}

// update changes the name and the description of a proxy.
func (s ndpProxies) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.NDPProxy, error) {
	return s.modify(ctx, c, id, v, ifMatch, nil, put(schema.NDPProxies))
}

// delete deletes a proxy.
func (s ndpProxies) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, _ *neutron.NDPProxy) error { return o.removeNDPProxy(id) })
}

func (o *operation) removeNDPProxy(id string) error {
	return errors.Join(o.dropBundle(kindNDPProxy, id), schema.NDPProxies.Delete(o.tx, id))
}

// releaseNDPProxies deletes the proxies for a port's addresses that are not among those kept.
func (o *operation) releaseNDPProxies(port string, kept []neutron.FixedIP) error {
	for _, id := range schema.NDPProxies.Referrers(o.tx, "port", port) {
		x, err := schema.NDPProxies.Get(o.tx, id)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(kept, func(a neutron.FixedIP) bool { return a.IPAddress == x.IPAddress }) {
			continue
		}
		if err := o.removeNDPProxy(id); err != nil {
			return err
		}
	}
	return nil
}

// putNDPProxy stores a proxy with what is derived from it.
func (o *operation) putNDPProxy(x *neutron.NDPProxy, r *neutron.Router) error {
	err := schema.NDPProxies.Put(o.tx, x)
	var taken *records.TakenError
	if errors.As(err, &taken) && taken.Name == "address" {
		return conflict("NeutronDbObjectDuplicateEntry", "Failed to create a duplicate NDPProxy: "+
			"for attribute(s) ['router_id', 'ip_address'] with value(s) %s-%s", x.RouterID, x.IPAddress)
	}
	if err != nil {
		return err
	}
	return o.deriveNDPProxy(x, r)
}

// deriveNDPProxy stores what a proxy means to packets now: nothing while its router has the proxies
// disabled.
func (o *operation) deriveNDPProxy(x *neutron.NDPProxy, r *neutron.Router) error {
	id := translate.NDPProxyGateway(r)
	if id == "" {
		return o.putBundle(kindNDPProxy, x.ID, topology.Bundle{})
	}
	link := translate.RouterLink{}
	var err error
	if link.Port, err = schema.Ports.Get(o.tx, id); err != nil {
		return err
	}
	if link.Network, err = schema.Networks.Need(o.tx, link.Port.NetworkID); err != nil {
		return err
	}
	return o.putBundle(kindNDPProxy, x.ID, translate.NDPProxy(x, r, link))
}

// deriveNDPProxies rewrites the interfaces and the proxies of a router, after it has got or lost
// its gateway for proxies, or that another MAC address. For many it makes pending work.
func (o *operation) deriveNDPProxies(routerID string) error {
	done, _, err := steps{o}.deriveNDPProxies(routerID, "")
	if err != nil || done {
		return err
	}
	return o.begin(workDeriveNDPProxies, routerID)
}

// deriveNDPProxies rewrites some of the interfaces and the proxies of a router, after those that
// the last step has returned.
func (o steps) deriveNDPProxies(routerID, after string) (done bool, next string, err error) {
	r, err := schema.Routers.Get(o.tx, routerID)
	if err != nil {
		return true, "", nil // gone
	}
	count := 0
	each := func(at string, derive func() error) (full bool, err error) {
		switch {
		case at <= after:
			return false, nil
		case count == stepObjects:
			return true, nil
		}
		count, next = count+1, at
		return false, derive()
	}
	for x := range schema.RouterPorts.By(o.tx, "router", routerID) {
		if x.Gateway {
			continue
		}
		full, err := each("interface/"+x.PortID, func() error { return o.deriveRouterPortAt(x.PortID) })
		if full || err != nil {
			return false, next, err
		}
	}
	for x := range schema.NDPProxies.By(o.tx, "router", routerID) {
		full, err := each("proxy/"+x.ID, func() error {
			x, err := schema.NDPProxies.Get(o.tx, x.ID)
			if err != nil {
				return err
			}
			return o.deriveNDPProxy(x, r)
		})
		if full || err != nil {
			return false, next, err
		}
	}
	return true, "", nil
}

// deriveProxiedBy rewrites the proxies whose router answers by a port, its gateway.
func (o *operation) deriveProxiedBy(port string) error {
	link, ok := schema.RouterPorts.Peek(o.tx, port)
	if !ok || !link.Gateway {
		return nil
	}
	r, err := schema.Routers.Get(o.tx, link.RouterID)
	if err != nil || translate.NDPProxyGateway(r) != port {
		return err
	}
	return o.deriveNDPProxies(r.ID)
}

func unreachableRouter(x *neutron.NDPProxy) error {
	return conflict("PortUnreachableRouter", "The port %s cannot reach the router %s by IPv6 subnet.", x.PortID, x.RouterID)
}

func invalidProxyAddress(x *neutron.NDPProxy, reason string) error {
	return neutron.Errorf(neutron.Invalid, "InvalidAddress", "The address %s is invalid, reason: %s.", x.IPAddress, reason)
}
