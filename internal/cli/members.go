package cli

import (
	"cmp"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"heddle/internal/api/operator"
	"heddle/internal/cloud"
	"heddle/internal/command"
	"heddle/internal/store/backend"
	"heddle/internal/terminal"
)

// clusterCommand manages the servers of a cluster of embedded stores.
func clusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "List, add and remove the servers of a cluster",
		Long: `Servers that run with --cluster are a cluster whose stores are copies of each other. A cluster of three goes on when one dies,
one of five when two do: with a majority of its members.`,
	}
	cloud := cloudFlags(cmd)
	cmd.AddCommand(clusterListCommand(cloud), clusterTokenCommand(cloud), clusterRemoveCommand(cloud), clusterResetCommand())
	return cmd
}

func clusterListCommand(cloud *cloud.Config) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the servers of the cluster", Args: cobra.NoArgs,
		Long: "Lists the servers of the cluster. A learner is still catching up and does not count for the majority; one that was added has never run."}
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var answer struct {
			Members []operator.Server `json:"members"`
		}
		if err := callOperator(cmd, cloud, http.MethodGet, "/v1/cluster/members", nil, &answer); err != nil {
			return err
		}
		var rows [][]string
		for _, m := range answer.Members {
			state := "down"
			if m.Alive {
				state = "up"
			}
			rows = append(rows, []string{m.Name, state, m.Role, m.PeerURL, m.StoreURL, m.Version})
		}
		return command.PrintTable(cmd.OutOrStdout(), *format, answer.Members, []string{"NAME", "STATE", "ROLE", "PEER URL", "STORE URL", "VERSION"}, rows)
	}
	return cmd
}

func clusterTokenCommand(cloud *cloud.Config) *cobra.Command {
	return &cobra.Command{
		Use:   "token [NAME]",
		Short: "Print a one-time token by which a server joins the cluster",
		Long: "Prints a token that is good for one server and one hour. On that machine: heddle serve --cluster --join-file FILE.\n" +
			"With a NAME only a server of that name may use it. Keep it secret: it gives a machine all rights.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]string{}
			if len(args) == 1 {
				body["name"] = args[0]
			}
			var answer struct {
				Token string `json:"token"`
			}
			if err := callOperator(cmd, cloud, http.MethodPost, "/v1/cluster/tokens", body, &answer); err != nil {
				return err
			}
			_, err := terminal.Fprintln(cmd.OutOrStdout(), answer.Token)
			return err
		},
	}
}

func clusterRemoveCommand(cloud *cloud.Config) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME|URL",
		Short: "Remove a server from the cluster for good",
		Long: "Removes a server, dead or alive, by its name or its peer URL, and prints both. A server that runs ends, and keeps its data aside.\n" +
			"It is refused if the cluster would be left without a majority of servers that are up.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: arguments(completeListed(cloud, "/v1/cluster/members", "members", "peer_url")),
		RunE: func(cmd *cobra.Command, args []string) error {
			var removed operator.Server
			if err := callOperator(cmd, cloud, http.MethodDelete, "/v1/cluster/members/"+url.PathEscape(args[0]), nil, &removed); err != nil {
				return err
			}
			_, err := terminal.Fprintf(cmd.OutOrStdout(), "removed server %s at %s\n", cmp.Or(removed.Name, "without a name"), removed.PeerURL)
			return err
		},
	}
}

func clusterResetCommand() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Make this machine's store the only member, after the majority was lost",
		Long: `Makes the store in --data, whose server is stopped, the only member of its cluster, with the data that it has. It is for a
cluster whose majority is lost for good: what only the lost servers had is lost. They must never run again with their data.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := backend.ResetCluster(cmd.Context(), data, nil); err != nil {
				return stopFirst(err)
			}
			_, err := terminal.Fprintf(cmd.OutOrStdout(), "the store in %s is a cluster of its own; start heddle serve, and let others join anew\n", data)
			return err
		},
	}
	DataFlag(cmd.Flags(), &data, "data `directory` of heddle serve")
	return cmd
}
