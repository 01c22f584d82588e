package neutronv2

import (
	"net/http"
	"strings"

	"heddle/internal/neutron"
)

// gatewayDevices is the part of gateway devices and their remote MAC entries. Its paths are also
// written with dashes.
func gatewayDevices() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			for _, spelled := range []func(string) string{asIs, dashed} {
				path := spelled(neutron.GatewayDevices.Path())
				registerAt(on, path, &collection[*neutron.GatewayDeviceView]{h, h.tables.GatewayDevices, h.ops.GatewayDevices()})
				h.remoteMACEntries(on, "/v2.0"+path+"/{device}"+spelled(neutron.RemoteMACEntries.Path()))
			}
		},
		extensions: []extension{
			{"gateway-device", "Gateway Device Extension", "2014-11-30T00:00:00-00:00", "Routers and networks by which L2 gateways reach machines outside."},
		},
	}
}

func asIs(path string) string   { return path }
func dashed(path string) string { return strings.ReplaceAll(path, "_", "-") }

// remoteMACEntries registers the routes of remote MAC entries, each below its device.
func (h *handler) remoteMACEntries(on func(string, endpoint), path string) {
	of := func(answer func(c *collection[*neutron.RemoteMACEntry], w http.ResponseWriter, r *http.Request) error) endpoint {
		return func(w http.ResponseWriter, r *http.Request) error {
			return answer(&collection[*neutron.RemoteMACEntry]{h, h.tables.RemoteMACEntries, h.ops.RemoteMACEntries(r.PathValue("device"))}, w, r)
		}
	}
	on("GET "+path, of((*collection[*neutron.RemoteMACEntry]).list))
	on("POST "+path, of((*collection[*neutron.RemoteMACEntry]).create))
	on("GET "+path+"/{id}", of((*collection[*neutron.RemoteMACEntry]).show))
	on("DELETE "+path+"/{id}", of((*collection[*neutron.RemoteMACEntry]).delete))
}

// l2Gateways is the part of layer-2 gateways and their connections. It rests on that of gateway
// devices.
func l2Gateways() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			register(on, &collection[*neutron.L2Gateway]{h, h.tables.L2Gateways, h.ops.L2Gateways()})
			register(on, &collection[*neutron.L2GatewayConnection]{h, h.tables.L2GatewayConnections, h.ops.L2GatewayConnections()})
		},
		extensions: []extension{
			{"l2-gateway", "L2 Gateway", "2015-01-01T00:00:00-00:00", "Connects Neutron networks with external networks at layer 2."},
			{"l2-gateway-connection", "L2 Gateway connection", "2014-01-01T00:00:00-00:00", "Connects Neutron networks with external networks at layer 2."},
		},
	}
}
