package schema

import (
	"fmt"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// AddressGroups are named by rules of security groups. Their members lie in AddressBlocks.
var AddressGroups = records.NewTable("address-group", NeutronPrefix+"address-groups/", func(g *neutron.AddressGroup) string { return g.ID },
	records.Index("project", func(g *neutron.AddressGroup) []string { return []string{g.ProjectID} }),
	records.Index("name", func(g *neutron.AddressGroup) []string { return []string{g.Name} }),
)

// AddressBlocks have the members of address groups: "<group>/<number>", so that a change of one
// member rewrites a small part of them, and a change of many is one transaction.
var AddressBlocks = records.NewTable("address-block", NeutronPrefix+"address-blocks/",
	func(b *neutron.AddressBlock) string { return AddressBlockID(b.GroupID, b.Number) },
	records.Ref("group", AddressGroups, func(b *neutron.AddressBlock) []string { return []string{b.GroupID} }, records.Cascade()),
)

// AddressBlockID returns the id of a block of an address group.
func AddressBlockID(group string, number int) string { return fmt.Sprintf("%s/%02x", group, number) }
