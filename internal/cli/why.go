package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"heddle/internal/api/operator"
	"heddle/internal/command"
	"heddle/internal/terminal"
	"heddle/internal/topology/flow"
)

// whyCommand returns the command that asks whether a new connection would pass.
func whyCommand() *cobra.Command {
	var req operator.WhyRequest
	var from, to string
	var steps bool
	var at string
	var with changeFile
	cmd := &cobra.Command{
		Use:   "why --from PORT|ADDRESS[:PORT] --to PORT|ADDRESS[:PORT]",
		Short: "Ask whether a new connection would pass the virtual network or routed hosts, and why",
		Long: `Follows the first packet of a connection, and the answer to it, and says what lets them pass or drops them. An end is a port, by id or
name, or an address: of a port, a floating one, or one outside. It may also be an endpoint of Calico's data model on a routed host: by its id, its
workload's, WORKLOAD/ENDPOINT, HOST/WORKLOAD/ENDPOINT or, of a host endpoint, HOST/ENDPOINT. The agent of the host where the packet comes in answers with the
connections that it knows; where none is alive the server answers alone. If a rule of a security group or of a firewall group, an interface
or a gateway of a router, a route, a floating IP or an administrative state is what is missing, it prints the commands that make it; they
were tried in memory, and are not carried out; on routed hosts these are rules of policies and profiles. Exits 1 if the connection would not pass.
  heddle why --from web --to db:5432
  heddle why --from web:40122 --to db:5432 --reply
  heddle why --from web --to db:5432 --since
  heddle why --from 198.51.100.7 --to 203.0.113.10:443 --steps`,
		Args: cobra.NoArgs,
	}
	login := cloudFlags(cmd)
	format := command.OutputFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "`port` or address that opens the connection, with :PORT for the one that tcp or udp comes from")
	f.StringVar(&to, "to", "", "`port` or address that it is for, with :PORT for tcp and udp")
	f.StringVar(&req.Protocol, "proto", "", "`protocol`, such as tcp, udp or icmp; default: tcp with a port, else an echo request of icmp")
	f.BoolVar(&req.Reply, "reply", false, "ask about the answer within a connection that is there already, by what hosts know of it")
	f.BoolVar(&req.Live, "live", false, "wait for the next real first packet like this, 20 seconds at most, and explain it")
	f.BoolVar(&req.Dropped, "dropped", false, "likewise for the next one that is dropped")
	f.StringVar(&at, "at", "", "answer for a past `time`, such as 2h, 3d or 2026-11-28T06:00:00Z, or a revision as heddle history prints it")
	f.BoolVar(&req.Since, "since", false, "say, too, since which change the verdict is as it is, and who made it")
	withFlag(f, &with)
	f.BoolVar(&steps, "steps", false, "print each step of both ways")
	for _, name := range []string{"from", "to", "proto", "reply", "live", "dropped", "at", "since", "steps"} {
		perCall(f, name)
	}
	cobra.CheckErr(cmd.MarkFlagRequired("from"))
	cobra.CheckErr(cmd.MarkFlagRequired("to"))
	for _, name := range []string{"from", "to"} {
		registerCompletion(cmd, name, completeWorkloadPorts(login))
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if req.From, req.SourcePort, err = splitPort(from); err != nil {
			return &command.Exit{Code: 2, Text: "--from: " + err.Error()}
		}
		if req.To, req.Port, err = splitPort(to); err != nil {
			return &command.Exit{Code: 2, Text: "--to: " + err.Error()}
		}
		if req.At, err = momentOf("--at", at); err != nil {
			return err
		}
		if err := with.read(cmd); err != nil {
			return err
		}
		req.With = with.steps
		var a operator.WhyAnswer
		if err := callOperator(cmd, login, http.MethodPost, "/v1/why", &req, &a); err != nil {
			return with.named(err)
		}
		if *format == "json" {
			err = command.PrintJSON(cmd.OutOrStdout(), a)
		} else {
			names := &flow.TraceAnswer{Names: a.Names}
			with.printWith(cmd.OutOrStdout(), a.Refused, func(text string) string { return withNames(names, text) })
			printWhy(cmd.OutOrStdout(), &a, steps)
			printSince(cmd.OutOrStdout(), &a)
		}
		if err == nil && a.Verdict != operator.Allowed {
			err = &command.Exit{Code: 1}
		}
		return err
	}
	return cmd
}

var portSuffix = regexp.MustCompile(`^(.+):([0-9]+)$`)

// splitPort splits the port from the end of a name or address. An IPv6 address with a port is in
// brackets.
func splitPort(text string) (name string, port uint16, err error) {
	if _, err := netip.ParseAddr(text); err == nil {
		return text, 0, nil
	}
	m := portSuffix.FindStringSubmatch(text)
	if m == nil {
		return strings.Trim(text, "[]"), 0, nil
	}
	n, err := strconv.ParseUint(m[2], 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("port %s: want 1 to 65535", m[2])
	}
	return strings.Trim(m[1], "[]"), uint16(n), nil
}

func printWhy(w io.Writer, a *operator.WhyAnswer, steps bool) {
	line := func(format string, args ...any) { terminal.Fprintln(w, fmt.Sprintf(format, args...)) }
	names := &flow.TraceAnswer{Names: a.Names}
	printMoment(w, a.Revision, a.Time)
	line("%s: %s from %s to %s", a.Verdict, a.Service, endText(a.From), endText(a.To))
	var leg func(way string, l *operator.WhyLeg)
	leg = func(way string, l *operator.WhyLeg) {
		verdict := "denied"
		if l.Allowed {
			verdict = "passes"
		}
		if l.Trace.Code != 0 && !l.Allowed {
			verdict += " (" + l.Trace.Code.String() + ")"
		}
		line("%s %s: %s", way, verdict, withNames(names, l.Reason))
		for i := range l.By {
			line("      by %s", objectText(&l.By[i]))
		}
		for _, n := range l.Nearest {
			text := n.Text
			if len(n.Fails) > 0 {
				text += ": " + strings.Join(n.Fails, "; ")
			}
			line("      nearest in group %s: %s", named(names, n.Group), withNames(names, text))
		}
		if steps {
			l.Trace.Names = a.Names
			printWalk(w, &l.Trace)
		}
		if l.Rest != nil {
			leg("then ", l.Rest)
		}
	}
	leg("there", &a.There)
	routed := a.From.Endpoint != "" || a.To.Endpoint != ""
	switch {
	case a.Back != nil:
		leg("back ", a.Back)
	case a.Verdict == operator.Allowed:
		line("back  not known: the packet leaves for what is outside")
	default:
		line("back  none: nothing arrives that could be answered")
	}
	if routed {
		line("note   routed hosts are judged by the store, without what is in force on a host alone: its own settings, connections and routes")
	} else if !a.There.Trace.LiveState && a.There.Trace.HostID == "" {
		line("note   no agent answered; the server did, which knows no connections")
	}
	if len(a.Remedies) > 0 {
		line("with this it would pass, as tried in memory:")
	}
	for _, r := range a.Remedies {
		if r.Input == "" {
			line("  %s", strings.Join(r.Command, " "))
			continue
		}
		line("  %s <<'END'", strings.Join(r.Command, " "))
		line("%s", r.Input)
		line("END")
	}
}

// printSince prints since which change a question has its verdict.
func printSince(w io.Writer, a *operator.WhyAnswer) {
	s := a.Since
	if s == nil {
		return
	}
	line := func(format string, args ...any) { terminal.Fprintln(w, fmt.Sprintf(format, args...)) }
	verdict := string(s.Verdict)
	if s.Verdict != a.Verdict {
		verdict += ", for a connection that no host knows,"
	}
	if s.Change != nil {
		before := string(s.Before)
		if before == "" {
			before = "without an answer: " + s.Fault
		}
		line("%s since this change; before it was %s", verdict, before)
		p := changePrinter{w, a.Names, s.Change.Epoch}
		p.revision(s.Change)
		return
	}
	why := map[operator.PastEnd]string{
		operator.PastBegins: "where the journal begins", operator.PastRestored: "since the store was restored or replaced", operator.PastLimit: "as far as there was time to look",
	}[s.End]
	if g := s.Gap; g != nil {
		why = gapText(*g)
	}
	line("%s since %s or longer: %d changes looked at; %s", verdict, localTime(s.Back), s.Looked, why)
}

// objectText names an object, and what it is part of.
func objectText(o *flow.Object) string {
	text := strings.ReplaceAll(o.Kind, "-", " ")
	if o.ID == "" { // one that the caller may not see
		return o.Name + " " + text
	}
	text += " " + o.ID
	if o.Name != "" {
		text += " (" + o.Name + ")"
	}
	if o.Group != nil {
		text += " of " + objectText(o.Group)
	}
	return text
}

// endText names an end.
func endText(e operator.WhyEnd) string {
	text := e.Address.String()
	if e.Port != "" || e.Endpoint != "" {
		text = strings.TrimSpace(e.Name + " " + text)
	}
	if e.Host != "" {
		text += " on " + e.Host
	}
	return text
}
