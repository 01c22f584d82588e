package cli

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/cloud"
	"heddle/internal/terminal"
)

// completeTimeout bounds a completion from an API, with its login, from the store, or from roles.
const completeTimeout = time.Second

// completeObjects completes the names of objects.
func completeObjects(login *cloud.Config, k cloud.Kind) cobra.CompletionFunc {
	return completeSome(login, k, func(cloud.Object) bool { return true })
}

// completeWorkloadPorts completes the names of ports, without those of routers and the like.
func completeWorkloadPorts(login *cloud.Config) cobra.CompletionFunc {
	return completeSome(login, cloud.Port, func(o cloud.Object) bool { return !strings.HasPrefix(o.Text("device_owner"), "network:") })
}

// completeSome completes the names of some of the objects of a kind.
func completeSome(login *cloud.Config, k cloud.Kind, wanted func(cloud.Object) bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		err := settle(cmd)
		var names []string
		if err == nil {
			names, err = objectNames(ctx, login, k, wanted)
		}
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// others completes what a function does, but for the arguments that are there already.
func others(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		words, directive := complete(cmd, args, word)
		return slices.DeleteFunc(words, func(word cobra.Completion) bool { return slices.Contains(args, completedWord(word)) }), directive
	}
}

// completedWord returns a completion without its description.
func completedWord(c cobra.Completion) string {
	word, _, _ := strings.Cut(c, "\t")
	return word
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
		return callable(answer[key], "", append([]string{"name"}, others...)), cobra.ShellCompDirectiveNoFileComp
	}
}

// callable returns in order what people can call objects: the first of some attributes that is a
// plain word and no other object's name. What is no name is described by the name. The names of a
// project's own objects go before those of others.
func callable(objects []cloud.Object, project string, attributes []string) []cobra.Completion {
	own, all := map[string]int{}, map[string]int{}
	isOwn := func(o cloud.Object) bool { return o.Text("project_id") == project }
	for _, o := range objects {
		name := o.Text(attributes[0])
		if all[name]++; isOwn(o) {
			own[name]++
		}
	}
	words := map[string]cobra.Completion{}
	for _, o := range objects {
		texts := make([]string, len(attributes))
		for i, attribute := range attributes {
			texts[i] = o.Text(attribute)
		}
		name := texts[0]
		if len(texts) > 1 && !(own[name] == 1 && isOwn(o) || own[name] == 0 && all[name] == 1) {
			texts = texts[1:]
		}
		word := firstPlain(texts...)
		switch {
		case word == "":
		case name == "" || word == name:
			words[word] = word
		default:
			words[word] = cobra.CompletionWithDesc(word, terminal.Escape(name))
		}
	}
	return slices.Sorted(maps.Values(words))
}

// settle gives the flags of a command that is completed their values from environment and file: a
// completion runs no command.
func settle(cmd *cobra.Command) error {
	if before := cmd.Root().PersistentPreRunE; before != nil {
		return before(cmd, nil)
	}
	return nil
}

// objectNames returns what people can call some of the objects of a kind, in order: names, and the
// ids of objects without a name of their own or with one that is no plain word.
func objectNames(ctx context.Context, login *cloud.Config, k cloud.Kind, wanted func(cloud.Object) bool) ([]cobra.Completion, error) {
	s, err := login.Login(ctx)
	if err != nil {
		return nil, err
	}
	api, err := s.Neutron()
	if err != nil {
		return nil, err
	}
	var all []cloud.Object
	if err := api.List(ctx, k, url.Values{"fields": {"id", k.NameField(), "project_id", "device_owner"}}, &all); err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(o cloud.Object) bool { return !wanted(o) })
	return callable(all, api.Project(), []string{k.NameField(), "id"}), nil
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
