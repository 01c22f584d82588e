package schema

import (
	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// MeteringLabels have rules.
var MeteringLabels = records.NewTable("metering-label", NeutronPrefix+"metering-labels/", func(l *neutron.MeteringLabel) string { return l.ID },
	records.Index("project", func(l *neutron.MeteringLabel) []string { return []string{l.ProjectID} }),
)

// MeteringLabelRules are deleted with their label.
var MeteringLabelRules = records.NewTable("metering-label-rule", NeutronPrefix+"metering-label-rules/", func(r *neutron.MeteringLabelRule) string { return r.ID },
	records.Ref("label", MeteringLabels, func(r *neutron.MeteringLabelRule) []string { return []string{r.LabelID} }, records.Cascade()),
	records.Index("project", func(r *neutron.MeteringLabelRule) []string { return []string{r.ProjectID} }),
)
