package main

import (
	"os"
	"path/filepath"
	"regexp"
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
	if text := read(dirs[0], "heddle.7"); text != read(dirs[1], "heddle.7") || !strings.Contains(text, "\n.SH FILES\n") {
		t.Errorf("heddle(7) differs between two runs, or lacks the files:\n%s", text)
	}
}

// TestOverview: heddle(7) has a line for each role, and names pages and commands that there are.
func TestOverview(t *testing.T) {
	t.Parallel()
	root := newRoot()
	page := string(overviewPage(root))
	for _, role := range roles {
		if !strings.Contains(page, "**heddle-"+role+"**(1)\n:   ") {
			t.Errorf("%s is missing", role)
		}
	}
	for _, m := range regexp.MustCompile(`heddle-([a-z-]+)\**\(1\)`).FindAllStringSubmatch(page, -1) {
		if cmd, _, err := root.Find(m[1:]); err != nil || cmd == root {
			t.Errorf("%s: no such command", m[0])
		}
	}
	steps := commandLine.FindAllStringSubmatch(page, -1)
	if len(steps) < 5 {
		t.Errorf("first steps %q", steps)
	}
	for _, m := range steps {
		if err := parse(shellWords(m[2])); err != nil {
			t.Errorf("heddle %s: %v", m[2], err)
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
