package main

import (
	"github.com/spf13/cobra"

	"heddle/internal/monitoring"
)

// monitoringCommand returns `heddle monitoring`, by which packages and operators get the alert
// rules and dashboards that fit this version.
func monitoringCommand() *cobra.Command {
	return &cobra.Command{
		Use: "monitoring DIR", Short: "Write alert rules for Prometheus and dashboards for Grafana into a directory", Args: cobra.ExactArgs(1),
		Long: "Writes prometheus/heddle.rules.yml and grafana/*.json below DIR, of this version's metrics. Packages have them in /usr/share/heddle.",
		RunE: func(_ *cobra.Command, args []string) error { return monitoring.Write(args[0]) },
	}
}
