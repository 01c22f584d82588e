package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/internal/command"
)

// calicoDeleteCommand deletes objects.
func calicoDeleteCommand() *cobra.Command {
	var files []string
	var missingFine, old bool
	cmd := &cobra.Command{
		Use:   "delete {KIND NAME… | -f FILE}",
		Short: "Delete objects, by name or by the documents that made them",
		Long: `Deletes objects in one transaction: all of them, or none when one is missing. With --legacy it deletes workload endpoints and profiles
of the legacy tree, one after another, and keeps the reference counts: a profile goes with the last endpoint that names it.

` + kindHelp,
	}
	store := calicoStoreFlags(cmd)
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "`file` of documents as for apply; their specs do not matter; repeatable")
	cmd.Flags().BoolVar(&missingFine, "ignore-missing", false, "what is not there is no error")
	legacyFlag(cmd, &old)
	format := command.OutputFlag(cmd)
	cmd.ValidArgsFunction = completeNames(store)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := wantJSON(*format); err != nil {
			return err
		}
		targets, err := deleteTargets(cmd, args, files)
		if err != nil {
			return err
		}
		return store.do(func(c *client.Client) (err error) {
			var results []outcome
			if old {
				results, err = deleteLegacy(cmd.Context(), c, targets, missingFine, cmd.ErrOrStderr())
			} else {
				results, err = deleteAll(cmd.Context(), c, targets, missingFine)
			}
			return errors.Join(printApplied(cmd.OutOrStdout(), *format, results), err)
		})
	}
	return cmd
}

// deleteTargets returns the objects that the command line names.
func deleteTargets(cmd *cobra.Command, args, files []string) ([]manifest, error) {
	switch {
	case len(files) > 0 && len(args) > 0:
		return nil, &command.Exit{Code: 2, Text: "calico delete: give either a kind and names, or -f"}
	case len(files) > 0:
		return readFiles(files, cmd.InOrStdin())
	case len(args) == 0:
		return nil, &command.Exit{Code: 2, Text: "calico delete: give a kind and names, or -f"}
	}
	k, err := findKind(args[0])
	if err != nil {
		return nil, err
	}
	names := args[1:]
	if len(k.ids) == 0 && len(names) == 0 {
		names = []string{""} // there is one of it
	}
	if len(names) == 0 {
		return nil, &command.Exit{Code: 2, Text: fmt.Sprintf("calico delete %s: name what to delete", k.kind)}
	}
	var targets []manifest
	for _, name := range names {
		m := manifest{kind: k}
		if len(k.ids) > 0 || name != "" {
			if m.ids, err = k.parseName(name); err != nil {
				return nil, err
			}
		}
		if m.key, err = k.key(m.ids, false); err != nil {
			return nil, &command.Exit{Code: 2, Text: fmt.Sprintf("%s: %v", m, err)}
		}
		targets = append(targets, m)
	}
	return targets, nil
}

// deleteAll deletes objects in one transaction.
func deleteAll(ctx context.Context, c *client.Client, targets []manifest, missingFine bool) ([]outcome, error) {
	var changes []change
	var missing []error
	for _, m := range targets {
		ops, err := m.deletion(ctx, c)
		switch {
		case errors.Is(err, client.ErrNotFound) && missingFine:
		case errors.Is(err, client.ErrNotFound):
			missing = append(missing, fmt.Errorf("%s: %w", m, client.ErrNotFound))
		case err != nil:
			return nil, fmt.Errorf("%s: %w", m, err)
		default:
			changes = append(changes, change{m.outcome(actionDeleted), ops})
		}
	}
	if err := errors.Join(missing...); err != nil {
		return nil, err
	}
	return commitAll(ctx, c, changes)
}

// deletion returns the operations that delete an object, or ErrNotFound.
func (m manifest) deletion(ctx context.Context, c *client.Client) ([]client.Op, error) {
	switch {
	case m.kind.kind == profileKind:
		id := m.ids[0]
		_, err := c.GetProfile(ctx, id)
		return client.OpClearProfile(id), err
	case m.kind.kind == calico.KindIPAMHost:
		return []client.Op{client.OpClear(m.key)}, nil // all below it
	}
	if e, err := c.Get(ctx, m.key); err != nil && e.Err == nil {
		return nil, err
	}
	return []client.Op{client.OpClear(m.key)}, nil
}
