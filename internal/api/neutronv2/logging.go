package neutronv2

import "heddle/internal/neutron"

// logging is the part of logs of what security groups decide. It rests on that of ports.
func logging() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			register(on, &collection[neutron.Log]{h, h.tables.Logs, h.ops.Logs()})
			types := &collection[neutron.LoggableResource]{h, h.tables.LoggableResources, h.ops.LoggableResources()}
			on("GET /v2.0"+neutron.LoggableResources.Path(), types.list)
		},
		extensions: []extension{
			{"logging", "Logging API Extension", "2017-01-01T10:00:00-00:00", "Provides a logging API for resources such as security group and firewall."},
		},
	}
}
