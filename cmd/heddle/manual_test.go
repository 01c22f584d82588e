package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestManual: each command that is shown has a page, each setting is in the page about the file,
// and the same date gives the same bytes.
func TestManual(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dirs := []string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		root := newRoot()
		root.SetArgs([]string{"manual", dir})
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
	}
	read := func(dir, page string) string {
		raw, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Error(err)
		}
		return string(raw)
	}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		page := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		if text := read(dirs[0], page); text != read(dirs[1], page) || !strings.Contains(text, "Nov 2023") {
			t.Errorf("%s differs between two runs, or has another date", page)
		}
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				visit(sub)
			}
		}
	}
	visit(newRoot())
	file := read(dirs[0], "heddle.yaml.5")
	for _, name := range append(flagNames(serveCommand()), flagNames(agentCommand())...) {
		if !strings.Contains(file, "\n\\fB"+strings.ReplaceAll(name, "-", `\-`)) && !strings.Contains(file, "\\fB"+name) {
			t.Errorf("heddle.yaml(5) lacks the setting %s", name)
		}
	}
}

// TestFlagsAreExplained: each flag has at least three words about it.
func TestFlagsAreExplained(t *testing.T) {
	t.Parallel()
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if len(strings.Fields(f.Usage)) < 3 {
				t.Errorf("%s --%s: %q", cmd.CommandPath(), f.Name, f.Usage)
			}
		})
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot())
}
