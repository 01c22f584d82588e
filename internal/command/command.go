// Package command holds what the commands of heddle share: exit codes and output as text or JSON.
package command

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"heddle/internal/terminal"
)

// Exit is an error with an exit code. With an empty Text, nothing more is printed.
type Exit struct {
	Code int
	Text string
}

func (e *Exit) Error() string { return e.Text }

// ExitCode returns the code that the process ends with: 1 failed, 2 wrong usage or input.
func (e *Exit) ExitCode() int { return e.Code }

// OutputFlag adds -o, the format of the output: text or json.
func OutputFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("output", "o", "text", "text or json")
}

// PrintTable writes rows in columns, with cells that are safe on a terminal, or v as JSON when
// format is json.
func PrintTable(w io.Writer, format string, v any, header []string, rows [][]string) error {
	switch format {
	case "json":
		return PrintJSON(w, v)
	case "text":
		tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		for _, cells := range append([][]string{header}, rows...) {
			safe := make([]string, len(cells))
			for i, cell := range cells {
				safe[i] = terminal.Escape(cell)
			}
			fmt.Fprintln(tw, strings.Join(safe, "\t"))
		}
		return tw.Flush()
	}
	return &Exit{Code: 2, Text: fmt.Sprintf("output format %q: want text or json", format)}
}

// PrintJSON writes v, indented.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // selectors have &&
	return e.Encode(v)
}
