package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"heddle/internal/api/operator"
	"heddle/internal/command"
	"heddle/internal/offline"
	"heddle/internal/sourceline"
	"heddle/internal/strictjson"
	"heddle/internal/terminal"
	"heddle/internal/topology/flow"
)

// diffCommand returns the command that asks what a change would do.
func diffCommand() *cobra.Command {
	var c changeFile
	var at, from, to string
	var require bool
	cmd := &cobra.Command{
		Use:   "diff --change FILE | --from TIME|REVISION [--to TIME|REVISION]",
		Short: "Ask what a change would do, or what has changed, and who reaches whom then",
		Long: `Makes the requests of a file in the server's memory alone, with the checks, defaults and quotas that they would meet, and says which of
them would be refused, which objects would differ, which connections would work and which would not any more, and what deserves a
second look. Nothing is carried out. The file has the form that heddle translate reads, a list of steps; an id that a step gives a
new object stands for it in later steps. With --from it compares two times in the same way.
  heddle diff --change open-ssh.yaml
  heddle diff --change open-ssh.yaml --require
  heddle diff --from 2h`,
		Args: cobra.NoArgs,
	}
	login := cloudFlags(cmd)
	format := command.OutputFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&c.file, "change", "", "`file` of requests, YAML or JSON; - for standard input")
	f.StringVar(&at, "at", "", "make the change at a past `time`, such as 2h, 3d or 2026-11-28T06:00:00Z, or a revision as heddle history prints it")
	f.StringVar(&from, "from", "", "compare from this `time`, or revision, in place of a change")
	f.StringVar(&to, "to", "", "compare up to this `time`, or revision; default: now")
	f.BoolVar(&require, "require", false, "exit 1 if a request would be refused, or a connection would fare worse")
	for _, name := range []string{"change", "at", "from", "to", "require"} {
		perCall(f, name)
	}
	cmd.MarkFlagsOneRequired("change", "from")
	for _, name := range []string{"from", "to"} {
		cmd.MarkFlagsMutuallyExclusive("change", name)
		cmd.MarkFlagsMutuallyExclusive("at", name)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		var req operator.DiffRequest
		for _, one := range []struct {
			flag, text string
			to         *string
		}{{"--at", at, &req.At}, {"--from", from, &req.From}, {"--to", strings.TrimPrefix(to, "now"), &req.To}} {
			if *one.to, err = momentOf(one.flag, one.text); err != nil {
				return err
			}
		}
		if err := c.read(cmd); err != nil {
			return err
		}
		req.Change = c.steps
		var a operator.DiffAnswer
		if err := callOperator(cmd, login, http.MethodPost, "/v1/diffs", &req, &a); err != nil {
			return c.named(err)
		}
		if *format == "json" {
			err = command.PrintJSON(cmd.OutOrStdout(), a)
		} else {
			printDiff(cmd.OutOrStdout(), &c, &a)
		}
		if err == nil && require && len(a.Refused)+len(a.Lost)+a.PairsOmitted > 0 {
			err = &command.Exit{Code: 1}
		}
		return err
	}
	return cmd
}

// read reads the steps, if there is a file.
func (c *changeFile) read(cmd *cobra.Command) error {
	if c.file == "" {
		return nil
	}
	in, err := inputFile(cmd, c.file)
	if err != nil {
		return err
	}
	defer in.Close()
	if c.text, err = io.ReadAll(io.LimitReader(in, maxRules+1)); err != nil {
		return err
	}
	if c.steps, err = stepsIn(c.text); err != nil {
		return &command.Exit{Code: 2, Text: c.file + ": " + err.Error()}
	}
	return nil
}

// stepsIn returns the steps of a change in YAML or JSON.
func stepsIn(text []byte) ([]operator.ChangeStep, error) {
	if len(text) > maxRules {
		return nil, fmt.Errorf("longer than %d bytes", maxRules)
	}
	converted, err := offline.DocumentJSON(text)
	if err != nil {
		return nil, err
	}
	var document struct {
		Steps []operator.ChangeStep `json:"steps"`
	}
	if err := strictjson.Unmarshal(converted, &document); err != nil {
		return nil, err
	}
	if len(document.Steps) == 0 {
		return nil, errors.New("steps: want a list of them, each with op, type and data")
	}
	return document.Steps, nil
}

// changeFile is the file of a change that a question is about.
type changeFile struct {
	file  string // "": there is none
	text  []byte
	steps []operator.ChangeStep
}

// withFlag adds the flag --with, a change after which a question is about.
func withFlag(f *pflag.FlagSet, c *changeFile) {
	f.StringVar(&c.file, "with", "", "answer for what it would be after the requests in a `file`, as heddle diff reads it; - for standard input")
	perCall(f, "with")
}

var stepField = regexp.MustCompile(`step (\d+): `)

// place names the line of a step, from 1.
func (c *changeFile) place(step int) string {
	return sourceline.Prefix(c.file, c.text, fmt.Sprintf("steps[%d]", step-1))
}

// named adds to a server's error about a step the line of that.
func (c *changeFile) named(err error) error {
	m := stepField.FindStringSubmatch(fmt.Sprint(err))
	if c.file == "" || m == nil {
		return err
	}
	step, _ := strconv.Atoi(m[1]) // digits
	return &command.Exit{Code: 2, Text: c.place(step) + ": " + err.Error()}
}

// printWith prints that an answer is for what would be after the change.
func (c *changeFile) printWith(w io.Writer, refused []operator.RefusedStep, named func(string) string) {
	if c.file != "" {
		terminal.Fprintln(w, "after the change in "+c.file+", which is not made:")
		c.printRefused(w, refused, named)
	}
}

// printRefused prints the steps that the server would refuse.
func (c *changeFile) printRefused(w io.Writer, refused []operator.RefusedStep, named func(string) string) {
	for _, r := range refused {
		terminal.Fprintln(w, fmt.Sprintf("%s: step %d refused: %s", c.place(r.Step), r.Step, named(r.Message)))
	}
}

func printDiff(w io.Writer, c *changeFile, a *operator.DiffAnswer) {
	p := changePrinter{w: w, names: a.Names}
	switch {
	case a.UntilTime != nil:
		p.line("from revision %d, %s, to revision %d, %s:", a.Revision, localTime(*a.Time), a.Until, localTime(*a.UntilTime))
	default:
		printMoment(w, a.Revision, a.Time)
	}
	c.printRefused(w, a.Refused, p.named)
	p.line("objects:")
	for i := range a.Objects {
		p.object(&a.Objects[i])
	}
	if len(a.Objects) == 0 {
		p.line("    none")
	}
	printReachChanges(w, "", "lost", a.Names, a.Lost)
	printReachChanges(w, "", "gained", a.Names, a.Gained)
	if a.PairsOmitted > 0 {
		p.line(omittedPairs, a.PairsOmitted)
	}
	if cut := a.Cut; cut != nil {
		p.line("cut: %s of the last minute", counted(cut.Count, "connection"))
		for _, x := range cut.Examples {
			p.line("    %s %s → %s, by host %s", protocolText(x.Protocol), x.Source, x.Destination, x.Host)
		}
		for _, h := range cut.Missing {
			p.line("    host %s is not counted: %s", h.Name, h.Error)
		}
	}
	for _, warning := range a.Warnings {
		p.line("warning: %s", p.named(warning.Text))
	}
}

const omittedPairs = "not compared: %d pairs of classes of machines, beyond the most that one question asks about"

// fateWords has what is said of connections by their fate.
var fateWords = map[operator.Fate]string{
	operator.FateNever: "none arrives", operator.FateOneWay: "without an answer", operator.FateMay: "some work", operator.FateAlways: "all work",
}

// printReachChanges prints the connections that fare otherwise, indented.
func printReachChanges(w io.Writer, indent, what string, names map[string]flow.TraceName, rows []operator.ReachChange) {
	line := func(format string, args ...any) { terminal.Fprintln(w, indent+fmt.Sprintf(format, args...)) }
	line("%s:", what)
	if len(rows) == 0 {
		line("    none")
	}
	named := &operator.ReachAnswer{Names: names}
	ends := func(e *operator.ChangeEnds) string {
		if len(e.Outside) > 0 {
			return "outside (" + e.Text + ")"
		}
		return portsText(named, e.Ports)
	}
	for i := range rows {
		r := &rows[i]
		var services []string
		for _, s := range r.Services {
			services = append(services, s.Text)
		}
		fate := ""
		if r.Before != operator.FateNever || r.After != operator.FateAlways {
			fate = fmt.Sprintf(" (%s, before: %s)", fateWords[r.After], fateWords[r.Before])
		}
		if r.Before == operator.FateAlways && r.After == operator.FateNever {
			fate = ""
		}
		line("    IPv%d %s%s", r.Version, strings.Join(services, ", "), fate)
		line("        from %s", ends(&r.From))
		line("        to   %s", ends(&r.To))
		line("        such as %s from %s to %s", r.Example.Service, endText(r.Example.From), endText(r.Example.To))
		if why := r.Example.Why; why != nil && why.Verdict != operator.Allowed {
			leg := &why.There
			if leg.Allowed && why.Back != nil {
				leg = why.Back
			}
			line("            %s", leg.Reason)
		}
	}
}
