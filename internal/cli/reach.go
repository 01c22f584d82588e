package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"heddle/internal/api/operator"
	"heddle/internal/command"
	"heddle/internal/terminal"
)

// reachCommand returns the command that asks who can reach a machine, or what a machine can reach.
func reachCommand() *cobra.Command {
	var req operator.ReachRequest
	var port int
	var rules, at string
	var with changeFile
	cmd := &cobra.Command{
		Use:   "reach --to PORT|ADDRESS | --from PORT|ADDRESS | --by group|network|project | --assert FILE",
		Short: "Ask who can reach a machine, or what a machine can reach, by which services",
		Long: `Finds all services at once by which new connections arrive at a machine and are answered, or which a machine can open: of each protocol,
port, and type of ICMP, from clients' source ports (1024 to 65535) and from machines' own addresses. It asks the code that forwards packets,
so the answer is exact for the virtual network as the store has it. Outside stands for all addresses beyond LANs and uplinks. With both
ends it tells the services between these two. --by asks for one service about all pairs of machines, and counts them by the sets that
they are in. --assert holds the virtual network to rules in a YAML file, and traces what breaks them. Exits 1 if nothing is reached, or a rule
is broken.
  heddle reach --to db
  heddle reach --to db --proto tcp --port 5432
  heddle reach --from web
  heddle reach --by group --port 22`,
		Args: cobra.NoArgs,
	}
	login := cloudFlags(cmd)
	format := command.OutputFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&req.To, "to", "", "`port` or address that is reached")
	f.StringVar(&req.From, "from", "", "`port` or address that reaches")
	f.StringVar(&req.Protocol, "proto", "", "only this `protocol`, such as tcp, udp or icmp")
	f.IntVar(&port, "port", 0, "only this destination `port`, of tcp without --proto")
	f.StringVar(&req.By, "by", "", "all pairs of machines, counted by `set`: group, network or project")
	f.IntVar(&req.Version, "ip-version", 0, "`version` of IP with --by: 4 (default) or 6")
	f.StringVar(&at, "at", "", "answer for a past `time`, such as 2h, 3d or 2026-11-28T06:00:00Z, or a revision as heddle history prints it")
	withFlag(f, &with)
	f.StringVar(&rules, "assert", "", "`file` of rules about who reaches whom")
	for _, name := range []string{"from", "to", "proto", "port", "by", "ip-version", "at", "assert"} {
		perCall(f, name)
	}
	for _, name := range []string{"from", "to"} {
		registerCompletion(cmd, name, completeWorkloadPorts(login))
	}
	cmd.MarkFlagsOneRequired("to", "from", "by", "assert")
	for _, name := range []string{"to", "from", "by", "proto", "port"} {
		cmd.MarkFlagsMutuallyExclusive("assert", name)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if req.At, err = momentOf("--at", at); err != nil {
			return err
		}
		if err := with.read(cmd); err != nil {
			return err
		}
		if rules != "" {
			return assertReach(cmd, login, rules, *format, req.At, &with)
		}
		if port < 0 || port > 0xffff || port == 0 && f.Changed("port") {
			return &command.Exit{Code: 2, Text: fmt.Sprintf("--port %d: want 1 to 65535", port)}
		}
		req.Port, req.With = uint16(port), with.steps
		var a operator.ReachAnswer
		if err := callOperator(cmd, login, http.MethodPost, "/v1/reach", &req, &a); err != nil {
			return with.named(err)
		}
		if *format == "json" {
			err = command.PrintJSON(cmd.OutOrStdout(), a)
		} else {
			with.printWith(cmd.OutOrStdout(), a.Refused, strings.Clone)
			printReach(cmd.OutOrStdout(), &a)
		}
		if err == nil && len(a.Reaches)+len(a.Pairs) == 0 {
			err = &command.Exit{Code: 1}
		}
		return err
	}
	return cmd
}

func printReach(w io.Writer, a *operator.ReachAnswer) {
	line := func(format string, args ...any) { terminal.Fprintln(w, fmt.Sprintf(format, args...)) }
	printMoment(w, a.Revision, a.Time)
	what := "services"
	if a.Service != "" {
		what = a.Service
	}
	switch {
	case a.From == nil && a.To == nil:
		printPairs(line, a)
		return
	case a.From != nil && a.To != nil:
		line("%s from %s to %s:", what, endText(*a.From), endText(*a.To))
	case a.To != nil:
		line("%s to %s:", what, endText(*a.To))
	default:
		line("%s from %s:", what, endText(*a.From))
	}
	for i := range a.Reaches {
		printReachRow(line, a, &a.Reaches[i])
	}
	switch {
	case len(a.Reaches) == 0:
		line("  none")
	case a.From == nil:
		line("  none from %d other ports", a.Silent)
	case a.To == nil:
		line("  none to %d other ports", a.Silent)
	}
}

// printPairs prints the counts of all pairs.
func printPairs(line func(string, ...any), a *operator.ReachAnswer) {
	line("%s, pairs of machines that reach each other:", a.Service)
	name := func(id string) string {
		if id == "" {
			return "(none)"
		}
		return cmp.Or(a.Names[id].Name, id)
	}
	for _, p := range a.Pairs {
		text := fmt.Sprintf("%d of %d", p.Reached, p.All)
		if p.May > 0 {
			text += fmt.Sprintf(", %d for some connections", p.May)
		}
		if p.OneWay > 0 {
			text += fmt.Sprintf(", %d without an answer", p.OneWay)
		}
		line("  %s → %s: %s", name(p.From), name(p.To), text)
	}
	switch {
	case len(a.Pairs) == 0:
		line("  none")
	case a.PairsOmitted > 0:
		line("  … and %d pairs of sets more", a.PairsOmitted)
	}
}

// printReachRow prints some services and who has them.
func printReachRow(line func(string, ...any), a *operator.ReachAnswer, row *operator.Reach) {
	what := []string{}
	for _, part := range []struct {
		ranges []operator.ServiceRange
		note   string
	}{{row.Always, ""}, {row.May, " for some connections"}, {row.OneWay, " without an answer"}} {
		if len(part.ranges) == 0 {
			continue
		}
		var texts []string
		for _, r := range part.ranges {
			texts = append(texts, r.Text)
		}
		what = append(what, strings.Join(texts, ", ")+part.note)
	}
	line("  IPv%d %s", row.Version, strings.Join(what, "; "))
	preposition := "from"
	if a.To == nil {
		preposition = "to"
	}
	for _, o := range row.Outside {
		line("    %s outside: %s, at %s", preposition, o.Text, o.Address)
	}
	if len(row.Ports) > 0 && (a.From == nil || a.To == nil) {
		line("    %s %s", preposition, portsText(a, row.Ports))
	}
}

// portsText names some ports, or counts many by their groups.
func portsText(a *operator.ReachAnswer, ports []operator.ReachPort) string {
	const few = 8
	if len(ports) <= few {
		var texts []string
		for _, p := range ports {
			texts = append(texts, strings.TrimSpace(p.Name+" "+p.Address.String()))
		}
		return strings.Join(texts, ", ")
	}
	counts := map[string]int{}
	for _, p := range ports {
		names := []string{}
		for _, g := range p.Groups {
			names = append(names, cmp.Or(a.Names[g].Name, g))
		}
		slices.Sort(names)
		counts[strings.Join(names, " and ")]++
	}
	var texts []string
	for group, n := range counts {
		of := "in no group"
		if group != "" {
			of = "of group " + group
		}
		texts = append(texts, fmt.Sprintf("%d ports %s", n, of))
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}
