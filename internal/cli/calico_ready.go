package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/internal/command"
	"heddle/internal/terminal"
)

// calicoReadyCommand prints, opens and closes the gate of Calico's data.
func calicoReadyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ready [true|false]",
		Short: "Print, open or close the gate that agents wait at",
		Long: `Opens (true) or closes (false) the gate of Calico's data, /calico/v1/Ready; without an argument it prints the state, and exits 0 when it
is open and 1 when not. Agents that find it closed at their start do nothing until it opens; those at work keep what is in force
and take up no change. heddle serve opens it at its first start.`,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"true", "false"},
	}
	store := calicoStoreFlags(cmd)
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asJSON, err := wantJSON(*format)
		if err != nil {
			return err
		}
		return store.do(func(c *client.Client) error {
			if len(args) == 1 {
				object, err := calico.Decode(calico.ReadyKey{}, []byte(args[0]))
				if err == nil {
					_, err = c.Apply(cmd.Context(), calico.ReadyKey{}, object)
				}
				return err
			}
			e, err := c.Get(cmd.Context(), calico.ReadyKey{})
			if err != nil && !errors.Is(err, client.ErrNotFound) && e.Err == nil {
				return err
			}
			return printReady(cmd, e, asJSON)
		})
	}
	return cmd
}

func printReady(cmd *cobra.Command, e client.Entry, asJSON bool) error {
	out, ready := cmd.OutOrStdout(), string(e.Raw) == "true"
	var err error
	switch {
	case asJSON:
		err = command.PrintJSON(out, map[string]any{"ready": ready, "stored": string(e.Raw)})
	case e.Revision == 0:
		_, err = terminal.Fprintln(out, "false: nothing is stored; open the gate with heddle calico ready true")
	case ready:
		_, err = terminal.Fprintln(out, "true")
	default:
		_, err = terminal.Fprintf(out, "false: %q is stored; open the gate with heddle calico ready true\n", e.Raw)
	}
	if err == nil && !ready {
		return &command.Exit{Code: 1} // the output has the reason
	}
	return err
}
