package translate

import (
	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// QoSPolicy translates a policy into limits, which ports and NAT rules name by the policy's id. A
// policy that limits and marks nothing has none.
func QoSPolicy(p *neutron.QoSPolicy) topology.Bundle {
	l := topology.Limits{ID: p.ID}
	for _, r := range p.Rules {
		direction := &l.Egress
		if r.Direction == neutron.DirectionIngress {
			direction = &l.Ingress
		}
		switch r.Type {
		case neutron.QoSBandwidthLimit:
			direction.Rate, direction.Burst = uint64(r.Value)*1000, uint64(r.Burst)*1000
		case neutron.QoSPacketRateLimit:
			direction.Packets, direction.PacketBurst = uint64(r.Value)*1000, uint64(r.Burst)*1000
		case neutron.QoSDSCPMarking:
			mark := uint8(r.Value)
			l.DSCP = &mark
		}
	}
	if l.Egress == (topology.Limit{}) && l.Ingress == (topology.Limit{}) && l.DSCP == nil {
		return topology.Bundle{}
	}
	return topology.Bundle{Limits: []topology.Limits{l}}
}

// TakesQoSPolicy reports whether a port has the QoS policy of its network: it has none of its own,
// and it is a machine's or a gateway's. What has an interface of a host is taken for a machine's,
// whatever service its owner calls it, unless it is a router's.
func TakesQoSPolicy(p *neutron.Port) bool {
	if p.QoSPolicyID != "" {
		return false
	}
	switch ClassOf(p.DeviceOwner) {
	case VIF, Gateway:
		return true
	case RouterIface:
		return false
	}
	return p.BoundHostID != ""
}

// portLimits returns the id of the limits of port p on network n.
func portLimits(p *neutron.Port, n *neutron.Network) string {
	if TakesQoSPolicy(p) {
		return n.QoSPolicyID
	}
	return p.QoSPolicyID
}

// gatewayLimits returns the id of the limits of what a router translates to a gateway's address: of
// its own policy or else of the external network's.
func gatewayLimits(r *neutron.Router, l *RouterLink) string {
	for _, g := range r.Gateways {
		if g.PortID == l.Port.ID && g.QoSPolicyID != "" {
			return g.QoSPolicyID
		}
	}
	return portLimits(l.Port, l.Network)
}

// limit has a NAT rule heed limits, if there are any. limited shares one rate among its rules.
func limit(r *topology.Rule, limits, limited string) {
	if limits != "" && r.Type == topology.NAT {
		r.Limits = &topology.RuleLimits{LimitsID: limits, LimitedID: limited}
	}
}
