package cli

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"heddle/internal/api/operator"
	"heddle/internal/cloud"
	"heddle/internal/command"
	"heddle/internal/terminal"
)

// upgradeCommand shows who knows which format of the store, and raises it.
func upgradeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "upgrade", Short: "Plan an upgrade; show and raise the format of the store"}
	cloud := cloudFlags(cmd)
	cmd.AddCommand(upgradePlanCommand(cloud), upgradeStatusCommand(cloud), upgradeCommitCommand(cloud))
	return cmd
}

func upgradePlanCommand(cloud *cloud.Config) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show the steps of an upgrade to this heddle's version",
		Long: "Shows what to upgrade to the version of the heddle that is called, in which order: servers one after the other,\n" +
			"then agents in groups. Live servers and agents that have the version are left out. It changes nothing.",
		Args: cobra.NoArgs,
	}
	atOnce := cmd.Flags().Int("max-unavailable", 1, "number of agents to upgrade at once")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *atOnce < 1 {
			return &command.Exit{Code: 2, Text: fmt.Sprintf("--max-unavailable %d: want at least 1", *atOnce)}
		}
		var v operator.Formats
		if err := callOperator(cmd, cloud, http.MethodGet, "/v1/upgrade", nil, &v); err != nil {
			return err
		}
		_, err := io.WriteString(cmd.OutOrStdout(), upgradePlan(&v, cmd.Root().Version, *atOnce))
		return err
	}
	return cmd
}

// upgradePlan returns the steps that bring all members to a version.
func upgradePlan(v *operator.Formats, to string, atOnce int) string {
	var servers, agents []operator.Reader
	for _, m := range v.Members {
		switch {
		case m.Version == to:
		case m.Role == "agent":
			agents = append(agents, m)
		default:
			servers = append(servers, m)
		}
	}
	var b strings.Builder
	terminal.Fprintf(&b, "to %s, over a store in format %d\n", to, v.Written)
	if len(servers)+len(agents) == 0 {
		b.WriteString("all live servers and agents have it: heddle upgrade commit\n")
		return b.String()
	}
	steps := 0
	step := func(format string, args ...any) {
		steps++
		terminal.Fprintf(&b, "%d. %s\n", steps, fmt.Sprintf(format, args...))
	}
	step("back up the store: heddle backup FILE")
	for _, m := range servers {
		step("%s on %s (%s): install, restart, wait until it is ready", m.Role, m.Name, m.Version)
	}
	for group := range slices.Chunk(agents, atOnce) {
		var names []string
		for _, m := range group {
			names = append(names, fmt.Sprintf("%s (%s)", m.Name, m.Version))
		}
		step("agent on %s: install, restart, wait until it is ready", strings.Join(names, ", "))
	}
	step("hosts that are away, once they are back: heddle host list")
	step("heddle upgrade status, and when you will not go back: heddle upgrade commit")
	return b.String()
}

func upgradeStatusCommand(cloud *cloud.Config) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which formats servers and agents know",
		Long: "Shows the format that the store is in, the oldest one that a program must know to work with it, and all live\n" +
			"servers and agents with the newest formats that they read and write. Hosts and servers of a cluster that are away\n" +
			"are named. Ends with 1 if one is behind.",
		Args: cobra.NoArgs,
	}
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var v operator.Formats
		if err := callOperator(cmd, cloud, http.MethodGet, "/v1/upgrade", nil, &v); err != nil {
			return err
		}
		var rows [][]string
		behind := 0
		for _, m := range v.Members {
			state := "ok"
			if m.Behind {
				state, behind = "behind", behind+1
			}
			rows = append(rows, []string{m.Role, m.Name, m.ID, m.Version, fmt.Sprint(m.Reads), fmt.Sprint(m.Writes), state})
		}
		if *format == "text" {
			terminal.Fprintf(cmd.OutOrStdout(), "store: written in format %d, programs must know format %d; newest format of a member: %d\n", v.Written, v.MinReader, v.Newest)
		}
		if err := command.PrintTable(cmd.OutOrStdout(), *format, v, []string{"ROLE", "NAME", "ID", "VERSION", "READS", "WRITES", "STATE"}, rows); err != nil {
			return err
		}
		if *format == "text" && len(v.Silent) > 0 {
			terminal.Fprintf(cmd.OutOrStdout(), "away, and not waited for by a commit: %s\n", silentNames(v.Silent))
		}
		if behind > 0 {
			return &command.Exit{Code: 1, Text: fmt.Sprintf("%d of %d do not read format %d: upgrade them before `heddle upgrade commit`", behind, len(v.Members), v.Newest)}
		}
		return nil
	}
	return cmd
}

func upgradeCommitCommand(cloud *cloud.Config) *cobra.Command {
	return &cobra.Command{
		Use:   "commit",
		Short: "Have the store written in the newest format that all members know",
		Long: "Raises the store's format to the newest one that all live servers and agents write and read. It is refused while\n" +
			"some are behind, which it names. Hosts and servers of a cluster that are away are named, too, and not waited for.\n" +
			"Programs that do not know the new format cannot go back to this store.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var v operator.Formats
			if err := callOperator(cmd, cloud, http.MethodPost, "/v1/upgrade/commit", nil, &v); err != nil {
				return err
			}
			terminal.Fprintf(cmd.OutOrStdout(), "store: written in format %d, programs must know format %d\n", v.Written, v.MinReader)
			if len(v.Silent) > 0 {
				terminal.Fprintf(cmd.OutOrStdout(), "away: %s: upgrade heddle there too, before they start again\n", silentNames(v.Silent))
			}
			return nil
		},
	}
}

// mostSilent bounds the names in one line.
const mostSilent = 20

// silentNames lists programs that do not report, of many the first.
func silentNames(silent []operator.Silent) string {
	var words []string
	for _, one := range silent[:min(len(silent), mostSilent)] {
		words = append(words, one.Role+" on "+one.Name)
	}
	if more := len(silent) - len(words); more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, ", ")
}
