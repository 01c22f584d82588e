package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/api/operator"
	"heddle/internal/cloud"
	"heddle/internal/command"
	"heddle/internal/terminal"
	"heddle/internal/topology/flow"
)

// dropsCommand returns the command that shows how many packets were dropped, where and why.
func dropsCommand() *cobra.Command {
	var host, code string
	var unused bool
	cmd := &cobra.Command{
		Use:   "drops [PORT]",
		Short: "Show how many packets were dropped, where and why",
		Long: `Shows what hosts have counted of packets that decisions of the virtual network dropped, since their agents started: at which port, in which direction, with
which code of docs/codes.md, and by which rule or device; and of packets that policy on routed hosts dropped, by which rule or code. PORT is an id, a name or an address. Packets by cached flows are counted as well, up to this
moment. --unused shows the rules of security groups by which no packet was let pass: those that no packet has asked, and those that packets have asked
and never matched; and the rules of policies and profiles on routed hosts that no packet has matched.
  heddle drops
  heddle drops web --code no-rule
  heddle drops --unused`,
		Args: cobra.MaximumNArgs(1),
	}
	login := cloudFlags(cmd)
	format := command.OutputFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&host, "host", "", "only what this `host` has counted, by name or id")
	f.StringVar(&code, "code", "", "only drops with this `code`, such as no-rule")
	f.BoolVar(&unused, "unused", false, "show rules of security groups without a packet in place of drops")
	for _, name := range []string{"host", "code", "unused"} {
		perCall(f, name)
	}
	cmd.ValidArgsFunction = completeWorkloadPorts(login)
	cmd.MarkFlagsMutuallyExclusive("unused", "host")
	cmd.MarkFlagsMutuallyExclusive("unused", "code")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if unused {
			if len(args) > 0 {
				return &command.Exit{Code: 2, Text: "--unused is about all rules: give no port"}
			}
			return showUnused(cmd, login, *format)
		}
		query := url.Values{}
		for name, value := range map[string]string{"port": strings.Join(args, ""), "host": host, "code": code} {
			if value != "" {
				query.Set(name, value)
			}
		}
		var d operator.Drops
		if err := callOperator(cmd, login, http.MethodGet, "/v1/drops?"+query.Encode(), nil, &d); err != nil {
			return err
		}
		rows := make([][]string, 0, len(d.Drops))
		for _, x := range d.Drops {
			port := portText(x.Port)
			if x.Plane == "policy" {
				port = "-"
			}
			rows = append(rows, []string{strconv.FormatUint(x.Packets, 10), port, cmp.Or(x.Direction, "-"), x.Code.String(), deciderText(x.Object, x.Rule), strings.Join(x.Hosts, " ")})
		}
		w := cmd.OutOrStdout()
		if err := command.PrintTable(w, *format, d, []string{"PACKETS", "PORT", "DIRECTION", "CODE", "BY", "HOSTS"}, rows); err != nil || *format == "json" {
			return err
		}
		printCountedHosts(w, d.Hosts)
		return nil
	}
	return cmd
}

func showUnused(cmd *cobra.Command, login *cloud.Config, format string) error {
	var u operator.UnusedRules
	if err := callOperator(cmd, login, http.MethodGet, "/v1/unused-rules", nil, &u); err != nil {
		return err
	}
	rows := make([][]string, 0, len(u.Rules))
	for _, x := range u.Rules {
		state := "never asked"
		ports := strconv.Itoa(x.Ports)
		if x.Group.Kind != "security-group" {
			ports, state = "-", "never matched"
		}
		if x.Asked {
			state = "asked, never matched"
		}
		rows = append(rows, []string{cmp.Or(x.Group.Name, x.Group.ID), ports, x.Rule, x.Text, state})
	}
	w := cmd.OutOrStdout()
	if err := command.PrintTable(w, format, u, []string{"GROUP", "PORTS", "RULE", "ALLOWS", "STATE"}, rows); err != nil || format == "json" {
		return err
	}
	printCountedHosts(w, u.Hosts)
	return nil
}

// portText names a port.
func portText(p *flow.Object) string {
	if p == nil {
		return "(others)"
	}
	return cmp.Or(p.Name, p.ID)
}

// deciderText names what has dropped a packet.
func deciderText(o *flow.Object, rule string) string {
	switch {
	case o == nil:
		return cmp.Or(rule, "-")
	case o.Group != nil:
		return o.Kind + " " + cmp.Or(o.Name, o.ID) + " of " + cmp.Or(o.Group.Name, o.Group.ID)
	}
	return o.Kind + " " + cmp.Or(o.Name, o.ID)
}

// printCountedHosts says since when hosts have counted, and what is missing.
func printCountedHosts(w io.Writer, hosts []operator.CountedHost) {
	line := func(format string, args ...any) { terminal.Fprintln(w, fmt.Sprintf(format, args...)) }
	var newest time.Time
	for _, h := range hosts {
		if h.Since.After(newest) {
			newest = h.Since
		}
		if h.Error != "" {
			line("host %s is missing: %s", h.Name, h.Error)
		}
		if h.Left > 0 {
			line("host %s has %d counters of fewer packets: name a port, a code or the host", h.Name, h.Left)
		}
		if h.Unsettled > 0 {
			line("host %s could not count the last packets of %d flows", h.Name, h.Unsettled)
		}
	}
	if newest.IsZero() {
		line("no host has counted")
		return
	}
	line("counted by all hosts since %s", localTime(newest))
}
