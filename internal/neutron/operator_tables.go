package neutron

import (
	"math"
	"slices"
	"strconv"
	"time"
)

func agentTable() *Table[*AgentView] {
	at := func(name string, get func(o *AgentView) time.Time) column[*AgentView] {
		return row(Attribute{Name: name, Type: "time", Doc: "UTC"}, jsonValue(func(b []byte, o *AgentView) []byte {
			return appendString(b, get(o).UTC().Format(time.DateTime))
		}))
	}
	return newTable(Agents, []column[*AgentView]{
		row(Attribute{Name: "id", Filter: true, Sort: true, Type: "uuid"}, textValue(func(o *AgentView) string { return o.ID })),
		row(Attribute{Name: "agent_type", Filter: true, Sort: true, Type: "string"}, textValue(func(o *AgentView) string { return o.AgentType })),
		row(Attribute{Name: "binary", Filter: true, Sort: true, Type: "string"}, textValue(func(o *AgentView) string { return o.Binary })),
		row(Attribute{Name: "topic", Filter: true, Sort: true, Type: "string"}, textValue(func(o *AgentView) string { return o.Topic })),
		row(Attribute{Name: "host", Filter: true, Sort: true, Type: "string"}, textValue(func(o *AgentView) string { return o.Host })),
		row(Attribute{Name: "admin_state_up", Update: true, UpdateBy: AdminOnly, Filter: true, Sort: true, Type: "boolean", parse: flag},
			flagValue(func(o *AgentView) bool { return o.AdminStateUp })),
		at("created_at", func(o *AgentView) time.Time { return o.CreatedAt }),
		at("started_at", func(o *AgentView) time.Time { return o.StartedAt }),
		at("heartbeat_timestamp", func(o *AgentView) time.Time { return o.HeartbeatAt }),
		row(Attribute{Name: "alive", Filter: true, Sort: true, Type: "boolean", Doc: "the host holds its lease"},
			flagValue(func(o *AgentView) bool { return o.Alive })),
		row(Attribute{Name: "configurations", Type: "object"},
			jsonValue(func(b []byte, o *AgentView) []byte { return appendValue(b, o.Configurations) })),
		row(Attribute{Name: "description", Update: true, UpdateBy: AdminOnly, Filter: true, Sort: true, Type: "string",
			parse: orNull(text(maxDescription))}, textOrNullValue(func(o *AgentView) string { return o.Description })),
		row(Attribute{Name: "availability_zone", Filter: true, Sort: true, Type: "string"},
			textOrNullValue(func(o *AgentView) string { return o.AvailabilityZone })),
		row(Attribute{Name: "resources_synced", Type: "boolean"}, jsonValue(func(b []byte, o *AgentView) []byte {
			if o.ResourcesSynced == nil {
				return append(b, "null"...)
			}
			return strconv.AppendBool(b, *o.ResourcesSynced)
		})),
	})
}

// QuotaNames returns the quotas that every project has, sorted; those of resources still to come
// can be set and are answered, because clients set them all at once.
func QuotaNames() []string {
	return []string{"floatingip", "l2-gateway-connection", "network", "port", "rbac_policy", "router", "security_group",
		"security_group_rule", "subnet", "subnetpool", "trunk"}
}

// UnlistedQuotaNames returns the quotas that can be set too, and are answered once a project has a
// limit of its own: the reference does not have these resources.
func UnlistedQuotaNames() []string {
	return []string{"address_group", "address_scope", "firewall", "firewall_group", "firewall_log", "firewall_policy", "firewall_rule"}
}

// quotaAttributes returns the rows of a quota: one limit each.
func quotaAttributes() []*Attribute {
	var rows []*Attribute
	for _, name := range slices.Concat(QuotaNames(), UnlistedQuotaNames()) {
		rows = append(rows, &Attribute{Name: name, Update: true, UpdateBy: AdminOnly, Default: unset{}, Type: "integer",
			Doc: "-1 = no limit", parse: between(-1, math.MaxInt32)})
	}
	return rows
}
