package translate

import (
	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// FirewallLog translates a log of a firewall (§21). Its logger names the firewall's chain, which
// has its id from the firewall, so that changes of that concern no log.
func FirewallLog(l *neutron.FirewallLog, f *neutron.Firewall) topology.Bundle {
	return topology.Bundle{RuleLoggers: []topology.RuleLogger{{
		ID: l.ID, ChainID: Derive(roleChainForward, f.ID), LoggingResourceID: l.LoggingResourceID, Event: l.Event,
		Metadata: []topology.Metadata{
			{Key: topology.MetadataFirewall, Value: f.ID},
			{Key: topology.MetadataTenant, Value: f.ProjectID},
		},
	}}}
}

// LoggingResource translates a logging resource that a log uses. Without logs it is nothing to
// packets.
func LoggingResource(r *neutron.LoggingResource) topology.Bundle {
	return topology.Bundle{LoggingResources: []topology.LoggingResource{{ID: r.ID, Type: topology.TypeFile, Enabled: r.Enabled}}}
}
