package console

import (
	"net/http"
	"slices"

	"heddle/internal/api"
	"heddle/internal/api/operator"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
)

// traffic answers with the traffic of the host that the query names, by its name or id.
func (c *console) traffic(r *http.Request) (*operator.Traffic, error) {
	snap, err := c.DB.View(r.Context())
	if err != nil {
		return nil, err
	}
	h, err := findHost(snap, r.URL.Query().Get("host"))
	if err != nil {
		return nil, err
	}
	if state, alive := schema.HostStates.Peek(snap, h.ID); !alive || !slices.Contains(state.Roles, "overlay") {
		return nil, api.Errorf(http.StatusConflict, "host %s has no overlay agent that is alive, which alone knows its traffic: start it there", h.Name)
	}
	answer, err := c.ask(r.Context(), flow.TraceRequest{HostID: h.ID, Report: true, Traffic: true}, c.TraceWait)
	if err != nil {
		return nil, err
	}
	if answer == nil || answer.Report == nil || answer.Report.Traffic == nil {
		return nil, api.Errorf(http.StatusGatewayTimeout, "the agent of host %s does not report: look at its log; agents of earlier versions have no such report", h.Name)
	}
	v := operator.Traffic{Host: h.Name, Tunnels: answer.Report.Traffic.Tunnels, Networks: []operator.NetworkTraffic{}, Ports: []operator.PortTraffic{}}
	for _, n := range answer.Report.Traffic.Networks {
		one := operator.NetworkTraffic{NetworkReport: n}
		if network, ok := schema.Networks.Peek(snap, n.ID); ok {
			one.Name = network.Name
		}
		v.Networks = append(v.Networks, one)
	}
	for _, p := range answer.Report.Traffic.Ports {
		one := operator.PortTraffic{PortReport: p}
		if port, ok := schema.Ports.Peek(snap, p.ID); ok {
			one.Name = portName(port)
		} else if network, ok := schema.Networks.Peek(snap, p.LANOf); ok {
			one.Name = "LAN of " + network.Name
		}
		v.Ports = append(v.Ports, one)
	}
	return &v, nil
}
