package translate

import (
	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// Log translates a log of security groups; nothing while it is not enabled. It names chains that
// have their ids from groups and ports, so that changes of these concern no log.
func Log(l *neutron.Log) topology.Bundle {
	if !l.Enabled {
		return topology.Bundle{}
	}
	x := topology.Logger{ID: l.ID, Accepts: l.Event != neutron.LogDrop, Drops: l.Event != neutron.LogAccept}
	if l.ResourceID != "" {
		x.GroupChainIDs = []string{egressChain(l.ResourceID), ingressChain(l.ResourceID)}
	}
	if l.TargetID != "" {
		x.ChainIDs = []string{Derive(roleChainIn, l.TargetID), Derive(roleChainOut, l.TargetID)}
	}
	if l.ResourceID == "" && l.TargetID == "" {
		x.TenantID = l.ProjectID
	}
	return topology.Bundle{Loggers: []topology.Logger{x}}
}

// LogOfFirewall translates a log of a firewall, which is a firewall log with a logging resource of
// its own.
func LogOfFirewall(l *neutron.Log, f *neutron.Firewall) topology.Bundle {
	b := FirewallLog(&neutron.FirewallLog{Standard: l.Standard, LoggingResourceID: l.ID, Event: l.Event}, f)
	b.LoggingResources = []topology.LoggingResource{{ID: l.ID, Type: topology.TypeFile, Enabled: true}}
	return b
}
