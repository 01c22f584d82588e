package offline

import (
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// A file has the order in which Neutron makes routers: the port of a gateway before the router that
// names it as gw_port_id, the port of an interface before the step router_interface. A server makes
// both ports itself, so these steps name a port in the server's requests.

const (
	typeRouterInterface = "router_interface"

	attrGateway     = "external_gateway_info"
	attrGatewayPort = "gw_port_id"
)

// createRouter makes a router.
func (w *world) createRouter(k *kind, id string, data object) error {
	fields := cloneFields(data)
	if routes, err := data.get("routes").list(); err == nil && len(routes) == 0 {
		delete(fields, "routes") // which only an update may set
	}
	port, err := w.gatewayPort(data, fields, nil)
	if err != nil {
		return err
	}
	v, err := w.newValues(k, id, object{data.node, fields})
	if err != nil {
		return err
	}
	return k.create(withGatewayPort(v, port))
}

// updateRouter changes a router.
func (w *world) updateRouter(k *kind, id string, data object) error {
	old, err := w.service.Routers().Show(w.ctx, administrator(), id)
	if err != nil {
		return err
	}
	stored, err := k.show(id)
	if err != nil {
		return err
	}
	fields := cloneFields(data)
	port, err := w.gatewayPort(data, fields, old.Gateways)
	if err != nil {
		return err
	}
	v, err := neutron.Parse(administrator(), neutron.Routers, neutron.Update, request(k, neutron.Update, fields, stored))
	if err != nil {
		return err
	}
	return k.update(id, withGatewayPort(v, port))
}

func withGatewayPort(v neutron.Values, port string) neutron.Values {
	if port != "" {
		v[attrGatewayPort] = port
	}
	return v
}

// gatewayPort returns the port that becomes the gateway, "" if that stays or goes, and completes
// external_gateway_info in fields: the port tells its network.
func (w *world) gatewayPort(data object, fields map[string]any, had []neutron.RouterGateway) (string, error) {
	if !data.has(attrGatewayPort) || data.get(attrGatewayPort).null() {
		if info := data.get(attrGateway); !info.null() && !sameNetwork(info, had) {
			return "", refuse(neutron.Invalid, "%s is missing: create the port of the gateway, and name it here", data.under(attrGatewayPort))
		}
		if data.has(attrGatewayPort) && !data.has(attrGateway) {
			fields[attrGateway] = nil
		}
		return "", nil
	}
	id, err := idOf(data.get(attrGatewayPort))
	if err != nil {
		return "", err
	}
	p, err := w.service.Ports().Show(w.ctx, administrator(), id)
	if err != nil {
		return "", err
	}
	has := slices.ContainsFunc(had, func(g neutron.RouterGateway) bool { return g.PortID == id })
	if !has && data.get(attrGateway).null() {
		fields[attrGateway] = map[string]any{"network_id": p.NetworkID}
	}
	return id, nil
}

// sameNetwork reports whether a gateway is on the network that a request names.
func sameNetwork(info node, had []neutron.RouterGateway) bool {
	o, err := info.anyObject()
	if err != nil || len(o.fields) == 0 {
		return true // the server refuses it, or takes it as null
	}
	network, err := o.get("network_id").text()
	return err != nil || network == "" || slices.ContainsFunc(had, func(g neutron.RouterGateway) bool { return g.NetworkID == network })
}

// applyInterface carries out a step of type router_interface. Its deletion leaves the port, which
// is deleted by a step of its own.
func (w *world) applyInterface(s *step) error {
	id, err := idOf(s.data.get("id"))
	if err != nil {
		return err
	}
	var q neutron.InterfaceRequest
	if !s.data.get("port_id").null() {
		if q.PortID, err = idOf(s.data.get("port_id")); err != nil {
			return err
		}
	}
	if !s.data.get("subnet_id").null() {
		if q.SubnetID, err = idOf(s.data.get("subnet_id")); err != nil {
			return err
		}
	}
	routers := w.service.Routers()
	switch s.op {
	case "create":
		if q.PortID == "" {
			return refuse(neutron.Invalid, "%s is missing: create the port of the interface, and name it here", s.data.under("port_id"))
		}
		_, err = routers.AddInterface(w.ctx, administrator(), id, q)
	case "delete":
		if q == (neutron.InterfaceRequest{}) {
			return refuse(neutron.Invalid, "%s is missing", s.data.under("port_id"))
		}
		q.KeepPort = true
		_, err = routers.RemoveInterface(w.ctx, administrator(), id, q)
		err = ignoreMissing(err)
	default:
		err = refuse(neutron.Unsupported, "router_interface cannot be updated; delete it and create another")
	}
	return err
}

// removePort deletes a port. A router loses its gateway or interface with it, as if it had been
// asked for that.
func (w *world) removePort(k *kind, id string) error {
	snap, err := w.db.View(w.ctx)
	if err != nil {
		return err
	}
	if x, linked := schema.RouterPorts.Peek(snap, id); linked {
		return w.leaveRouter(x)
	}
	p, there := schema.Ports.Peek(snap, id)
	if !there {
		return nil
	}
	if _, ofRouter := schema.Routers.Peek(snap, p.DeviceID); ofRouter {
		if err := k.update(id, neutron.Values{"device_id": ""}); err != nil {
			return err
		}
	}
	return k.remove(id)
}

// leaveRouter removes a router's gateway or interface with its port.
func (w *world) leaveRouter(x *neutron.RouterPort) error {
	if err := w.releaseServed(x.PortID); err != nil {
		return err
	}
	routers := w.service.Routers()
	if x.Gateway {
		_, err := routers.RemoveGateways(w.ctx, administrator(), x.RouterID, []*neutron.GatewayRequest{{PortID: x.PortID}})
		return err
	}
	_, err := routers.RemoveInterface(w.ctx, administrator(), x.RouterID, neutron.InterfaceRequest{PortID: x.PortID})
	return err
}
