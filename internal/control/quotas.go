package control

// Names of the quotas that operations count (neutron-api §2).
const (
	quotaNetwork = "network"
	quotaSubnet  = "subnet"
	quotaPort    = "port"
	quotaGroup   = "security_group"
	quotaRule    = "security_group_rule"
)
