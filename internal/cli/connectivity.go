package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/cloud"
	"heddle/internal/command"
	"heddle/internal/connectivity"
	"heddle/internal/terminal"
)

const (
	// defaultHosts bounds the hosts that are tried unless they are named.
	defaultHosts = 8
	// testTime bounds a test, and removeTime what it takes to remove it.
	testTime   = 3 * time.Minute
	removeTime = 30 * time.Second
)

// connectivityCommand tests whether workloads on hosts reach each other.
func connectivityCommand() *cobra.Command {
	var names []string
	var cleanUp bool
	cmd := &cobra.Command{
		Use:   "connectivity",
		Short: "Test with temporary workloads whether hosts reach each other",
		Long: `Puts temporary workloads on hosts, on a temporary network of your project, and tries for each whether its agent makes it, its port is
attached, and DHCP and metadata answer; and from each to the next and back ARP, ICMP, TCP, UDP, the largest packet, and that a security
group blocks what it does not allow, then NDP, ICMPv6, TCP and UDP by IPv6, and what is blocked.
Prints a line for each; one that failed says where to look next. Ends with 1 if any has failed.
On one host two workloads reach each other. All that was made is removed at the end, also on Ctrl-C; what a killed test has left is
removed by the next one, some minutes later, or at once with --cleanup. It takes an administrator's credentials and can be run anywhere.`,
		Args: cobra.NoArgs,
	}
	login := cloudFlags(cmd)
	format := command.OutputFlag(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&names, "hosts", nil, "`names` of the hosts, joined by commas; default: those that are up, 8 at most")
	f.BoolVar(&cleanUp, "cleanup", false, "only remove what tests have left, also those under way elsewhere")
	cmd.MarkFlagsMutuallyExclusive("hosts", "cleanup")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := login.Login(cmd.Context())
		if err != nil {
			return err
		}
		if cleanUp {
			removed, _, err := connectivity.CleanUp(cmd.Context(), s, time.Now().Add(time.Hour))
			terminal.Fprintf(cmd.OutOrStdout(), "tests removed: %d\n", removed)
			return err
		}
		return testConnectivity(cmd, s, names, *format)
	}
	return cmd
}

func testConnectivity(cmd *cobra.Command, s *cloud.Session, names []string, format string) error {
	if _, err := wantJSON(format); err != nil {
		return err
	}
	hosts, err := chooseHosts(cmd, s, names)
	if err != nil {
		return err
	}
	_, left, err := connectivity.CleanUp(cmd.Context(), s, time.Now().Add(-testTime-removeTime))
	if err != nil {
		return err
	}
	if left > 0 {
		note(cmd, "left %d tests alone that may be under way elsewhere: if they were killed, heddle connectivity --cleanup", left)
	}
	legs, err := runConnectivity(cmd.Context(), s, hosts)
	if err != nil {
		return err
	}
	return printLegs(cmd, format, legs)
}

// runConnectivity tests the hosts, and removes all that it has made for that.
func runConnectivity(ctx context.Context, s *cloud.Session, hosts []connectivity.Host) (legs []connectivity.Leg, err error) {
	ctx, cancel := context.WithTimeout(ctx, testTime)
	defer cancel()
	test, err := connectivity.Prepare(ctx, s, hosts)
	if err == nil {
		legs, err = test.Try(ctx)
	}
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancelLast()
	return legs, errors.Join(err, test.Remove(last))
}

// chooseHosts returns the hosts with names, or some that are up.
func chooseHosts(cmd *cobra.Command, s *cloud.Session, names []string) ([]connectivity.Host, error) {
	all, err := listHosts(cmd.Context(), s)
	if err != nil {
		return nil, err
	}
	if len(names) > connectivity.MostHosts {
		return nil, &command.Exit{Code: 2, Text: fmt.Sprintf("--hosts: %d hosts, at most %d can be tried at once", len(names), connectivity.MostHosts)}
	}
	if len(names) > 0 {
		return namedHosts(all, names)
	}
	up := slices.DeleteFunc(all, func(h connectivity.Host) bool { return !h.Alive || !h.Overlay() })
	if len(up) == 0 {
		return nil, errors.New("no host with virtual networks is up: see heddle host list")
	}
	if len(up) > defaultHosts {
		note(cmd, "%d hosts are up, of which %d are tried: name others with --hosts", len(up), defaultHosts)
		up = up[:defaultHosts]
	}
	return up, nil
}

// listHosts returns the hosts that have joined.
func listHosts(ctx context.Context, s *cloud.Session) ([]connectivity.Host, error) {
	var answer struct {
		Hosts []connectivity.Host `json:"hosts"`
	}
	err := s.Operator(ctx, http.MethodGet, "/v1/hosts", nil, &answer)
	return answer.Hosts, err
}

// namedHosts returns the hosts with these names, in their order.
func namedHosts(all []connectivity.Host, names []string) ([]connectivity.Host, error) {
	var chosen []connectivity.Host
	for i, name := range names {
		at := slices.IndexFunc(all, func(h connectivity.Host) bool { return h.Name == name })
		switch {
		case at < 0:
			return nil, fmt.Errorf("--hosts: there is no host %s: see heddle host list", terminal.Escape(name))
		case slices.Contains(names[:i], name):
			return nil, &command.Exit{Code: 2, Text: fmt.Sprintf("--hosts: %s is named twice", terminal.Escape(name))}
		case all[at].Alive && !all[at].Overlay():
			return nil, fmt.Errorf("--hosts: host %s has no virtual networks: its agent runs without --tunnel-ip", terminal.Escape(name))
		}
		chosen = append(chosen, all[at])
	}
	return chosen, nil
}

// note tells people what is no result.
func note(cmd *cobra.Command, text string, args ...any) {
	terminal.Fprintf(cmd.ErrOrStderr(), "note: "+text+"\n", args...)
}

func printLegs(cmd *cobra.Command, format string, legs []connectivity.Leg) error {
	failed := 0
	var rows [][]string
	for _, l := range legs {
		if l.Result == connectivity.Failed {
			failed++
		}
		rows = append(rows, []string{l.Result, l.Name, l.From, l.To, duration(l.Took), l.Found, l.Next})
	}
	if err := command.PrintTable(cmd.OutOrStdout(), format, legs, []string{"RESULT", "LEG", "FROM", "TO", "TOOK", "FOUND", "LOOK NEXT"}, rows); err != nil {
		return err
	}
	if failed > 0 {
		return &command.Exit{Code: 1, Text: fmt.Sprintf("%d of %d legs failed", failed, len(legs))}
	}
	return nil
}

// duration returns a time as people read it; "" if it was not measured.
func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.Round(10 * time.Microsecond).String()
}
