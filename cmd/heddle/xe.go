package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"heddle/internal/cli"
	"heddle/internal/xen/xe"
)

// xeName is the name by which scripts call the command line of the XenAPI.
const xeName = "xe"

// rootPasswordFile is where `heddle xapi` keeps the password that it made for root, in its data directory.
const rootPasswordFile = "xapi-root-password"

func xeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   xeName + " COMMAND [KEY=VALUE…]",
		Short: "Manage the networks of a pool by the XenAPI: Heddle's, XCP-ng's or XenServer's",
		Long: `The xe command line, as scripts know it; called by the name xe, heddle is this command.
  xe -s pool.example -u root -pw PASSWORD network-create name-label=private
  xe tunnel-create pif-uuid=UUID network-uuid=UUID
xe help --all lists the commands.`,
		DisableFlagParsing: true, // its switches are not those of other programs
		RunE: func(cmd *cobra.Command, args []string) error {
			home, _ := os.UserHomeDir() // without one there is no ~/.xe
			code := xe.Run(cmd.Context(), args, xe.Environment{
				Home: home, ExtraArgs: os.Getenv("XE_EXTRA_ARGS"), RootPasswordFile: filepath.Join(cli.DefaultDataDir, rootPasswordFile),
				Version: version, Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
			})
			if code != 0 {
				return &cli.Exit{Code: code}
			}
			return nil
		},
	}
}
