package neutronv2

import (
	"context"
	"net/http"
	"strings"

	"heddle/internal/control"
	"heddle/internal/neutron"
)

// taps is the part of tap services and tap flows. Its paths are also written with dashes.
func taps() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			registerTaps(on, &collection[*neutron.TapServiceView]{h, h.tables.TapServices, h.tapServices()})
			registerTaps(on, &collection[*neutron.TapFlowView]{h, h.tables.TapFlows, h.ops.TapFlows()})
			for _, path := range []string{"/v2.0/taas/tap_mirrors", "/v2.0/taas/tap-mirrors"} {
				on(path, noTapMirrors)
				on(path+"/{id}", noTapMirrors)
			}
		},
		extensions: []extension{
			{"taas", "Neutron Tap as a Service", "2015-01-14T10:00:00-00:00", "Neutron Tap as a Service Extension."},
			{"taas-vlan-filter", "TaaS Vlan Filter Extension", "2019-01-23T00:00:00-00:00", "An extension to provide vlan filter support to TaaS."},
		},
	}
}

func registerTaps[T any](on func(string, endpoint), c *collection[T]) {
	path := c.table.Resource.Path()
	registerAt(on, path, c)
	registerAt(on, strings.ReplaceAll(path, "_", "-"), c)
}

// tapServices returns the operations on tap services. A new one whose port drops copies is logged.
func (h *handler) tapServices() control.Operations[*neutron.TapServiceView] {
	ops := h.ops.TapServices()
	create := ops.Create
	ops.Create = func(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.TapServiceView, error) {
		made, err := create(ctx, c, vs)
		for _, s := range made {
			if s.Filtered {
				h.log.Warn("port security drops copies at the port of a tap service, unless it is disabled", "tap_service", s.ID, "port", s.PortID)
			}
		}
		return made, err
	}
	return ops
}

// noTapMirrors refuses tap mirrors, which send copies to an address outside.
func noTapMirrors(http.ResponseWriter, *http.Request) error {
	return neutron.Errorf(neutron.Unsupported, "TapMirrorNotSupported",
		"Tap mirrors to remote addresses are not supported: create a tap service on a port, and tap flows to it.")
}
