package terminal

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestPrint(t *testing.T) {
	t.Parallel()
	const hostile, visible = "a\x1b]0;b\a\tc\nFORGED", `a\x1b]0;b\a\tc\nFORGED`
	for _, c := range []struct {
		print func(w *strings.Builder) (int, error)
		want  string
	}{
		{func(w *strings.Builder) (int, error) { return Fprintf(w, "x\t%s\n", hostile) }, "x\t" + visible + "\n"},
		{func(w *strings.Builder) (int, error) {
			return Fprintf(w, "%v %[1]s %q", errors.New(hostile), hostile)
		},
			visible + " " + visible + ` "` + visible + `"`},
		{func(w *strings.Builder) (int, error) {
			return Fprintf(w, "%s %v", netip.MustParseAddr("fe80::1").WithZone(hostile), []string{hostile})
		}, "fe80::1%" + visible + " [" + visible + "]"},
		{func(w *strings.Builder) (int, error) {
			return Fprintf(w, "%*d|%-4s|%4s|%.1f|%t|%v", 4, 7, "é", "b", 1.25, true, time.Second)
		}, "   7|é   |   b|1.2|true|1s"},
		{func(w *strings.Builder) (int, error) { return Fprintln(w, hostile, 1, nil) }, visible + " 1 <nil>\n"},
	} {
		var w strings.Builder
		n, err := c.print(&w)
		if w.String() != c.want || n != len(c.want) || err != nil {
			t.Errorf("got %q, %d, %v, want %q", w.String(), n, err, c.want)
		}
	}
}
