package translate

import (
	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// AddressGroup translates a group without its members, which its blocks contribute.
func AddressGroup(g *neutron.AddressGroup) topology.Bundle {
	return topology.Bundle{IPAddrGroups: []topology.IPAddrGroup{{ID: g.ID, Name: g.Name}}}
}

// AddressBlock translates some members of a group. No port contributes them.
func AddressBlock(b *neutron.AddressBlock) topology.Bundle {
	members := make([]topology.Membership, len(b.Addresses))
	for i, p := range b.Addresses {
		members[i] = topology.Membership{GroupID: b.GroupID, IPAddress: p.String()}
	}
	return topology.Bundle{Memberships: members}
}
