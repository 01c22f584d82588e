package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"heddle/internal/cli"
	"heddle/internal/command"
)

// A flag that was not given takes its value from the environment (HEDDLE_ and the flag's name in
// capitals, dashes as underscores), then from the configuration file, then its default. The file is
// YAML with a section for each command, whose keys are the names of that command's flags:
//
//	serve:
//	  data: /var/lib/heddle
//	agent:
//	  tunnel-ip: 192.0.2.7
//
// A command that looks after a server takes settings that both must share, such as data, from the
// server's section, unless its own has them.

// environmentName returns the variable that sets a flag.
func environmentName(flag string) string {
	return "HEDDLE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// configure sets every flag of cmd that is not on the command line from env or the file at path (""
// = no file). Errors name the file, section and key, or the variable.
func configure(cmd *cobra.Command, path string, lookup func(string) (string, bool)) error {
	top := section(cmd)
	file, err := readSections(path, top)
	if err != nil {
		return err
	}
	known := flagNames(top)
	for key := range file[top.Name()] {
		if !slices.Contains(known, key) {
			return fmt.Errorf("%s: %s.%s: %w", path, top.Name(), key, noSetting(key, known))
		}
	}
	var failed error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if failed != nil || f.Changed || !configurable(f) {
			return
		}
		values, from := given(f, top.Name(), path, file, lookup)
		for _, v := range values {
			if err := cmd.Flags().Set(f.Name, v); err != nil {
				failed = fmt.Errorf("%s: %w", from, valueError(f, v, err))
				return
			}
		}
	})
	return failed
}

// given returns the values that the environment or the file gives a flag of a section's command,
// and where: the variable, or the file's name and key; "" where neither does.
func given(f *pflag.Flag, top, path string, file map[string]map[string][]string, lookup func(string) (string, bool)) (values []string, from string) {
	if v, ok := lookup(environmentName(f.Name)); ok {
		return []string{v}, environmentName(f.Name)
	}
	for _, name := range append([]string{top}, f.Annotations[cli.OtherSections]...) {
		if values, ok := file[name][f.Name]; ok {
			return values, fmt.Sprintf("%s: %s.%s", path, name, f.Name)
		}
	}
	return nil, ""
}

// section returns the command that a section of the file is named after: the one right below
// heddle.
func section(cmd *cobra.Command) *cobra.Command {
	for cmd.HasParent() && cmd.Parent().HasParent() {
		cmd = cmd.Parent()
	}
	return cmd
}

// configurable reports whether a flag may be set in the environment or the file.
func configurable(f *pflag.Flag) bool {
	_, perCall := f.Annotations[cli.PerCall]
	return !perCall && f.Name != "help" && f.Name != "config" && f.Name != "version"
}

// readSections reads the settings by section and key: a scalar is one value, a list several.
// Another value is an error in top's own section, and ignored in others.
func readSections(path string, top *cobra.Command) (map[string]map[string][]string, error) {
	if path == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	var file map[string]any
	if err := yaml.UnmarshalStrict(raw, &file); err != nil {
		return nil, fmt.Errorf("%s: want sections named after commands, with settings below them: %w", path, err)
	}
	sections := map[string]map[string][]string{}
	for name, below := range file {
		settings, isSection := below.(map[string]any)
		if !isSection && below != nil {
			return nil, fmt.Errorf("%s: %s: want settings below it, such as `data: /var/lib/heddle`, not %v", path, name, below)
		}
		if c, _, err := top.Root().Find([]string{name}); top.HasParent() && (err != nil || c.Name() != name) {
			return nil, noSection(path, name, top.Root())
		}
		sections[name] = map[string][]string{}
		for key, v := range settings {
			switch v := v.(type) {
			case []any:
				sections[name][key] = []string{}
				for _, item := range v {
					sections[name][key] = append(sections[name][key], fmt.Sprint(item))
				}
			case map[string]any:
				if name == top.Name() {
					return nil, fmt.Errorf("%s: %s.%s: want a value or a list of values", path, name, key)
				}
			default:
				sections[name][key] = []string{fmt.Sprint(v)}
			}
		}
	}
	return sections, nil
}

func noSection(path, name string, root *cobra.Command) error {
	meant := cmp.Or(command.DidYouMean("", name, subcommands(root)), ": want the name of a command, as `heddle --help` lists them")
	return fmt.Errorf("%s: %s: no such section%s", path, name, meant)
}

// noSetting returns an error that suggests settings spelled alike, or lists all.
func noSetting(key string, known []string) error {
	return errors.New("no such setting" + cmp.Or(command.DidYouMean("", key, known), "; known: "+strings.Join(known, ", ")))
}

// flagNames returns the settings of a command and those below it.
func flagNames(top *cobra.Command) []string {
	names := map[string]bool{}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if configurable(f) {
				names[f.Name] = true
			}
		})
		cmd.PersistentFlags().VisitAll(func(f *pflag.Flag) { names[f.Name] = true })
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(top)
	return slices.Sorted(maps.Keys(names))
}
