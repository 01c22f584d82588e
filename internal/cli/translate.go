package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"heddle/internal/offline"
)

// translateCommand shows the topology that Neutron operations make.
func translateCommand() *cobra.Command {
	var each bool
	cmd := &cobra.Command{
		Use:   "translate FILE",
		Short: "Show the topology that Neutron operations make, offline",
		Long: `Reads operations on Neutron objects, YAML or JSON ("-" reads standard input), applies each as one transaction to an empty
store, and prints the virtual topology. A refused operation leaves the topology as it was and says why.
Exits 2 when the file is wrong, naming the place.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &Exit{Code: 2, Text: fmt.Sprintf("translate: want one FILE, or - for standard input; got %d arguments", len(args))}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&each, "each", false, "the topology after every step, not only after the last")
	format := OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asJSON, err := wantJSON(*format)
		if err != nil {
			return err
		}
		in, err := inputFile(cmd, args[0])
		if err != nil {
			return err
		}
		defer in.Close()
		return offlineError(args[0], offline.Translate(cmd.Context(), in, offline.TranslateOptions{Each: each, JSON: asJSON}, cmd.OutOrStdout()))
	}
	return cmd
}

// offlineError gives an error of an offline command its exit code.
func offlineError(file string, err error) error {
	var wrong *offline.FileError
	switch {
	case errors.As(err, &wrong):
		return &Exit{Code: 2, Text: file + ": " + err.Error()}
	case errors.Is(err, offline.ErrExpectation):
		return &Exit{Code: 1} // the answer says which
	}
	return err
}

// wantJSON reads the -o flag.
func wantJSON(format string) (bool, error) {
	switch format {
	case "json":
		return true, nil
	case "text":
		return false, nil
	}
	return false, &Exit{Code: 2, Text: "-o " + format + ": want text or json"}
}

// inputFile opens a file, or standard input for "-".
func inputFile(cmd *cobra.Command, path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(cmd.InOrStdin()), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, &Exit{Code: 2, Text: err.Error()}
	}
	return f, nil
}
