package translate

import (
	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// Network translates a network into a bridge; uplinks and routed networks have none (§5).
func Network(n *neutron.Network) topology.Bundle {
	if bridgeless(n) {
		return topology.Bundle{}
	}
	return topology.Bundle{Networks: []topology.Network{{
		ID:           n.ID,
		TenantID:     n.ProjectID,
		Name:         n.Name,
		AdminStateUp: n.AdminStateUp,
	}}}
}
