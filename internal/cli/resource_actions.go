package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"heddle/internal/cloud"
	"heddle/internal/terminal"
)

// action describes a command that does something to an object, with objects of other kinds.
type action struct {
	use, short string
	kinds      []cloud.Kind // of the arguments
	settings   []setting
	// do gets the ids of the arguments, and the attributes of the settings that were given. It
	// returns what to tell the user beyond success, or "".
	do func(ctx context.Context, api *cloud.Neutron, ids []string, attributes map[string]any) (notice string, err error)
}

func (a action) command(login *cloud.Config) *cobra.Command {
	completions := make([]cobra.CompletionFunc, len(a.kinds))
	for i, k := range a.kinds {
		if completions[i] = completeObjects(login, k); k == cloud.Port {
			completions[i] = completeWorkloadPorts(login)
		}
	}
	cmd := &cobra.Command{Use: a.use, Short: a.short, Args: cobra.ExactArgs(len(a.kinds)), ValidArgsFunction: arguments(completions...)}
	addSettings(cmd, login, a.settings, true)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := neutron(cmd, login)
		if err != nil {
			return err
		}
		ids := make([]string, len(args))
		for i, arg := range args {
			if ids[i], err = api.Find(cmd.Context(), a.kinds[i], arg); err != nil {
				return err
			}
		}
		attributes := map[string]any{}
		if err := given(cmd, api, a.settings, attributes); err != nil {
			return err
		}
		notice, err := a.do(cmd.Context(), api, ids, attributes)
		if err == nil && notice != "" {
			_, err = terminal.Fprintln(cmd.OutOrStdout(), notice)
		}
		return err
	}
	return cmd
}

// routerActions returns the actions of routers.
func routerActions() []action {
	onSubnet := func(call string) func(context.Context, *cloud.Neutron, []string, map[string]any) (string, error) {
		return func(ctx context.Context, api *cloud.Neutron, ids []string, _ map[string]any) (string, error) {
			return "", api.Act(ctx, cloud.Router, ids[0], call, map[string]any{"subnet_id": ids[1]})
		}
	}
	return []action{{
		use: "add-subnet ROUTER SUBNET", short: "Connect a subnet to a router",
		kinds: []cloud.Kind{cloud.Router, cloud.Subnet}, do: onSubnet("add_router_interface"),
	}, {
		use: "remove-subnet ROUTER SUBNET", short: "Disconnect a subnet from a router",
		kinds: []cloud.Kind{cloud.Router, cloud.Subnet}, do: onSubnet("remove_router_interface"),
	}, {
		use: "set-gateway ROUTER NETWORK", short: "Give a router its gateway on an external network",
		kinds: []cloud.Kind{cloud.Router, cloud.Network},
		settings: []setting{
			{flag: "ip", usage: "`address` of the gateway; default: a free one", put: putGatewayAddress},
			{flag: "snat", attribute: "enable_snat", usage: "machines without a floating IP use the gateway's address", form: formTruth},
		},
		do: func(ctx context.Context, api *cloud.Neutron, ids []string, gateway map[string]any) (string, error) {
			gateway["network_id"] = ids[1]
			_, err := api.Update(ctx, cloud.Router, ids[0], map[string]any{"external_gateway_info": gateway})
			return "", err
		},
	}, {
		use: "clear-gateway ROUTER", short: "Remove a router's gateway",
		kinds: []cloud.Kind{cloud.Router},
		do: func(ctx context.Context, api *cloud.Neutron, ids []string, _ map[string]any) (string, error) {
			_, err := api.Update(ctx, cloud.Router, ids[0], map[string]any{"external_gateway_info": nil})
			return "", err
		},
	}}
}

func putGatewayAddress(gateway map[string]any, texts []string) error {
	gateway["external_fixed_ips"] = []map[string]string{{"ip_address": texts[0]}}
	return nil
}

// floatingIPActions returns the actions of floating IPs.
func floatingIPActions() []action {
	return []action{{
		use: "attach FIP PORT", short: "Attach a floating IP to a port",
		kinds:    []cloud.Kind{cloud.FloatingIP, cloud.Port},
		settings: []setting{{flag: "fixed-ip", attribute: "fixed_ip_address", usage: "`address` of the port, if it has several"}},
		do:       attachFloatingIP,
	}, {
		use: "detach FIP", short: "Detach a floating IP from its port",
		kinds: []cloud.Kind{cloud.FloatingIP},
		do: func(ctx context.Context, api *cloud.Neutron, ids []string, _ map[string]any) (string, error) {
			_, err := api.Update(ctx, cloud.FloatingIP, ids[0], map[string]any{"port_id": nil})
			return "", err
		},
	}}
}

// attachFloatingIP attaches a floating IP to a port, and names the port that it is taken from.
func attachFloatingIP(ctx context.Context, api *cloud.Neutron, ids []string, attributes map[string]any) (notice string, err error) {
	var before cloud.Object
	if err := api.Get(ctx, cloud.FloatingIP, ids[0], &before, "floating_ip_address", "port_id"); err != nil {
		return "", err
	}
	attributes["port_id"] = ids[1]
	if _, err := api.Update(ctx, cloud.FloatingIP, ids[0], attributes); err != nil {
		return "", err
	}
	from := before.Text("port_id")
	if from == "" || from == ids[1] {
		return "", nil
	}
	var port cloud.Object
	_ = api.Get(ctx, cloud.Port, from, &port, "name") // the address has moved; the id names it, too
	return fmt.Sprintf("%s was taken from port %s", before.Text("floating_ip_address"), terminal.Escape(cmp.Or(port.Text("name"), from))), nil
}
