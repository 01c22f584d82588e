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
	"heddle/internal/sourceline"
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
// = no file). Errors name the file, line, section and key, or the variable.
func configure(cmd *cobra.Command, path string, lookup func(string) (string, bool)) error {
	top := section(cmd)
	file, err := readSections(path, top)
	if err != nil {
		return err
	}
	known := flagNames(top)
	for key := range file.sections[top.Name()] {
		if !slices.Contains(known, key) {
			return fmt.Errorf("%s: %w", file.place(top.Name(), key), noSetting(key, known))
		}
	}
	if err := file.flat(top.Name()); err != nil {
		return err
	}
	var failed error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if failed != nil || f.Changed || !configurable(f) {
			return
		}
		values, from := given(f, top.Name(), file, lookup)
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
// and where: the variable, or the place in the file; "" where neither does.
func given(f *pflag.Flag, top string, file configFile, lookup func(string) (string, bool)) (values []string, from string) {
	if v, ok := lookup(environmentName(f.Name)); ok {
		return []string{v}, environmentName(f.Name)
	}
	for _, name := range append([]string{top}, f.Annotations[cli.OtherSections]...) {
		if values, ok := file.sections[name][f.Name]; ok {
			return values, file.place(name, f.Name)
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

// configFile is a configuration file.
type configFile struct {
	path     string
	text     []byte
	sections map[string]map[string][]string // values by section and key
	nested   []settingName                  // those whose values have keys of their own, which no setting takes
}

type settingName struct{ section, key string }

// place returns the place of a section, or of a key in it, for messages: file, line and names.
func (f configFile) place(names ...string) string {
	at := strings.Join(names, ".")
	return sourceline.Prefix(f.path, f.text, at) + ": " + at
}

// flat returns an error if a setting of a section has keys of its own.
func (f configFile) flat(section string) error {
	for _, n := range f.nested {
		if n.section == section {
			return f.notFlat(n)
		}
	}
	return nil
}

func (f configFile) notFlat(n settingName) error {
	return fmt.Errorf("%s: want a value or a list of values", f.place(n.section, n.key))
}

// readSections reads the settings by section and key: a scalar is one value, a list several. The
// path "" is no file.
func readSections(path string, top *cobra.Command) (configFile, error) {
	file := configFile{path: path, sections: map[string]map[string][]string{}}
	if path == "" {
		return file, nil
	}
	var err error
	if file.text, err = os.ReadFile(path); err != nil {
		return file, fmt.Errorf("configuration: %w", err)
	}
	var all map[string]any
	if err := yaml.UnmarshalStrict(file.text, &all); err != nil {
		return file, fmt.Errorf("%s: want sections named after commands, with settings below them: %w", path, err)
	}
	for name, below := range all {
		settings, isSection := below.(map[string]any)
		if !isSection && below != nil {
			return file, fmt.Errorf("%s: want settings below it, such as `data: /var/lib/heddle`, not %v", file.place(name), below)
		}
		if c, _, err := top.Root().Find([]string{name}); top.HasParent() && (err != nil || c.Name() != name) {
			return file, file.noSection(name, top.Root())
		}
		file.sections[name] = map[string][]string{}
		for key, v := range settings {
			switch v := v.(type) {
			case []any:
				file.sections[name][key] = []string{}
				for _, item := range v {
					file.sections[name][key] = append(file.sections[name][key], fmt.Sprint(item))
				}
			case map[string]any:
				file.nested = append(file.nested, settingName{name, key})
			default:
				file.sections[name][key] = []string{fmt.Sprint(v)}
			}
		}
	}
	return file, nil
}

func (f configFile) noSection(name string, root *cobra.Command) error {
	meant := cmp.Or(command.DidYouMean("", name, subcommands(root)), ": want the name of a command, as `heddle --help` lists them")
	return fmt.Errorf("%s: no such section%s", f.place(name), meant)
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
