package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/command"
	"heddle/internal/terminal"
	"heddle/internal/topology/flow"
)

// flowsCommand returns the command that shows records of hosts' flow logs.
func flowsCommand() *cobra.Command {
	var follow bool
	query := map[string]*string{}
	cmd := &cobra.Command{
		Use:   "flows",
		Short: "Show which connections were let pass and which were dropped",
		Long: `Shows the flow logs of hosts: each decision about a connection, let pass or dropped, by which rules. A host adds up decisions of ten seconds about packets of
one port to one peer and service, and what their flows have carried. Dropped packets have lines of their own as well, up to 100 a second of a port.
Without --follow it shows what hosts remember, 65,536 records each; with it, what comes from now on. With --since it reads the files of hosts whose agents keep
some (heddle agent --flow-log), and says from when on the others remember.
  heddle flows --port web
  heddle flows --follow --verdict drop
  heddle flows --since 2h --until 90m --port web
  heddle flows --peer 10.0.0.0/24 --proto tcp --service 443 -o json`,
		Args: cobra.NoArgs,
	}
	login := cloudFlags(cmd)
	format := command.OutputFlag(cmd)
	f := cmd.Flags()
	f.BoolVar(&follow, "follow", false, "show records as they come, until interrupted")
	for _, x := range []struct{ name, usage string }{
		{"port", "only flows at this `port`, by id, name or address, at either end"},
		{"host", "only the flow log of this `host`, by name or id"},
		{"project", "only flows from ports of the project with this `id`"},
		{"network", "only flows from ports of the network with this `id`"},
		{"peer", "only flows from or to this `address` or prefix"},
		{"verdict", "only flows with this `verdict`: forward, drop or error drop"},
		{"code", "only drops with this `code`, such as no-rule"},
		{"proto", "only this `protocol`: tcp, udp, icmp, icmpv6, sctp or a number"},
		{"service", "only this destination `port`"},
		{"since", "only flows since a `time`, such as 2h or 2026-11-28T06:00:00Z"},
		{"until", "only flows before a `time`, in the same forms"},
	} {
		query[x.name] = f.String(x.name, "", x.usage)
		perCall(f, x.name)
	}
	perCall(f, "follow")
	registerCompletion(cmd, "port", completeWorkloadPorts(login))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		asJSON, err := wantJSON(*format)
		if err != nil {
			return err
		}
		values := url.Values{}
		for name, value := range query {
			if *value != "" {
				values.Set(name, *value)
			}
		}
		for _, name := range []string{"since", "until"} {
			if !values.Has(name) {
				continue
			}
			at, err := parseSince(values.Get(name), time.Now())
			switch {
			case err != nil:
				return &command.Exit{Code: 2, Text: "--" + name + ": " + err.Error()}
			case follow:
				return &command.Exit{Code: 2, Text: "--follow shows what is to come: leave out --" + name + ", or --follow"}
			}
			values.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
		if follow {
			values.Set("follow", "true")
		}
		s, err := login.Login(cmd.Context())
		if err != nil {
			return withoutStore(err)
		}
		lines, err := s.OperatorStream(cmd.Context(), "/v1/flows?"+values.Encode())
		if err != nil {
			return withoutStore(err)
		}
		defer lines.Close()
		err = printFlows(cmd.OutOrStdout(), lines, asJSON)
		switch {
		case follow && cmd.Context().Err() != nil:
			return nil // interrupted
		case follow && err == nil:
			return errors.New("the server has ended the stream: it is ending itself, or the token of this command has; ask again")
		}
		return err
	}
	return cmd
}

// printFlows prints records as they come, as lines of text or of JSON.
func printFlows(w io.Writer, lines io.Reader, asJSON bool) error {
	in := bufio.NewScanner(lines)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line := in.Bytes()
		if len(bytes.TrimSpace(line)) == 0 { // the stream goes on
			continue
		}
		if asJSON {
			terminal.Fprintln(w, string(line))
			continue
		}
		var r flow.FlowRecord
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("the server's answer: %w", err)
		}
		terminal.Fprintln(w, flowText(&r))
	}
	return in.Err()
}

// flowText returns a record as a line.
func flowText(r *flow.FlowRecord) string {
	switch {
	case r.Lost > 0:
		return fmt.Sprintf("%d records are lost here", r.Lost)
	case r.Error != "":
		return fmt.Sprintf("host %s is missing: %s", r.Host, r.Error)
	case !r.Begins.IsZero():
		return fmt.Sprintf("host %s has no records before %s", r.Host, localTime(r.Begins))
	}
	verdict := r.Verdict
	if r.Code != 0 {
		verdict += " " + r.Code.String()
	}
	arrow := "→"
	if r.Reply {
		arrow = "⇠"
	}
	words := []string{localTime(r.Time), r.Host, verdict, protocolText(r.Protocol), address(r.Source, r.SourcePort), arrow, address(r.Peer, r.DestinationPort)}
	if r.ICMPType != nil {
		words = append(words, fmt.Sprintf("type %d", *r.ICMPType))
	}
	if r.Ports > 0 {
		words = append(words, fmt.Sprintf("%d ports", r.Ports))
	}
	if r.NAT != nil {
		words = append(words, fmt.Sprintf("(as %s → %s)", r.NAT.Source, r.NAT.Destination))
	}
	if r.First {
		return strings.Join(append(words, "first"), " ")
	}
	words = append(words, counted(r.Flows, "flow"), counted(r.Packets, "packet"), counted(r.Bytes, "byte"))
	if r.Left > 0 {
		words = append(words, fmt.Sprintf("%d without a line", r.Left))
	}
	return strings.Join(words, " ")
}

// counted returns a number of things, whose plural ends with an s.
func counted[N int | uint64](n N, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprint(n, " ", what)
}

func address(a string, port uint16) string {
	ip, err := netip.ParseAddr(a)
	switch {
	case a == "":
		return "*"
	case err != nil || port == 0:
		return a
	}
	return netip.AddrPortFrom(ip, port).String()
}

func protocolText(number uint8) string {
	return cmp.Or(map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6", 132: "sctp"}[number], strconv.Itoa(int(number)))
}
