package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/api/operator"
	"heddle/internal/cloud"
	"heddle/internal/command"
	"heddle/internal/terminal"
	"heddle/internal/topology/flow"
)

// historyCommand returns the command that shows who changed what.
func historyCommand() *cobra.Command {
	var by, since, before string
	var limit int
	var effect bool
	cmd := &cobra.Command{
		Use:   "history [OBJECT]",
		Short: "Show who changed what, and when",
		Long: `Shows changes of the virtual network, the newest first: the time, who requested them and by which call, and what changed, field by field. OBJECT is
an id or a name: its own changes, those of objects that begin or cease to refer to it, such as the ports of a security group, and, of a group, those of
its rules. A server's own work and what another program has written into the store is a "direct write". Each server keeps a journal of 30 days or 4 GB;
what it has not recorded is named.
  heddle history web
  heddle history --by alice --since 2h
  heddle history web --effect
  heddle history show 4711`,
		Args: cobra.MaximumNArgs(1),
	}
	login := cloudFlags(cmd)
	format := command.OutputFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&by, "by", "", "only changes that a `user` requested, by name or id")
	f.StringVar(&since, "since", "", "only changes since a `time`, such as 2h, 3d or 2026-11-28T06:00:00Z")
	f.StringVar(&before, "before", "", "go on from the `place` that a former answer has ended with")
	f.IntVar(&limit, "limit", 20, "most changes to show at once")
	f.BoolVar(&effect, "effect", false, "show, too, which connections each change has made possible or impossible, for ten seconds at most")
	for _, name := range []string{"by", "since", "before", "limit", "effect"} {
		perCall(f, name)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		query := url.Values{"limit": {strconv.Itoa(limit)}}
		if since != "" {
			at, err := parseSince(since, time.Now())
			if err != nil {
				return &command.Exit{Code: 2, Text: "--since: " + err.Error()}
			}
			query.Set("since", at.UTC().Format(time.RFC3339))
		}
		for name, value := range map[string]string{"object": strings.Join(args, ""), "by": by, "before": before} {
			if value != "" {
				query.Set(name, value)
			}
		}
		if effect {
			query.Set("effect", "true")
		}
		asJSON, err := wantJSON(*format)
		if err != nil {
			return err
		}
		var h operator.History
		if err := callOperator(cmd, login, http.MethodGet, "/v1/history?"+query.Encode(), nil, &h); err != nil {
			return err
		}
		if asJSON {
			return command.PrintJSON(cmd.OutOrStdout(), h)
		}
		printHistory(cmd.OutOrStdout(), &h)
		return nil
	}
	cmd.AddCommand(historyShowCommand(login))
	return cmd
}

func historyShowCommand(login *cloud.Config) *cobra.Command {
	cmd := &cobra.Command{Use: "show REVISION", Short: "Show one revision with the call that made it", Args: cobra.ExactArgs(1)}
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asJSON, err := wantJSON(*format)
		if err != nil {
			return err
		}
		var h operator.History
		if err := callOperator(cmd, login, http.MethodGet, "/v1/revisions/"+url.PathEscape(args[0]), nil, &h); err != nil {
			return err
		}
		if asJSON {
			return command.PrintJSON(cmd.OutOrStdout(), h.Changes[0])
		}
		p := changePrinter{cmd.OutOrStdout(), h.Names, h.Epoch}
		p.revision(&h.Changes[0])
		p.call(&h.Changes[0])
		return nil
	}
	return cmd
}

var days = regexp.MustCompile(`^([0-9]{1,4})d$`)

// parseSince reads a time, or how long ago it was.
func parseSince(text string, now time.Time) (time.Time, error) {
	if m := days.FindStringSubmatch(text); m != nil {
		n, _ := strconv.Atoi(m[1]) // digits
		return now.AddDate(0, 0, -n), nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q: want a time such as 2h, 3d, 2026-11-28 or 2026-11-28T06:00:00Z", text)
}

func printHistory(w io.Writer, h *operator.History) {
	p := changePrinter{w, h.Names, h.Epoch}
	gaps := h.Gaps
	for i := range h.Changes {
		for len(gaps) > 0 && !gaps[0].AfterTime.Before(h.Changes[i].Time) {
			p.gap(gaps[0])
			gaps = gaps[1:]
		}
		if i > 0 && h.Changes[i].Epoch != h.Changes[i-1].Epoch {
			p.line("the store was restored or replaced after %s", localTime(h.Changes[i].Time))
		}
		p.revision(&h.Changes[i])
	}
	for _, g := range gaps {
		p.gap(g)
	}
	if h.Problem != "" {
		p.line("nothing is recorded at present: %s", h.Problem)
	}
	switch {
	case h.Next != "":
		p.line("more: --before %s", h.Next)
	case h.Begins.IsZero():
		p.line("nothing was recorded yet")
	case len(h.Changes) == 0:
		p.line("no such change since the journal begins, at %s", localTime(h.Begins))
	default:
		p.line("the journal begins at %s", localTime(h.Begins))
	}
}

func localTime(t time.Time) string { return t.Local().Format(time.DateTime) }

// changePrinter prints changes, with names beside ids.
type changePrinter struct {
	w     io.Writer
	names map[string]flow.TraceName
	epoch int // the newest
}

func (p *changePrinter) line(format string, args ...any) {
	terminal.Fprintln(p.w, fmt.Sprintf(format, args...))
}

func (p *changePrinter) gap(g operator.Gap) { p.line("%s", gapText(g)) }

func gapText(g operator.Gap) string {
	reason := ""
	if g.Reason != "" {
		reason = ": " + g.Reason
	}
	return fmt.Sprintf("not recorded between %s (revision %d) and %s (revision %d)%s", localTime(g.AfterTime), g.After, localTime(g.UntilTime), g.Until, reason)
}

func (p *changePrinter) revision(r *operator.Revision) {
	author, call := "direct write", ""
	if a := r.Author; a != nil {
		author, call = a.User, ": "+p.named(a.Summary)
		if author == "" {
			author = "without a log-in"
		}
	}
	revision := strconv.FormatInt(r.Revision, 10)
	if r.Epoch != p.epoch {
		revision = fmt.Sprintf("%d.%d", r.Epoch, r.Revision)
	}
	p.line("%s  %s  %s%s", revision, localTime(r.Time), author, call)
	for _, o := range r.Objects {
		p.object(&o)
	}
	if r.Effect != nil {
		p.effect(r.Effect)
	}
}

// effect prints the connections that fare otherwise by a change.
func (p *changePrinter) effect(e *operator.Effect) {
	switch {
	case e.NotCompared != "":
		p.line("    connections were not compared: %s", e.NotCompared)
	case len(e.Lost)+len(e.Gained) == 0 && e.PairsOmitted == 0:
		p.line("    connections: as before")
	}
	if len(e.Lost) > 0 {
		printReachChanges(p.w, "    ", "lost", p.names, e.Lost)
	}
	if len(e.Gained) > 0 {
		printReachChanges(p.w, "    ", "gained", p.names, e.Gained)
	}
	if e.PairsOmitted > 0 {
		p.line("    "+omittedPairs, e.PairsOmitted)
	}
}

func (p *changePrinter) object(o *operator.ChangedObject) {
	p.line("    %s %s %s", o.Change, o.Kind, p.named(cmp.Or(o.ID, o.Name)))
	if o.Change == "deleted" {
		return
	}
	for _, f := range o.Fields {
		if o.Change == "created" && (isEmpty(f.After) || slices.Contains(unprinted, f.Name) || f.Name == "name") {
			continue
		}
		p.field(&f)
	}
}

func (p *changePrinter) field(f *operator.ChangedField) {
	name := p.named(f.Name)
	switch {
	case f.Before == nil:
		p.line("        + %s: %s", name, p.value(f.After))
	case f.After == nil:
		p.line("        - %s: %s", name, p.value(f.Before))
	default:
		p.line("          %s: %s → %s", name, p.value(f.Before), p.value(f.After))
	}
}

// unprinted has the members of objects in lists that are not worth a place in a line.
var unprinted = []string{"id", "project_id", "created_at", "updated_at", "revision_number", "security_group_id"}

// value returns a value in short: of an object its members that are set.
func (p *changePrinter) value(raw json.RawMessage) string {
	var members map[string]json.RawMessage
	var text string
	switch {
	case json.Unmarshal(raw, &text) == nil && text != "":
		return p.named(text)
	case json.Unmarshal(raw, &members) != nil || len(members) == 0:
		return p.named(string(raw))
	}
	var set []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !isEmpty(members[name]) && !slices.Contains(unprinted, name) {
			set = append(set, name+"="+p.value(members[name]))
		}
	}
	return strings.Join(set, " ")
}

// isEmpty reports whether a value says nothing.
func isEmpty(raw json.RawMessage) bool {
	return slices.Contains([]string{"", "null", `""`, "[]", "{}", "false", "0"}, string(raw))
}

var objectID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// named puts names before the ids of objects in a text.
func (p *changePrinter) named(text string) string {
	return objectID.ReplaceAllStringFunc(text, func(id string) string {
		n := p.names[id]
		if n.Name == "" || strings.Contains(n.Kind, " of ") { // a part of the object with this name
			return id
		}
		return n.Name + " (" + id + ")"
	})
}

// call prints the request behind a change, and what follows from it.
func (p *changePrinter) call(r *operator.Revision) {
	if a := r.Author; a != nil {
		p.line("call        %s %s %s", a.API, a.Method, a.Path)
		p.line("request     %s at %s", a.RequestID, a.Time.Local().Format("2006-01-02 15:04:05.000"))
		p.line("user        %s (%s), project %s", a.User, a.UserID, a.ProjectID)
		if a.ApplicationCredentialID != "" {
			p.line("credential  application credential %s", a.ApplicationCredentialID)
		}
		p.line("client      %s", a.Client)
		if a.Body != "" {
			cut := ""
			if a.Cut {
				cut = " …"
			}
			p.line("body        %s%s", a.Body, cut)
		}
	}
	for _, key := range r.Derived {
		p.line("derived     %s", p.named(key))
	}
}
