package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/internal/command"
	"heddle/internal/terminal"
)

// calicoWatchCommand prints changes as they happen.
func calicoWatchCommand() *cobra.Command {
	var format string
	var host string
	var old bool
	cmd := &cobra.Command{
		Use:   "watch [KIND…]",
		Short: "Print objects, and then each change as it happens",
		Long: `Prints a line for each object there is, of the kinds named or of all, and then one for each change, until it is interrupted:
= is there, + was put, - was deleted. With -o json each line is an object with event (is, put or delete), kind, metadata and spec.
A lost connection is made again; what was missed then shows as the difference.

` + kindHelp,
	}
	store := calicoStoreFlags(cmd)
	cmd.Flags().StringVar(&host, "host", "", "only what belongs to this `host`")
	legacyFlag(cmd, &old)
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text or json")
	cmd.ValidArgsFunction = completeKinds
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asJSON, err := wantJSON(format)
		if err != nil {
			return err
		}
		kinds, err := findKinds(args)
		if err != nil {
			return err
		}
		filters, err := watchFilters(kinds, host, old)
		if err != nil {
			return err
		}
		w := watcher{cmd.OutOrStdout(), asJSON}
		return store.do(func(c *client.Client) error { return w.watch(cmd.Context(), c, filters) })
	}
	return cmd
}

// watchFilters returns filters for the kinds, or for all kinds.
func watchFilters(kinds []calicoKind, host string, old bool) ([]calico.Key, error) {
	all := len(kinds) == 0
	if all {
		kinds = calicoKinds()
	}
	var filters []calico.Key
	for _, k := range kinds {
		if all && k.kind == profileKind {
			continue // printed by its parts
		}
		ids := make([]string, len(k.ids))
		if host != "" {
			if len(ids) == 0 || k.ids[0] != "host" {
				if all {
					continue
				}
				return nil, &command.Exit{Code: 2, Text: fmt.Sprintf("--host: a %s belongs to no host", k.kind)}
			}
			ids[0] = host
		}
		key, err := k.key(ids, old && k.kind != calico.KindProfileRefcount)
		if err != nil {
			if all {
				continue // not in the legacy tree
			}
			return nil, &command.Exit{Code: 2, Text: fmt.Sprintf("%s: %v", k.kind, err)}
		}
		filters = append(filters, key)
		if k.kind == profileKind && old {
			filters = append(filters, calico.ProfileTagsKey{Legacy: true})
		} else if k.kind == profileKind {
			filters = append(filters, calico.ProfileTagsKey{}, calico.ProfileLabelsKey{})
		}
	}
	return filters, nil
}

// watcher prints changes.
type watcher struct {
	out    io.Writer
	asJSON bool
}

// watch prints all objects of the filters, then each change until ctx ends.
func (w watcher) watch(ctx context.Context, c *client.Client, filters []calico.Key) error {
	s, err := c.List(ctx, filters...)
	if ctx.Err() != nil {
		return nil // interrupted, as it ends
	}
	if err != nil {
		return err
	}
	for _, e := range s.Entries {
		if err := w.print("is", e); err != nil {
			return err
		}
	}
	for e, err := range c.Watch(ctx, s) {
		event := "put"
		if e.Deleted {
			event = "delete"
		}
		if err == nil {
			err = w.print(event, e.Entry)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w watcher) print(event string, e client.Entry) error {
	k, err := findKind(string(e.Key.Kind()))
	if err != nil {
		return err
	}
	doc := document{Kind: k.kind, Metadata: k.metadataOf(idsOf(e.Key))}
	if event != "delete" {
		doc = documentOf(k, e)
	}
	if w.asJSON {
		line := struct {
			Event string `json:"event"`
			document
			Revision int64 `json:"revision"`
		}{event, doc, e.Revision}
		if line.Spec == nil {
			line.Spec = json.RawMessage("null")
		}
		e := json.NewEncoder(w.out)
		e.SetEscapeHTML(false)
		return e.Encode(line)
	}
	sign := map[string]string{"is": "=", "put": "+", "delete": "-"}[event]
	line := strings.TrimSpace(fmt.Sprintf("%s %s %s", sign, k.kind, k.name(idsOf(e.Key))))
	if doc.Invalid != "" {
		line += " INVALID: " + doc.Invalid
	} else if doc.Spec != nil {
		line += " " + compact(doc.Spec)
	}
	_, err = terminal.Fprintln(w.out, line)
	return err
}
