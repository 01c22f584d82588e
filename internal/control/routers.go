package control

import (
	"context"
	"errors"
	"reflect"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// RouterOperations are the operations on routers. Adding an interface creates its port, unless the
// request names one; removing an interface deletes the port. Routes that a router has already, or
// lacks, are no error.
type RouterOperations struct {
	Operations[*neutron.RouterView]
	AddInterface, RemoveInterface func(ctx context.Context, c neutron.Caller, id string, q neutron.InterfaceRequest) (*neutron.InterfaceView, error)
	AddRoutes, RemoveRoutes       func(ctx context.Context, c neutron.Caller, id string, routes []neutron.HostRoute) (*neutron.RouterView, error)
	// UpdateGateways makes the gateways those of the request.
	AddGateways, UpdateGateways, RemoveGateways func(ctx context.Context, c neutron.Caller, id string, gateways []*neutron.GatewayRequest) (*neutron.RouterView, error)
}

// Routers returns the operations on routers.
func (s *Service) Routers() RouterOperations {
	o := s.routers.operations()
	o.Update, o.Delete = s.routers.update, s.routers.delete
	return RouterOperations{
		Operations:   o,
		AddInterface: s.routers.addInterface, RemoveInterface: s.routers.removeInterface,
		AddRoutes: s.routers.addRoutes, RemoveRoutes: s.routers.removeRoutes,
		AddGateways: s.routers.addGateways, UpdateGateways: s.routers.updateGateways, RemoveGateways: s.routers.removeGateways,
	}
}

// routers are the operations on routers.
//
// Adding an interface only reads the router, so that interfaces added at the same time conflict
// only if their subnets overlap (guardRange). Everything else writes the router.
type routers struct {
	*resource[neutron.Router, neutron.RouterView]
}

// attrGateway is the attribute by which clients set a router's gateway.
const attrGateway = "external_gateway_info"

func newRouters(s *Service) *resource[neutron.Router, neutron.RouterView] {
	t := schema.Routers
	return &resource[neutron.Router, neutron.RouterView]{
		service: s, name: neutron.Routers, make: (*operation).createRouter,
		finder: ofProject(t,
			byName(t),
			byProject(t)),
		standard:   func(r *neutron.Router) *neutron.Standard { return &r.Standard },
		attributes: func(o *neutron.RouterView) *neutron.Standard { return &o.Standard },
		answer: func(r records.Reader, router *neutron.Router, q neutron.Query) *neutron.RouterView {
			return routerView(r, router, q.WithoutComputed)
		},
	}
}

// routerView returns a router with its gateways' addresses, unless they are not needed.
func routerView(r records.Reader, router *neutron.Router, plain bool) *neutron.RouterView {
	counted := *router
	counted.RevisionNumber += int64(schema.RouterPorts.CountBy(r, "router", router.ID))
	v := &neutron.RouterView{Router: &counted, Status: statusActive}
	if plain {
		return v
	}
	v.Zones = zonesOfRouter(r, router.ID)
	for i, g := range router.Gateways {
		var ips []neutron.FixedIP
		if p, ok := schema.Ports.Peek(r, g.PortID); ok {
			ips = p.FixedIPs
		}
		policy := ""
		if n, ok := schema.Networks.Peek(r, g.NetworkID); ok {
			policy = n.QoSPolicyID
		}
		v.NetworkPolicies = append(v.NetworkPolicies, policy)
		if i == 0 {
			v.ExternalFixedIPs = ips
		} else {
			v.OtherFixedIPs = append(v.OtherFixedIPs, ips)
		}
	}
	return v
}

// gatewayOf returns the first gateway, nil for none.
func gatewayOf(r *neutron.Router) *neutron.RouterGateway {
	if len(r.Gateways) == 0 {
		return nil
	}
	return &r.Gateways[0]
}

func (o *operation) createRouter(_ context.Context, v neutron.Values) (*neutron.Router, error) {
	r := neutron.Router{
		Standard:     o.standard(v, 1),
		AdminStateUp: v.Flag("admin_state_up"),
		Gateways:     []neutron.RouterGateway{},
		Routes:       []neutron.HostRoute{},
		Distributed:  v.Flag("distributed"),
		HA:           v.Flag("ha"),
		ZoneHints:    list[string](v, "availability_zone_hints"),
	}
	if err := checkZones(o.tx, r.ZoneHints); err != nil {
		return nil, err
	}
	if err := (routerEdit{o, &r}).applyFlavor(v); err != nil {
		return nil, err
	}
	portless := r
	if err := schema.Routers.Put(o.tx, &portless); err != nil { // its gateway refers to it
		return nil, err
	}
	e := routerEdit{o, &r}
	if _, err := e.applyGateway(v); err != nil {
		return nil, err
	}
	if err := e.enableNDPProxy(v); err != nil {
		return nil, err
	}
	return &r, e.put(true)
}

// update changes a router.
func (s routers) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.RouterView, error) {
	view, err := transact(ctx, s.service, c, func(o *operation) (*neutron.RouterView, error) {
		old, err := s.routerToChange(o, id, neutron.Update, v, ifMatch)
		if err != nil {
			return nil, err
		}
		return o.changeRouter(old, v)
	})
	if v.Has(attrNDPProxy) && err == nil {
		s.service.carryOut(ctx, workDeriveNDPProxies, id)
	}
	return view, err
}

// changeRouter sets what an update names.
func (o *operation) changeRouter(old *neutron.Router, v neutron.Values) (*neutron.RouterView, error) {
	r := *old
	e := routerEdit{o, &r}
	if err := e.apply(old, v); err != nil {
		return nil, err
	}
	gateway, err := e.applyGateway(v)
	if err != nil {
		return nil, err
	}
	if err := e.applyNDPProxy(old, v); err != nil {
		return nil, err
	}
	if v.Has("routes") {
		if err := e.applyRoutes(list[neutron.HostRoute](v, "routes")); err != nil {
			return nil, err
		}
	}
	if !gateway && reflect.DeepEqual(&r, old) {
		return routerView(o.tx, old, false), nil
	}
	o.bump(&r.Standard)
	if err := e.put(gateway); err != nil {
		return nil, err
	}
	return routerView(o.tx, &r, false), nil
}

// delete deletes a router with its gateways, unless it has interfaces.
func (s routers) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return perform(ctx, s.service, c, func(o *operation) error { return s.remove(o, id, ifMatch) })
}

// remove deletes a router as part of an operation.
func (s routers) remove(o *operation, id string, ifMatch *int64) error {
	old, err := s.routerToChange(o, id, neutron.Delete, nil, ifMatch)
	if err != nil {
		return err
	}
	if using := interfacesOf(o.tx, id); len(using) > 0 {
		return routerInUse(id, using)
	}
	if err := errors.Join(o.checkNoV1Pools(id, nil), o.checkNoSpeaker(id)); err != nil {
		return err
	}
	if err := o.checkNoDevice(neutron.Routers.Name(), id); err != nil {
		return err
	}
	r := *old
	if err := (routerEdit{o, &r}).removeAllGateways(); err != nil {
		return err
	}
	if err := errors.Join(o.leaveFirewall(id), o.dropBGP(id), o.dropBundle(kindRouter, id)); err != nil {
		return err
	}
	return schema.Routers.Delete(o.tx, id)
}

// routerToChange finds a router for an update or a delete. Its ports count in its revision.
func (s routers) routerToChange(o *operation, id string, op neutron.Op, v neutron.Values, ifMatch *int64) (*neutron.Router, error) {
	r, err := s.toChange(o, id, op, v, nil)
	if err != nil {
		return nil, err
	}
	return r, checkRevision(ifMatch, routerView(o.tx, r, true).RevisionNumber)
}

// routerToActOn finds a router that the caller may see, for an action with a policy of its own.
func (s routers) routerToActOn(o *operation, id, action string) (*neutron.Router, error) {
	r, owner, err := s.inTransaction(o, id)
	if err != nil {
		return nil, err
	}
	return r, neutron.AuthorizeAction(o.caller, neutron.Routers, action, owner)
}

// interfacesOf returns the ports of a router's interfaces.
func interfacesOf(r records.Reader, routerID string) []string {
	var ids []string
	for x := range schema.RouterPorts.By(r, "router", routerID) {
		if !x.Gateway {
			ids = append(ids, x.PortID)
		}
	}
	return ids
}

// routerEdit is a router that an operation makes or changes.
type routerEdit struct {
	*operation
	r *neutron.Router // a copy of the record
}

// apply sets plain attributes.
func (e routerEdit) apply(old *neutron.Router, v neutron.Values) error {
	r := e.r
	applyStandard(&r.Standard, v)
	setFlag(&r.AdminStateUp, v, "admin_state_up")
	setFlag(&r.Distributed, v, "distributed")
	setFlag(&r.HA, v, "ha")
	switch {
	case r.FlavorID != "" && (r.Distributed != old.Distributed || r.HA != old.HA):
		return invalid("Changing the 'ha' and 'distributed' attributes on a router associated with a flavor is not supported")
	case !old.AdminStateUp || !r.AdminStateUp:
	case r.Distributed != old.Distributed:
		return neutron.BadRouter("Cannot change the 'distributed' attribute of active routers. " +
			"Please set router admin_state_up to False prior to upgrade")
	case r.HA != old.HA:
		return neutron.BadRouter("Cannot change HA attribute of active routers. Please set router admin_state_up to False prior to upgrade")
	}
	return nil
}

// put stores the router with what is derived from it; its gateways are derived again if they have
// changed, with their floating IPs if it has become one with several or is one no more.
func (e routerEdit) put(gateways bool) error {
	several, proxied := false, ""
	if old, ok := schema.Routers.Peek(e.tx, e.r.ID); ok {
		several, proxied = len(old.Gateways) > 1, translate.NDPProxyGateway(old)
	}
	if err := schema.Routers.Put(e.tx, e.r); err != nil {
		return err
	}
	if err := errors.Join(e.deriveRouter(e.r), e.followNDPProxy(proxied), e.deriveV1(e.r), e.followBGP(e.r.ID)); err != nil || !gateways {
		return err
	}
	for _, g := range e.r.Gateways {
		x, err := schema.RouterPorts.Get(e.tx, g.PortID)
		if err != nil {
			return err
		}
		if err := e.deriveRouterPort(x); err != nil {
			return err
		}
		if several == (len(e.r.Gateways) > 1) {
			continue
		}
		if err := e.deriveServedBy(g.PortID); err != nil {
			return err
		}
	}
	return nil
}

// deriveRouter stores what is derived from a router. Its ports matter only to routes: one that
// comes meanwhile may be on the subnet of a next hop.
func (o *operation) deriveRouter(r *neutron.Router) error {
	var links []translate.RouterLink
	if len(r.Routes) > 0 {
		for _, id := range schema.RouterPorts.Referrers(o.tx, "router", r.ID) {
			x, err := schema.RouterPorts.Get(o.tx, id)
			if err != nil {
				return err
			}
			l, err := o.linkOf(x)
			if err != nil {
				return err
			}
			links = append(links, l)
		}
	}
	return o.putBundle(kindRouter, r.ID, translate.Router(r, links))
}

// addRoutes adds routes to a router.
func (s routers) addRoutes(ctx context.Context, c neutron.Caller, id string, routes []neutron.HostRoute) (*neutron.RouterView, error) {
	return s.editRoutes(ctx, c, id, "add_extraroutes", func(has []neutron.HostRoute) []neutron.HostRoute {
		all := slices.Clone(has)
		for _, route := range routes {
			if !slices.Contains(all, route) {
				all = append(all, route)
			}
		}
		return all
	})
}

// removeRoutes removes routes from a router.
func (s routers) removeRoutes(ctx context.Context, c neutron.Caller, id string, routes []neutron.HostRoute) (*neutron.RouterView, error) {
	return s.editRoutes(ctx, c, id, "remove_extraroutes", func(has []neutron.HostRoute) []neutron.HostRoute {
		return slices.DeleteFunc(slices.Clone(has), func(route neutron.HostRoute) bool { return slices.Contains(routes, route) })
	})
}

// editRoutes replaces the routes of a router by what change makes of them.
func (s routers) editRoutes(ctx context.Context, c neutron.Caller, id, action string, change func([]neutron.HostRoute) []neutron.HostRoute) (*neutron.RouterView, error) {
	return transact(ctx, s.service, c, func(o *operation) (*neutron.RouterView, error) {
		old, err := s.routerToActOn(o, id, action)
		if err != nil {
			return nil, err
		}
		return o.changeRouter(old, neutron.Values{"routes": change(old.Routes)})
	})
}

// removeRouterPort deletes a port of the router with its link, or leaves it without a device.
func (e routerEdit) removeRouterPort(x *neutron.RouterPort, keep bool) error {
	p, err := schema.Ports.Get(e.tx, x.PortID)
	if err != nil {
		return err
	}
	n, err := schema.Networks.Need(e.tx, p.NetworkID)
	if err != nil {
		return err
	}
	if err := errors.Join(e.leaveFirewallGroup(x.PortID), e.dropBundle(routerPortKind(x), x.PortID), schema.RouterPorts.Delete(e.tx, x.PortID)); err != nil {
		return err
	}
	e.r.RevisionNumber++ // the port counts no more
	if !keep {
		return e.removePort(p, n)
	}
	free := *p
	free.DeviceID = ""
	e.bump(&free.Standard)
	return e.putPort(&free, n)
}
