package schema

import (
	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// LocalIPs keep the port that has their address from being deleted.
var LocalIPs = records.NewTable("local-ip", NeutronPrefix+"local-ips/", func(l *neutron.LocalIP) string { return l.ID },
	records.Ref("local_port", Ports, func(l *neutron.LocalIP) []string { return []string{l.LocalPortID} }, records.Refuse()),
	records.Index("project", func(l *neutron.LocalIP) []string { return []string{l.ProjectID} }),
)

// LocalIPAssociations keep their local IP from being deleted, and go with their port.
var LocalIPAssociations = records.NewTable("local-ip-association", NeutronPrefix+"local-ip-associations/",
	func(a *neutron.LocalIPAssociation) string { return a.ID() },
	records.Ref("local_ip", LocalIPs, func(a *neutron.LocalIPAssociation) []string { return []string{a.LocalIPID} }, records.Refuse()),
	records.Ref("fixed_port", Ports, func(a *neutron.LocalIPAssociation) []string { return []string{a.FixedPortID} }, records.Cascade()),
)
