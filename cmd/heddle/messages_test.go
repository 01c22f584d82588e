package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"heddle/internal/telemetry"
)

// Commands and flags in a text. What begins with a capital or a placeholder ends the words of a
// command.
var (
	quotedCommand = regexp.MustCompile("`heddle ([^`]+)`")
	namedCommand  = regexp.MustCompile(`\b(?:run|with|by|see|use|start|stop|try) heddle((?: [a-z][a-z-]*)+)`)
	namedFlag     = regexp.MustCompile("(?:^|[\\s`\"'(=/:|,])--([a-z][a-z0-9-]*)")
)

// flagsOfOthers are flags of other programs that messages name.
var flagsOfOthers = []string{
	"max-request-bytes", "max-txn-ops", "quota-backend-bytes", // etcd's
	"now", "system", // systemctl's, adduser's
	"multiple", // what xe says of its own
}

// TestMessagesNameWhatThereIs: each command and flag of heddle that a text of the programs names
// exists, so that what a message says to do can be done. The demo and the labs of tests start other
// programs, with flags of theirs.
func TestMessagesNameWhatThereIs(t *testing.T) {
	t.Parallel()
	root := newRoot()
	flags := map[string]bool{"help": true, "version": true}
	visitFlags(root, func(f *pflag.Flag) { flags[f.Name] = true })
	for place, text := range messages(t, "../../cmd", "../../internal", "../../calico") {
		var named []string
		for _, m := range quotedCommand.FindAllStringSubmatch(text, -1) {
			named = append(named, m[1])
		}
		for _, m := range namedCommand.FindAllStringSubmatch(text, -1) {
			named = append(named, m[1])
		}
		for _, line := range named {
			if wrong := wrongIn(root, line); wrong != "" {
				t.Errorf("%s: %s", place, wrong)
			}
		}
		if !strings.Contains(text, " ") || strings.Contains(place, "/netlab/") || strings.Contains(place, "/demo/") {
			continue // an argument, or another program's
		}
		for _, m := range namedFlag.FindAllStringSubmatch(text, -1) {
			if !flags[m[1]] && !slices.Contains(flagsOfOthers, m[1]) {
				t.Errorf("%s: no command has a flag --%s: %q", place, m[1], text)
			}
		}
	}
}

// TestEventsAreLogged: each message with an id in the journal is a text of the programs.
func TestEventsAreLogged(t *testing.T) {
	t.Parallel()
	logged := map[string]bool{}
	for place, text := range messages(t, "../../cmd", "../../internal") {
		if !strings.Contains(place, "telemetry/events.go:") {
			logged[text] = true
		}
	}
	for _, e := range telemetry.Events() {
		if !logged[e.Message] {
			t.Errorf("%s: nothing logs %q", e.ID, e.Message)
		}
	}
}

// TestMessagesCheck: the check of messages finds commands and flags that there are not.
func TestMessagesCheck(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"host token %s": "", "host remove NAME --force": "", "agent --cleanup": "", "ca rotate": "", "--help": "", "port set vm1 --host h1": "",
		"hots token": "no command", "host tokn %s": "no command", "agent --clean": "no flag --clean", "host list --name x": "no flag --name",
	} {
		if got := wrongIn(newRoot(), line); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("heddle %s: %q, want %q", line, got, want)
		}
	}
}

// wrongIn returns what is wrong with the words of a command line after heddle.
func wrongIn(root *cobra.Command, line string) string {
	words := strings.Fields(line)
	cmd, rest, err := root.Find(words)
	if err != nil || (cmd == root || cmd.HasSubCommands()) && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return "there is no command heddle " + line
	}
	for _, word := range rest {
		name, isFlag := strings.CutPrefix(strings.Trim(word, "[]…"), "--")
		if name, _, _ = strings.Cut(name, "="); isFlag && name != "help" && cmd.Flag(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
			return "heddle " + line + " has no flag --" + name
		}
	}
	return ""
}

// visitFlags visits the flags of a command and of those below it.
func visitFlags(cmd *cobra.Command, visit func(*pflag.Flag)) {
	cmd.Flags().VisitAll(visit)
	cmd.PersistentFlags().VisitAll(visit)
	for _, sub := range cmd.Commands() {
		visitFlags(sub, visit)
	}
}

// messages returns the texts in Go files, by their places.
func messages(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	files := token.NewFileSet()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if text, err := strconv.Unquote(literal.Value); err == nil {
						all[files.Position(literal.Pos()).String()] = text
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}
