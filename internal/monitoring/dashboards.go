package monitoring

import (
	"fmt"
	"strings"
)

// Dashboard is a dashboard of Grafana over Heddle's metrics.
type Dashboard struct {
	Title  string
	name   string // of its file and in its address
	panels []panel
}

// Expressions returns the expressions of all panels, with the variables that Grafana replaces.
func (d Dashboard) Expressions() []string {
	var all []string
	for _, p := range d.panels {
		for _, q := range p.queries {
			all = append(all, q.expr)
		}
	}
	return all
}

// panel is a graph over time.
type panel struct {
	title   string
	unit    unit
	queries []query
}

// query is an expression of Prometheus, and how Grafana calls each of its series.
type query struct{ expr, legend string }

// unit is a unit as Grafana calls it.
type unit string

const (
	number         unit = "short"
	perSecond      unit = "cps"
	packets        unit = "pps"
	bytes          unit = "bytes"
	bytesPerSecond unit = "Bps"
	seconds        unit = "s"
	share          unit = "percentunit"
	onOff          unit = "bool_on_off"
)

// The variables of a dashboard: the chosen processes, and a time that has several scrapes in it.
const (
	chosen   = `{instance=~"$instance"}`
	interval = "[$__rate_interval]"
)

// value returns a query of a gauge.
func value(metric string, labels ...string) query {
	return query{metric + chosen, legend(metric, labels)}
}

// rate returns a query of the growth of a counter in a second, by labels.
func rate(metric string, labels ...string) query {
	by := strings.Join(append([]string{"instance"}, labels...), ", ")
	return query{fmt.Sprintf("sum by (%s) (rate(%s%s%s))", by, metric, chosen, interval), legend(metric, labels)}
}

// ratio returns a query of how much of a gauge another is.
func ratio(part, whole string, labels ...string) query {
	return query{part + chosen + " / " + whole + chosen, legend(part, labels)}
}

// since returns a query of the time since the one that a gauge has.
func since(metric string) query { return query{"time() - " + metric + chosen, "{{instance}}"} }

// until returns a query of the time until the one that a gauge has.
func until(metric string, labels ...string) query {
	return query{metric + chosen + " - time()", legend(metric, labels)}
}

// legend returns the name of a series: its metric without what all share, its process and labels.
func legend(metric string, labels []string) string {
	name := strings.TrimSuffix(strings.TrimPrefix(metric, "heddle_"), "_total")
	for _, label := range labels {
		name += " {{" + label + "}}"
	}
	return "{{instance}} " + strings.ReplaceAll(name, "_", " ")
}

// quantile returns a query of the time within which a share of API requests is answered.
func quantile(q float64) query {
	return query{fmt.Sprintf("histogram_quantile(%g, sum by (api, le) (rate(heddle_api_request_seconds_bucket%s%s)))", q, chosen, interval), fmt.Sprintf("{{api}} p%g", q*100)}
}

// Dashboards returns all dashboards.
func Dashboards() []Dashboard {
	return []Dashboard{overview(), host(), apis(), store(), policy(), dhcp(), pool()}
}

func overview() Dashboard {
	return Dashboard{"Heddle: overview", "overview", []panel{
		{"Processes that answer", onOff, []query{{`up * on (instance, job) group_left () heddle_build_info` + chosen + ` or up{job=~"heddle.*"} == 0`, "{{instance}}"}}},
		{"Versions", number, []query{{"count by (version) (heddle_build_info" + chosen + ")", "{{version}}"}}},
		{"Hosts", number, []query{
			{`max(heddle_objects{kind="host"})`, "hosts"}, {`max(heddle_objects{kind="host_alive"})`, "alive"}}},
		{"Objects", number, []query{{`max by (kind) (heddle_objects{kind!~"host.*"})`, "{{kind}}"}}},
		{"API requests", perSecond, []query{{"sum by (api, code) (rate(heddle_api_request_seconds_count" + chosen + interval + "))", "{{api}} {{code}}"}}},
		{"Ports that fail on their host", number, []query{value("heddle_overlay_ports_failing")}},
		{"Store answers", onOff, []query{value("heddle_store_answers")}},
		{"Clocks, against Prometheus'", seconds, []query{{"heddle_time_seconds" + chosen + " - timestamp(heddle_time_seconds" + chosen + ")", "{{instance}}"}}},
		{"Memory", bytes, []query{{"process_resident_memory_bytes" + chosen + " and on (instance, job) heddle_build_info", "{{instance}}"}}},
		{"Processors in use", number, []query{{"rate(process_cpu_seconds_total" + chosen + interval + ") and on (instance, job) heddle_build_info", "{{instance}}"}}},
	}}
}

func host() Dashboard {
	return Dashboard{"Heddle: host", "host", []panel{
		{"Ports", number, []query{value("heddle_overlay_ports_wanted"), value("heddle_overlay_ports_attached"), value("heddle_overlay_ports_failing")}},
		{"Tables, share in use", share, []query{
			ratio("heddle_overlay_flows", "heddle_overlay_flows_max"),
			ratio("heddle_overlay_connections", "heddle_overlay_connections_max"),
			ratio("heddle_overlay_translations", "heddle_overlay_translations_max")}},
		{"Evictions", perSecond, []query{
			rate("heddle_overlay_flows_evicted_total"), rate("heddle_overlay_connections_evicted_total"), rate("heddle_overlay_translations_evicted_total")}},
		{"Flows", perSecond, []query{
			rate("heddle_overlay_flows_installed_total"), rate("heddle_overlay_flows_expired_total"), rate("heddle_overlay_flows_refused_total")}},
		{"Frames that the kernel gave to the agent", packets, []query{rate("heddle_overlay_upcalls_total", "reason")}},
		{"Simulated packets", packets, []query{rate("heddle_overlay_decisions_total", "verdict")}},
		{"Dropped by decision", packets, []query{rate("heddle_dropped_packets_total", "code")}},
		{"Dropped by the agent", packets, []query{rate("heddle_overlay_drops_total", "reason")}},
		{"Dropped by the kernel", packets, []query{rate("heddle_overlay_kernel_drops_total", "reason")}},
		{"Tunnels to other hosts", number, []query{value("heddle_overlay_tunnels"), value("heddle_overlay_hosts_without_secret")}},
		{"Sent to other hosts", bytesPerSecond, []query{rate("heddle_overlay_tunnel_out_bytes_total", "host")}},
		{"Received from other hosts", bytesPerSecond, []query{rate("heddle_overlay_tunnel_in_bytes_total", "host")}},
		{"Packets to other hosts", packets, []query{rate("heddle_overlay_tunnel_out_packets_total", "host")}},
		{"Packets from other hosts", packets, []query{rate("heddle_overlay_tunnel_in_packets_total", "host")}},
		{"Frames arrive from other hosts", onOff, []query{value("heddle_overlay_tunnel_in_alive", "host", "address")}},
		{"Frames arrive at other hosts", onOff, []query{value("heddle_overlay_tunnel_out_alive", "host", "address")}},
		{"Hellos lost, of 32", number, []query{value("heddle_overlay_tunnel_in_lost", "host", "address")}},
		{"Ways to other hosts", onOff, []query{value("heddle_overlay_tunnel_up", "host", "address")}},
		{"Frames from other hosts", packets, []query{rate("heddle_overlay_kernel_tunnelled_in_total")}},
		{"NAT ports", number, []query{value("heddle_overlay_nat_blocks"), rate("heddle_overlay_nat_exhausted_total"), rate("heddle_overlay_nat_share_used_total")}},
		{"Follows the store", onOff, []query{value("heddle_overlay_store_followed"), value("heddle_overlay_displaced")}},
	}}
}

func apis() Dashboard {
	return Dashboard{"Heddle: API", "api", []panel{
		{"Requests", perSecond, []query{{"sum by (api, method) (rate(heddle_api_request_seconds_count" + chosen + interval + "))", "{{api}} {{method}}"}}},
		{"Answers", perSecond, []query{{"sum by (api, code) (rate(heddle_api_request_seconds_count" + chosen + interval + "))", "{{api}} {{code}}"}}},
		{"Time to answer", seconds, []query{quantile(0.5), quantile(0.99)}},
		{"Log-ins and joins refused", perSecond, []query{rate("heddle_logins_refused_total", "api", "reason")}},
		{"Time spent on answers", seconds, []query{{"sum by (api) (rate(heddle_api_request_seconds_sum" + chosen + interval + "))", "{{api}}"}}},
	}}
}

func store() Dashboard {
	return Dashboard{"Heddle: store", "store", []panel{
		{"Database", bytes, []query{value("heddle_store_bytes", "member"), value("heddle_store_bytes_in_use", "member"), value("heddle_store_quota_bytes", "member")}},
		{"Share of the quota", share, []query{ratio("heddle_store_bytes", "heddle_store_quota_bytes", "member")}},
		{"Store answers", onOff, []query{value("heddle_store_answers"), value("heddle_store_alarm", "member")}},
		{"Age of what servers have read", seconds, []query{value("heddle_replica_age_seconds")}},
		{"Revision", number, []query{value("heddle_replica_revision"), value("heddle_overlay_store_revision")}},
		{"Free on the data directory's disk", bytes, []query{value("heddle_data_disk_free_bytes")}},
		{"Age of the last backup", seconds, []query{since("heddle_backup_last_made_timestamp_seconds")}},
		{"Age of the last verified backup", seconds, []query{since("heddle_backup_last_verified_timestamp_seconds")}},
		{"Age of the last drill", seconds, []query{since("heddle_backup_last_drill_timestamp_seconds")}},
		{"Certificates end in", seconds, []query{until("heddle_certificate_end_timestamp_seconds", "certificate")}},
	}}
}

func policy() Dashboard {
	return Dashboard{"Heddle: policy", "policy", []panel{
		{"Endpoints of the host", number, []query{value("heddle_policy_workloads"), value("heddle_policy_host_endpoints"), value("heddle_policy_refused_endpoints")}},
		{"Interfaces", number, []query{value("heddle_policy_interfaces_wired"), value("heddle_policy_interfaces_failing")}},
		{"Refused packets", packets, []query{rate("heddle_policy_refused_packets_total", "reason")}},
		{"Commits to nftables", perSecond, []query{rate("heddle_policy_commits_total"), rate("heddle_policy_failed_commits_total"), rate("heddle_policy_mended_total")}},
		{"Time of the last commit", seconds, []query{value("heddle_policy_last_commit_seconds")}},
		{"Objects not honoured", number, []query{value("heddle_policy_unreadable_objects"), value("heddle_policy_hidden_legacy_objects")}},
		{"Waits", onOff, []query{value("heddle_policy_waiting")}},
		{"Passes", perSecond, []query{rate("heddle_policy_passes_total")}},
	}}
}

func dhcp() Dashboard {
	return Dashboard{"Heddle: DHCP", "dhcp", []panel{
		{"Endpoints", number, []query{value("heddle_dhcp_endpoints"), value("heddle_dhcp_endpoints_waiting")}},
		{"Serves", onOff, []query{value("heddle_dhcp_serving"), value("heddle_dhcp_dns_serving")}},
		{"Objects not honoured", number, []query{value("heddle_dhcp_problems")}},
		{"Starts of dnsmasq", perSecond, []query{rate("heddle_dhcp_starts_total")}},
	}}
}

func pool() Dashboard {
	return Dashboard{"Heddle: private networks of a pool", "pool", []panel{
		{"Controllers that lead", number, []query{{"sum(heddle_tunnel_leader)", "leaders"}}},
		{"Hosts", number, []query{value("heddle_tunnel_hosts"), value("heddle_tunnel_hosts_known")}},
		{"Legs of networks", number, []query{value("heddle_tunnel_legs"), value("heddle_tunnel_legs_in_place")}},
		{"Networks", number, []query{value("heddle_tunnel_networks")}},
		{"Networks by center", number, []query{value("heddle_tunnel_centers", "host")}},
		{"Centers moved", perSecond, []query{rate("heddle_tunnel_center_moves_total")}},
		{"Work on hosts' databases", perSecond, []query{rate("heddle_tunnel_transactions_total"), rate("heddle_tunnel_database_connections_total")}},
		{"Failures of the XenAPI", perSecond, []query{rate("heddle_tunnel_xapi_failures_total")}},
	}}
}
