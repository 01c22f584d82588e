package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"heddle/internal/command"
	"heddle/internal/offline"
	"heddle/internal/sourceline"
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
		Args: wantArgs(1, "translate: want one FILE, or - for standard input"),
	}
	cmd.Flags().BoolVar(&each, "each", false, "the topology after every step, not only after the last")
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asJSON, err := wantJSON(*format)
		if err != nil {
			return err
		}
		return withInput(cmd, args[0], func(in io.Reader) error {
			return offline.Translate(cmd.Context(), in, offline.TranslateOptions{Each: each, JSON: asJSON}, cmd.OutOrStdout())
		})
	}
	return cmd
}

// wantArgs rejects other numbers of arguments than n; text says what is wanted.
func wantArgs(n int, text string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return &command.Exit{Code: 2, Text: fmt.Sprintf("%s; got %d arguments", text, len(args))}
		}
		return nil
	}
}

// wantJSON reads the -o flag.
func wantJSON(format string) (bool, error) {
	if format != "json" && format != "text" {
		return false, &command.Exit{Code: 2, Text: "-o " + format + ": want text or json"}
	}
	return format == "json", nil
}

// withInput calls an offline command with a file, or "-" for standard input, and gives its error an
// exit code. An error about the file names the line.
func withInput(cmd *cobra.Command, path string, do func(io.Reader) error) error {
	in, err := inputFile(cmd, path)
	if err != nil {
		return err
	}
	defer in.Close()
	var text bytes.Buffer
	err = do(io.TeeReader(in, &text))
	var wrong *offline.FileError
	switch {
	case errors.As(err, &wrong):
		return &command.Exit{Code: 2, Text: sourceline.Prefix(path, text.Bytes(), wrong.Path()) + ": " + err.Error()}
	case errors.Is(err, offline.ErrExpectation):
		return &command.Exit{Code: 1} // the output has the details
	}
	return err
}

// inputFile opens a file, or standard input for "-".
func inputFile(cmd *cobra.Command, path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(cmd.InOrStdin()), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, &command.Exit{Code: 2, Text: err.Error()}
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, errors.Join(&command.Exit{Code: 2, Text: path + " is a directory: want a file"}, f.Close())
	}
	return f, nil
}
