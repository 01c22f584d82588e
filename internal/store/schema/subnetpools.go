package schema

import (
	"fmt"
	"net/netip"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// AddressScopes are not deleted while pools are in them.
var AddressScopes = records.NewTable("address-scope", NeutronPrefix+"address-scopes/", func(s *neutron.AddressScope) string { return s.ID },
	records.Index("project", func(s *neutron.AddressScope) []string { return []string{s.ProjectID} }),
	records.Index("name", func(s *neutron.AddressScope) []string { return []string{s.Name} }),
)

// SubnetPools are not deleted while subnets have ranges of them. An IP version has one default pool
// at most.
var SubnetPools = records.NewTable("subnetpool", NeutronPrefix+"subnetpools/", func(p *neutron.SubnetPool) string { return p.ID },
	records.Ref("address_scope", AddressScopes, func(p *neutron.SubnetPool) []string { return []string{p.AddressScopeID} }, records.Refuse()),
	records.Unique("default", func(p *neutron.SubnetPool) []string {
		if !p.Default {
			return nil
		}
		return []string{DefaultPool(p.IPVersion)}
	}),
	records.Index("project", func(p *neutron.SubnetPool) []string { return []string{p.ProjectID} }),
	records.Index("name", func(p *neutron.SubnetPool) []string { return []string{p.Name} }),
)

// FreeRange is address space of a pool that no subnet has. A pool's free ranges are as few as can
// be, so they follow from its prefixes and subnets.
type FreeRange struct {
	PoolID string       `json:"subnetpool_id"`
	Range  netip.Prefix `json:"range"`
}

// FreeRanges are deleted with their pool. Those of one pool and length are in order of addresses.
var FreeRanges = records.NewDerivedTable("free-range", NeutronPrefix+"free-ranges/", func(f *FreeRange) string { return FreeRangeID(f.PoolID, f.Range) },
	records.Ref("subnetpool", SubnetPools, func(f *FreeRange) []string { return []string{f.PoolID} }, records.Cascade()),
	records.Index("length", func(f *FreeRange) []string { return []string{FreeLength(f.PoolID, f.Range.Bits())} }),
)

// FreeRangeID returns the id of a free range of a pool.
func FreeRangeID(poolID string, p netip.Prefix) string {
	return fmt.Sprintf("%s/%x-%d", poolID, p.Addr().AsSlice(), p.Bits())
}

// FreeLength returns the value of the index "length" of a pool's free ranges.
func FreeLength(poolID string, bits int) string { return fmt.Sprintf("%s/%d", poolID, bits) }

// PoolShare returns the value of the index "pool_share" of a project's subnets from a pool.
func PoolShare(poolID, projectID string, bits int) string {
	return fmt.Sprintf("%s/%s/%d", poolID, projectID, bits)
}

// DefaultPool returns the unique key "default" of an IP version's default pool.
func DefaultPool(version int) string { return fmt.Sprint(version) }
