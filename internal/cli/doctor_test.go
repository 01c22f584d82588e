package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"heddle/internal/command"
)

// A check that fails is missing, and makes the doctor fail, unless a host serves without what it
// looks for, or it cannot find out.
func TestDoctorTellsMissingFromOptional(t *testing.T) {
	t.Parallel()
	fails := func(context.Context) error { return errors.New("not there") }
	for name, c := range map[string]struct {
		check Check
		state string
		fails bool
	}{
		"missing":  {Check{Name: "wheel", Run: fails, Fix: "buy one"}, "missing", true},
		"optional": {Check{Name: "bell", Run: fails, Fix: "buy one", Optional: true}, "optional", false},
		"unknown":  {Check{Name: "tyre", Run: func(context.Context) error { return undecided{"too dark"} }, Fix: "buy a lamp"}, "unknown", false},
		"there":    {Check{Name: "seat", Run: func(context.Context) error { return nil }}, "ok", false},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := DoctorCommand(nil, nil)
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetContext(t.Context())
			err := diagnose(cmd, "text", []Check{c.check})
			var exit *command.Exit
			if failed := errors.As(err, &exit) && exit.Code == 1; failed != c.fails {
				t.Errorf("ended with %v, want a failure: %v", err, c.fails)
			}
			if !strings.Contains(out.String(), c.state) || c.check.Fix != "" && !strings.Contains(out.String(), c.check.Fix) {
				t.Errorf("want state %q in\n%s", c.state, &out)
			}
		})
	}
}
