package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// A flag that was not given takes its value from the environment (HEDDLE_ and the flag's name in capitals, dashes as
// underscores), then from the configuration file, then its default. The file is YAML with a section for each command,
// whose keys are the names of that command's flags:
//
//	serve:
//	  data: /var/lib/heddle
//	agent:
//	  tunnel-ip: 192.0.2.7

// environmentName is the variable that sets a flag.
func environmentName(flag string) string {
	return "HEDDLE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// configure gives every flag of cmd that was not set on the command line its value from env or the file at path
// ("" = no file). Errors name the file, section and key, or the variable.
func configure(cmd *cobra.Command, path string, lookup func(string) (string, bool)) error {
	top := section(cmd)
	settings, err := readSection(path, top)
	if err != nil {
		return err
	}
	known := flagNames(top)
	for key := range settings {
		if !slices.Contains(known, key) {
			return fmt.Errorf("%s: %s.%s: no such setting; known: %s", path, top.Name(), key, strings.Join(known, ", "))
		}
	}
	var failed error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if failed != nil || f.Changed || !configurable(f) {
			return
		}
		if v, ok := lookup(environmentName(f.Name)); ok {
			if err := cmd.Flags().Set(f.Name, v); err != nil {
				failed = fmt.Errorf("%s: %w", environmentName(f.Name), err)
			}
			return
		}
		for _, v := range settings[f.Name] {
			if err := cmd.Flags().Set(f.Name, v); err != nil {
				failed = fmt.Errorf("%s: %s.%s: %w", path, top.Name(), f.Name, err)
				return
			}
		}
	})
	return failed
}

// section is the command that a section of the file is named after: the one right below heddle.
func section(cmd *cobra.Command) *cobra.Command {
	for cmd.HasParent() && cmd.Parent().HasParent() {
		cmd = cmd.Parent()
	}
	return cmd
}

// configurable says whether a flag is a setting: not one about the command line itself.
func configurable(f *pflag.Flag) bool {
	return f.Name != "help" && f.Name != "config" && f.Name != "version"
}

// readSection reads the settings of a section: a scalar is one value, a list several.
func readSection(path string, top *cobra.Command) (map[string][]string, error) {
	if path == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	var file map[string]map[string]any
	if err := yaml.UnmarshalStrict(raw, &file); err != nil {
		return nil, fmt.Errorf("%s: want a section for each command with settings below it: %w", path, err)
	}
	for name := range file {
		if c, _, err := top.Root().Find([]string{name}); top.HasParent() && (err != nil || c.Name() != name) {
			return nil, fmt.Errorf("%s: %s: no such section: want the name of a command, as `heddle --help` lists them", path, name)
		}
	}
	settings := map[string][]string{}
	for key, v := range file[top.Name()] {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				settings[key] = append(settings[key], fmt.Sprint(item))
			}
		case map[string]any:
			return nil, fmt.Errorf("%s: %s.%s: want a value or a list of values", path, top.Name(), key)
		default:
			settings[key] = []string{fmt.Sprint(v)}
		}
	}
	return settings, nil
}

// flagNames are the settings of a command and those below it.
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
