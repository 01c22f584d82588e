package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"heddle/internal/command"
	"heddle/internal/offline"
)

// calicoValidateCommand checks one value.
func calicoValidateCommand() *cobra.Command {
	var extensions bool
	cmd := &cobra.Command{
		Use:   "validate KIND FILE",
		Short: "Check a value as it is stored, and print its canonical form",
		Long: `Reads a value of Calico's data model as it is stored ("-" reads standard input) and prints its canonical form. Exits 1 when the
value is not valid and says which member and why, 2 when there is no such kind or file.
  heddle calico validate Policy web.json
KIND is a kind as 'heddle calico key' prints it, BGPPeer or NodeMesh. The value of a key is nothing but its bytes: a newline at the
end of the file belongs to it.`,
		Args: wantArgs(2, "calico validate: want a KIND and a FILE, or - for standard input"),
	}
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return offline.ValidateKinds(), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveDefault
	}
	cmd.Flags().BoolVar(&extensions, "extensions", false, "take selectors with the operators of later versions: contains, starts with, ends with, global()")
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asJSON, err := wantJSON(*format)
		if err != nil {
			return err
		}
		in, err := inputFile(cmd, args[1])
		if err != nil {
			return err
		}
		defer in.Close()
		err = offline.Validate(args[0], in, offline.ValidateOptions{JSON: asJSON, Extensions: extensions}, cmd.OutOrStdout())
		var wrong *offline.FileError
		switch {
		case errors.As(err, &wrong):
			return &command.Exit{Code: 2, Text: "calico validate: " + err.Error()}
		case err != nil:
			return &command.Exit{Code: 1, Text: err.Error()}
		}
		return nil
	}
	return cmd
}
