package cli

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/calico/ipam"
	"heddle/calico/legacy"
	"heddle/internal/api/operator"
	"heddle/internal/store/backend"
	"heddle/internal/topology/flow"
)

// hostile is a name that sets a terminal's title, clears it, changes the direction of writing, and
// forges a line.
const hostile = "x\x1b]0;pwned\a\x1b[2J\u202e\u009b2J\r\nok\ty"

// escaped is hostile as people see it.
const escaped = `x\x1b]0;pwned\a\x1b[2J\u202e\u009b2J\r\nok\ty`

// TestHostileNames: what commands print for people is safe on a terminal, whatever tenants and
// hosts have put into names and reports.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	workload := calico.WorkloadEndpointKey{Host: "h1", Orchestrator: "o", Workload: hostile, Endpoint: "e"}
	for name, c := range map[string]struct {
		print func(io.Writer) error
		lines int
	}{
		"host list": {func(w io.Writer) error {
			return printHosts(w, "text", []operator.Host{{ID: "1", Name: hostile, Version: hostile, CutOff: hostile, Roles: []string{hostile}, TunnelIP: hostile}})
		}, 2},
		"bgp show": {func(w io.Writer) error {
			return printBGP(w, "text", []operator.BGPRouter{
				{Name: hostile, Host: hostile, Status: hostile, Message: hostile},
				{Name: hostile, Peers: []operator.BGPPeer{{State: hostile, LastError: hostile}}}}, now)
		}, 3},
		"trace": {func(w io.Writer) error {
			printTrace(w, &flow.TraceAnswer{LiveState: true, Verdict: hostile, Reason: hostile,
				Walk:    []flow.Step{{Device: "n", Chain: "n", Rule: "n", Text: hostile + " n"}},
				Outputs: []flow.TraceOutput{{PortID: "n", HostID: hostile}}, Copies: []flow.TraceOutput{{PortID: "n", HostID: hostile}},
				Replies: []flow.TraceReply{{PortID: "n", Frame: []byte{0x1b}}},
				Names:   map[string]flow.TraceName{"n": {Kind: hostile, Name: hostile}}})
			return nil
		}, 5},
		"calico watch": {func(w io.Writer) error {
			return watcher{out: w}.print("put", client.Entry{Key: workload, Raw: []byte(`{"state": "active", "name": "\u202e"}`)})
		}, 1},
		"calico ipam check": {func(w io.Writer) error {
			return printProblems(w, "text", []ipam.Problem{{Path: hostile, Text: hostile, Harmless: true}})
		}, 1},
		"calico delete": {func(w io.Writer) error {
			printFaults(w, []legacy.Fault{{Key: workload, Err: errors.New(hostile)}})
			return nil
		}, 1},
		"upgrade plan": {func(w io.Writer) error {
			_, err := io.WriteString(w, upgradePlan(&operator.Formats{Members: []operator.Reader{{Role: "agent", Name: hostile, Version: hostile}, {Role: hostile, Name: hostile, Version: hostile}}}, "v2", 1))
			return err
		}, 6},
		"status --host": {func(w io.Writer) error {
			return printTraffic(w, operator.Traffic{
				Tunnels:  []flow.TunnelReport{{Name: hostile, Address: netip.MustParseAddr("fe80::1").WithZone(hostile), In: flow.TunnelDirection{State: hostile}}},
				Networks: []operator.NetworkTraffic{{Name: hostile, NetworkReport: flow.NetworkReport{ID: hostile}}},
				Ports:    []operator.PortTraffic{{Name: hostile, PortReport: flow.PortReport{ID: hostile}}}})
		}, 8},
		"restore --trial": {func(w io.Writer) error {
			printTables(w, backend.Verified{Tables: []backend.Table{{Prefix: hostile}}})
			return nil
		}, 2},
		"calico apply": {func(w io.Writer) error {
			return printApplied(w, "text", []outcome{{Kind: calico.KindPolicy, Name: hostile, Action: actionCreated}})
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			if err := c.print(&b); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(b.String(), escaped) {
				t.Errorf("got %q, want the name as %s", b.String(), escaped)
			}
			lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
			if len(lines) != c.lines {
				t.Errorf("%d lines, want %d: %q", len(lines), c.lines, lines)
			}
			for _, line := range lines {
				if strings.ContainsFunc(line, func(r rune) bool { return !strconv.IsGraphic(r) }) {
					t.Errorf("a line is not safe: %q", line)
				}
			}
		})
	}
}

// TestCommandsPrintEscaped requires commands to print by package terminal or command.PrintTable, so
// that none forgets to escape.
func TestCommandsPrintEscaped(t *testing.T) {
	t.Parallel()
	exempt := map[string]string{
		"manual.go": "writes a manual page, of texts of this program alone",
		"main.go":   "prints errors, whose lines stay, by terminal.EscapeLines",
	}
	for _, dir := range []string{".", "../../cmd/heddle"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || exempt[filepath.Base(file)] != "" {
				continue
			}
			positions := token.NewFileSet()
			parsed, err := parser.ParseFile(positions, file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && isRawPrint(s) {
					t.Errorf("%s: fmt.%s prints what a terminal obeys as it is: use terminal.Fprintf or Fprintln, or command.PrintTable", positions.Position(s.Pos()), s.Sel.Name)
				}
				return true
			})
		}
	}
}

// isRawPrint reports whether a selector is a function of fmt that prints to a writer.
func isRawPrint(s *ast.SelectorExpr) bool {
	pkg, ok := s.X.(*ast.Ident)
	return ok && pkg.Name == "fmt" && (strings.HasPrefix(s.Sel.Name, "Fprint") || strings.HasPrefix(s.Sel.Name, "Print"))
}
