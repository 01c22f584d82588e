package neutronv2

import "heddle/internal/neutron"

// ndpProxies is the part of NDP proxies, which rests on that of routers.
func ndpProxies() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			c := &collection[*neutron.NDPProxy]{h, h.tables.NDPProxies, h.ops.NDPProxies()}
			register(on, c)
			registerAt(on, "/ndp-proxies", c) // the reference has both
		},
		extensions: []extension{
			{"l3-ndp-proxy", "L3 NDP Proxy", "2021-06-29T10:00:00-00:00", "Router support for L3 NDP proxy."},
			{"l3-ext-ndp-proxy", "Router support to enable NDP proxy", "2020-08-25T00:00:00-00:00", "Router extension to enable ndp proxy"},
		},
	}
}
