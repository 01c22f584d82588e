package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/api/operator"
	"heddle/internal/cloud"
	"heddle/internal/command"
)

// bgpCommand shows the BGP sessions of routers.
func bgpCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "bgp", Short: "Show the BGP sessions of routers"}
	cmd.AddCommand(bgpShowCommand(cloudFlags(cmd)))
	return cmd
}

func bgpShowCommand(cloud *cloud.Config) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [ROUTER]",
		Short: "Show routers that speak BGP, with their peers",
		Long: "Shows each router that speaks BGP with its peers: the state of the session and for how long it has been up, the\n" +
			"routes received, refused and advertised, and what is wrong. ROUTER is a name or an id.",
		Args: cobra.MaximumNArgs(1),
	}
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var answer struct {
			Routers []operator.BGPRouter `json:"routers"`
		}
		if err := callOperator(cmd, cloud, http.MethodGet, "/v1/bgp", nil, &answer); err != nil {
			return err
		}
		shown := []operator.BGPRouter{}
		for _, r := range answer.Routers {
			if len(args) == 0 || args[0] == r.ID || args[0] == r.Name {
				shown = append(shown, r)
			}
		}
		if len(args) == 1 && len(shown) == 0 {
			return fmt.Errorf("no router %s speaks BGP: give it a speaker with a peer (openstack bgp speaker add peer)", args[0])
		}
		return printBGP(cmd.OutOrStdout(), *format, shown, time.Now())
	}
	return cmd
}

func printBGP(w io.Writer, format string, routers []operator.BGPRouter, now time.Time) error {
	header := []string{"ROUTER", "AS", "HOST", "SPEAKER", "PEER", "PEER AS", "STATE", "UP", "RECEIVED", "REFUSED", "ADVERTISED", "NOTE"}
	return command.PrintTable(w, format, routers, header, bgpRows(routers, now))
}

// bgpRows returns a row for each session, and one for a router without any.
func bgpRows(routers []operator.BGPRouter, now time.Time) (rows [][]string) {
	for _, r := range routers {
		head := []string{cmp.Or(r.Name, r.ID), fmt.Sprint(r.AS), cmp.Or(r.Host, "-"), r.Status}
		for _, p := range r.Peers {
			up := "-"
			if p.State == "ESTABLISHED" {
				up = now.Sub(p.Since).Truncate(time.Second).String()
			}
			rows = append(rows, append(head[:len(head):len(head)], p.Address.String(), fmt.Sprint(p.AS), strings.ToLower(p.State), up,
				fmt.Sprint(p.Received), fmt.Sprint(p.Refused), fmt.Sprint(p.Advertised), cmp.Or(r.Message, p.LastError)))
		}
		if len(r.Peers) == 0 {
			rows = append(rows, append(head[:len(head):len(head)], "-", "-", "-", "-", "0", "0", "0", r.Message))
		}
	}
	return rows
}
