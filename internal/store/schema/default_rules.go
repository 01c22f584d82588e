package schema

import (
	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// DefaultRules has the default rules of security groups that differ from
// [neutron.InitialDefaultRules]: those that admins have made, and with the id of an initial one, a
// record of its deletion.
var DefaultRules = records.NewTable("default-rule", NeutronPrefix+"default-security-group-rules/",
	func(r *neutron.DefaultSecurityGroupRule) string { return r.ID },
	records.Ref("remote_address_group", AddressGroups, func(r *neutron.DefaultSecurityGroupRule) []string {
		return []string{r.RemoteAddressGroupID}
	}, records.Refuse()),
)
