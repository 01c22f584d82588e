package monitoring

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// alertTest has an alert fire over some series and stay silent over others. Series are in the
// notation of promtool: a value each minute, such as 5+1x60 for 5 and 60 more that grow by 1.
type alertTest struct {
	alert  string
	firing []string
	silent []string
	at     string // when both are evaluated; "" = 30m
	every  string // the interval of the series; "" = 1m
	// Labels of the alert that fires, without its name, and its summary.
	labels, summary string
}

var alertTests = []alertTest{
	{alert: "HeddleProcessDown", firing: []string{`up{job="heddle", instance="s1"} 0x60`}, silent: []string{`up{job="heddle", instance="s1"} 1x60`, `up{job="other", instance="s1"} 0x60`},
		labels: "job=heddle instance=s1 severity=page", summary: "s1 does not answer."},
	{alert: "HeddleStoreAway", firing: []string{`heddle_store_answers{instance="h1"} 0x60`}, silent: []string{`heddle_store_answers{instance="h1"} 1x60`},
		labels: "instance=h1 severity=page", summary: "h1 cannot reach the store."},
	{alert: "HeddleStoreWithoutLeader", firing: []string{`etcd_server_has_leader{instance="e1"} 0x60`}, silent: []string{`etcd_server_has_leader{instance="e1"} 1x60`},
		labels: "instance=e1 severity=page", summary: "The member e1 of the store has no leader."},
	{alert: "HeddleHostDown", firing: []string{`heddle_objects{kind="host", instance="s1"} 3x60`, `heddle_objects{kind="host_alive", instance="s1"} 1x60`},
		silent: []string{`heddle_objects{kind="host", instance="s1"} 3x60`, `heddle_objects{kind="host_alive", instance="s1"} 3x60`},
		labels: "severity=page", summary: "2 hosts are down."},
	{alert: "HeddleTunnelDown",
		firing: []string{`heddle_overlay_tunnel_up{instance="h1", host="h3", address="192.0.2.13"} 0x60`, `heddle_overlay_tunnel_up{instance="h2", host="h3", address="192.0.2.13"} 0x60`,
			`heddle_overlay_tunnel_in_alive{instance="h2", host="h3", address="192.0.2.13"} 0x60`},
		silent: []string{`heddle_overlay_tunnel_up{instance="h1", host="h3", address="192.0.2.13"} 1x60`},
		labels: "host=h3 address=192.0.2.13 severity=page", summary: "2 hosts have no way to h3 (192.0.2.13)."},
	{alert: "HeddleTunnelDead", firing: []string{`heddle_overlay_tunnel_up{instance="h1", host="h4", address="192.0.2.14"} 1x60`, `heddle_overlay_tunnel_out_alive{instance="h1", host="h4", address="192.0.2.14"} 0x60`, `heddle_overlay_tunnel_in_alive{instance="h1", host="h4", address="192.0.2.14"} 1x60`},
		silent: []string{`heddle_overlay_tunnel_in_alive{instance="h1", host="h4", address="192.0.2.14"} 1x60`, `heddle_overlay_tunnel_out_alive{instance="h1", host="h4", address="192.0.2.14"} 1x60`},
		labels: "instance=h1 host=h4 address=192.0.2.14 direction=to severity=page", summary: "h1: frames to h4 (192.0.2.14) do not arrive."},
	{alert: "HeddleTunnelDead", firing: []string{`heddle_overlay_tunnel_in_alive{instance="h1", host="h5", address="192.0.2.15"} 0x60`},
		silent: []string{`heddle_overlay_tunnel_in_alive{instance="h1", host="h5", address="192.0.2.15"} 1x60`},
		labels: "instance=h1 host=h5 address=192.0.2.15 direction=from severity=page", summary: "h1: frames from h5 (192.0.2.15) do not arrive."},
	{alert: "HeddleCallsFail",
		firing: []string{`heddle_api_request_seconds_count{instance="s1", api="neutron", code="200"} 0+90x60`, `heddle_api_request_seconds_count{instance="s1", api="neutron", code="503"} 0+10x60`},
		silent: []string{`heddle_api_request_seconds_count{instance="s1", api="neutron", code="200"} 0+90x60`, `heddle_api_request_seconds_count{instance="s1", api="neutron", code="404"} 0+90x60`},
		labels: "instance=s1 api=neutron severity=page", summary: "10% of the calls to neutron at s1 fail."},
	{alert: "HeddleDropsAboveUsual", at: "27h", every: "5m",
		firing: []string{`heddle_overlay_drops_total{instance="h1", reason="too big"} 0+300x318 95400+30000x10`},
		silent: []string{`heddle_overlay_drops_total{instance="h1", reason="too big"} 0+30000x330`, `heddle_overlay_kernel_drops_total{instance="h1", reason="limit"} 0x318 0+300x10`},
		labels: "instance=h1 reason=too#big severity=ticket", summary: "h1 drops 100 frames a second, far more than usual: too big."},
	{alert: "HeddleTableNearlyFull", firing: []string{`heddle_overlay_connections{instance="h1"} 85x60`, `heddle_overlay_connections_max{instance="h1"} 100x60`},
		silent: []string{`heddle_overlay_flows{instance="h1"} 79x60`, `heddle_overlay_flows_max{instance="h1"} 100x60`, `heddle_overlay_translations{instance="h1"} 1x60`, `heddle_overlay_translations_max{instance="h1"} 100x60`},
		labels: "instance=h1 table=connections severity=ticket", summary: "The table of connections on h1 is 85% full."},
	{alert: "HeddleEvictions", firing: []string{`heddle_overlay_flows_evicted_total{instance="h1"} 0+120x60`, `heddle_overlay_connections_evicted_total{instance="h1"} 0x60`, `heddle_overlay_translations_evicted_total{instance="h1"} 0x60`},
		silent: []string{`heddle_overlay_flows_evicted_total{instance="h1"} 7x60`, `heddle_overlay_connections_evicted_total{instance="h1"} 0x60`, `heddle_overlay_translations_evicted_total{instance="h1"} 0x60`},
		labels: "instance=h1 severity=ticket", summary: "Full tables on h1 evict 2 entries a second."},
	{alert: "HeddleUpcallQueueFull", firing: []string{`heddle_overlay_kernel_drops_total{instance="h1", reason="ring full"} 0+60x60`},
		silent: []string{`heddle_overlay_kernel_drops_total{instance="h1", reason="ring full"} 5x60`, `heddle_overlay_kernel_drops_total{instance="h1", reason="forged"} 0+60x60`},
		labels: "instance=h1 severity=page", summary: "New flows come to h1 faster than its agent decides them; 1 frames a second are lost."},
	{alert: "HeddleCertificateEnds", firing: []string{`heddle_certificate_end_timestamp_seconds{instance="s1", certificate="api"} 867000x60`},
		silent: []string{`heddle_certificate_end_timestamp_seconds{instance="s1", certificate="api"} 1300000x60`, `heddle_certificate_end_timestamp_seconds{instance="h1", certificate="host"} 300000x60`},
		labels: "instance=s1 certificate=api severity=page", summary: "The certificate api of s1 ends in 10d 0h 20m 0s."},
	{alert: "HeddleCertificateEnds", firing: []string{`heddle_certificate_end_timestamp_seconds{instance="h1", certificate="host"} 88200x60`},
		silent: []string{`heddle_certificate_end_timestamp_seconds{instance="h2", certificate="host"} 180000x60`},
		labels: "instance=h1 certificate=host severity=page", summary: "The certificate host of h1 ends in 1d 0h 0m 0s."},
	{alert: "HeddleAuthorityEnds", firing: []string{`heddle_certificate_end_timestamp_seconds{instance="s1", certificate="hosts-authority"} 8643000x60`},
		silent: []string{`heddle_certificate_end_timestamp_seconds{instance="s1", certificate="hosts-authority"} 15600000x60`, `heddle_certificate_end_timestamp_seconds{instance="s1", certificate="api"} 8643000x60`},
		labels: "instance=s1 certificate=hosts-authority severity=ticket", summary: "The authority hosts-authority of s1 ends in 100d 0h 20m 0s, and all that it has signed."},
	{alert: "HeddleBackupOld", at: "40h", every: "10m", firing: []string{`heddle_backup_last_made_timestamp_seconds{instance="s1"} 3600x240`},
		silent: []string{`heddle_backup_last_made_timestamp_seconds{instance="s1"} 60000x240`},
		labels: "instance=s1 severity=ticket", summary: "The store of s1 has no backup of the last 26 hours."},
	{alert: "HeddleBackupUnverified", at: "40d", every: "2h",
		firing: []string{`heddle_backup_last_verified_timestamp_seconds{instance="s1"} 0x500`, `heddle_backup_last_made_timestamp_seconds{instance="s1"} 3000000x500`},
		silent: []string{`heddle_backup_last_verified_timestamp_seconds{instance="s1"} 3000000x500`, `heddle_backup_last_made_timestamp_seconds{instance="s1"} 3000000x500`, `heddle_backup_last_verified_timestamp_seconds{instance="s2"} 0x500`, `heddle_backup_last_made_timestamp_seconds{instance="s2"} 0x500`},
		labels: "instance=s1 severity=ticket", summary: "No backup of the store of s1 was verified in five weeks."},
	{alert: "HeddleStoreFillsUp", firing: []string{`heddle_store_bytes{instance="s1", member="e1"} 75x60`, `heddle_store_quota_bytes{instance="s1", member="e1"} 100x60`},
		silent: []string{`heddle_store_bytes{instance="s1", member="e1"} 69x60`, `heddle_store_quota_bytes{instance="s1", member="e1"} 100x60`},
		labels: "instance=s1 member=e1 severity=ticket", summary: "The database of e1 has 75% of its quota."},
	{alert: "HeddleStoreFull", firing: []string{`heddle_store_alarm{instance="s1", member="e1"} 1x60`}, silent: []string{`heddle_store_alarm{instance="s1", member="e1"} 0x60`},
		labels: "instance=s1 member=e1 severity=page", summary: "The store (e1) refuses all writes for lack of space."},
	{alert: "HeddleDiskFillsUp", firing: []string{`heddle_data_disk_free_bytes{instance="s1"} 524288000x60`}, silent: []string{`heddle_data_disk_free_bytes{instance="s1"} 2e9x60`},
		labels: "instance=s1 severity=page", summary: "The disk of the data directory of s1 has 500MiB left."},
	{alert: "HeddleServerBehind", firing: []string{`heddle_replica_age_seconds{instance="s1"} 60x60`}, silent: []string{`heddle_replica_age_seconds{instance="s1"} 6x60`},
		labels: "instance=s1 severity=page", summary: "s1 answers from what the store had 1m 0s ago."},
	{alert: "HeddleAgentBehind", firing: []string{`heddle_overlay_store_followed{instance="h1"} 0x60`}, silent: []string{`heddle_overlay_store_followed{instance="h1"} 1x60`},
		labels: "instance=h1 severity=page", summary: "h1 hears of no changes."},
	{alert: "HeddleClocksApart", firing: []string{`heddle_time_seconds{instance="h1"} 5+60x60`}, silent: []string{`heddle_time_seconds{instance="h1"} 1+60x60`},
		labels: "instance=h1 severity=ticket", summary: "The clock of h1 is 5s off that of Prometheus."},
	{alert: "HeddleVersionsMixed", at: "200h", every: "1h",
		firing: []string{`heddle_build_info{instance="s1", version="v0.1.0"} 1x200`, `heddle_build_info{instance="h1", version="v0.2.0"} 1x200`},
		silent: []string{`heddle_build_info{instance="s1", version="v0.1.0"} 1x200`, `heddle_build_info{instance="h1", version="v0.1.0"} 1x200`},
		labels: "severity=ticket", summary: "2 versions of Heddle run side by side for a week."},
	{alert: "HeddleRestarts", firing: []string{`process_start_time_seconds{job="heddle", instance="h1"} 0+60x60`}, silent: []string{`process_start_time_seconds{job="heddle", instance="h1"} 5x60`, `process_start_time_seconds{job="other", instance="h1"} 0+60x60`},
		labels: "job=heddle instance=h1 severity=ticket", summary: "h1 was started 30 times in an hour."},
	{alert: "HeddleHangs", firing: []string{`heddle_hung_parts{instance="h1"} 2x60`}, silent: []string{`heddle_hung_parts{instance="h1"} 0x60`},
		labels: "instance=h1 severity=page", summary: "2 parts of h1 hang."},
	{alert: "HeddleHostCutOff", firing: []string{`heddle_host_cut_off{instance="s1", host="x"} 1x60`, `heddle_host_cut_off{instance="s2", host="x"} 1x60`}, silent: []string{`heddle_objects{kind="host"} 1x60`},
		labels: "host=x severity=page", summary: "The host x was cut off."},
	{alert: "HeddleAgentDisplaced", firing: []string{`heddle_overlay_displaced{instance="h1"} 1x60`}, silent: []string{`heddle_overlay_displaced{instance="h1"} 0x60`},
		labels: "instance=h1 severity=page", summary: "Another agent has the place of h1 in the store."},
	{alert: "HeddlePortsFail", firing: []string{`heddle_overlay_ports_failing{instance="h1"} 2x60`}, silent: []string{`heddle_overlay_ports_failing{instance="h1"} 0x60`},
		labels: "instance=h1 severity=ticket", summary: "2 ports on h1 cannot be attached to their interfaces."},
	{alert: "HeddlePhysicalNetworkAway", firing: []string{`heddle_overlay_physical_network_carried{instance="h1", network="physnet1"} 0x60`}, silent: []string{`heddle_overlay_physical_network_carried{instance="h1", network="physnet1"} 1x60`},
		labels: "instance=h1 network=physnet1 severity=page", summary: "h1 does not carry the physical network physnet1."},
	{alert: "HeddlePhysicalNetworkAway", firing: []string{`heddle_physical_network_carriers{instance="s1", network="physnet2"} 0x60`, `heddle_physical_network_carriers{instance="s2", network="physnet2"} 0x60`},
		silent: []string{`heddle_physical_network_carriers{instance="s1", network="physnet2"} 1x60`, `heddle_physical_network_carriers{instance="s2", network="physnet2"} 0x60`},
		labels: "network=physnet2 severity=page", summary: "No live host carries the physical network physnet2."},
	{alert: "HeddleLoginsRefused",
		firing: []string{`heddle_logins_refused_total{instance="s1", api="identity", reason="wrong password"} 0+9x60`, `heddle_logins_refused_total{instance="s1", api="identity", reason="too many attempts"} 0+6x60`},
		silent: []string{`heddle_logins_refused_total{instance="s1", api="identity", reason="wrong password"} 0+5x60`, `heddle_logins_refused_total{instance="s1", api="hosts", reason="bad token"} 0+5x60`},
		labels: "instance=s1 api=identity severity=ticket", summary: "s1 refuses 250m log-ins or joins a second at identity."},
	{alert: "HeddleSeriesLeftOut", at: "90m", firing: []string{`heddle_series_left_out{instance="h1", metric="heddle_metering_bytes_total"} 4x120`}, silent: []string{`heddle_overlay_ports_wanted{instance="h1"} 4x120`},
		labels: "instance=h1 metric=heddle_metering_bytes_total severity=ticket", summary: "h1 leaves 4 series of heddle_metering_bytes_total out."},
}

// rule is an alert of heddle.rules.yml.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// rules returns the alerts of the file.
func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(Rules, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("no rules")
	}
	return all
}

// TestAlerts has promtool check the rules, and each fire and stay silent over the series of
// alertTests.
func TestAlerts(t *testing.T) {
	t.Parallel()
	type input struct {
		Series string `json:"series"`
		Values string `json:"values"`
	}
	type expected struct {
		Labels      map[string]string `json:"exp_labels"`
		Annotations map[string]string `json:"exp_annotations"`
	}
	type evaluation struct {
		At     string     `json:"eval_time"`
		Alert  string     `json:"alertname"`
		Alerts []expected `json:"exp_alerts"`
	}
	type group struct {
		Interval string       `json:"interval"`
		Input    []input      `json:"input_series"`
		Tests    []evaluation `json:"alert_rule_test"`
	}
	// All that fires is one group of an interval, and all that stays silent another: promtool makes
	// a database for each.
	type half struct {
		every  string
		silent bool
	}
	groups := map[half]*group{}
	expect := func(h half, c alertTest, series []string, alerts ...expected) {
		g := groups[h]
		if g == nil {
			g = &group{Interval: h.every}
			groups[h] = g
		}
		for _, s := range series {
			end := strings.LastIndex(s, "} ") + 1
			g.Input = append(g.Input, input{s[:end], s[end+1:]})
		}
		i := slices.IndexFunc(g.Tests, func(e evaluation) bool { return e.Alert == c.alert })
		if i < 0 {
			i = len(g.Tests)
			g.Tests = append(g.Tests, evaluation{At: cmp.Or(c.at, "30m"), Alert: c.alert})
		}
		g.Tests[i].Alerts = append(g.Tests[i].Alerts, alerts...)
	}
	for _, c := range alertTests {
		labels := map[string]string{}
		for _, label := range strings.Fields(c.labels) {
			name, value, _ := strings.Cut(label, "=")
			labels[name] = strings.ReplaceAll(value, "#", " ")
		}
		every := cmp.Or(c.every, "1m")
		expect(half{every, false}, c, c.firing, expected{labels, map[string]string{"summary": c.summary, "runbook_url": runbook(c.alert)}})
		expect(half{every, true}, c, c.silent)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "heddle.rules.yml")
	if err := os.WriteFile(file, Rules, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
	for h, g := range groups {
		text, err := json.Marshal(map[string]any{"rule_files": []string{file}, "evaluation_interval": h.every, "tests": []*group{g}})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, fmt.Sprintf("%s-silent-%v.yml", h.every, h.silent))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		promtool(t, "test", "rules", file)
	}
}

// promtool has promtool check something.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// runbook returns the address of an alert's runbook, as packages install it.
func runbook(alert string) string {
	return "file:///usr/share/doc/heddle/docs/runbooks/" + alert + ".md"
}

// TestEachAlertIsWhole: each alert has a test, a severity and a runbook with its three parts, and
// there is no runbook without an alert.
func TestEachAlertIsWhole(t *testing.T) {
	t.Parallel()
	books, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var alerts []string
	for _, r := range rules(t) {
		alerts = append(alerts, r.Alert)
		if !slices.ContainsFunc(alertTests, func(c alertTest) bool { return c.alert == r.Alert }) {
			t.Errorf("%s: no test in alertTests", r.Alert)
		}
		if s := r.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		if got := r.Annotations["runbook_url"]; got != runbook(r.Alert) {
			t.Errorf("%s: runbook_url %s, want %s", r.Alert, got, runbook(r.Alert))
		}
	}
	for _, book := range books {
		text, err := os.ReadFile(book)
		if err != nil {
			t.Fatal(err)
		}
		alert := strings.TrimSuffix(filepath.Base(book), ".md")
		if !slices.Contains(alerts, alert) {
			t.Errorf("%s: there is no such alert", book)
		}
		if !regexp.MustCompile(`(?s)^# ` + alert + `\n\n## Meaning\n\n\S.*\n\n## Check\n\n.*\S.*\n\n## Mend\n\n.*\S`).Match(text) {
			t.Errorf("%s: want the parts Meaning, Check and Mend", book)
		}
		alerts = slices.DeleteFunc(alerts, func(a string) bool { return a == alert })
	}
	if len(alerts) > 0 {
		t.Errorf("alerts without a runbook in docs/runbooks: %s", strings.Join(alerts, ", "))
	}
}

// listed returns the metrics of docs/metrics.md, with their types and labels.
func listed(t *testing.T) (kinds map[string]string, labels map[string][]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds, labels = map[string]string{}, map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(heddle_\\w+)` \\| (\\w+) \\| ([\\w, ]*) \\|").FindAllStringSubmatch(string(text), -1) {
		kinds[m[1]], labels[m[1]] = m[2], strings.Split(m[3], ", ")
	}
	if len(kinds) < 100 {
		t.Fatalf("%d metrics in docs/metrics.md", len(kinds))
	}
	return kinds, labels
}

// ofMetric finds the metrics of Heddle in an expression, each with its selector and what follows.
var ofMetric = regexp.MustCompile(`\b(heddle_[a-z0-9_]*[a-z0-9])\b(\{[^}]*\})?(\[)?`)

// selected finds the labels of a selector.
var selected = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)

// TestExpressionsUseListedMetrics: alerts, dashboards and runbooks name metrics that there are, by
// labels that these have; counters only as rates, and gauges never so.
func TestExpressionsUseListedMetrics(t *testing.T) {
	t.Parallel()
	kinds, labels := listed(t)
	check := func(where, expr string, typed bool) {
		t.Helper()
		for _, m := range ofMetric.FindAllStringSubmatch(expr, -1) {
			name := m[1]
			kind := kinds[name]
			if base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, ""); kind == "" && kinds[base] == "histogram" {
				name, kind = base, "counter"
			}
			if kind == "" {
				t.Errorf("%s: %s is not in docs/metrics.md", where, m[1])
				continue
			}
			if ranged := m[3] != ""; typed && ranged != (kind == "counter") {
				t.Errorf("%s: %s is a %s; with a range: %v", where, m[1], kind, ranged)
			}
			for _, label := range selected.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(append(labels[name], "instance", "job", "le"), label[1]) {
					t.Errorf("%s: %s has no label %s", where, m[1], label[1])
				}
			}
		}
	}
	for _, r := range rules(t) {
		check(r.Alert, r.Expr, true)
	}
	for _, d := range Dashboards() {
		for _, expr := range d.Expressions() {
			check(d.Title, expr, true)
		}
	}
	for _, pattern := range []string{"../../docs/runbooks/*.md", "../../docs/guides/*.md"} {
		pages, err := filepath.Glob(pattern)
		if err != nil || len(pages) == 0 {
			t.Fatal(pages, err)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, code := range regexp.MustCompile("`[^`\n]*`").FindAllString(string(text), -1) {
				if !strings.Contains(code, "grep") {
					check(page, code, false)
				}
			}
		}
	}
}

// TestWrite: what is written is the rules and a dashboard a file, as Grafana imports it: with an
// address, unique panels, and each query over the chosen data source.
func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := Write(dir); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(dir, "prometheus", "heddle.rules.yml"))
	if err != nil || string(written) != string(Rules) {
		t.Errorf("rules: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "grafana", "*.json"))
	if err != nil || len(files) != len(Dashboards()) {
		t.Fatalf("%q, %v", files, err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			UID    string
			Panels []struct {
				ID         int
				Title      string
				Datasource struct{ UID string }
				Targets    []struct{ Expr, LegendFormat string }
			}
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		if seen[d.UID] || d.UID != "heddle-"+strings.TrimSuffix(filepath.Base(file), ".json") || len(d.Panels) < 4 {
			t.Errorf("%s: uid %q, %d panels", file, d.UID, len(d.Panels))
		}
		seen[d.UID] = true
		for _, p := range d.Panels {
			if key := fmt.Sprint(d.UID, p.ID); seen[key] || p.Title == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
				t.Errorf("%s: panel %+v", file, p)
			} else {
				seen[key] = true
			}
			for _, q := range p.Targets {
				if q.Expr == "" || q.LegendFormat == "" {
					t.Errorf("%s: %s: query %+v", file, p.Title, q)
				}
			}
		}
	}
}
