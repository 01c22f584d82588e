package cli

import "github.com/spf13/cobra"

// calicoCommand groups the commands on Calico's data model.
func calicoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "calico",
		Short: "Work with Calico's data model: its objects, keys and selectors",
	}
	cmd.AddCommand(calicoApplyCommand(), calicoGetCommand(), calicoListCommand(), calicoWatchCommand(), calicoDeleteCommand(), calicoIPAMCommand(),
		calicoMigrateCommand(), calicoSweepCommand(), calicoReadyCommand(), calicoAccessCommand())
	cmd.AddCommand(calicoKeyCommand(), calicoValidateCommand(), calicoSelectorCommand(), calicoCheckCommand())
	return cmd
}
