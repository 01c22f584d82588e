package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"heddle/internal/overlay"
	"heddle/internal/sourceline"
	"heddle/internal/telemetry"
	"heddle/internal/terminal"
)

// defaultConfig is the file of Heddle's units.
const defaultConfig = "/etc/heddle/heddle.yaml"

// configCommand returns `heddle config`, which looks at settings before a command uses them.
func configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check the settings in heddle.yaml, and show what is in effect"}
	check := &cobra.Command{
		Use: "check [FILE]", Short: "Check the names and values of all sections", Args: cobra.MaximumNArgs(1),
		Long: "Reads the file, and its drop-ins: conf.d/*.yaml beside it. Names each section and key that no command has, and each value\n" +
			"that is no number, time, address to listen at, level of the log, tunnel address or kind of encryption where one is needed. The\n" +
			"rest, such as settings that exclude each other or a certificate that is not there, a command says when it starts.",
		RunE: func(cmd *cobra.Command, args []string) error {
			path := configPath(cmd)
			if len(args) == 1 {
				path = args[0]
			}
			return checkConfig(cmd.OutOrStdout(), path)
		},
	}
	all := false
	show := &cobra.Command{
		Use: "show COMMAND", Short: "Show the settings of a command, and where each comes from", Args: cobra.ExactArgs(1),
		Long: "Shows what heddle COMMAND would use here: variables such as HEDDLE_DATA count as in this shell, which a unit need not share.\n" +
			"Secrets are struck out, and so are passwords, users without one and the values of queries in URLs.",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			for _, c := range cmd.Root().Commands() {
				if len(args) == 0 && c.IsAvailableCommand() && len(flagNames(c)) > 0 {
					names = append(names, c.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return showConfig(cmd.OutOrStdout(), args[0], configPath(cmd), os.LookupEnv, all)
		},
	}
	show.Flags().BoolVar(&all, "all", false, "settings at their defaults, too")
	cmd.AddCommand(check, show)
	return cmd
}

// configPath returns the path given with --config, "" for no file, or that of Heddle's units.
func configPath(cmd *cobra.Command) string {
	if f := cmd.Flag("config"); f != nil && (f.Changed || f.Value.String() != "") {
		return f.Value.String()
	}
	return defaultConfig
}

// looksAtMachine reports whether a command looks at what Heddle's units use on this machine, and so
// has their settings unless it is given others.
func looksAtMachine(cmd *cobra.Command) bool {
	return slices.Contains([]string{"doctor", "support"}, section(cmd).Name())
}

// configureAsUnits configures a command that looks at this machine by the units' settings at path,
// if they are there. Where they are wrong it says so and goes on without: it is run to find faults.
func configureAsUnits(cmd *cobra.Command, path string, lookup func(string) (string, bool)) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		err := configure(cmd, path, lookup)
		if err == nil {
			return nil
		}
		terminal.Fprintf(cmd.ErrOrStderr(), "heddle: going on without the settings in %s: %s\n", path, err)
	}
	return configure(cmd, "", lookup)
}

// checkConfig prints how many settings each section has, or returns all that is wrong with them.
func checkConfig(out io.Writer, path string) error {
	root := newRoot()
	c, err := readConfiguration(path, root)
	if err != nil {
		return err
	}
	var wrong []misplaced
	counts := []string{}
	for _, name := range slices.Sorted(maps.Keys(c.sections)) {
		section := c.sections[name]
		top, _, err := root.Find([]string{name})
		if err != nil || top.Name() != name || top == root {
			wrong = append(wrong, c.misplaced(section.file, name, noSection(c.files[section.file], name, root)))
			continue
		}
		counts = append(counts, fmt.Sprintf("%s: %d", name, len(section.settings)))
		for key, s := range section.settings {
			if err := checkSetting(top, key, s); err != nil {
				wrong = append(wrong, c.misplaced(s.file, name+"."+key, fmt.Errorf("%s: %w", c.place(name, key), err)))
			}
		}
	}
	if len(wrong) > 0 {
		return joinByPlace(wrong)
	}
	if err := errors.Join(checkWriters(path), c.checkServerReads()); err != nil {
		return err
	}
	var paths []string
	for _, f := range c.files {
		paths = append(paths, f.path)
	}
	said := "no settings: all are at their defaults"
	if len(counts) > 0 {
		said = "well formed; settings by section: " + strings.Join(counts, ", ")
	}
	_, err = terminal.Fprintf(out, "%s: %s\n", strings.Join(paths, ", "), said)
	return err
}

// misplaced is an error about a place in a configuration.
type misplaced struct {
	file, line int
	name       string
	err        error
}

func (c configuration) misplaced(file int, name string, err error) misplaced {
	return misplaced{file, sourceline.Find(c.files[file].text, name), name, err}
}

// joinByPlace joins errors in the order of their files and lines.
func joinByPlace(wrong []misplaced) error {
	slices.SortFunc(wrong, func(a, b misplaced) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line), strings.Compare(a.name, b.name))
	})
	var all []error
	for _, w := range wrong {
		all = append(all, w.err)
	}
	return errors.Join(all...)
}

// checkSetting sets the flag that a key names, of the command or of one below it.
func checkSetting(top *cobra.Command, key string, s setting) error {
	flag := findFlag(top, key)
	if flag == nil || !configurable(flag) {
		return noSetting(key, flagNames(top))
	}
	if s.bad {
		return errNoValue
	}
	for _, v := range s.values {
		if err := flag.Value.Set(v); err != nil {
			return valueError(flag, v, err)
		}
		if err := checkText(key, v); err != nil {
			return err
		}
	}
	return nil
}

// checkText checks the text of a setting whose flag takes any text, as the command does when it
// starts. An empty text turns a setting off.
func checkText(key, text string) (err error) {
	switch {
	case text == "":
	case key == "encrypt":
		_, err = overlay.ParseEncryption(text)
	case key == "tunnel-ip":
		address, _ := netip.ParseAddr(text) // the zero Addr is refused
		if err = overlay.CheckTunnelIP(address); err != nil {
			err = fmt.Errorf("%q: %w", text, err)
		}
	case key == "xen-ovsdb-listen": // on a port of its own
		if _, parseErr := netip.ParseAddr(text); parseErr != nil {
			err = fmt.Errorf("%q: want an IP address of this host", text)
		}
	case key == "metrics" || strings.HasSuffix(key, "-listen"):
		if _, port, splitErr := net.SplitHostPort(text); splitErr != nil || port == "" {
			err = fmt.Errorf("%q: want ADDRESS:PORT, such as 127.0.0.1:9696", text)
		}
	}
	return err
}

func findFlag(cmd *cobra.Command, name string) *pflag.Flag {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f
	}
	if f := cmd.PersistentFlags().Lookup(name); f != nil {
		return f
	}
	for _, sub := range cmd.Commands() {
		if f := findFlag(sub, name); f != nil {
			return f
		}
	}
	return nil
}

// showConfig prints the settings of a command that are given, or all.
func showConfig(out io.Writer, name, path string, lookup func(string) (string, bool), all bool) error {
	top, _, err := newRoot().Find([]string{name})
	if err != nil || top.Name() != name {
		return usagef("%s: no such command: see `heddle --help`", name)
	}
	c, err := readConfiguration(path, top)
	if err != nil {
		return err
	}
	if err := c.checkValues(name); err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, key := range flagNames(top) {
		flag := findFlag(top, key)
		values, from := given(flag, name, c, lookup)
		if from == "" {
			if !all {
				continue
			}
			values, from = []string{flag.DefValue}, "default"
		}
		text := terminal.Escape(telemetry.WithoutURLSecrets(strings.Join(values, ", ")))
		if telemetry.Secret(key) && from != "default" {
			text = telemetry.StruckOut
		}
		if _, err := terminal.Fprintf(table, "%s\t%s\t%s\n", key, text, from); err != nil {
			return err
		}
	}
	return table.Flush()
}
