package cli

import (
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"heddle/internal/cloud"
	"heddle/internal/command"
	"heddle/internal/offline"
	"heddle/internal/topology/flow"
)

// traceCommand follows one packet through the virtual network.
func traceCommand() *cobra.Command {
	var scenario, hosts, port, frame string
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Follow one packet through the virtual network, step by step",
		Long: `Against a running system: --port and --frame. The agent of the port's host answers with its live connections; where none
is alive the server answers, and says that they are missing. A frame is hex digits, or the fields of a frame as in a scenario:
  heddle trace --port ID --frame '{type: ipv4, eth_src: "fa:16:…", eth_dst: "fa:16:…", ip_src: 10.0.0.3, ip_dst: 10.0.0.4, proto: tcp, sport: 4000, dport: 22}'
Offline: --scenario FILE holds a topology and frames with what is expected of them ("-" reads standard input). Exits 1 when an
expectation fails, 2 when the file is wrong.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &command.Exit{Code: 2, Text: fmt.Sprintf("trace: what is %q? A scenario is given with --scenario, a port with --port", args[0])}
			}
			return nil
		},
	}
	cloud := cloudFlags(cmd)
	format := command.OutputFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&scenario, "scenario", "", "scenario `file`, YAML or JSON")
	f.StringVar(&hosts, "hosts", "one", "with --scenario: one host for all ports, or each port on its own")
	f.StringVar(&port, "port", "", "`id` of the port that the frame enters by")
	f.StringVar(&frame, "frame", "", "the `frame`: hex digits, or fields")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch live := port != "" && frame != ""; {
		case scenario != "" && port == "" && frame == "":
			return traceScenario(cmd, scenario, hosts, *format)
		case scenario == "" && live:
			return traceLive(cmd, cloud, port, frame, *format)
		}
		return &command.Exit{Code: 2, Text: "trace: want either --scenario, or --port and --frame"}
	}
	return cmd
}

func traceLive(cmd *cobra.Command, cloud *cloud.Config, port, frame, format string) error {
	raw, err := parseFrame(frame)
	if err != nil {
		return &command.Exit{Code: 2, Text: "--frame: " + err.Error()}
	}
	s, err := cloud.Login(cmd.Context())
	if err != nil {
		return err
	}
	answer, err := s.Trace(cmd.Context(), port, raw)
	if err != nil {
		return err
	}
	if format == "json" {
		return command.PrintJSON(cmd.OutOrStdout(), answer)
	}
	printTrace(cmd.OutOrStdout(), answer)
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

func printTrace(w io.Writer, a *flow.TraceAnswer) {
	for _, s := range a.Walk {
		fmt.Fprintf(w, "  %s", s.Device)
		if s.Chain != "" {
			fmt.Fprintf(w, "  chain %s", s.Chain)
		}
		if s.Rule != "" {
			fmt.Fprintf(w, "  rule %s", s.Rule)
		}
		fmt.Fprintf(w, "  %s\n", s.Text)
	}
	fmt.Fprintf(w, "verdict: %s", a.Verdict)
	if a.Reason != "" {
		fmt.Fprintf(w, ": %s", a.Reason)
	}
	fmt.Fprintln(w)
	for _, o := range a.Outputs {
		fmt.Fprintf(w, "out: port %s on host %s\n", o.PortID, o.HostID)
	}
	for _, r := range a.Replies {
		fmt.Fprintf(w, "reply: port %s: %x\n", r.PortID, r.Frame)
	}
	if !a.LiveState {
		fmt.Fprintln(w, "note: no agent answered for the port's host; a server did, which knows no connections or learned addresses")
	}
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
