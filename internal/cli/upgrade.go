package cli

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"heddle/internal/cloud"
	"heddle/internal/command"
)

// upgradeCommand shows who knows which format of the store, and raises it.
func upgradeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "upgrade", Short: "Show and raise the format of the store"}
	cloud := cloudFlags(cmd)
	cmd.AddCommand(upgradeStatusCommand(cloud), upgradeCommitCommand(cloud))
	return cmd
}

// upgradeView is the store's format and its members, as the operators' API returns them.
type upgradeView struct {
	Written   int `json:"written"`
	MinReader int `json:"min_reader"`
	Newest    int `json:"newest"`
	Members   []struct {
		Role    string `json:"role"`
		Name    string `json:"name"`
		ID      string `json:"id"`
		Version string `json:"version"`
		Reads   int    `json:"reads"`
		Writes  int    `json:"writes"`
		Behind  bool   `json:"behind"`
	} `json:"members"`
}

func upgradeStatusCommand(cloud *cloud.Config) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which formats servers and agents know",
		Long: "Shows the format that the store is in, the oldest one that a program must know to work with it, and all live\n" +
			"servers and agents with the newest formats that they read and write. Ends with 1 if one is behind.",
		Args: cobra.NoArgs,
	}
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var v upgradeView
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
			fmt.Fprintf(cmd.OutOrStdout(), "store: written in format %d, programs must know format %d; newest format of a member: %d\n", v.Written, v.MinReader, v.Newest)
		}
		if err := command.PrintTable(cmd.OutOrStdout(), *format, v, []string{"ROLE", "NAME", "ID", "VERSION", "READS", "WRITES", "STATE"}, rows); err != nil {
			return err
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
			"some are behind, which it names. Programs that do not know the new format cannot go back to this store.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var v upgradeView
			if err := callOperator(cmd, cloud, http.MethodPost, "/v1/upgrade/commit", nil, &v); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "store: written in format %d, programs must know format %d\n", v.Written, v.MinReader)
			return err
		},
	}
}
