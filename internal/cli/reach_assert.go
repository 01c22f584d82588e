package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"heddle/internal/api/operator"
	"heddle/internal/cloud"
	"heddle/internal/command"
	"heddle/internal/offline"
	"heddle/internal/sourceline"
	"heddle/internal/strictjson"
	"heddle/internal/terminal"
)

// maxRules bounds the length of a file of rules, in bytes.
const maxRules = 1 << 20

// assertReach holds the virtual network to the rules in a file, and prints what became of each. The
// error of a breach is exit code 1.
func assertReach(cmd *cobra.Command, login *cloud.Config, file, format, at string, with *changeFile) error {
	text, err := readRules(file)
	if err != nil {
		return err
	}
	req := operator.AssertRequest{At: at, With: with.steps}
	converted, err := offline.DocumentJSON(text)
	if err == nil {
		err = strictjson.Unmarshal(converted, &req.Rules)
	}
	if err != nil {
		return &command.Exit{Code: 2, Text: file + ": " + err.Error()}
	}
	var a operator.AssertAnswer
	if err := callOperator(cmd, login, http.MethodPost, "/v1/reach/assert", &req, &a); err != nil {
		return with.named(inFile(file, text, err))
	}
	if format == "json" {
		err = command.PrintJSON(cmd.OutOrStdout(), a)
	} else {
		with.printWith(cmd.OutOrStdout(), a.Refused, strings.Clone)
		printAssertions(cmd.OutOrStdout(), file, text, &a)
	}
	for _, r := range a.Results {
		if err == nil && r.Breaches > 0 {
			err = &command.Exit{Code: 1}
		}
	}
	return err
}

func readRules(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, &command.Exit{Code: 2, Text: err.Error()}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRules+1))
	if err == nil && len(text) > maxRules {
		err = fmt.Errorf("%s: longer than %d bytes", file, maxRules)
	}
	return text, err
}

var ruleField = regexp.MustCompile(`rules(\[\d+\][A-Za-z0-9_.\[\]]*)`)

// inFile names the line of the file that a server's error is about.
func inFile(file string, text []byte, err error) error {
	m := ruleField.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	return errors.New(sourceline.Prefix(file, text, strings.TrimSuffix(m[1], ":")) + ": " + err.Error())
}

func printAssertions(w io.Writer, file string, text []byte, a *operator.AssertAnswer) {
	line := func(format string, args ...any) { terminal.Fprintln(w, fmt.Sprintf(format, args...)) }
	printMoment(w, a.Revision, a.Time)
	for i, r := range a.Results {
		where := sourceline.Prefix(file, text, fmt.Sprintf("[%d]", i))
		switch {
		case r.Pairs == 0:
			line("%s: holds, but is about no pair of machines", where)
		case r.Breaches == 0:
			line("%s: holds, with %s", where, counted(r.Pairs, "pair"))
		default:
			line("%s: broken by %d of %s", where, r.Breaches, counted(r.Pairs, "pair"))
		}
		for _, b := range r.Examples {
			var services []string
			for _, s := range b.Services {
				services = append(services, s.Text)
			}
			line("  %s → %s: %s", endText(b.From), endText(b.To), strings.Join(services, ", "))
			if b.Why != nil {
				printWhy(w, b.Why, true)
			}
		}
		if more := r.Breaches - len(r.Examples); more > 0 {
			line("  … and %d more", more)
		}
	}
}
