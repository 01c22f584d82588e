package main

import (
	"fmt"
	"os"
	"sort"
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
	section, err := readSection(path, cmd.Name())
	if err != nil {
		return err
	}
	for key := range section {
		if f := cmd.LocalNonPersistentFlags().Lookup(key); f == nil || key == "help" {
			return fmt.Errorf("%s: %s.%s: no such setting; known: %s", path, cmd.Name(), key, strings.Join(flagNames(cmd), ", "))
		}
	}
	var failed error
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if failed != nil || f.Changed || f.Name == "help" {
			return
		}
		if v, ok := lookup(environmentName(f.Name)); ok {
			if err := cmd.Flags().Set(f.Name, v); err != nil {
				failed = fmt.Errorf("%s: %w", environmentName(f.Name), err)
			}
			return
		}
		for _, v := range section[f.Name] {
			if err := cmd.Flags().Set(f.Name, v); err != nil {
				failed = fmt.Errorf("%s: %s.%s: %w", path, cmd.Name(), f.Name, err)
				return
			}
		}
	})
	return failed
}

// readSection reads the settings of one command: a scalar is one value, a list several.
func readSection(path, name string) (map[string][]string, error) {
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
	section := map[string][]string{}
	for key, v := range file[name] {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				section[key] = append(section[key], fmt.Sprint(item))
			}
		case map[string]any:
			return nil, fmt.Errorf("%s: %s.%s: want a value or a list of values", path, name, key)
		default:
			section[key] = []string{fmt.Sprint(v)}
		}
	}
	return section, nil
}

func flagNames(cmd *cobra.Command) []string {
	var names []string
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			names = append(names, f.Name)
		}
	})
	sort.Strings(names)
	return names
}
