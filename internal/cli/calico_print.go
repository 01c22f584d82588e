package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"heddle/calico"
	"heddle/internal/command"
	"heddle/internal/terminal"
)

func checkFormat(format string) error {
	switch format {
	case "text", "wide", "yaml", "json":
		return nil
	}
	return &command.Exit{Code: 2, Text: fmt.Sprintf("output format %q: want text, wide, yaml or json", format)}
}

// printFound prints objects, or a single one that was named.
func printFound(w io.Writer, format string, kinds []calicoKind, all []objectView, alone bool) error {
	docs := make([]document, len(all))
	for i, f := range all {
		docs[i] = f.doc
	}
	switch {
	case format == "yaml":
		return writeYAML(w, docs)
	case format == "json" && alone && len(docs) == 1:
		return command.PrintJSON(w, docs[0])
	case format == "json":
		return command.PrintJSON(w, docs)
	}
	for i, k := range kinds {
		some := slices.DeleteFunc(slices.Clone(all), func(f objectView) bool { return f.kind.kind != k.kind })
		if i > 0 {
			terminal.Fprintln(w)
		}
		if len(kinds) > 1 {
			terminal.Fprintf(w, "%s\n", k.kind)
		}
		if err := k.printTable(w, some, format == "wide"); err != nil {
			return err
		}
	}
	return nil
}

// printTable prints objects of one kind in columns.
func (k calicoKind) printTable(w io.Writer, all []objectView, wide bool) error {
	var header []string
	for _, id := range k.ids {
		header = append(header, strings.ToUpper(id))
	}
	columns, cells := k.columns()
	header = append(header, columns...)
	if wide {
		header = append(header, "REVISION", "KEY")
	}
	var rows [][]string
	for _, f := range all {
		row := slices.Clone(f.ids)
		if f.doc.Invalid == "" {
			row = append(row, cells(f)...)
		} else {
			row = append(row, "INVALID: "+f.doc.Invalid)
		}
		if wide {
			for len(row) < len(header)-2 {
				row = append(row, "")
			}
			row = append(row, strconv.FormatInt(f.revision, 10), f.path)
		}
		rows = append(rows, row)
	}
	return command.PrintTable(w, "text", nil, header, rows)
}

// columns returns a table's headings after the ids, and the cells of a valid object.
func (k calicoKind) columns() (headings []string, cells func(objectView) []string) {
	switch k.kind {
	case calico.KindWorkloadEndpoint:
		return []string{"STATE", "INTERFACE", "ADDRESSES", "PROFILES", "LABELS"}, cellsOf(func(o *calico.WorkloadEndpoint) []string {
			return []string{o.State, o.Name, prefixes(o.IPv4Nets, o.IPv6Nets), strings.Join(o.ProfileIDs, ","), labelText(o.Labels)}
		})
	case calico.KindHostEndpoint:
		return []string{"INTERFACE", "ADDRESSES", "PROFILES", "LABELS"}, cellsOf(func(o *calico.HostEndpoint) []string {
			return []string{cmp.Or(o.Name, "-"), addresses(o.ExpectedIPv4Addrs, o.ExpectedIPv6Addrs), strings.Join(o.ProfileIDs, ","), labelText(o.Labels)}
		})
	case profileKind:
		return []string{"INBOUND", "OUTBOUND", "TAGS", "LABELS"}, func(f objectView) []string {
			var s profileSpec
			_ = json.Unmarshal(f.doc.Spec, &s) // made here; where it is not, the cells are empty
			return append(ruleCells(s.Rules), compact(s.Tags), compact(s.Labels))
		}
	case calico.KindProfileRules:
		return []string{"INBOUND", "OUTBOUND"}, func(f objectView) []string { return ruleCells(f.doc.Spec) }
	case calico.KindPolicy:
		return []string{"ORDER", "SELECTOR", "INBOUND", "OUTBOUND", "STAGE"}, cellsOf(func(o *calico.Policy) []string {
			return []string{orderText(o.Order), o.Selector, strconv.Itoa(len(o.InboundRules)), strconv.Itoa(len(o.OutboundRules)), stageText(o)}
		})
	case calico.KindTier:
		return []string{"ORDER"}, cellsOf(func(o *calico.Tier) []string { return []string{orderText(o.Order)} })
	case calico.KindIPPool:
		return []string{"IPAM", "MASQUERADE", "TUNNEL"}, cellsOf(func(o *calico.Pool) []string {
			return []string{useText(o), strconv.FormatBool(o.Masquerade), cmp.Or(strings.TrimSpace(o.IPIP+" "+o.IPIPMode), "-")}
		})
	}
	return []string{"VALUE"}, func(f objectView) []string { return []string{compact(f.doc.Spec)} }
}

func cellsOf[T any](cells func(T) []string) func(objectView) []string {
	return func(f objectView) []string { return cells(f.object.(T)) }
}

// ruleCells returns the numbers of inbound and outbound rules.
func ruleCells(raw json.RawMessage) []string {
	var rules map[string][]json.RawMessage
	if raw == nil || json.Unmarshal(raw, &rules) != nil {
		return []string{"-", "-"}
	}
	return []string{strconv.Itoa(len(rules["inbound_rules"])), strconv.Itoa(len(rules["outbound_rules"]))}
}

// longestCell bounds a value in a table, in characters.
const longestCell = 100

// compact returns a spec in one line.
func compact(spec json.RawMessage) string {
	var text string
	if json.Unmarshal(spec, &text) != nil {
		text = string(spec)
	}
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > longestCell {
		text = string(r[:longestCell]) + "…"
	}
	return cmp.Or(text, "-")
}

func prefixes(lists ...[]netip.Prefix) string {
	var all []string
	for _, p := range slices.Concat(lists...) {
		if p.IsSingleIP() {
			all = append(all, p.Addr().String())
		} else {
			all = append(all, p.String())
		}
	}
	return cmp.Or(strings.Join(all, ","), "-")
}

func addresses(lists ...[]netip.Addr) string {
	var all []string
	for _, a := range slices.Concat(lists...) {
		all = append(all, a.String())
	}
	return cmp.Or(strings.Join(all, ","), "-")
}

func labelText(labels map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, name+"="+labels[name])
	}
	return cmp.Or(strings.Join(all, ","), "-")
}

func orderText(order *float64) string {
	if order == nil {
		return "last"
	}
	return strconv.FormatFloat(*order, 'g', -1, 64)
}

// stageText returns the stage at which a policy applies.
func stageText(p *calico.Policy) string {
	switch {
	case p.Untracked:
		return "untracked"
	case p.PreDNAT:
		return "pre-dnat"
	}
	return "normal"
}

// useText returns whether a pool's addresses are assigned.
func useText(p *calico.Pool) string {
	switch {
	case p.Disabled:
		return "disabled"
	case !p.IPAM:
		return "no"
	}
	return "yes"
}

// countKinds prints how many objects there are of each kind.
func countKinds(cmd *cobra.Command, store *calicoStore, o *listOptions) error {
	if err := checkFormat(o.format); err != nil {
		return err
	}
	if o.selector != "" {
		return &command.Exit{Code: 2, Text: "--selector: name the kinds that it is to pick from"}
	}
	c, err := store.open()
	if err != nil {
		return err
	}
	defer c.Close()
	counts := map[calico.Kind]int{}
	var rows [][]string
	for _, k := range calicoKinds() {
		if _, err := k.key(make([]string, len(k.ids)), true); err != nil && o.legacy && k.kind != calico.KindProfileRefcount {
			continue // not in that tree
		}
		if k.isProfilePart() {
			continue // counted as a Profile
		}
		all, err := o.read(cmd.Context(), c, k, nil)
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(f objectView) bool { return o.host != "" && f.host() != o.host })
		if n := len(all); n > 0 {
			counts[k.kind], rows = n, append(rows, []string{string(k.kind), strconv.Itoa(n)})
		}
	}
	switch o.format {
	case "wide":
		return command.PrintTable(cmd.OutOrStdout(), "text", nil, []string{"KIND", "OBJECTS"}, rows)
	case "yaml":
		return writeAnyYAML(cmd.OutOrStdout(), counts)
	}
	return command.PrintTable(cmd.OutOrStdout(), o.format, counts, []string{"KIND", "OBJECTS"}, rows)
}
