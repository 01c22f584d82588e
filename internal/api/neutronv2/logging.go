package neutronv2

import (
	"net/http"

	"heddle/internal/neutron"
)

// logging is the part of logs of what security groups and firewalls decide. It rests on those of
// ports and firewalls.
func logging() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			register(on, &collection[*neutron.Log]{h, h.tables.Logs, h.ops.Logs()})
			types := &collection[*neutron.LoggableResource]{h, h.tables.LoggableResources, h.ops.LoggableResources()}
			on("GET /v2.0"+neutron.LoggableResources.Path(), types.list)
			register(on, &collection[*neutron.LoggingResourceView]{h, h.tables.LoggingResources, h.ops.LoggingResources()})
			h.firewallLogs(on)
		},
		extensions: []extension{
			{"logging", "Logging API Extension", "2017-01-01T10:00:00-00:00", "Provides a logging API for resources such as security group and firewall."},
			{"logging-resource", "Logging Resource", "2016-07-18T10:00:00-00:00", "Logs of what firewalls decide."},
		},
	}
}

// firewallLogs registers the routes of firewall logs, each below its logging resource.
func (h *handler) firewallLogs(on func(string, endpoint)) {
	of := func(answer func(c *collection[*neutron.FirewallLog], w http.ResponseWriter, r *http.Request) error) endpoint {
		return func(w http.ResponseWriter, r *http.Request) error {
			return answer(&collection[*neutron.FirewallLog]{h, h.tables.FirewallLogs, h.ops.FirewallLogs(r.PathValue("resource"))}, w, r)
		}
	}
	path := "/v2.0" + neutron.LoggingResources.Path() + "/{resource}" + neutron.FirewallLogs.Path()
	on("GET "+path, of((*collection[*neutron.FirewallLog]).list))
	on("POST "+path, of((*collection[*neutron.FirewallLog]).create))
	on("GET "+path+"/{id}", of((*collection[*neutron.FirewallLog]).show))
	on("PUT "+path+"/{id}", of((*collection[*neutron.FirewallLog]).update))
	on("DELETE "+path+"/{id}", of((*collection[*neutron.FirewallLog]).delete))
}
