package cli

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/cloud"
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

// completeListed completes what the operators' API lists at a path, under a key: names, or the
// first of the other members that can stand for a name which is no plain word.
func completeListed(login *cloud.Config, path, key string, others ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		if err := settle(cmd); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		s, err := login.Login(ctx)
		var answer map[string][]cloud.Object
		if err == nil {
			err = s.Operator(ctx, http.MethodGet, path, nil, &answer)
		}
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return callable(answer[key], append([]string{"name"}, others...)), cobra.ShellCompDirectiveNoFileComp
	}
}

// callable returns in order what people can call objects: the first of some attributes that is a
// plain word.
func callable(objects []cloud.Object, attributes []string) []string {
	var words []string
	for _, o := range objects {
		texts := make([]string, len(attributes))
		for i, attribute := range attributes {
			texts[i] = o.Text(attribute)
		}
		if word := firstPlain(texts...); word != "" {
			words = append(words, word)
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
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
// objects without a name or with one that is no plain word.
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
	return callable(all, []string{k.NameField(), "id"}), nil
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
