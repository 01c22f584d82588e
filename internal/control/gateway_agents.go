package control

import (
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

const gatewayAgentType = "L2 Gateway agent"

// gatewayAgent returns a gateway device with a switch as the agent that Neutron's clients expect
// for it (services §7.4). It has the device's id, and is alive while a server is connected to the
// switch.
func (s agents) gatewayAgent(r records.Reader, d *neutron.GatewayDevice) *neutron.AgentView {
	v := &neutron.AgentView{ID: d.ID, Binary: "heddle-server", AgentType: gatewayAgentType, Topic: "l2gateway_agent", AdminStateUp: true,
		Description: d.Description, CreatedAt: d.CreatedAt, StartedAt: d.CreatedAt}
	config := map[string]any{"gateway_device": d.ID, "connected": false, "switch": []string{}, "ports": []string{}}
	v.Configurations = config
	state, ok := schema.GatewayStates.Peek(r, topology.RemoteHolder+"/"+d.ID)
	if !ok {
		return v
	}
	v.Host, v.Alive = state.Server, state.Connected
	config["connected"] = state.Connected
	config["switch"], config["ports"] = orEmpty(state.Switches), orEmpty(state.Ports)
	if len(state.Faults) > 0 {
		config["faults"] = state.Faults
	}
	if state.Connected {
		v.StartedAt, v.HeartbeatAt = state.Since, s.opts.Now()
	}
	return v
}

func orEmpty(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}

// managedDevice returns the gateway device with this id, if it has a switch.
func managedDevice(r records.Reader, id string) (*neutron.GatewayDevice, bool) {
	d, ok := schema.GatewayDevices.Peek(r, id)
	return d, ok && d.Managed()
}
