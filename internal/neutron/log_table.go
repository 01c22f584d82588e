package neutron

// Log asks for records of what security groups or a firewall decide about packets (services §9.1).
type Log struct {
	Standard
	ResourceType string `json:"resource_type"`         // LogSecurityGroup or LogFirewall
	ResourceID   string `json:"resource_id,omitempty"` // of a security group, "" = of all; of a firewall
	TargetID     string `json:"target_id,omitempty"`   // of a port; "" = all
	Event        string `json:"event"`
	Enabled      bool   `json:"enabled"`
}

// LoggableResource is a type of resources that logs are made for.
type LoggableResource struct {
	Type string
}

// Types of the resources that logs are made for.
const (
	LogSecurityGroup = "security_group"
	LogFirewall      = "firewall"
)

// Events of logs.
const (
	LogAccept = "ACCEPT"
	LogDrop   = "DROP"
	LogAll    = "ALL"
)

// LoggableResourceTypes returns the types of resources that logs are made for, in order.
func LoggableResourceTypes() []LoggableResource {
	return []LoggableResource{{LogFirewall}, {LogSecurityGroup}}
}

func logTable() *Table[*Log] {
	std := func(o *Log) *Standard { return &o.Standard }
	cols := append([]column[*Log]{idColumn(std), nameColumn(std), descriptionColumn(std)}, projectColumns(std)...)
	cols = append(cols,
		row(Attribute{Name: "resource_type", Create: true, Default: required{}, Filter: true, Sort: true, Type: "string",
			Doc: "security_group or firewall", parse: text(maxName)}, textValue(func(o *Log) string { return o.ResourceType })),
		row(Attribute{Name: "resource_id", Create: true, Filter: true, Sort: true, Type: "uuid",
			Doc: "of a security group or a firewall: log what it decides", parse: orNull(uuid)}, textOrNullValue(func(o *Log) string { return o.ResourceID })),
		row(Attribute{Name: "target_id", Create: true, Filter: true, Sort: true, Type: "uuid",
			Doc: "of a port: log what is decided there; without it and a group, on all ports of the project", parse: orNull(uuid)},
			textOrNullValue(func(o *Log) string { return o.TargetID })),
		row(Attribute{Name: "event", Create: true, Default: LogAll, Filter: true, Type: "string",
			Doc: "ACCEPT, DROP or ALL", parse: oneOf(LogAccept, LogDrop, LogAll)}, textValue(func(o *Log) string { return o.Event })),
		row(Attribute{Name: "enabled", Create: true, Update: true, Default: true, Filter: true, Sort: true, Type: "boolean",
			Doc: "false: nothing is logged", parse: flag}, flagValue(func(o *Log) bool { return o.Enabled })),
	)
	return newTable(Logs, append(cols, lastColumns(std)...))
}

func loggableResourceTable() *Table[*LoggableResource] {
	name := textValue(func(o *LoggableResource) string { return o.Type })
	return newTable(LoggableResources, []column[*LoggableResource]{
		row(Attribute{Name: "id", Sort: true, Hidden: true, Type: "string", Doc: "orders lists"}, name),
		row(Attribute{Name: "type", Type: "string"}, name),
	})
}
