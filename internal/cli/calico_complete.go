package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"heddle/calico"
	"heddle/calico/client"
)

func registerCompletion(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // the flag is defined by the caller
	}
}

// completeKinds completes the names of kinds.
func completeKinds(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var words []cobra.Completion
	for _, k := range calicoKinds() {
		words = append(words, cobra.CompletionWithDesc(string(k.kind), k.aliases))
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completeNames completes a kind and then the names of its objects in the store.
func completeNames(store *calicoStore) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return completeKinds(cmd, args, word)
		}
		k, err := findKind(args[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return store.complete(cmd, func(ctx context.Context, c *client.Client) ([]string, error) {
			all, err := readKind(ctx, c, k, make([]string, len(k.ids)), &listOptions{})
			var names []string
			for _, f := range all {
				if name := f.name(); !slices.Contains(args[1:], name) {
					names = append(names, name)
				}
			}
			return plainWords(names), err
		})
	}
}

// completeHosts completes the names of hosts in the store.
func completeHosts(store *calicoStore) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return store.complete(cmd, func(ctx context.Context, c *client.Client) ([]string, error) {
			s, err := c.List(ctx, calico.HostMetadataKey{}, calico.HostIPKey{}, calico.AgentStatusKey{}, calico.HostEndpointKey{}, calico.WorkloadEndpointKey{})
			if err != nil {
				return nil, err
			}
			var hosts []string
			for _, e := range s.Entries {
				hosts = append(hosts, idsOf(e.Key)[0])
			}
			slices.Sort(hosts)
			return plainWords(slices.Compact(hosts)), nil
		})
	}
}

// completeSelector completes a selector's last term with labels of endpoints and profiles.
func completeSelector(store *calicoStore) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := ""
		for _, operator := range []string{"&& ", "|| ", "("} {
			if i := strings.LastIndex(word, operator); i >= 0 && i+len(operator) > len(before) {
				before = word[:i+len(operator)]
			}
		}
		return store.complete(cmd, func(ctx context.Context, c *client.Client) ([]string, error) {
			s, err := c.List(ctx, calico.WorkloadEndpointKey{}, calico.HostEndpointKey{}, calico.ProfileLabelsKey{})
			if err != nil {
				return nil, err
			}
			var terms []string
			for _, e := range s.Entries {
				terms = append(terms, selectorTerms(before, labelsOf(e.Object, nil))...)
			}
			slices.Sort(terms)
			return slices.Compact(terms), nil
		})
	}
}

// selectorTerms returns the terms about labels that follow what is there before them. Names and
// values that are no plain words are left out: what a shell evaluates of a term is its own.
func selectorTerms(before string, labels map[string]string) []string {
	var terms []string
	for name, value := range labels {
		if !isPlainWord(name) {
			continue
		}
		terms = append(terms, before+"has("+name+")")
		if value == "" || isPlainWord(value) {
			terms = append(terms, fmt.Sprintf("%s%s == %q", before, name, value))
		}
	}
	return terms
}

// complete returns words from the store, if it can be reached.
func (s *calicoStore) complete(cmd *cobra.Command, ask func(context.Context, *client.Client) ([]string, error)) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	if err := settle(cmd); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	c, err := s.open()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer c.Close()
	words, err := ask(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
