package overlay

import "heddle/internal/topology/flow"

// NAT knows no translations: no router has a port on a host yet.
func (s liveState) NAT(flow.NATKey) (flow.NATBinding, bool) { return flow.NATBinding{}, false }

// NATSource has no ports to give.
func (s liveState) NATSource(flow.NATRequest) (flow.NATBinding, flow.NATAnswer) {
	return flow.NATBinding{}, flow.NATExhausted
}
