package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/monitoring"
	"heddle/internal/netlab"
)

// promServer is a Prometheus that scrapes processes of its namespace.
type promServer struct {
	client *http.Client
}

// startPrometheus starts a Prometheus in ns, with Heddle's alert rules and targets as jobs named
// heddle.
func startPrometheus(t *testing.T, ns *netlab.Namespace, targets ...string) *promServer {
	t.Helper()
	dir := t.TempDir()
	rules, config := filepath.Join(dir, "heddle.rules.yml"), filepath.Join(dir, "prometheus.yml")
	writeFile(t, rules, string(monitoring.Rules))
	scrape, err := json.Marshal([]map[string]any{{"job_name": "heddle", "static_configs": []map[string]any{{"targets": targets}}}})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, config, fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [%s]\nscrape_configs: %s\n", rules, scrape))
	const address = "127.0.0.1:9090"
	cmd := exec.Command("prometheus", "--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", address)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("prometheus:\n%s", text)
		}
	})
	return &promServer{&http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer(ns)}}}
}

// sample is a series of an answer, with its labels.
type sample struct {
	Metric map[string]string `json:"metric"`
}

// query returns the series of an expression.
func (p *promServer) query(ctx context.Context, expr string) ([]sample, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:9090/api/v1/query?query="+url.QueryEscape(expr), nil)
	if err != nil {
		return nil, err
	}
	res, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var answer struct {
		Error string `json:"error"`
		Data  struct {
			Result []sample `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("%s: %s", expr, answer.Error)
	}
	return answer.Data.Result, nil
}

// await waits until an expression returns series.
func (p *promServer) await(t *testing.T, what, expr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	last := error(nil)
	err := netlab.Until(ctx, "series of "+expr, func() (bool, error) {
		var found []sample
		found, last = p.query(ctx, expr)
		return len(found) > 0, nil // or it does not listen yet
	})
	if err != nil {
		t.Errorf("%s: %v, %v", what, err, last)
	}
}

// checkDashboard requires every expression of a dashboard to return series.
func (p *promServer) checkDashboard(t *testing.T, title string) {
	t.Helper()
	all := monitoring.Dashboards()
	i := slices.IndexFunc(all, func(d monitoring.Dashboard) bool { return d.Title == title })
	if i < 0 {
		t.Fatalf("no dashboard %s", title)
	}
	filled := strings.NewReplacer("$instance", ".*", "$__rate_interval", "1m")
	for _, expr := range all[i].Expressions() {
		p.await(t, title, filled.Replace(expr))
	}
}

// TestMonitoring: a Prometheus that scrapes a server and an agent, which has a tunnel, has series
// for every expression of the dashboards, the alert of a store without a backup begins, and no
// metric is other than its list says.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	server := s.serve(t)
	name := s.ctl.Name
	w := s.lab.MustNamespace(t, "w1")
	s.lab.MustVeth(t, s.ctl, "tap1", w, "eth0")
	put(t, openData(t, s.data), "/calico/v1/policy/profile/web/rules", `{"inbound_rules": [{"protocol": "tcp", "dst_ports": [80]}], "outbound_rules": [{}]}`,
		"/calico/v1/host/"+name+"/workload/openstack/vm/endpoint/port", `{"state": "active", "name": "tap1", "profile_ids": ["web"], "ipv4_nets": ["10.65.0.1/32"]}`)
	settings := filepath.Join(t.TempDir(), "felix.cfg")
	writeFile(t, settings, "[global]\nInterfacePrefix = tap\n")
	t.Cleanup(func() { succeed(t, s.ctl, "agent", "--cleanup", "--name", name) })
	agent := start(t, s.ctl, "agent", "--policy", "--dhcp", "--name", name, "--state", filepath.Join(t.TempDir(), "state"), "--felix-config", settings,
		"--tunnel-ip", "192.0.2.1", "--server-data", s.data)
	other := s.addHost(t, "h1", "192.0.2.11")
	start(t, other.ns, other.agent("--join", s.token(t))...)
	login(t, s.ctl, "127.0.0.1", s.data).list(t, "network")

	p := startPrometheus(t, s.ctl, server.health, agent.health)
	for _, d := range monitoring.Dashboards() {
		if !strings.Contains(d.Title, "pool") { // TestPool has one
			p.checkDashboard(t, d.Title)
		}
	}
	p.await(t, "a store without a backup", `ALERTS{alertname="HeddleBackupOld", alertstate="pending"}`)
	checkMetrics(t, server)
	checkMetrics(t, agent)
}

// checkMetrics holds what a process exports against docs/metrics.md and promtool.
func checkMetrics(t *testing.T, r *running) {
	t.Helper()
	_, text, err := r.page(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	list, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{} // labels by name
	for _, m := range regexp.MustCompile("(?m)^\\| `(heddle_\\w+)` \\| \\w+ \\| ([\\w, ]*) \\|").FindAllStringSubmatch(string(list), -1) {
		listed[m[1]] = m[2]
	}
	suffix := regexp.MustCompile(`_(?:bucket|sum|count)$`)
	label := regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)
	series := regexp.MustCompile(`(?m)^(heddle_\w+)(?:\{(.*)\})? \S+$`).FindAllStringSubmatch(text, -1)
	if n := len(series); n == 0 || n > 2000 {
		t.Errorf("%d series, want 1 to 2,000", n)
	}
	for _, m := range series {
		labels, ok := listed[m[1]]
		if !ok {
			labels, ok = listed[suffix.ReplaceAllString(m[1], "")]
		}
		if !ok {
			t.Errorf("docs/metrics.md lacks %s", m[1])
			continue
		}
		var got []string
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" {
				got = append(got, l[1])
			}
		}
		slices.Sort(got)
		if strings.Join(got, ", ") != labels {
			t.Errorf("%s has labels %v, docs/metrics.md has %s", m[1], got, labels)
		}
	}
}
