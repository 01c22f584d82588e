package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"heddle/internal/command"
	"heddle/internal/offline"
)

// calicoSelectorCommand parses a selector and matches labels against it.
func calicoSelectorCommand() *cobra.Command {
	var extensions bool
	cmd := &cobra.Command{
		Use:   "selector EXPR [LABEL=VALUE…]",
		Short: "Print a selector's canonical form, and match labels against it",
		Long: `Prints the canonical form of a selector. Exits 0 when it matches the labels, 1 when it does not, 2 when it is not a selector:
  heddle calico selector 'role == "web" && has(tier)' role=web tier=front
"--" ends the options, for a selector or label that begins with a dash.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &command.Exit{Code: 2, Text: "calico selector: want a selector, in quotes, then labels as label=value"}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&extensions, "extensions", false, "read the operators of later versions: contains, starts with, ends with, global()")
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asJSON, err := wantJSON(*format)
		if err != nil {
			return err
		}
		match, err := offline.Selector(args[0], args[1:], offline.SelectorOptions{JSON: asJSON, Extensions: extensions}, cmd.OutOrStdout())
		var wrong *offline.FileError
		switch {
		case errors.As(err, &wrong):
			return &command.Exit{Code: 2, Text: err.Error()}
		case err == nil && !match:
			return &command.Exit{Code: 1} // the output has the reason
		}
		return err
	}
	return cmd
}
