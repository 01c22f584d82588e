package translate

import (
	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// LocalIP translates the association of a local IP with port p. Another address of the port makes
// it another one: connections to the one before end.
func LocalIP(l *neutron.LocalIP, a *neutron.LocalIPAssociation, p *neutron.Port) topology.LocalIP {
	return topology.LocalIP{
		ID: Derive(roleLocalIP, l.ID, p.ID, a.FixedIP.String()), NetworkID: l.NetworkID, Address: l.Address, PortID: p.ID, MAC: p.MACAddress, FixedIP: a.FixedIP,
		Passthrough: l.Mode == neutron.LocalIPPassthrough,
	}
}

// LocalIPHome translates the relation of a local IP to port p, which has its address.
func LocalIPHome(l *neutron.LocalIP, p *neutron.Port) topology.LocalIP {
	return topology.LocalIP{ID: l.ID, NetworkID: l.NetworkID, Address: l.Address, PortID: p.ID, MAC: p.MACAddress}
}
