package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"heddle/internal/cloud"
	"heddle/internal/command"
	"heddle/internal/terminal"
)

// list prints the objects that a query selects.
func (r resource) list(cmd *cobra.Command, api *cloud.Neutron, query url.Values, format string) error {
	switch format {
	case "name":
		query["fields"] = []string{"id", r.kind.NameField()}
	case "text":
		for _, c := range r.columns {
			query.Add("fields", c.attribute)
		}
	}
	var names *names
	if format == "text" {
		names = r.names(cmd.Context(), api) // while the objects are listed
	}
	all := []cloud.Object{}
	if err := api.List(cmd.Context(), r.kind, query, &all); err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	switch format {
	case "json":
		return command.PrintJSON(w, all)
	case "name":
		return r.printNames(w, all)
	}
	if err := names.wait(); err != nil {
		return err
	}
	headers := make([]string, len(r.columns))
	for i, c := range r.columns {
		headers[i] = c.header
	}
	rows := make([][]string, len(all))
	for i, o := range all {
		for _, c := range r.columns {
			rows[i] = append(rows[i], c.cell(o, names))
		}
	}
	return command.PrintTable(w, format, nil, headers, rows)
}

// printOne prints an object: its attributes by name, those of the list first.
func (r resource) printOne(cmd *cobra.Command, api *cloud.Neutron, o cloud.Object, format string) error {
	w := cmd.OutOrStdout()
	switch format {
	case "json":
		return command.PrintJSON(w, o)
	case "name":
		return r.printNames(w, []cloud.Object{o})
	}
	names := r.names(cmd.Context(), api)
	if err := names.wait(); err != nil {
		return err
	}
	var rows [][]string
	shown := map[string]bool{}
	for _, c := range r.columns {
		if _, has := o[c.attribute]; has {
			shown[c.attribute] = true
			rows = append(rows, []string{c.attribute, c.cell(o, names)})
		}
	}
	for _, attribute := range slices.Sorted(maps.Keys(o)) {
		if !shown[attribute] {
			rows = append(rows, []string{attribute, valueText(o[attribute])})
		}
	}
	return command.PrintTable(w, format, nil, []string{"ATTRIBUTE", "VALUE"}, rows)
}

// printNames prints the name of each object, or its id if it has none.
func (r resource) printNames(w io.Writer, all []cloud.Object) error {
	for _, o := range all {
		name := o.Text(r.kind.NameField())
		if name == "" {
			name = o.ID()
		}
		if _, err := terminal.Fprintln(w, name); err != nil {
			return err
		}
	}
	return nil
}

// cell returns the text of an object's attribute, with names in place of ids.
func (c column) cell(o cloud.Object, n *names) string {
	v := o[c.attribute]
	switch {
	case c.show != nil:
		return c.show(o, n.name)
	case c.of == "":
		return valueText(v)
	}
	if ids, ok := v.([]any); ok {
		texts := make([]string, len(ids))
		for i, id := range ids {
			texts[i] = n.name(c.of, fmt.Sprint(id))
		}
		return strings.Join(texts, " ")
	}
	if id := o.Text(c.attribute); id != "" {
		return n.name(c.of, id)
	}
	return ""
}

// valueText returns a value of an answer for people.
func valueText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case []any, map[string]any:
		raw, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return string(raw)
	}
	return fmt.Sprint(v)
}

// names holds the names of the objects that the columns of a resource refer to.
type names struct {
	done   sync.WaitGroup
	mu     sync.Mutex
	byID   map[cloud.Kind]map[string]string
	failed error
}

// names begins to read the names of the kinds that the columns refer to.
func (r resource) names(ctx context.Context, api *cloud.Neutron) *names {
	n := &names{byID: map[cloud.Kind]map[string]string{}}
	for _, c := range r.columns {
		if c.of == "" || n.byID[c.of] != nil {
			continue
		}
		byID := map[string]string{}
		n.byID[c.of] = byID
		n.done.Go(func() {
			var all []cloud.Object
			err := api.List(ctx, c.of, url.Values{"fields": {"id", c.of.NameField()}}, &all)
			for _, o := range all {
				byID[o.ID()] = o.Text(c.of.NameField())
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			if err != nil {
				n.failed = err
			}
		})
	}
	return n
}

// wait waits for the names.
func (n *names) wait() error {
	n.done.Wait()
	return n.failed
}

// name returns the name of an object, or its id if it has none.
func (n *names) name(k cloud.Kind, id string) string {
	if name := n.byID[k][id]; name != "" {
		return name
	}
	return id
}
