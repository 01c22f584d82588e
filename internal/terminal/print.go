package terminal

import (
	"fmt"
	"io"
)

// Fprintf writes as fmt.Fprintf does, with escaped arguments: only the format breaks lines and sets
// tabs.
func Fprintf(w io.Writer, format string, args ...any) (int, error) {
	for i := range args { // in place, so that vet checks formats as those of fmt.Fprintf
		args[i] = safe(args[i])
	}
	return fmt.Fprintf(w, format, args...)
}

// Fprintln writes as fmt.Fprintln does, with escaped arguments: it is one line.
func Fprintln(w io.Writer, args ...any) (int, error) {
	for i := range args {
		args[i] = safe(args[i])
	}
	return fmt.Fprintln(w, args...)
}

// safe returns an argument that prints as v does, escaped. Numbers stay: they may be widths.
func safe(v any) any {
	switch v.(type) {
	case int, int64, uint16, uint32, uint64, float64, bool, escaped:
		return v
	}
	return escaped{v}
}

// escaped prints a value so that it is safe on a terminal.
type escaped struct{ value any }

func (e escaped) Format(f fmt.State, verb rune) {
	// An error of the writer is fmt.Fprintf's to return.
	_, _ = io.WriteString(f, Escape(fmt.Sprintf(fmt.FormatString(f, verb), e.value)))
}
