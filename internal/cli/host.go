package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"heddle/internal/api/operator"
	"heddle/internal/cloud"
	"heddle/internal/command"
	"heddle/internal/terminal"
)

// hostCommand lists, joins and removes hosts.
func hostCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "host", Short: "List, join and remove hosts"}
	cloud := cloudFlags(cmd)
	cmd.AddCommand(hostListCommand(cloud), hostTokenCommand(cloud), hostRemoveCommand(cloud))
	return cmd
}

// callOperator calls the operators' API.
func callOperator(cmd *cobra.Command, cloud *cloud.Config, method, path string, body, answer any) error {
	s, err := cloud.Login(cmd.Context())
	if err != nil {
		return withoutStore(err)
	}
	return withoutStore(s.Operator(cmd.Context(), method, path, body, answer))
}

// withoutStore adds what to do to the error of a server that cannot work at present.
func withoutStore(err error) error {
	if refused := (*cloud.Refused)(nil); !errors.As(err, &refused) || refused.Status != http.StatusServiceUnavailable {
		return err
	}
	return fmt.Errorf("%w\nheddle doctor on each server says what it waits for. More than half of a cluster's servers must run: there, systemctl start heddle.\n"+
		"If they are lost for good, heddle cluster reset makes one that is left a cluster of its own: docs/guides/cluster.md", err)
}

func hostListCommand(cloud *cloud.Config) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List hosts", Args: cobra.NoArgs}
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var answer struct {
			Hosts []operator.Host `json:"hosts"`
		}
		if err := callOperator(cmd, cloud, http.MethodGet, "/v1/hosts", nil, &answer); err != nil {
			return err
		}
		return printHosts(cmd.OutOrStdout(), *format, answer.Hosts)
	}
	return cmd
}

func printHosts(w io.Writer, format string, hosts []operator.Host) error {
	var rows [][]string
	for _, h := range hosts {
		state := "down"
		if h.Alive {
			state = "up"
		}
		if h.CutOff != "" {
			state = "cut off: " + h.CutOff
		}
		rows = append(rows, []string{h.ID, h.Name, state, strings.Join(h.Roles, " "), h.TunnelIP, fmt.Sprint(h.Ports), h.Version})
	}
	return command.PrintTable(w, format, hosts, []string{"ID", "NAME", "STATE", "ROLES", "TUNNEL IP", "PORTS", "VERSION"}, rows)
}

func hostTokenCommand(cloud *cloud.Config) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token [NAME]",
		Short: "Print a one-time token by which a host joins",
		Long:  "Prints a token that is good for one host and one hour. On the host: heddle agent --join TOKEN.\nWith a NAME only a host of that name may use it.",
		Args:  cobra.MaximumNArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		body := map[string]string{}
		if len(args) == 1 {
			body["name"] = args[0]
		}
		var answer struct {
			Token string `json:"token"`
		}
		if err := callOperator(cmd, cloud, http.MethodPost, "/v1/join-tokens", body, &answer); err != nil {
			return err
		}
		terminal.Fprintln(cmd.OutOrStdout(), answer.Token)
		return nil
	}
	return cmd
}

func hostRemoveCommand(cloud *cloud.Config) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "remove ID",
		Short: "Remove a host: its certificate is refused from now on",
		Args:  cobra.ExactArgs(1),
	}
	cmd.ValidArgsFunction = arguments(completeListed(cloud, "/v1/hosts", "hosts", "id"))
	cmd.Flags().BoolVar(&force, "force", false, "also when ports are bound to it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path := "/v1/hosts/" + url.PathEscape(args[0])
		if force {
			path += "?force=true"
		}
		err := callOperator(cmd, cloud, http.MethodDelete, path, nil, nil)
		if err != nil && strings.HasSuffix(err.Error(), " with force.") { // which the API has as a parameter
			err = fmt.Errorf("%w `heddle host remove %s --force` does that", err, terminal.Escape(args[0]))
		}
		return err
	}
	return cmd
}
