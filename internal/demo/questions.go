package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// showQuestions asks by heddle's own commands why one of the lines above had no answer, and who
// reaches a port, and prints what they say.
func (d *demo) showQuestions(ctx context.Context, c *cast) {
	d.question(ctx, fmt.Sprintf("why there is no answer to a1 from a3:%d", forbiddenPort), "denied", "(no-rule)",
		"why", "--from", c.a1.Name, "--to", fmt.Sprintf("%s:%d", c.a3.Name, forbiddenPort))
	d.question(ctx, fmt.Sprintf("who reaches a3 by TCP %d", allowedPort), "a1 and a2 do", fmt.Sprintf("%s %s, %s %s", c.a1.Name, c.a1.Address(false), c.a2.Name, c.a2.Address(false)),
		"reach", "--to", c.a3.Name, "--port", fmt.Sprint(allowedPort))
}

// question runs a command of heddle in the server's namespace, prints a line about it, which is as
// expected if the command says some text, and what it says.
func (d *demo) question(ctx context.Context, what, expected, text string, args ...string) {
	var said string
	d.check(what, expected, func() (_ string, err error) {
		said, err = d.lab.Ctl.Output(ctx, d.lab.Binary, append(args, "--data", filepath.Join(d.lab.Dir, "server"))...)
		if strings.Contains(said, text) {
			return expected, nil // a connection that would not pass is exit code 1
		}
		return "another answer", err
	})
	fmt.Fprintf(d.out, "     # heddle %s\n", strings.Join(args, " "))
	for line := range strings.Lines(said) {
		fmt.Fprintf(d.out, "     %s", line)
	}
}
