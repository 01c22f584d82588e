package cli

import (
	"io"

	"github.com/spf13/cobra"

	"heddle/internal/command"
	"heddle/internal/offline"
)

// calicoKeyCommand parses and prints keys.
func calicoKeyCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "key {KEY… | -f FILE}",
		Short: "Parse keys of etcd, or print the key of an object",
		Long: `Prints for each key one JSON object a line: the kind of object that lies there, null for none, and the ids in the key.
  heddle calico key /calico/v1/policy/tier/default/policy/web
With -f it goes the other way: FILE ("-" reads standard input) has such objects, one a line, and a key a line is printed.
"--" ends the options, for a key that begins with a dash.`,
		Args: func(_ *cobra.Command, args []string) error {
			if (len(args) == 0) == (file == "") {
				return &command.Exit{Code: 2, Text: "calico key: want keys, or -f and a file"}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "print the keys of the objects in `FILE`")
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := wantJSON(*format); err != nil { // the lines are the same in both
			return err
		}
		if file == "" {
			return offline.Keys(args, cmd.OutOrStdout())
		}
		return withInput(cmd, file, func(in io.Reader) error { return offline.KeyPaths(in, cmd.OutOrStdout()) })
	}
	return cmd
}
