package neutron

// LoggingResource is a place to which the records of firewall logs go: a file of each host. It is
// networking-midonet's (services §9.1).
type LoggingResource struct {
	Standard
	Enabled bool `json:"enabled"`
}

// FirewallLog asks for records of what a firewall of FWaaS v1 decides about packets.
type FirewallLog struct {
	Standard
	LoggingResourceID string `json:"logging_resource_id"`
	FirewallID        string `json:"firewall_id"`
	Event             string `json:"fw_event"`
}

// LoggingResourceView is a logging resource with its logs, by id. What it holds is not to be
// modified.
type LoggingResourceView struct {
	*LoggingResource
	Logs []*FirewallLog
}

func loggingResourceTable() *Table[*LoggingResourceView] {
	std := func(o *LoggingResourceView) *Standard { return &o.Standard }
	cols := append([]column[*LoggingResourceView]{idColumn(std), nameColumn(std), descriptionColumn(std)}, projectColumns(std)...)
	cols = append(cols,
		row(Attribute{Name: "enabled", Create: true, Update: true, Default: false, Filter: true, Sort: true, Type: "boolean",
			Doc: "false: nothing is logged", parse: flag}, flagValue(func(o *LoggingResourceView) bool { return o.Enabled })),
		row(Attribute{Name: "firewall_logs", Computed: true, Type: "list of objects", Doc: "made and changed below the resource"},
			jsonValue(func(b []byte, o *LoggingResourceView) []byte { return appendFirewallLogs(b, o.Logs) })),
	)
	return newTable(LoggingResources, append(cols, lastColumns(std)...))
}

func appendFirewallLogs(b []byte, logs []*FirewallLog) []byte {
	b = append(b, '[')
	for i, l := range logs {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendValue(b, map[string]any{
			"id": l.ID, "tenant_id": l.ProjectID, "project_id": l.ProjectID, "description": l.Description,
			"logging_resource_id": l.LoggingResourceID, "firewall_id": l.FirewallID, "fw_event": l.Event,
		})
	}
	return append(b, ']')
}

func firewallLogTable() *Table[*FirewallLog] {
	std := func(o *FirewallLog) *Standard { return &o.Standard }
	cols := append([]column[*FirewallLog]{idColumn(std), descriptionColumn(std)}, projectColumns(std)...)
	cols = append(cols,
		row(Attribute{Name: "logging_resource_id", Filter: true, Sort: true, Type: "uuid"},
			textValue(func(o *FirewallLog) string { return o.LoggingResourceID })),
		row(Attribute{Name: "firewall_id", Create: true, Default: required{}, Filter: true, Sort: true, Type: "uuid",
			Doc: "a firewall of FWaaS v1, on at least one router", parse: uuid}, textValue(func(o *FirewallLog) string { return o.FirewallID })),
		row(Attribute{Name: "fw_event", Create: true, Update: true, Default: LogAll, Filter: true, Sort: true, Type: "string",
			Doc: "ACCEPT, DROP or ALL", parse: oneOf(LogAccept, LogDrop, LogAll)}, textValue(func(o *FirewallLog) string { return o.Event })),
	)
	return newTable(FirewallLogs, append(cols, lastColumns(std)...))
}
