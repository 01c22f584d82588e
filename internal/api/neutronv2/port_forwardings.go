package neutronv2

import (
	"net/http"

	"heddle/internal/neutron"
)

// portForwardings registers the routes of what floating IPs forward, each below its floating IP.
func (h *handler) portForwardings(on func(string, endpoint)) {
	of := func(answer func(c *collection[*neutron.PortForwarding], w http.ResponseWriter, r *http.Request) error) endpoint {
		return func(w http.ResponseWriter, r *http.Request) error {
			c := &collection[*neutron.PortForwarding]{h, h.tables.PortForwardings, h.ops.PortForwardings(r.PathValue("floatingip"))}
			return answer(c, w, r)
		}
	}
	const path, item = "/v2.0/floatingips/{floatingip}/port_forwardings", "/v2.0/floatingips/{floatingip}/port_forwardings/{id}"
	on("GET "+path, of((*collection[*neutron.PortForwarding]).list))
	on("POST "+path, of((*collection[*neutron.PortForwarding]).create))
	on("GET "+item, of((*collection[*neutron.PortForwarding]).show))
	on("PUT "+item, of((*collection[*neutron.PortForwarding]).update))
	on("DELETE "+item, of((*collection[*neutron.PortForwarding]).delete))
}

func forwardingExtensions() []extension {
	return []extension{
		{"expose-port-forwarding-in-fip", "Expose Floating IP port forwardings", "2018-06-28T16:00:00-00:00",
			"Expose port forwarding fields in floating IP response"},
		{"floating-ip-port-forwarding", "Floating IP Port Forwarding", "2018-01-19T10:00:00-00:00",
			"Allow port forwarding from floating IP port to an internal port"},
		{"floating-ip-port-forwarding-description", "Floating IP Port Forwarding new attribute description", "2019-11-01T10:00:00-00:00",
			"Add a description field to Port Forwarding rules"},
		{"floating-ip-port-forwarding-detail", "Floating IP port forwarding detail", "2022-05-06T10:00:00-00:00",
			"Allow list floating ip return more port forwarding data, include'id' and 'internal_port_id'"},
		{"floating-ip-port-forwarding-port-ranges", "Floating IP Port Forwarding support port ranges", "2020-07-01T10:00:00-00:00",
			"Add suport to port ranges"},
	}
}
