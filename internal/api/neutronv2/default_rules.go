package neutronv2

import "heddle/internal/neutron"

// defaultRules is the part of the default rules of security groups.
func defaultRules() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			register(on, &collection[*neutron.DefaultSecurityGroupRule]{h, h.tables.DefaultRules, h.ops.DefaultSecurityGroupRules()})
		},
		extensions: []extension{
			{"security-groups-default-rules", "Default rules for security groups", "2022-12-19T10:00:00-00:00",
				"Configure set of security group rules used as default rules for every new security group"},
		},
	}
}
