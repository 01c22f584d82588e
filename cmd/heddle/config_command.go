package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
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
		Long: "Names each section and key of the file that no command has, and each value that is no number, time, address to listen at,\n" +
			"level of the log, tunnel address or kind of encryption where one is needed. The rest, such as settings that exclude each\n" +
			"other or a certificate that is not there, a command says when it starts.",
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

// configPath returns the path given with --config, or that of Heddle's units.
func configPath(cmd *cobra.Command) string {
	if path, err := cmd.Flags().GetString("config"); err == nil && path != "" {
		return path
	}
	return defaultConfig
}

// checkConfig prints how many settings each section has, or returns all that is wrong with them.
func checkConfig(out io.Writer, path string) error {
	root := newRoot()
	file, err := readSections(path, root)
	if err != nil {
		return err
	}
	wrong := map[string]error{} // by place
	counts := map[string]int{}
	for name, settings := range file.sections {
		top, _, err := root.Find([]string{name})
		if err != nil || top.Name() != name || top == root {
			wrong[name] = file.noSection(name, root)
			continue
		}
		counts[name] = len(settings)
		for key, values := range settings {
			if err := checkSetting(top, key, values); err != nil {
				wrong[name+"."+key] = fmt.Errorf("%s: %w", file.place(name, key), err)
			}
		}
	}
	for _, n := range file.nested {
		wrong[n.section+"."+n.key] = file.notFlat(n)
	}
	if len(wrong) > 0 {
		return joinByLine(wrong, file.text)
	}
	if len(counts) == 0 {
		_, err = fmt.Fprintf(out, "%s has no settings: all are at their defaults\n", path)
		return err
	}
	var said []string
	for name, n := range counts {
		said = append(said, fmt.Sprintf("%s: %d", name, n))
	}
	slices.Sort(said)
	_, err = fmt.Fprintf(out, "%s is well formed; settings by section: %s\n", path, strings.Join(said, ", "))
	return err
}

// joinByLine joins errors by their places in a text, in the order of its lines.
func joinByLine(wrong map[string]error, text []byte) error {
	places := slices.SortedFunc(maps.Keys(wrong), func(a, b string) int {
		return cmp.Or(cmp.Compare(sourceline.Find(text, a), sourceline.Find(text, b)), strings.Compare(a, b))
	})
	var all []error
	for _, place := range places {
		all = append(all, wrong[place])
	}
	return errors.Join(all...)
}

// checkSetting sets the flag that a key names, of the command or of one below it.
func checkSetting(top *cobra.Command, key string, values []string) error {
	flag := findFlag(top, key)
	if flag == nil || !configurable(flag) {
		return noSetting(key, flagNames(top))
	}
	for _, v := range values {
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
	case key == logLevelFlag:
		_, err = telemetry.ParseLevel(text)
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
	file, err := readSections(path, top)
	if err != nil {
		return err
	}
	if err := file.flat(name); err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, key := range flagNames(top) {
		flag := findFlag(top, key)
		values, from := given(flag, name, file, lookup)
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
		if _, err := fmt.Fprintf(table, "%s\t%s\t%s\n", key, text, from); err != nil {
			return err
		}
	}
	return table.Flush()
}
