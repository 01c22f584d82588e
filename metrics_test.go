package heddle

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var updateMetrics = flag.Bool("update", false, "write docs/metrics.md anew")

// metric is a metric as the source declares it.
type metric struct {
	name, kind, help string
	labels           []string
}

// metricsTitle holds the lines above the table of docs/metrics.md.
const metricsTitle = `# Metrics

All metrics of servers, agents and controllers, as their sources have them; beside them each process has those of Go's
runtime (` + "`go_…`) and of processes (`process_…`" + `). A metric has at most 100 series in a process:
` + "`heddle_series_left_out`" + ` says if there were more.

| metric | type | labels | |
|---|---|---|---|
`

// TestMetrics holds docs/metrics.md against the metrics that the sources declare; with -update it
// writes the file. Metrics are exported with the names, kinds and labels that stand in the calls
// of telemetry.Counter.Of, Gauge.Of, Flag and With, which this test can read.
func TestMetrics(t *testing.T) {
	metrics := declaredMetrics(t)
	if len(metrics) < 100 {
		t.Fatalf("found %d metrics", len(metrics))
	}
	var b strings.Builder
	b.WriteString(metricsTitle)
	for _, m := range metrics {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(m.labels, ", "), strings.ReplaceAll(m.help, "|", `\|`))
	}
	const file = "docs/metrics.md"
	if *updateMetrics {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) == b.String() {
		return
	}
	have := strings.Split(string(got), "\n")
	for line := range strings.Lines(b.String()) {
		if line := strings.TrimSuffix(line, "\n"); !slices.Contains(have, line) {
			t.Errorf("%s lacks: %s", file, line)
		}
	}
	t.Errorf("%s is not what the sources have: after a look at alerts, dashboards and runbooks that use the metric, go test -run TestMetrics . -update", file)
}

// declaredMetrics returns the metrics that the sources declare, by name.
func declaredMetrics(t *testing.T) []metric {
	t.Helper()
	found := map[string]metric{}
	sources(t, func(set *token.FileSet, name, _ string, file *ast.File) {
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		constants := stringConstants(file)
		labels := map[*ast.CallExpr][]string{} // of a value, by the call that makes it
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if value, label, ok := withLabel(call); ok {
				labels[value] = append(labels[call], label) // the outermost call is seen first
			} else if m, ok := madeBy(call, constants); ok {
				m.labels = append(m.labels, labels[call]...)
				slices.Sort(m.labels)
				if before, ok := found[m.name]; ok && fmt.Sprint(before) != fmt.Sprint(m) {
					t.Errorf("%s: %v, elsewhere %v", set.Position(call.Pos()), m, before)
				}
				found[m.name] = m
			}
			return true
		})
	})
	var all []metric
	for _, m := range found {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	return all
}

// withLabel returns the call whose value gets a label, and the label, if call is one of With.
func withLabel(call *ast.CallExpr) (value *ast.CallExpr, label string, ok bool) {
	with, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || with.Sel.Name != "With" || len(call.Args) != 2 {
		return nil, "", false
	}
	value, isCall := with.X.(*ast.CallExpr)
	label, isText := stringOf(call.Args[0], nil)
	return value, label, isCall && isText
}

// madeBy returns the metric that a call makes, without the labels that With gives it: one of Of or
// Flag, or of Prometheus' own library.
func madeBy(call *ast.CallExpr, constants map[string]string) (m metric, ok bool) {
	if len(call.Args) == 0 {
		return m, false
	}
	function, kind := "", ""
	switch f := call.Fun.(type) {
	case *ast.Ident: // in package telemetry itself
		function = f.Name
	case *ast.SelectorExpr:
		function, kind = f.Sel.Name, strings.ToLower(lastName(f.X))
	}
	if options, ok := call.Args[0].(*ast.CompositeLit); ok && strings.HasSuffix(lastName(options.Type), "Opts") {
		return fromOptions(options, call.Args[1:], constants)
	}
	if function == "Flag" {
		kind = "gauge"
	} else if function != "Of" {
		return m, false
	}
	name, isText := stringOf(call.Args[0], constants)
	if !isText || !strings.HasPrefix(name, "heddle_") || len(call.Args) != 3 {
		return m, false
	}
	help, _ := stringOf(call.Args[1], constants)
	return metric{name: name, kind: kind, help: help}, true
}

// fromOptions returns the metric of options of Prometheus' library, such as GaugeOpts.
func fromOptions(options *ast.CompositeLit, others []ast.Expr, constants map[string]string) (m metric, ok bool) {
	m.kind = strings.ToLower(strings.TrimSuffix(lastName(options.Type), "Opts"))
	for _, element := range options.Elts {
		field, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch text, _ := stringOf(field.Value, constants); lastName(field.Key) {
		case "Name":
			m.name = text
		case "Help":
			m.help = text
		case "ConstLabels":
			for _, label := range field.Value.(*ast.CompositeLit).Elts {
				name, _ := stringOf(label.(*ast.KeyValueExpr).Key, constants)
				m.labels = append(m.labels, name)
			}
		}
	}
	for _, other := range others {
		if list, ok := other.(*ast.CompositeLit); ok {
			for _, label := range list.Elts {
				name, _ := stringOf(label, constants)
				m.labels = append(m.labels, name)
			}
		}
	}
	return m, strings.HasPrefix(m.name, "heddle_")
}

// stringConstants returns the constants of a file that have a literal text.
func stringConstants(file *ast.File) map[string]string {
	constants := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for i, name := range spec.Names {
				if i < len(spec.Values) {
					if text, ok := stringOf(spec.Values[i], nil); ok {
						constants[name.Name] = text
					}
				}
			}
		}
		return true
	})
	return constants
}

// stringOf returns the text of a literal, or of a constant's name.
func stringOf(e ast.Expr, constants map[string]string) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	case *ast.Ident:
		text, ok := constants[e.Name]
		return text, ok
	}
	return "", false
}

// lastName returns the last name of an expression such as telemetry.Counter.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
