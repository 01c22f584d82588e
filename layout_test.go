// Package heddle holds no code: the test here keeps the import rules of the house
// (docs/architecture.md).
package heddle

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"
)

// words are data with their own rules: all may import them.
var words = []string{"calico", "calico/selector", "internal/neutron", "internal/topology", "internal/topology/packet", "internal/topology/flow", "internal/topology/routerbgp", "internal/audit"}

// machinery knows no words; all but words and thinking may import it.
var machinery = []string{"internal/store", "internal/store/records", "internal/store/replica", "internal/store/presence", "internal/store/follow", "internal/store/etcd", "internal/store/backend", "internal/store/snapshot", "internal/store/journal", "internal/sealing", "internal/reconcile", "internal/task", "internal/hostnet", "internal/telemetry", "internal/spans", "internal/ovsdb"}

// may lists, for each folder, what it may import of this module beyond what its rank gives it. A
// folder stands for itself and its children. When the table is wrong, change it in the commit that
// needs it and say why.
var may = map[string][]string{
	// Words.
	"calico": {"calico/selector"}, "calico/selector": {},
	// Public bindings that do I/O share the client of etcd with the store, and never its server
	// (docs/decisions/0013).
	"calico/client": {"calico", "calico/selector", "internal/store", "internal/store/etcd", "internal/store/follow", "internal/task"}, "calico/ipam": {"calico", "calico/client", "internal/task"}, "calico/legacy": {"calico", "calico/client"},
	"internal/neutron": words, "internal/topology": words,
	"internal/audit": {}, "internal/topology/packet": {}, "internal/topology/flow": words, "internal/topology/routerbgp": {},
	// Thinking: words only.
	"internal/control/translate": words, "internal/control/addresses": words, "internal/topology/simulate": words, "internal/policy/calc": words, "internal/reach": join(words, []string{"internal/topology/simulate"}),
	// Machinery: no words. schema alone joins words with records.
	"internal/store": {}, "internal/store/snapshot": {"internal/store"},
	"internal/store/etcd": {"internal/store", "internal/task"}, "internal/store/follow": {"internal/store", "internal/task"},
	"internal/store/journal": {"internal/store", "internal/store/follow", "internal/task"},
	"internal/store/replica": {"internal/store", "internal/store/follow", "internal/store/snapshot", "internal/task", "internal/terminal"},
	// The server is behind the contract that all others use: only main, commands for its own host
	// and tests open it.
	"internal/store/backend": {"internal/store", "internal/store/etcd", "internal/store/follow", "internal/task"},
	"internal/store/records": {"internal/spans", "internal/store", "internal/store/snapshot", "internal/task"}, "internal/store/presence": {"internal/store", "internal/task"},
	"internal/store/schema": join(words, []string{"internal/store", "internal/store/records", "internal/store/snapshot"}),
	"internal/reconcile":    {"internal/task"}, "internal/task": {}, "internal/hostnet": {}, "internal/telemetry": {"internal/terminal"}, "internal/spans": {"internal/task"}, "internal/admin": {"internal/task", "internal/telemetry"}, "internal/sealing": {}, "internal/strictjson": {}, "internal/sourceline": {}, "internal/terminal": {},
	// Two areas drive switches by their databases: the hosts of a XenAPI pool, and VTEPs.
	"internal/ovsdb": {"internal/task", "internal/terminal"},
	// Areas: the above and their own children, never another area.
	"internal/control":               join(words, machinery, []string{"internal/store/schema", "internal/control/translate", "internal/control/addresses"}),
	"internal/overlay":               join(words, machinery, []string{"internal/store/schema", "internal/topology/simulate", "internal/overlay/datapath", "internal/overlay/filterlog", "internal/overlay/flowstate", "internal/overlay/hostkey", "internal/overlay/natport", "internal/overlay/supportbundle", "internal/overlay/verdicts", "internal/overlay/wireguard", "internal/overlay/workload"}),
	"internal/overlay/datapath":      join(words, []string{"internal/hostnet", "internal/task"}),
	"internal/overlay/filterlog":     join(words, []string{"internal/task", "internal/telemetry"}),
	"internal/overlay/flowstate":     join(words, []string{"internal/task"}),
	"internal/overlay/hostkey":       words,
	"internal/overlay/natport":       join(words, []string{"internal/store", "internal/store/schema", "internal/store/snapshot", "internal/task", "internal/overlay/flowstate"}),
	"internal/overlay/supportbundle": join(words, []string{"internal/sealing"}),
	"internal/overlay/verdicts":      words,
	"internal/overlay/wireguard":     {"internal/hostnet"},
	"internal/overlay/workload":      join(words, []string{"internal/hostnet"}),
	// legacy.Merger, which does no I/O, shows the agent both Calico trees as one.
	"internal/policy":       join(words, machinery, []string{"internal/policy/calc", "internal/policy/judge", "internal/policy/nft", "calico/legacy", "internal/store/schema"}),
	"internal/policy/nft":   join(words, []string{"internal/policy/calc", "internal/reconcile"}),
	"internal/policy/judge": join(words, []string{"internal/policy/calc"}),
	"internal/bgp":          join(words, machinery),
	"internal/bgp/plan":     words,
	"internal/dhcp":         join(words, machinery, []string{"internal/dhcp/plan", "internal/store/schema"}),
	"internal/dhcp/plan":    words,
	"internal/nova":         join(words, machinery, []string{"internal/store/schema"}),
	"internal/dnsupdate":    join(words, machinery, []string{"internal/store/schema"}),
	"internal/dhcp/oslo":    {"internal/dhcp/plan"},
	// Service containers: the scheduler runs in servers, the agent beside the overlay's.
	"internal/services":      join(words, machinery, []string{"internal/store/schema", "internal/services/plan"}),
	"internal/services/plan": words,
	"internal/metadata":      join(words, machinery, []string{"internal/store/schema"}),
	// Switches of gateway devices: the elected server drives them by their databases.
	"internal/vtep": join(words, machinery, []string{"internal/store/schema"}),
	// The pool of the XenAPI: its model is words of its own; the controller and xe know no store
	// but through the XenAPI.
	"internal/xen/model":   {},
	"internal/xen/wire":    {"internal/xen/model"},
	"internal/xen/client":  {"internal/xen/model", "internal/xen/wire"},
	"internal/xen/xe":      {"internal/terminal", "internal/xen/model", "internal/xen/client"},
	"internal/xen/star":    {},
	"internal/xen/ovs":     {"internal/ovsdb"},
	"internal/xen/objects": join(machinery, []string{"internal/store/schema", "internal/xen/model"}),
	"internal/xen/xapi":    join(machinery, []string{"internal/audit", "internal/store/schema", "internal/xen/model", "internal/xen/wire", "internal/xen/client", "internal/xen/objects", "internal/api/credentials", "internal/strictjson"}),
	"internal/xen/tunnel":  join(machinery, []string{"internal/store/schema", "internal/xen/model", "internal/xen/client", "internal/xen/star", "internal/xen/ovs"}),
	"internal/xen/agent":   join(machinery, []string{"internal/store/schema", "internal/xen/model", "internal/xen/objects", "internal/xen/ovs"}),
	// Questions about the virtual network are answered by the code that forwards, and by the
	// translation of what a change would be; those about routed hosts by what their agents decide.
	"internal/explain": join(words, machinery, []string{"internal/api/operator", "internal/control/translate", "internal/policy", "internal/policy/calc", "internal/policy/judge", "internal/reach", "internal/store/schema", "internal/topology/simulate"}),
	// History knows what changes mean, and follows them by the store alone.
	"internal/history": join(words, machinery, []string{"internal/api/operator", "internal/store/schema"}),
	// Edges.
	"internal/api": join(words, []string{"internal/spans", "internal/task", "internal/strictjson", "internal/store"}),
	// Two APIs take passwords; how they are hashed, and what slows guesses down, is one.
	"internal/api/credentials": {"internal/telemetry", "internal/terminal"},
	"internal/api/identity":    join(words, machinery, []string{"internal/api", "internal/api/credentials", "internal/store/schema"}),
	"internal/api/neutronv2":   join(words, []string{"internal/api", "internal/control", "internal/strictjson"}),
	// Octavia's clients have an API of their own over the operations of Neutron's LBaaS.
	"internal/api/octaviav2": join(words, []string{"internal/api", "internal/control", "internal/strictjson"}),
	// Answers of the operators' API are words of servers and of the command line.
	"internal/api/operator": {"internal/topology/flow"},
	// Hosts and servers join by tokens of one form.
	"internal/api/jointoken": {"internal/api", "internal/api/credentials"},
	"internal/api/hosts":     join(words, machinery, []string{"internal/api", "internal/api/operator", "internal/api/jointoken", "internal/store/schema"}),
	"internal/api/authority": join(words, machinery, []string{"internal/api", "internal/api/hosts", "internal/api/operator", "internal/store/schema"}),
	"internal/api/servers":   join(words, machinery, []string{"internal/api", "internal/api/jointoken", "internal/api/operator", "internal/store/schema"}),
	"internal/api/console":   join(words, machinery, []string{"internal/api", "internal/api/hosts", "internal/api/operator", "internal/explain", "internal/history", "internal/store/schema", "internal/topology/simulate"}),
	"internal/command":       {"internal/terminal"},
	"internal/monitoring":    {},
	// heddle plug works on a host, with the rights that any program of an administrator can have.
	"internal/plug": {"internal/cloud", "internal/hostnet", "internal/terminal"},
	// So does libvirt's hook.
	"internal/libvirt": {"internal/cloud", "internal/terminal"},
	"internal/cni":     {"internal/cloud", "internal/hostnet", "internal/plug", "internal/strictjson"},
	// heddle connectivity is a client of the APIs; its words are those of probes.
	"internal/connectivity": join(words, []string{"internal/cloud"}),
	"internal/cli": {"internal/admin", "internal/api/operator", "internal/sourceline", "internal/connectivity", "internal/telemetry", "internal/command", "internal/libvirt", "internal/plug", "internal/terminal", "internal/strictjson", "internal/cloud", "internal/topology/flow", "internal/offline", "internal/hostnet", "internal/store", "internal/store/backend", "internal/store/journal",
		"calico", "calico/selector", "calico/client", "calico/ipam", "calico/legacy"},
	"internal/cloud": {"internal/terminal", "internal/topology/flow"},
	// The demo and the benchmarks are commands over a lab of their own; beside it they use what a
	// user's program may, and the benchmarks what they measure without a network.
	"internal/lab":  {"internal/cloud", "internal/netlab"},
	"internal/demo": {"internal/command", "internal/cloud", "internal/lab", "internal/netlab", "internal/store", "internal/store/backend", "internal/topology/packet", "calico", "calico/client"},
	"internal/bench": join(words, []string{"internal/command", "internal/lab", "internal/netlab", "internal/offline", "internal/overlay/flowstate",
		"internal/api/operator", "internal/control", "internal/explain", "internal/store", "internal/store/records", "internal/store/replica", "internal/store/schema"}),
	// offline runs control's operations over a store in memory (decision 0012).
	"internal/offline": join(words, []string{"internal/control", "internal/control/translate", "internal/topology/simulate", "internal/strictjson", "internal/terminal",
		"internal/store", "internal/store/records", "internal/store/replica", "internal/store/snapshot", "internal/store/schema",
		"internal/policy", "internal/policy/calc", "internal/policy/nft", "internal/policy/judge", "internal/hostnet", "internal/netlab"}),
	"internal/netlab": {"internal/hostnet"}, // to enter namespaces
	"cmd/heddle":      {"*"},                // builds the parts by hand
}

// onlyIn names, for each large library, the packages that may import it.
var onlyIn = map[string][]string{
	"go.etcd.io/etcd":                       {"internal/store/backend", "internal/store/etcd", "internal/store/storetest", "calico/client"},
	"github.com/cilium/ebpf":                {"internal/overlay/datapath"},
	"github.com/containernetworking/cni":    {"internal/cni"},
	"github.com/google/nftables":            {"internal/policy/nft"},
	"github.com/miekg/dns":                  {"internal/dnsupdate"},
	"github.com/mdlayher/ndp":               {"internal/dhcp", "internal/offline"},
	"github.com/vishvananda/netlink":        {"internal/hostnet", "internal/netlab"},
	"github.com/vishvananda/netns":          {"internal/hostnet", "internal/netlab"},
	"github.com/osrg/gobgp":                 {"internal/bgp"},
	"github.com/go-json-experiment/json":    {"internal/strictjson"},
	"go.opentelemetry.io/otel":              {"internal/spans"},
	"golang.zx2c4.com/wireguard":            {"internal/overlay/wireguard"},
	"github.com/coreos/go-systemd/v22":      {"internal/telemetry", "internal/api"},
	"github.com/prometheus/client_golang":   {"internal/telemetry"},
	"github.com/spf13/cobra":                {"internal/command", "internal/cli", "internal/demo", "internal/bench", "cmd/heddle"},
	"github.com/tidwall/btree":              {"internal/store", "internal/store/snapshot", "internal/store/records"},
	"github.com/chromedp":                   {"cmd/heddle"},           // in tests
	"github.com/getkin/kin-openapi":         {"internal/api/console"}, // in tests
	"github.com/gophercloud/gophercloud/v2": {"internal/cloud", "internal/lab", "internal/demo", "internal/bench"},
}

// pure packages think only: state in, result out.
var pure = []string{"internal/control/translate", "internal/control/addresses", "internal/topology/simulate", "internal/policy/calc", "internal/policy/judge", "internal/bgp/plan",
	"internal/dhcp/plan", "internal/services/plan", "internal/xen/model", "internal/xen/wire", "internal/xen/star",
	"internal/neutron", "internal/topology", "internal/topology/packet", "internal/topology/flow", "internal/topology/routerbgp", "internal/audit", "calico", "calico/selector"}

// impure imports are kept out of pure packages.
var impure = []string{"context", "os", "net", "net/http", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "sync", "io/ioutil"}

func join(lists ...[]string) []string {
	var all []string
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

type goPackage struct {
	ImportPath, Dir, Doc string
	GoFiles, Imports     []string
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,Doc,GoFiles,Imports", "./...").Output()
	if err != nil {
		var e *exec.ExitError
		if errors.As(err, &e) {
			t.Fatalf("go list: %s", e.Stderr)
		}
		t.Fatal(err)
	}
	var all []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) > 0 {
			all = append(all, p)
		}
	}
}

// rules finds the table's entry for a package: its own, or that of the nearest folder above.
func rules(pkg string) (list []string, owner string, ok bool) {
	for p := pkg; p != "."; p = path.Dir(p) {
		if list, ok := may[p]; ok {
			return list, p, true
		}
	}
	return nil, "", false
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		pkg := strings.TrimPrefix(p.ImportPath, "heddle/")
		allowed, owner, ok := rules(pkg)
		if !ok {
			t.Errorf("%s: no entry in the table of layout_test.go; say what it may import", pkg)
			continue
		}
		for _, imp := range p.Imports {
			rel, ours := strings.CutPrefix(imp, "heddle/")
			if ours {
				checkOurs(t, pkg, owner, rel, allowed)
				continue
			}
			checkLibrary(t, pkg, imp)
		}
	}
}

func checkOurs(t *testing.T, pkg, owner, imported string, allowed []string) {
	t.Helper()
	if strings.HasPrefix(imported, owner+"/") || imported == owner {
		return // its own children
	}
	for _, a := range allowed {
		if a == "*" || a == imported {
			return
		}
	}
	t.Errorf("%s imports %s, which the table of layout_test.go does not allow", pkg, imported)
}

func checkLibrary(t *testing.T, pkg, imported string) {
	t.Helper()
	for lib, homes := range onlyIn {
		if imported != lib && !strings.HasPrefix(imported, lib+"/") {
			continue
		}
		home := false
		for _, h := range homes {
			home = home || pkg == h
		}
		if !home {
			t.Errorf("%s imports %s, which belongs to %v alone", pkg, imported, homes)
		}
	}
	for _, p := range pure {
		for _, bad := range impure {
			if pkg == p && imported == bad {
				t.Errorf("%s is pure and must not import %s", pkg, bad)
			}
		}
	}
}

// TestPublicPackagesAreClients: a program that uses the bindings does not carry an etcd server.
func TestPublicPackagesAreClients(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./calico/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range strings.Fields(string(out)) {
		if strings.HasPrefix(p, "go.etcd.io/etcd/server/") || p == "heddle/internal/store/backend" {
			t.Errorf("a package under calico depends on %s", p)
		}
	}
}

// TestImportChains keeps the house flat: a change at the bottom should be near whatever it may
// break.
func TestImportChains(t *testing.T) {
	const longest = 7 // imports, from cmd/heddle down
	imports := map[string][]string{}
	for _, p := range packages(t) {
		imports[p.ImportPath] = p.Imports
	}
	chains := map[string][]string{}
	var chain func(pkg string) []string
	chain = func(pkg string) []string {
		if _, known := chains[pkg]; !known {
			var deepest []string
			for _, i := range imports[pkg] {
				if _, ours := imports[i]; ours && len(chain(i)) > len(deepest) {
					deepest = chain(i)
				}
			}
			chains[pkg] = append([]string{pkg}, deepest...)
		}
		return chains[pkg]
	}
	for pkg := range imports {
		if c := chain(pkg); len(c)-1 > longest {
			t.Errorf("a chain of %d imports, at most %d should be: %s", len(c)-1, longest, strings.Join(c, " imports "))
		}
	}
}

// TestPureCode finds what imports do not tell: clocks and goroutines in pure packages.
func TestPureCode(t *testing.T) {
	isPure := map[string]bool{}
	for _, p := range pure {
		isPure[p] = true
	}
	for _, p := range packages(t) {
		pkg := strings.TrimPrefix(p.ImportPath, "heddle/")
		if !isPure[pkg] {
			continue
		}
		for _, name := range p.GoFiles {
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					t.Errorf("%s: a goroutine in a pure package", set.Position(n.Pos()))
				case *ast.SelectorExpr:
					if id, ok := n.X.(*ast.Ident); ok && id.Name == "time" && (n.Sel.Name == "Now" || n.Sel.Name == "Since" || n.Sel.Name == "Sleep") {
						t.Errorf("%s: time.%s in a pure package", set.Position(n.Pos()), n.Sel.Name)
					}
				}
				return true
			})
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range packages(t) {
		if p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

// TestMapOfPackages: docs/architecture.md has one line for every package.
func TestMapOfPackages(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]int{}
	for _, m := range regexp.MustCompile("(?m)^- `([^`]+)`: ").FindAllStringSubmatch(string(text), -1) {
		lines[m[1]]++
	}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, "heddle/"), "internal/")
		if lines[name] != 1 {
			t.Errorf("docs/architecture.md has %d lines \"- `%s`: …\", want one", lines[name], name)
		}
		delete(lines, name)
	}
	for name := range lines {
		t.Errorf("docs/architecture.md lists %s, which is no package", name)
	}
}

// TestTwoLevelsDeep keeps the tree shallow: internal/area/child at most.
func TestTwoLevelsDeep(t *testing.T) {
	for _, p := range packages(t) {
		pkg := strings.TrimPrefix(p.ImportPath, "heddle/")
		if strings.Count(strings.TrimPrefix(pkg, "internal/"), "/") > 1 {
			t.Errorf("%s lies more than two levels deep", pkg)
		}
	}
}

// TestErrorsAreLoggedAsErr: who searches the log for errors searches for one key.
func TestErrorsAreLoggedAsErr(t *testing.T) {
	levels := map[string]bool{"Debug": true, "Info": true, "Warn": true, "Error": true, "With": true}
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, _ := n.(*ast.CallExpr)
				if call == nil || len(call.Args) < 3 {
					return true
				}
				if f, ok := call.Fun.(*ast.SelectorExpr); !ok || !levels[f.Sel.Name] {
					return true
				}
				for _, arg := range call.Args[1:] {
					if key, ok := arg.(*ast.BasicLit); ok && (key.Value == `"error"` || key.Value == `"cause"` || key.Value == `"e"`) {
						t.Errorf("%s: an error is logged as %s, want \"err\"", set.Position(key.Pos()), key.Value)
					}
				}
				return true
			})
		}
	}
}
