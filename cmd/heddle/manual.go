package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"heddle/internal/cli"
)

// manualCommand returns `heddle manual`, by which packages get their manual pages.
func manualCommand() *cobra.Command {
	return &cobra.Command{
		Use: "manual DIR", Short: "Write the manual pages into a directory", Args: cobra.ExactArgs(1),
		Long: "Writes a page of section 1 for each command, heddle.yaml(5) about the settings, and heddle(7), the overview. SOURCE_DATE_EPOCH sets the pages' date.",
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := args[0]
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "heddle " + version, Manual: "Heddle"}, dir); err != nil {
				return err
			}
			return errors.Join(os.WriteFile(filepath.Join(dir, "heddle.yaml.5"), md2man.Render(settingsPage(root)), 0o644),
				os.WriteFile(filepath.Join(dir, "heddle.7"), md2man.Render(overviewPage(root)), 0o644))
		},
	}
}

// roles lists the commands that run as services, as the overview names them.
var roles = [...]string{"serve", "agent", "dhcp-agent", "xapi", "tunnel-controller"}

// overviewPage returns the page about Heddle as a whole, in Markdown.
func overviewPage(root *cobra.Command) []byte {
	var b bytes.Buffer
	b.WriteString(`heddle 7 "" "heddle ` + version + `" "Heddle"
==================================================

# NAME
heddle - virtual networks for Linux hosts

# DESCRIPTION
Heddle gives virtual machines, containers and hosts tenant networks, routers, security groups, load balancers, DHCP and
tunnels. Servers answer OpenStack's Neutron and Octavia, Calico's data model and the XenAPI, and keep all state in etcd: their
own, or a cluster. The agent of each host puts the state into the host's kernel, which goes on forwarding established connections
while agents and servers are away; new ones wait for the agent.

# PARTS
One program has all parts, as commands:

`)
	for _, cmd := range root.Commands() {
		if slices.Contains(roles[:], cmd.Name()) {
			fmt.Fprintf(&b, "**heddle-%s**(1)\n:   %s\n\n", cmd.Name(), cmd.Short)
		}
	}
	b.WriteString(`The other commands are for operators and clients: heddle(1) lists them.

# FILES
**/etc/heddle/heddle.yaml**
:   settings of all commands, see heddle.yaml(5)

**/etc/heddle/conf.d**
:   drop-ins: files with more of them

**/etc/default/heddle**
:   variables of the services' environment, if it is there

**/var/lib/heddle**
:   the server's embedded store, its secrets, and openrc, the credentials of the user admin

**/var/lib/heddle-agent**
:   the agent's certificate and state

**/var/backups/heddle**
:   backups by the timer heddle-backup

**/var/log/heddle**
:   records of what security groups and firewalls decide, on hosts

**/run/heddle**
:   sockets of running services, for heddle-status(1), heddle-reload(1) and others

**/sys/fs/bpf/heddle**
:   programs and tables of the kernel, which outlive the agent

**/usr/share/doc/heddle/docs**
:   guides, of which guides/install.md is the first

# FIRST STEPS
Find out whether this machine can be a host, and try everything on it:

    heddle doctor
    heddle demo

Name the server's data and the host's address in /etc/heddle/heddle.yaml, start both, and look whether all is well:

    systemctl enable --now heddle
    systemctl enable --now heddle-agent
    heddle status

Make a network with a port on this host, and give the port's interface to a network namespace:

    heddle net create blue
    heddle subnet create blue4 --network blue --range 10.0.0.0/24
    heddle port create web --network blue
    ip netns add web
    heddle plug web --netns web

# SEE ALSO
heddle(1), heddle.yaml(5), heddle-doctor(1), heddle-status(1), heddle-support(1), dnsmasq(8), ovs-vswitchd(8), haproxy(1)
`)
	return b.Bytes()
}

// settingsPage returns the page about heddle.yaml, in Markdown: the settings of each section.
func settingsPage(root *cobra.Command) []byte {
	var b bytes.Buffer
	b.WriteString(`heddle.yaml 5 "" "heddle ` + version + `" "Heddle"
==================================================

# NAME
heddle.yaml - settings of heddle's commands

# SYNOPSIS
/etc/heddle/heddle.yaml

/etc/heddle/conf.d/*.yaml

# DESCRIPTION
A YAML file with a section for each command, whose keys are the names of its flags. A flag on the command line wins, then a
variable such as HEDDLE_DATA, then the file, then the default. Keys that no command has are refused.

# DROP-INS
Files of the same form in the directory conf.d beside the file are read after it, in the order of their names: those that
end with .yaml and do not begin with a dot. A key of a later file replaces that of an earlier one, and so with it all values of a
list; the other keys of the section stay. One of these files that cannot be read, or is wrong, is an error. Each command must be
able to read all of them: a drop-in with a password belongs to the user of the unit that reads it, with the mode 600.

`)
	for _, cmd := range root.Commands() {
		writeSection(&b, cmd)
	}
	b.WriteString("# SEE ALSO\nheddle(1), heddle(7)\n")
	return b.Bytes()
}

// writeSection writes about the section of a command, if that has settings: its own and those of
// the commands below it.
func writeSection(b *bytes.Buffer, cmd *cobra.Command) {
	if cmd.Hidden {
		return
	}
	names := flagNames(cmd)
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(b, "# SECTION %s\n%s.\n\n", cmd.Name(), cmd.Short)
	for _, name := range names {
		f := findFlag(cmd, name)
		fmt.Fprintf(b, "**%s**", f.Name)
		if f.DefValue != "" && f.DefValue != "[]" {
			fmt.Fprintf(b, " (default %s)", f.DefValue)
		}
		if others := f.Annotations[cli.OtherSections]; len(others) > 0 {
			fmt.Fprintf(b, " (or of section %s)", others[0])
		}
		_, usage := pflag.UnquoteUsage(f)
		fmt.Fprintf(b, "\n:   %s\n\n", bytes.ReplaceAll([]byte(usage), []byte("\n"), []byte(" ")))
	}
}
