package xe

import (
	"fmt"
	"io"
	"strings"

	"heddle/internal/terminal"
)

// line is a field of a record as it is printed.
type line struct{ label, value string }

// indent is the difference between the width of a record's column of labels and its longest label.
const indent = 4

// printRecord prints a record: labels to the right, but the first, and two empty lines after.
// Values are safe on a terminal.
func printRecord(w io.Writer, lines []line) {
	width := 0
	for _, l := range lines {
		width = max(width, len(l.label))
	}
	width += indent
	var b strings.Builder
	for i, l := range lines {
		if i == 0 {
			fmt.Fprintf(&b, "%-*s: %s\n", width, l.label, terminal.Escape(l.value))
		} else {
			fmt.Fprintf(&b, "%*s: %s\n", width, l.label, terminal.Escape(l.value))
		}
	}
	b.WriteString("\n\n")
	io.WriteString(w, b.String())
}

// printMinimal prints values for scripts: on one line, with commas between.
func printMinimal(w io.Writer, values ...string) {
	escaped := make([]string, len(values))
	for i, v := range values {
		escaped[i] = minimalEscapes.Replace(v)
	}
	fmt.Fprintln(w, strings.Join(escaped, ","))
}

var minimalEscapes = strings.NewReplacer(`\`, `\\`, `,`, `\,`)
