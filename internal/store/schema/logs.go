package schema

import (
	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// LoggingResources take their firewall logs along.
var LoggingResources = records.NewTable("logging-resource", NeutronPrefix+"logging-resources/", func(r *neutron.LoggingResource) string { return r.ID },
	records.Index("project", func(r *neutron.LoggingResource) []string { return []string{r.ProjectID} }),
	records.Index("name", func(r *neutron.LoggingResource) []string { return []string{r.Name} }),
)

// FirewallLogs are deleted with their logging resource. Their firewall's deletion takes them along
// before it goes.
var FirewallLogs = records.NewTable("firewall-log", NeutronPrefix+"firewall-logs/", func(l *neutron.FirewallLog) string { return l.ID },
	records.Ref("logging_resource", LoggingResources, func(l *neutron.FirewallLog) []string { return []string{l.LoggingResourceID} }, records.Cascade()),
	records.Ref("firewall", Firewalls, func(l *neutron.FirewallLog) []string { return []string{l.FirewallID} }, records.Refuse()),
	records.Index("project", func(l *neutron.FirewallLog) []string { return []string{l.ProjectID} }),
)

// Logs are deleted with the security group, the firewall or the port that they are about.
var Logs = records.NewTable("log", NeutronPrefix+"logs/", func(l *neutron.Log) string { return l.ID },
	records.Ref("security_group", SecurityGroups, func(l *neutron.Log) []string { return logged(l, neutron.LogSecurityGroup) }, records.Cascade()),
	records.Ref("firewall", Firewalls, func(l *neutron.Log) []string { return logged(l, neutron.LogFirewall) }, records.Cascade()),
	records.Ref("target", Ports, func(l *neutron.Log) []string { return []string{l.TargetID} }, records.Cascade()),
)

// logged returns the id of what a log is about if that is of a type.
func logged(l *neutron.Log, resourceType string) []string {
	if l.ResourceType != resourceType {
		return nil
	}
	return []string{l.ResourceID}
}
