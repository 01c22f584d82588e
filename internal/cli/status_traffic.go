package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"heddle/internal/api/operator"
	"heddle/internal/cloud"
	"heddle/internal/command"
	"heddle/internal/terminal"
	"heddle/internal/topology/flow"
)

// showTraffic prints the tunnels, networks and busy ports of a host.
func showTraffic(cmd *cobra.Command, cloud *cloud.Config, host, format string) error {
	var v operator.Traffic
	if err := callOperator(cmd, cloud, http.MethodGet, "/v1/traffic?host="+url.QueryEscape(host), nil, &v); err != nil {
		return err
	}
	if format != "text" {
		return command.PrintTable(cmd.OutOrStdout(), format, v, nil, nil)
	}
	return printTraffic(cmd.OutOrStdout(), v)
}

func printTraffic(w io.Writer, v operator.Traffic) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	terminal.Fprintf(table, "TUNNEL\tADDRESS\tFROM THERE\tPACKETS\tBYTES\tTO THERE\tPACKETS\tBYTES\n")
	for _, t := range v.Tunnels {
		terminal.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%s\t%d\t%d\n", t.Name, t.Address,
			condition(t.In), t.In.Packets, t.In.Bytes, condition(t.Out), t.Out.Packets, t.Out.Bytes)
	}
	terminal.Fprintf(table, "\nNETWORK\tID\tPACKETS SENT\tBYTES SENT\n")
	for _, n := range v.Networks {
		terminal.Fprintf(table, "%s\t%s\t%d\t%d\n", n.Name, n.ID, n.Packets, n.Bytes)
	}
	terminal.Fprintf(table, "\nBUSY PORT\tID\tFLOWS\tUPCALLS A SECOND\n")
	for _, p := range v.Ports {
		terminal.Fprintf(table, "%s\t%s\t%d\t%d\n", p.Name, p.ID, p.Flows, p.Upcalls)
	}
	return table.Flush()
}

// condition returns the state of a direction, with the hellos lost.
func condition(d flow.TunnelDirection) string {
	if d.State == flow.TunnelAlive && d.Lost > 0 {
		return fmt.Sprintf("%s, %d of 32 lost", d.State, d.Lost)
	}
	return string(d.State)
}
