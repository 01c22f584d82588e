package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

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
		Long: "Writes a page of section 1 for each command, and heddle.yaml(5) about the settings. SOURCE_DATE_EPOCH sets the pages' date.",
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
			return os.WriteFile(filepath.Join(dir, "heddle.yaml.5"), md2man.Render(settingsPage(root)), 0o644)
		},
	}
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

# DESCRIPTION
A YAML file with a section for each command, whose keys are the names of its flags. A flag on the command line wins, then a
variable such as HEDDLE_DATA, then the file, then the default. Keys that no command has are refused.

`)
	for _, cmd := range root.Commands() {
		writeSection(&b, cmd)
	}
	b.WriteString("# SEE ALSO\nheddle(1)\n")
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
