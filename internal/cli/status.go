package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/cloud"
	"heddle/internal/command"
	"heddle/internal/terminal"
	"heddle/internal/topology/flow"
)

// statusView holds the parts of the operators' API's status that are printed.
type statusView struct {
	Problems []struct {
		What string `json:"what"`
		Fix  string `json:"fix"`
	} `json:"problems"`
	Servers []struct {
		Name    string    `json:"name"`
		Role    string    `json:"role"`
		Version string    `json:"version"`
		Started time.Time `json:"started_at"`
	} `json:"servers"`
	Cluster []struct {
		Name    string `json:"name"`
		PeerURL string `json:"peer_url"`
		Learner bool   `json:"learner"`
	} `json:"cluster"`
	Store struct {
		Members []struct {
			Name    string `json:"name"`
			Leader  bool   `json:"leader"`
			Size    int64  `json:"size"`
			Quota   int64  `json:"quota"`
			Problem string `json:"problem,omitempty"`
		} `json:"members"`
		Written int `json:"written"`
		Newest  int `json:"newest"`
	} `json:"store"`
	Hosts []statusHost `json:"hosts"`
	Ports struct {
		Bound         int          `json:"bound"`
		Active        int          `json:"active"`
		Down          []statusPort `json:"down"`
		Failing       []statusPort `json:"failing"`
		BindingFailed []statusPort `json:"binding_failed"`
	} `json:"ports"`
	Certificates []struct {
		Name    string    `json:"name"`
		End     time.Time `json:"end"`
		Renewed bool      `json:"renewed"`
	} `json:"certificates"`
}

// statusHost is a host with what its agent reports, if it does.
type statusHost struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Alive    bool   `json:"alive"`
	CutOff   string `json:"cut_off,omitempty"`
	Version  string `json:"version,omitempty"`
	Ports    int    `json:"ports"`
	Overlay  bool   `json:"overlay"`
	Answered bool   `json:"answered"`
	Ahead    *int64 `json:"ahead_ms,omitempty"`
	*flow.HostReport
}

type statusPort struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Host   string `json:"host"`
	Reason string `json:"reason,omitempty"`
}

// statusPause is the time between two looks of heddle status --wait.
const statusPause = time.Second

func statusCommand() *cobra.Command {
	var wait time.Duration
	var host string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what is wrong with servers, store, hosts and ports, and how they are",
		Long: "Shows what is wrong and what to do about it, then servers, the store, hosts, ports and certificates. Agents are asked\n" +
			"for their clocks, tunnels and tables. Ends with 1 if something is wrong; with --wait, if it still is after that time.\n" +
			"With --host, shows all tunnels of one host instead, what its ports have sent in each network, and which of them have the most flows and upcalls: who floods it.",
		Args: cobra.NoArgs,
	}
	cloud := cloudFlags(cmd)
	format := command.OutputFlag(cmd)
	cmd.Flags().DurationVar(&wait, "wait", 0, "`time` to wait for until nothing is wrong, such as 2m")
	cmd.Flags().StringVar(&host, "host", "", "show tunnels, networks and busy ports of the host with this `name` or id")
	cmd.MarkFlagsMutuallyExclusive("host", "wait")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if host != "" {
			return showTraffic(cmd, cloud, host, *format)
		}
		v, whole, err := waitForStatus(cmd, cloud, wait)
		if err != nil {
			return err
		}
		if *format == "text" {
			err = printStatus(cmd.OutOrStdout(), v)
		} else {
			err = command.PrintTable(cmd.OutOrStdout(), *format, whole, nil, nil)
		}
		if err == nil && len(v.Problems) > 0 {
			err = &command.Exit{Code: 1}
		}
		return err
	}
	return cmd
}

// waitForStatus returns the status once nothing is wrong, or that after the wait, and the whole
// answer that it is of.
func waitForStatus(cmd *cobra.Command, cloud *cloud.Config, wait time.Duration) (v statusView, whole json.RawMessage, err error) {
	end := time.Now().Add(wait)
	for {
		v, whole = statusView{}, nil
		if err = callOperator(cmd, cloud, http.MethodGet, "/v1/status", nil, &whole); err == nil {
			err = json.Unmarshal(whole, &v)
		}
		if err == nil && len(v.Problems) == 0 || time.Until(end) < statusPause || !pause(cmd.Context(), statusPause) {
			return v, whole, err
		}
	}
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// printStatus prints the problems first.
func printStatus(w io.Writer, v statusView) error {
	say := func(format string, args ...any) { terminal.Fprintln(w, fmt.Sprintf(format, args...)) }
	for _, p := range v.Problems {
		say("WRONG  %s", p.What)
		say("       to do: %s", p.Fix)
	}
	if len(v.Problems) == 0 {
		say("nothing is wrong")
	}
	for _, s := range v.Servers {
		say("server %s (%s) %s, since %s", s.Name, s.Role, s.Version, s.Started.Local().Format(time.DateTime))
	}
	voters := 0
	for _, m := range v.Cluster {
		switch {
		case m.Name == "":
			say("server at %s was added and has not run yet", m.PeerURL)
		case m.Learner:
			say("server %s is catching up, and has no vote yet", m.Name)
		default:
			voters++
		}
	}
	if voters == 2 {
		say("note   the cluster has two servers, and stops when either is down: a third makes it bear the loss of one (docs/guides/cluster.md)")
	}
	for _, m := range v.Store.Members {
		role := ""
		if m.Leader {
			role = ", the leader"
		}
		say("store  %s%s: %d of %d MiB", m.Name, role, m.Size>>20, m.Quota>>20)
	}
	say("store  written in format %d; newest format of a member: %d", v.Store.Written, v.Store.Newest)
	for _, c := range v.Certificates {
		renewed := ""
		if c.Renewed {
			renewed = ", renewed by Heddle"
		}
		say("certificate of %s: until %s%s", c.Name, c.End.Format(time.DateOnly), renewed)
	}
	failed := ""
	if n := len(v.Ports.BindingFailed); n > 0 {
		failed = fmt.Sprintf(", %d bound to no host%s", n, portNames(v.Ports.BindingFailed))
	}
	say("ports  %d bound, %d active, %d down%s, %d failing%s%s", v.Ports.Bound, v.Ports.Active, len(v.Ports.Down), portNames(v.Ports.Down), len(v.Ports.Failing), portNames(v.Ports.Failing), failed)
	return printStatusHosts(w, v.Hosts)
}

// mostNamed bounds the ports that are named.
const mostNamed = 10

func portNames(ports []statusPort) string {
	if len(ports) == 0 {
		return ""
	}
	var names []string
	for _, p := range ports[:min(len(ports), mostNamed)] {
		names = append(names, p.Name+" on "+p.Host)
	}
	if len(ports) > mostNamed {
		names = append(names, "…")
	}
	return " (" + strings.Join(names, ", ") + ")"
}

func printStatusHosts(w io.Writer, hosts []statusHost) error {
	if len(hosts) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	terminal.Fprintf(table, "\nHOST\tSTATE\tVERSION\tPORTS\tTUNNELS\tCLOCK\tCERTIFICATE\tTABLES\n")
	for _, h := range hosts {
		state := "down"
		switch {
		case h.CutOff != "":
			state = "cut off"
		case h.Alive:
			state = "up"
		}
		tunnels, clock, certificate, tables := "", "", "", ""
		if h.HostReport != nil {
			tunnels, clock, tables = fmt.Sprint(h.Tunnels), "right", fills(h.Tables)
			if h.Ahead != nil {
				clock = fmt.Sprintf("%+.1f s", float64(*h.Ahead)/1000)
			}
			if !h.CertificateEnd.IsZero() {
				certificate = h.CertificateEnd.Format(time.DateOnly)
			}
		}
		terminal.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", h.Name, state, h.Version, h.Ports, tunnels, clock, certificate, tables)
	}
	return table.Flush()
}

func fills(tables []flow.TableFill) string {
	var words []string
	for _, t := range tables {
		words = append(words, fmt.Sprintf("%s %d%%", t.Name, t.Used*100/max(t.Max, 1)))
	}
	return strings.Join(words, ", ")
}
