package schema

import (
	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// Logs are deleted with the security group or the port that they are about.
var Logs = records.NewTable("log", NeutronPrefix+"logs/", func(l *neutron.Log) string { return l.ID },
	records.Ref("security_group", SecurityGroups, func(l *neutron.Log) []string { return []string{l.ResourceID} }, records.Cascade()),
	records.Ref("target", Ports, func(l *neutron.Log) []string { return []string{l.TargetID} }, records.Cascade()),
)
