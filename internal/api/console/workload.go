package console

import (
	"net/http"
	"net/netip"

	"heddle/internal/api"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// workloadRequest is the body of POST /v1/workloads: what a temporary workload on a port's host
// should do.
type workloadRequest struct {
	Port   string           `json:"port"` // its id
	Remove bool             `json:"remove"`
	Probes []topology.Probe `json:"probes"`
}

// workload has the agent of a port's host work on a request, and answers with what it answers.
func (c *console) workload(r *http.Request, req *workloadRequest) (*flow.WorkloadAnswer, error) {
	snap, err := c.DB.View(r.Context())
	if err != nil {
		return nil, err
	}
	port, err := schema.Ports.Get(snap, req.Port)
	if err != nil {
		return nil, notFound(err, "port", req.Port)
	}
	if port.DeviceOwner != topology.WorkloadOwner {
		return nil, api.Errorf(http.StatusConflict, "port %s has the device_owner %q: temporary workloads have ports with %q alone", port.ID, port.DeviceOwner, topology.WorkloadOwner)
	}
	work, err := newWorkloadRequest(snap, port, req)
	if err != nil {
		return nil, err
	}
	host, ok := schema.Hosts.Peek(snap, port.BoundHostID)
	if !ok {
		return nil, api.Errorf(http.StatusConflict, "port %s is bound to no host that has joined", port.ID)
	}
	state, alive := schema.HostStates.Peek(snap, host.ID)
	if !alive {
		return nil, api.Errorf(http.StatusConflict, "host %s is down", host.Name)
	}
	answer, err := c.ask(r.Context(), flow.TraceRequest{HostID: host.ID, Workload: work}, c.WorkloadWait)
	switch {
	case err != nil:
		return nil, err
	case answer == nil:
		return nil, api.Errorf(http.StatusGatewayTimeout, "the agent of host %s did not answer within %s", host.Name, c.WorkloadWait)
	case answer.Workload == nil:
		return nil, api.Errorf(http.StatusNotImplemented, "the agent of host %s is of version %s, which has no temporary workloads: upgrade it", host.Name, state.Version)
	}
	return answer.Workload, nil
}

// newWorkloadRequest returns the request to the agent of the port's host.
func newWorkloadRequest(snap *records.Snap, port *neutron.Port, req *workloadRequest) (*topology.WorkloadRequest, error) {
	network, err := schema.Networks.Get(snap, port.NetworkID)
	if err != nil {
		return nil, err
	}
	work := &topology.WorkloadRequest{PortID: port.ID, Interface: port.InterfaceName, MAC: port.MACAddress, MTU: network.MTU, Remove: req.Remove, Probes: req.Probes}
	for _, f := range port.FixedIPs {
		subnet, err := schema.Subnets.Get(snap, f.SubnetID)
		if err != nil {
			return nil, err
		}
		of := &work.Address
		if f.IPAddress.Is6() {
			of = &work.Address6
		}
		if !of.IsValid() {
			*of = netip.PrefixFrom(f.IPAddress, subnet.CIDR.Bits())
		}
	}
	if !work.Address.IsValid() {
		return nil, api.Errorf(http.StatusConflict, "port %s has no IPv4 address", port.ID)
	}
	return work, nil
}
