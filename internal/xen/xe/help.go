package xe

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// usage is the output of xe without a command.
const usage = `Usage: xe <command> [-s server] [-p port] [-u username] [-pw password] [-pwf password file]
          [--nossl] [--debug] [--debug-on-fail] [key=value] [--switch] …
The same as keys: server, port, username, password, passwordfile; and to know a server by its
certificate, ca=FILE (its authority's) or fingerprint=SHA256. They may also stand in the variable
XE_EXTRA_ARGS, separated by commas, and in the file ~/.xe, one a line.

A full list of commands: xe help --all
About a command:         xe help <command>
`

// common are the commands that help lists by itself.
var common = []string{"tunnel-create", "tunnel-destroy", "tunnel-list", "tunnel-param-get", "tunnel-param-list", "network-create", "network-destroy", "network-list",
	"pif-list", "pif-plug", "pif-unplug", "pif-reconfigure-ip", "vif-create", "vif-list", "vm-list", "vm-start", "vm-shutdown", "host-list", "host-disable", "host-enable", "pool-join", "pool-eject", "pool-list", "help"}

// help is the command help.
func (x *run) help(a *arguments) error {
	if len(a.words) > 0 {
		for _, name := range a.words {
			cmd := x.command(name)
			if cmd == nil {
				return usageError("Unknown command: %s", name)
			}
			cmd.describe(&x.out)
		}
		return nil
	}
	names, title := common, "Common command list\n-------------------"
	if a.params.on("all") {
		names, title = nil, "Full command list\n-----------------"
		for _, c := range x.commands {
			names = append(names, c.name)
		}
	}
	names = slices.Sorted(slices.Values(names))
	if a.params.on("minimal") {
		printMinimal(&x.out, names...)
		return nil
	}
	fmt.Fprintf(&x.out, "%s\n%s\n%s\n", usage, title, columns(names))
	return nil
}

// describe prints the help of a command.
func (cmd *command) describe(w io.Writer) {
	fmt.Fprintf(w, "command name            : %s\n", cmd.name)
	fmt.Fprintf(w, "\treqd params     : %s\n", strings.Join(cmd.required, ", "))
	fmt.Fprintf(w, "\toptional params : %s\n", strings.Join(cmd.optional, ", "))
	fmt.Fprintf(w, "\tdescription     : %s\n\n", cmd.about)
}

// width is the width of a list of commands, in characters.
const width = 78

// columns puts names into lines.
func columns(names []string) string {
	var b strings.Builder
	line := "   "
	for i, name := range names {
		if i < len(names)-1 {
			name += ","
		}
		if len(line)+1+len(name) > width {
			b.WriteString(line + "\n")
			line = "   "
		}
		line += " " + name
	}
	return b.String() + line
}
