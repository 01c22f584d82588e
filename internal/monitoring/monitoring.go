// Package monitoring has the alert rules for Prometheus and the dashboards for Grafana that come
// with Heddle. They name metrics of docs/metrics.md; tests hold them against that list, and try
// every expression in a real Prometheus.
package monitoring

import (
	_ "embed" // the rules
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Rules holds the alert rules, a file of rules of Prometheus.
//
//go:embed heddle.rules.yml
var Rules []byte

// Write writes the rules to prometheus/heddle.rules.yml below dir, and each dashboard to a file
// below grafana.
func Write(dir string) error {
	if err := write(filepath.Join(dir, "prometheus", "heddle.rules.yml"), Rules); err != nil {
		return err
	}
	for _, d := range Dashboards() {
		text, err := json.MarshalIndent(d.model(), "", " ")
		if err != nil {
			return fmt.Errorf("dashboard %s: %w", d.Title, err)
		}
		if err := write(filepath.Join(dir, "grafana", d.name+".json"), append(text, '\n')); err != nil {
			return err
		}
	}
	return nil
}

func write(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}
