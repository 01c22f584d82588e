package neutronv2

import (
	"context"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/neutron"
)

// routers is the part of routers.
func routers() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			ops := h.ops.Routers()
			a := routerActions{&collection[*neutron.RouterView]{h, h.tables.Routers, ops.Operations}}
			register(on, a.collection)
			on("PUT /v2.0/routers/{id}/add_router_interface", a.changeInterface(false, ops.AddInterface))
			on("PUT /v2.0/routers/{id}/remove_router_interface", a.changeInterface(true, ops.RemoveInterface))
			on("PUT /v2.0/routers/{id}/add_extraroutes", a.changeRoutes(ops.AddRoutes))
			on("PUT /v2.0/routers/{id}/remove_extraroutes", a.changeRoutes(ops.RemoveRoutes))
			on("PUT /v2.0/routers/{id}/add_external_gateways", a.changeGateways(ops.AddGateways))
			on("PUT /v2.0/routers/{id}/update_external_gateways", a.changeGateways(ops.UpdateGateways))
			on("PUT /v2.0/routers/{id}/remove_external_gateways", a.changeGateways(ops.RemoveGateways))
		},
		extensions: []extension{
			{"router", "Neutron L3 Router", "2012-07-20T10:00:00-00:00",
				"Router abstraction for basic L3 forwarding between L2 Neutron networks and access to external networks via a NAT gateway."},
			{"dvr", "Distributed Virtual Router", "2014-06-1T10:00:00-00:00",
				"Enables configuration of Distributed Virtual Routers."},
			{"ext-gw-mode", "Neutron L3 Configurable external gateway mode", "2013-03-28T10:00:00-00:00",
				"Extension of the router abstraction for specifying whether SNAT should occur on the external gateway"},
			{"external-gateway-multihoming", "Neutron L3 External Gateway Multihoming", "2023-01-18T00:00:00-00:00",
				"Router can have multiple external gateways."},
			{"extraroute", "Neutron Extra Route", "2013-02-01T10:00:00-00:00",
				"Extra routes configuration for L3 router"},
			{"extraroute-atomic", "Atomically add/remove extra routes", "2019-07-10T00:00:00+00:00",
				"Edit extra routes of a router on server side by atomically adding/removing extra routes"},
			{"l3-port-ip-change-not-allowed", "Prevent L3 router ports IP address change extension", "2018-10-09T10:00:00-00:00",
				"Prevent change of IP address for some L3 router ports"},
			{"l3-ha", "HA Router extension", "2014-04-26T00:00:00-00:00",
				"Adds HA capability to routers."},
			{"router-admin-state-down-before-update", "Enforce Router's Admin State Down Before Update Extension", "2019-07-02T15:56:00",
				"Ensure that the admin state of a router is DOWN (admin_state_up=False) before updating the distributed attribute"},
		},
	}
}

// routerActions serves what clients do to a router beside changing its attributes.
type routerActions struct {
	*collection[*neutron.RouterView]
}

// changeInterface answers a request to add an interface or to remove one.
func (a routerActions) changeInterface(remove bool,
	change func(context.Context, neutron.Caller, string, neutron.InterfaceRequest) (*neutron.InterfaceView, error)) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		var q neutron.InterfaceRequest
		err := readObject(r, func(body document) error {
			ids := map[string]any{}
			for name, raw := range body {
				v, err := decodeValue(raw)
				if err != nil {
					return err
				}
				ids[name] = v
			}
			var err error
			q, err = neutron.ParseInterface(ids, remove)
			return err
		})
		if err != nil {
			return err
		}
		view, err := change(r.Context(), api.Caller(r.Context()), r.PathValue("id"), q)
		if err != nil {
			return err
		}
		api.WriteJSON(w, http.StatusOK, view)
		return nil
	}
}

// changeRoutes answers a request to add or remove extra routes. The reference does not hide
// anything in answers to it.
func (a routerActions) changeRoutes(change func(context.Context, neutron.Caller, string, []neutron.HostRoute) (*neutron.RouterView, error)) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		caller := api.Caller(r.Context())
		var routes []neutron.HostRoute
		err := readObject(r, func(body document) error {
			_, err := items(body, neutron.Routers, neutron.Update, func(o map[string]any) error {
				v, err := neutron.Parse(caller, neutron.Routers, neutron.Update, map[string]any{"routes": o["routes"]})
				if err == nil {
					routes, _ = v["routes"].([]neutron.HostRoute)
				}
				return err
			})
			return err
		})
		if err != nil {
			return err
		}
		view, err := change(r.Context(), caller, r.PathValue("id"), routes)
		if err != nil {
			return err
		}
		return a.writeOne(w, http.StatusOK, a.table.Whole(), view)
	}
}

// changeGateways answers a request to add gateways, to replace them or to remove some.
func (a routerActions) changeGateways(change func(context.Context, neutron.Caller, string, []*neutron.GatewayRequest) (*neutron.RouterView, error)) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		caller := api.Caller(r.Context())
		var gateways []*neutron.GatewayRequest
		err := readObject(r, func(body document) error {
			_, err := items(body, neutron.Routers, neutron.Update, func(o map[string]any) (err error) {
				gateways, err = neutron.ParseGateways(o)
				return err
			})
			return err
		})
		if err != nil {
			return err
		}
		view, err := change(r.Context(), caller, r.PathValue("id"), gateways)
		if err != nil {
			return err
		}
		return a.writeOne(w, http.StatusOK, a.table.Encoder(caller.Admin(), nil), view)
	}
}
