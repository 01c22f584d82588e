package cli

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/cloud"
	"heddle/internal/terminal"
)

// completeTimeout bounds a completion from an API, with its login, from the store, or from roles.
const completeTimeout = time.Second

// completeObjects completes the names of objects.
func completeObjects(login *cloud.Config, k cloud.Kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		err := settle(cmd)
		var names []string
		if err == nil {
			names, err = objectNames(ctx, login, k)
		}
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeJoinedHosts completes the names of hosts that have joined.
func completeJoinedHosts(login *cloud.Config) cobra.CompletionFunc {
	return completeListed(login, "/v1/hosts", "hosts")
}

// completeListed completes the names of what the operators' API lists at a path, under a key.
func completeListed(login *cloud.Config, path, key string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		if err := settle(cmd); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		s, err := login.Login(ctx)
		var answer map[string][]struct {
			Name string `json:"name"`
		}
		if err == nil {
			err = s.Operator(ctx, http.MethodGet, path, nil, &answer)
		}
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for _, one := range answer[key] {
			if one.Name != "" && terminal.Escape(one.Name) == one.Name {
				names = append(names, one.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// settle gives the flags of a command that is completed their values from environment and file: a
// completion runs no command.
func settle(cmd *cobra.Command) error {
	if before := cmd.Root().PersistentPreRunE; before != nil {
		return before(cmd, nil)
	}
	return nil
}

// objectNames returns what people can call the objects of a kind, in order: names, and the ids of
// objects without a name or with one that a terminal would obey.
func objectNames(ctx context.Context, login *cloud.Config, k cloud.Kind) ([]string, error) {
	s, err := login.Login(ctx)
	if err != nil {
		return nil, err
	}
	api, err := s.Neutron()
	if err != nil {
		return nil, err
	}
	var all []cloud.Object
	if err := api.List(ctx, k, url.Values{"fields": {"id", k.NameField()}}, &all); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(all))
	for _, o := range all {
		name := o.Text(k.NameField())
		if name == "" || terminal.Escape(name) != name {
			name = o.ID()
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// arguments completes each argument by a function of its own, and none after them.
func arguments(all ...cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(all) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return all[len(args)](cmd, args, word)
	}
}
