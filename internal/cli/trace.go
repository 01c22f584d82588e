package cli

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"heddle/internal/cloud"
	"heddle/internal/command"
	"heddle/internal/offline"
	"heddle/internal/terminal"
	"heddle/internal/topology/flow"
)

// traceCommand follows one packet through the virtual network.
func traceCommand() *cobra.Command {
	var scenario, hosts, frame string
	var entry cloud.TraceRequest
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Follow one packet through the virtual network, step by step",
		Long: `Against a running system: --port and --frame; for a frame from the LAN of a flat or vlan network --network, the --host where it
comes in, and --frame. The agent of that host answers with its live connections; where none is alive the server answers, and says that
they are missing. A frame is hex digits, or the fields of a frame as in a scenario:
  heddle trace --port NAME --frame '{type: ipv4, eth_src: "fa:16:…", eth_dst: "fa:16:…", ip_src: 10.0.0.3, ip_dst: 10.0.0.4, proto: tcp, sport: 4000, dport: 22}'
Offline: --scenario FILE holds a topology and frames with what is expected of them ("-" reads standard input). Exits 1 when an
expectation fails, 2 when the file is wrong.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &command.Exit{Code: 2, Text: fmt.Sprintf("trace: what is %q? A scenario is given with --scenario, a port with --port", args[0])}
			}
			return nil
		},
	}
	login := cloudFlags(cmd)
	format := command.OutputFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&scenario, "scenario", "", "scenario `file`, YAML or JSON")
	f.StringVar(&hosts, "hosts", "one", "with --scenario: one host for all ports, or each port on its own")
	f.StringVar(&entry.Port, "port", "", "`port` that the frame enters by, by name or id")
	f.StringVar(&entry.Network, "network", "", "`network` from whose LAN the frame comes, by name or id")
	f.StringVar(&entry.Host, "host", "", "`name` of the host at which a frame from a LAN comes in")
	f.StringVar(&frame, "frame", "", "the `frame`: hex digits, or fields")
	registerCompletion(cmd, "port", completeObjects(login, cloud.Port))
	registerCompletion(cmd, "network", completeObjects(login, cloud.Network))
	registerCompletion(cmd, "host", completeJoinedHosts(login))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		byPort, byLAN := entry.Port != "", entry.Network != "" && entry.Host != ""
		switch entered := entry.Port+entry.Network+entry.Host != ""; {
		case scenario != "" && !entered && frame == "":
			return traceScenario(cmd, scenario, hosts, *format)
		case scenario == "" && frame != "" && byPort != byLAN && byPort == (entry.Network+entry.Host == ""):
			return traceLive(cmd, login, entry, frame, *format)
		}
		return &command.Exit{Code: 2, Text: "trace: want either --scenario; or --port and --frame; or --network, --host and --frame"}
	}
	return cmd
}

func traceLive(cmd *cobra.Command, login *cloud.Config, entry cloud.TraceRequest, frame, format string) (err error) {
	if entry.Frame, err = parseFrame(frame); err != nil {
		return &command.Exit{Code: 2, Text: "--frame: " + err.Error()}
	}
	s, err := login.Login(cmd.Context())
	if err != nil {
		return err
	}
	if err := findEntry(cmd.Context(), s, &entry); err != nil {
		return err
	}
	answer, err := s.Trace(cmd.Context(), entry)
	if err != nil {
		return err
	}
	if format == "json" {
		return command.PrintJSON(cmd.OutOrStdout(), answer)
	}
	printTrace(cmd.OutOrStdout(), answer)
	return nil
}

// findEntry puts ids in place of the names by which a request calls its port or network.
func findEntry(ctx context.Context, s *cloud.Session, entry *cloud.TraceRequest) error {
	for _, one := range []struct {
		kind cloud.Kind
		text *string
	}{{cloud.Port, &entry.Port}, {cloud.Network, &entry.Network}} {
		if *one.text == "" || cloud.IsID(*one.text) {
			continue
		}
		api, err := s.Neutron()
		if err != nil {
			return err
		}
		if *one.text, err = api.Find(ctx, one.kind, *one.text); err != nil {
			return err
		}
	}
	return nil
}

// parseFrame reads hex digits (without blanks and colons), or the fields of a scenario's frame.
func parseFrame(text string) ([]byte, error) {
	digits := strings.NewReplacer(" ", "", "\n", "", ":", "").Replace(text)
	if raw, err := hex.DecodeString(digits); err == nil {
		return raw, nil
	}
	if !strings.Contains(text, "{") && !strings.Contains(text, "type:") {
		return nil, fmt.Errorf("%q is neither hex digits of whole bytes nor the fields of a frame: {type: …}", text)
	}
	return offline.ParseFrame([]byte(text))
}

// printWalk prints the steps of an answer with names beside the ids.
func printWalk(w io.Writer, a *flow.TraceAnswer) {
	for _, s := range a.Walk {
		step := "  " + named(a, s.Device)
		if s.Chain != "" {
			step += "  chain " + named(a, s.Chain)
		}
		if s.Rule != "" {
			step += "  rule " + named(a, s.Rule)
		}
		terminal.Fprintln(w, step+"  "+withNames(a, s.Text)+stateText(a, &s))
	}
}

// stateText describes the state that a step has met: whose it is, and when it was used last.
func stateText(a *flow.TraceAnswer, s *flow.Step) string {
	var words []string
	idle := func(seconds *int) {
		if seconds != nil {
			words = append(words, fmt.Sprintf("used %d s ago", *seconds))
		}
	}
	if c := s.Connection; c != nil {
		idle(c.Idle)
	}
	if t := s.Translation; t != nil {
		if t.New {
			words = append(words, "new")
		}
		if t.Host != "" {
			words = append(words, "a port of host "+named(a, t.Host))
		}
		idle(t.Idle)
	}
	if len(words) == 0 {
		return ""
	}
	return " [" + strings.Join(words, ", ") + "]"
}

// printTrace prints an answer with names beside the ids.
func printTrace(w io.Writer, a *flow.TraceAnswer) {
	line := func(words ...string) { terminal.Fprintln(w, strings.Join(words, "")) }
	printWalk(w, a)
	verdict := "verdict: " + a.Verdict
	if a.Reason != "" {
		verdict += ": " + withNames(a, a.Reason)
	}
	line(verdict)
	for _, o := range a.Outputs {
		line("out: port ", named(a, o.PortID), " on host ", named(a, o.HostID))
	}
	for _, o := range a.Copies {
		line("copy: port ", named(a, o.PortID), " on host ", named(a, o.HostID))
	}
	for _, r := range a.Replies {
		line("reply: port ", named(a, r.PortID), ": ", hex.EncodeToString(r.Frame))
	}
	if !a.LiveState {
		line("note: no agent answered for the port's host; a server did, which knows no connections")
	}
}

// named returns an id with what it stands for.
func named(a *flow.TraceAnswer, id string) string {
	n, ok := a.Names[id]
	if !ok {
		return id
	}
	return id + " (" + strings.TrimSpace(n.Kind+" "+n.Name) + ")"
}

// withNames adds names to the ids in a text, but for those within the names of chains.
func withNames(a *flow.TraceAnswer, text string) string {
	words := strings.Split(text, " ")
	for i, word := range words {
		id := strings.TrimRight(word, ",:;.")
		if n, ok := a.Names[id]; ok && n.Name != "" {
			words[i] = id + " (" + n.Name + ")" + word[len(id):]
		}
	}
	return strings.Join(words, " ")
}

func traceScenario(cmd *cobra.Command, file, hosts, format string) error {
	asJSON, err := wantJSON(format)
	if err != nil {
		return err
	}
	if hosts != "one" && hosts != "each" {
		return &command.Exit{Code: 2, Text: "--hosts " + hosts + ": want one or each"}
	}
	return withInput(cmd, file, func(in io.Reader) error {
		return offline.Trace(cmd.Context(), in, offline.TraceOptions{EachHost: hosts == "each", JSON: asJSON}, cmd.OutOrStdout())
	})
}
