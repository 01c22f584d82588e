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
	return topology.Bundle{MemberSets: []topology.MemberSet{{GroupID: b.GroupID, Prefixes: b.Addresses}}}
}
