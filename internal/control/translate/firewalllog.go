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

// LoggingResource translates a logging resource. It is nothing to packets until a log uses it.
func LoggingResource(r *neutron.LoggingResource, used bool) topology.Bundle {
	if !used {
		return topology.Bundle{}
	}
	return topology.Bundle{LoggingResources: []topology.LoggingResource{{ID: r.ID, Type: topology.TypeFile, Enabled: r.Enabled}}}
}
