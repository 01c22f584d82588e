package topology

// TypeFile is the type of logging resources: their records are lines of files.
const TypeFile = "FILE"

// LoggingResource says where the records of RuleLoggers go (midonet-topology §3.5). Nothing is
// logged while it is not enabled.
type LoggingResource struct {
	ID      string `json:"id"`
	Type    string `json:"type"` // TypeFile
	Enabled bool   `json:"enabled"`

	LoggerIDs []string `json:"loggerIds,omitempty"` // filled by Link only
}

// Events of RuleLoggers.
const (
	LogAccept = "ACCEPT"
	LogDrop   = "DROP"
	LogAll    = "ALL"
)

// RuleLogger asks for a record of each decision of a chain of a firewall (services §9.2).
type RuleLogger struct {
	ID                string `json:"id"`
	ChainID           string `json:"chainId"`
	LoggingResourceID string `json:"loggingResourceId"`
	Event             string `json:"event"`
	// Metadata describes the chain. Link moves it there.
	Metadata []Metadata `json:"metadata,omitempty"`
}

// Asks reports whether the logger asks for a record of a packet that was let through, or not.
func (l *RuleLogger) Asks(accepted bool) bool {
	return l.Event == LogAll || l.Event == LogAccept && accepted || l.Event == LogDrop && !accepted
}

// Metadata is a property of a chain that records of its decisions have.
type Metadata struct {
	Key   string `json:"key"` // MetadataFirewall or MetadataTenant
	Value string `json:"value"`
}

// Keys of Metadata.
const (
	MetadataFirewall = "firewall_id"
	MetadataTenant   = "tenant_id"
)

// MetadataOf returns the value of a key, or "".
func MetadataOf(all []Metadata, key string) string {
	for _, m := range all {
		if m.Key == key {
			return m.Value
		}
	}
	return ""
}

// linkLoggers places the loggers whose chains are there.
func (v *View) linkLoggers(bundles []Bundle) {
	for i := range bundles {
		for _, l := range bundles[i].RuleLoggers {
			c := v.Chains[l.ChainID]
			if c == nil {
				continue
			}
			c.LoggerIDs, c.Metadata = append(c.LoggerIDs, l.ID), l.Metadata
			refer(v.LoggingResources, l.LoggingResourceID, func(r *LoggingResource) *[]string { return &r.LoggerIDs }, l.ID)
			l.Metadata = nil
			v.RuleLoggers[l.ID] = &l
		}
	}
}
