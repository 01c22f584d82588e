package translate

import (
	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// Network translates a network into a bridge; uplinks and routed networks have none (§5). One on a
// physical network has a localnet port beside (decision 0016).
func Network(n *neutron.Network) topology.Bundle {
	if bridgeless(n) {
		return topology.Bundle{}
	}
	b := topology.Bundle{Networks: []topology.Network{{
		ID:           n.ID,
		TenantID:     n.ProjectID,
		Name:         n.Name,
		AdminStateUp: n.AdminStateUp,
	}}}
	if n.PhysicalNetwork != "" {
		b.Ports = []topology.Port{localnetPort(n)}
	}
	return b
}

func localnetPort(n *neutron.Network) topology.Port {
	p := topology.Port{
		ID:              Derive(rolePortLocalnet, n.ID),
		NetworkID:       n.ID,
		AdminStateUp:    true,
		TunnelKey:       n.TunnelKey,
		PhysicalNetwork: n.PhysicalNetwork,
	}
	if n.SegmentationID != nil {
		p.VlanID = uint16(*n.SegmentationID)
	}
	return p
}
