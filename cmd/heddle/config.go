package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"heddle/internal/cli"
	"heddle/internal/command"
)

// A flag that was not given takes its value from the environment (HEDDLE_ and the flag's name in
// capitals, dashes as underscores), then from the configuration, then its default. That is a YAML
// file with a section for each command, whose keys are the names of that command's flags, and the
// drop-ins beside it:
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

// configure sets every flag of cmd that is not on the command line from env, or from the file at
// path and its drop-ins ("" = no file). Errors name the file, line, section and key, or the
// variable.
func configure(cmd *cobra.Command, path string, lookup func(string) (string, bool)) error {
	top := section(cmd)
	c, err := readConfiguration(path, top)
	if err != nil {
		return err
	}
	known := flagNames(top)
	for key := range c.sections[top.Name()].settings {
		if !slices.Contains(known, key) {
			return fmt.Errorf("%s: %w", c.place(top.Name(), key), noSetting(key, known))
		}
	}
	if err := c.checkValues(top.Name()); err != nil {
		return err
	}
	var failed error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if failed != nil || f.Changed || !configurable(f) {
			return
		}
		values, from := given(f, top.Name(), c, lookup)
		for _, v := range values {
			if err := cmd.Flags().Set(f.Name, v); err != nil {
				failed = fmt.Errorf("%s: %w", from, valueError(f, v, err))
				return
			}
		}
	})
	return failed
}

// given returns the values that the environment or the configuration gives a flag of a section's
// command, and where: the variable, or the place in a file; "" where neither does.
func given(f *pflag.Flag, top string, c configuration, lookup func(string) (string, bool)) (values []string, from string) {
	if v, ok := lookup(environmentName(f.Name)); ok {
		return []string{v}, environmentName(f.Name)
	}
	for _, name := range append([]string{top}, f.Annotations[cli.OtherSections]...) {
		if s, ok := c.sections[name].settings[f.Name]; ok {
			return s.values, c.place(name, f.Name)
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
