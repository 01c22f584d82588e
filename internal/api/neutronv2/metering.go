package neutronv2

import "heddle/internal/neutron"

// metering is the part of metering labels, which rests on that of routers.
func metering() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			register(on, &collection[*neutron.MeteringLabel]{h, h.tables.MeteringLabels, h.ops.MeteringLabels()})
			register(on, &collection[*neutron.MeteringLabelRule]{h, h.tables.MeteringLabelRules, h.ops.MeteringLabelRules()})
		},
		extensions: []extension{
			{"metering", "Neutron Metering", "2013-06-12T10:00:00-00:00", "Neutron Metering extension."},
			{"metering_source_and_destination_fields", "Neutron Metering with source and destination filtering", "2020-08-21T08:12:00-00:00",
				"Neutron Metering extension that enables the use of source and destination IP prefixes to create metering label rules."},
		},
	}
}
