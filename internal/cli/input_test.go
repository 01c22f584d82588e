package cli

import (
	"errors"
	"strings"
	"testing"

	"heddle/internal/command"
)

// Wrong arguments end a command with exit code 2, and the error names what is wanted.
func TestWrongArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"backup", "backup: want one FILE"},
		{"restore a b", "restore: want one FILE"},
		{"translate /", "/ is a directory"},
		{"trace --port p --frame zz", `"zz" is neither hex digits`},
		{"trace --port p --frame {", "--frame: "},
		{"trace --network n --frame 00", "want either --scenario; or --port and --frame; or --network, --host and --frame"},
		{"trace --port p --host h --frame 00", "want either --scenario"},
		{"trace --port p --network n --host h --frame 00", "want either --scenario"},
	} {
		words := strings.Fields(c.args)
		for _, cmd := range Commands() {
			if cmd.Name() != words[0] {
				continue
			}
			cmd.SetArgs(words[1:])
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			err := cmd.ExecuteContext(t.Context())
			var exit *command.Exit
			if !errors.As(err, &exit) || exit.Code != 2 || !strings.Contains(exit.Text, c.want) {
				t.Errorf("%s: %v, want exit code 2 and %q", c.args, err, c.want)
			}
		}
	}
}
