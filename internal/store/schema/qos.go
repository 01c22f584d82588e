package schema

import (
	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// QoSPolicies hold their rules. A project has one default policy.
var QoSPolicies = records.NewTable("qos-policy", NeutronPrefix+"qos-policies/", func(p *neutron.QoSPolicy) string { return p.ID },
	records.Unique("default", func(p *neutron.QoSPolicy) []string {
		if !p.Default {
			return nil
		}
		return []string{p.ProjectID}
	}),
	records.Index("rule", func(p *neutron.QoSPolicy) []string {
		ids := make([]string, len(p.Rules))
		for i := range p.Rules {
			ids[i] = p.Rules[i].ID
		}
		return ids
	}),
	records.Index("project", func(p *neutron.QoSPolicy) []string { return []string{p.ProjectID} }),
	records.Index("name", func(p *neutron.QoSPolicy) []string { return []string{p.Name} }),
)
