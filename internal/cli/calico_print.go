package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"heddle/calico"
)

func checkFormat(format string) error {
	switch format {
	case "text", "wide", "yaml", "json":
		return nil
	}
	return &Exit{Code: 2, Text: fmt.Sprintf("output format %q: want text, wide, yaml or json", format)}
}

// printFound prints objects; one of them alone as itself, not as a list of one.
func printFound(w io.Writer, format string, kinds []calicoKind, all []found, alone bool) error {
	docs := make([]document, len(all))
	for i, f := range all {
		docs[i] = f.doc
	}
	switch {
	case format == "yaml":
		return writeYAML(w, docs)
	case format == "json" && alone && len(docs) == 1:
		return PrintJSON(w, docs[0])
	case format == "json":
		return PrintJSON(w, docs)
	}
	for i, k := range kinds {
		some := slices.DeleteFunc(slices.Clone(all), func(f found) bool { return f.kind.kind != k.kind })
		if i > 0 {
			fmt.Fprintln(w)
		}
		if len(kinds) > 1 {
			fmt.Fprintf(w, "%s\n", k.kind)
		}
		if err := k.printTable(w, some, format == "wide"); err != nil {
			return err
		}
	}
	return nil
}

// printTable prints objects of one kind in columns.
func (k calicoKind) printTable(w io.Writer, all []found, wide bool) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	header := make([]string, 0, 8)
	for _, id := range k.ids {
		header = append(header, strings.ToUpper(id))
	}
	columns := k.columns()
	header = append(header, columns...)
	if wide {
		header = append(header, "REVISION", "KEY")
	}
	printRow(tw, header)
	for _, f := range all {
		row := slices.Clone(f.ids)
		cells := f.cells()
		if f.doc.Invalid != "" {
			cells = []string{"INVALID: " + f.doc.Invalid}
		}
		row = append(row, cells...)
		if wide {
			for len(row) < len(k.ids)+len(columns) {
				row = append(row, "")
			}
			row = append(row, strconv.FormatInt(f.revision, 10), f.path)
		}
		printRow(tw, row)
	}
	return tw.Flush()
}

// columns are the headings of what a table tells beside the ids.
func (k calicoKind) columns() []string {
	switch k.kind {
	case calico.KindWorkloadEndpoint:
		return []string{"STATE", "INTERFACE", "ADDRESSES", "PROFILES", "LABELS"}
	case calico.KindHostEndpoint:
		return []string{"INTERFACE", "ADDRESSES", "PROFILES", "LABELS"}
	case profileKind:
		return []string{"INBOUND", "OUTBOUND", "TAGS", "LABELS"}
	case calico.KindProfileRules:
		return []string{"INBOUND", "OUTBOUND"}
	case calico.KindPolicy:
		return []string{"ORDER", "SELECTOR", "INBOUND", "OUTBOUND", "STAGE"}
	case calico.KindTier:
		return []string{"ORDER"}
	case calico.KindIPPool:
		return []string{"IPAM", "MASQUERADE", "TUNNEL"}
	}
	return []string{"VALUE"}
}

// cells are what a table tells of an object, in the order of columns.
func (f found) cells() []string {
	switch f.kind.kind {
	case profileKind:
		var s profileSpec
		_ = json.Unmarshal(f.doc.Spec, &s) // made here; where it is not, the cells are empty
		rules := ruleCells(s.Rules)
		return append(rules, compact(s.Tags), compact(s.Labels))
	case calico.KindProfileRules:
		return ruleCells(f.doc.Spec)
	}
	switch o := f.object.(type) {
	case *calico.WorkloadEndpoint:
		return []string{o.State, o.Name, prefixes(o.IPv4Nets, o.IPv6Nets), strings.Join(o.ProfileIDs, ","), labelText(o.Labels)}
	case *calico.HostEndpoint:
		return []string{dash(o.Name), addresses(o.ExpectedIPv4Addrs, o.ExpectedIPv6Addrs), strings.Join(o.ProfileIDs, ","), labelText(o.Labels)}
	case *calico.Policy:
		return []string{orderText(o.Order), o.Selector, strconv.Itoa(len(o.InboundRules)), strconv.Itoa(len(o.OutboundRules)), stageText(o)}
	case *calico.Tier:
		return []string{orderText(o.Order)}
	case *calico.Pool:
		return []string{useText(o), strconv.FormatBool(o.Masquerade), dash(strings.TrimSpace(o.IPIP + " " + o.IPIPMode))}
	}
	return []string{compact(f.doc.Spec)}
}

// ruleCells tell how many rules there are each way.
func ruleCells(raw json.RawMessage) []string {
	var rules map[string][]json.RawMessage
	if raw == nil || json.Unmarshal(raw, &rules) != nil {
		return []string{"-", "-"}
	}
	return []string{strconv.Itoa(len(rules["inbound_rules"])), strconv.Itoa(len(rules["outbound_rules"]))}
}

// longestCell is how much of a value a table shows, in characters.
const longestCell = 100

// compact is a spec in one line.
func compact(spec json.RawMessage) string {
	var text string
	if json.Unmarshal(spec, &text) != nil {
		text = string(spec)
	}
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > longestCell {
		text = string(r[:longestCell]) + "…"
	}
	return dash(text)
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
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
	return dash(strings.Join(all, ","))
}

func addresses(lists ...[]netip.Addr) string {
	var all []string
	for _, a := range slices.Concat(lists...) {
		all = append(all, a.String())
	}
	return dash(strings.Join(all, ","))
}

func labelText(labels map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, name+"="+labels[name])
	}
	return dash(strings.Join(all, ","))
}

func orderText(order *float64) string {
	if order == nil {
		return "last"
	}
	return strconv.FormatFloat(*order, 'g', -1, 64)
}

// stageText is when a policy judges.
func stageText(p *calico.Policy) string {
	switch {
	case p.Untracked:
		return "untracked"
	case p.PreDNAT:
		return "pre-dnat"
	}
	return "normal"
}

// useText is whether addresses are given out of a pool.
func useText(p *calico.Pool) string {
	switch {
	case p.Disabled:
		return "disabled"
	case !p.IPAM:
		return "no"
	}
	return "yes"
}

// countKinds tells how many objects there are of each kind.
func countKinds(cmd *cobra.Command, store *calicoStore, o *listOptions) error {
	if err := checkFormat(o.format); err != nil {
		return err
	}
	if o.selector != "" {
		return &Exit{Code: 2, Text: "--selector: name the kinds that it is to pick from"}
	}
	c, err := store.open()
	if err != nil {
		return err
	}
	defer c.Close()
	counts := map[calico.Kind]int{}
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
		all = slices.DeleteFunc(all, func(f found) bool { return o.host != "" && f.host() != o.host })
		if len(all) > 0 {
			counts[k.kind] = len(all)
		}
	}
	var rows [][]string
	for _, k := range calicoKinds() {
		if n := counts[k.kind]; n > 0 {
			rows = append(rows, []string{string(k.kind), strconv.Itoa(n)})
		}
	}
	switch o.format {
	case "wide":
		return printTable(cmd.OutOrStdout(), "text", nil, []string{"KIND", "OBJECTS"}, rows)
	case "yaml":
		return writeAnyYAML(cmd.OutOrStdout(), counts)
	}
	return printTable(cmd.OutOrStdout(), o.format, counts, []string{"KIND", "OBJECTS"}, rows)
}
