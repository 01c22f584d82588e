package heddle

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// essential programs are on every Debian (its essential packages), must be there before
// scripts/setup runs, or are built here.
var essential = []string{"bash", "cat", "dpkg", "dpkg-deb", "echo", "env", "false", "git", "go", "grep", "heddle", "mv", "setpriv", "sh", "sha256sum", "sleep", "tar", "true", "xe"}

// elsewhere names the programs behind expressions that the test cannot follow: by folder and
// expression. os.Args[0] is the test or command itself.
var elsewhere = map[string]string{
	"cmd/heddle string(b)":         "heddle",
	"internal/cli os.Executable()": "heddle",
	"cmd/heddle os.Executable()":   "heddle",

	"internal/demo d.lab.Binary":   "heddle",
	"internal/demo x.Binary":       "heddle",
	"internal/lab l.Binary":        "heddle",
	"internal/dhcp a.opts.Program": "dnsmasq",
	"internal/dhcp r.program":      "dnsmasq",

	"scripts/package r.native": "heddle",

	"internal/services a.opts.HAProxy": "haproxy",
	"internal/services h.program":      "haproxy",
	"internal/services p.program":      "heddle",
}

// forTests is a package that only tests use.
const forTests = "internal/netlab/guest/"

// TestSetupNamesEveryProgram requires each program that Go code executes or looks for to be in a
// list of scripts/setup: what commands execute, in the list of `make demo` as well.
//
// It reads sources alone. From exec.Command, CommandContext and LookPath it follows the program's
// name back through parameters, constants, variables and ranges over literals. A name that it
// cannot follow fails the test: write the call so that it can, or add a line to elsewhere.
func TestSetupNamesEveryProgram(t *testing.T) {
	demo, all := setupPrograms(t)
	for name, places := range executedPrograms(t, ".") {
		if slices.Contains(essential, name) {
			continue
		}
		if !all[name] {
			t.Errorf("%s is executed (%s) and in no list of scripts/setup: name it there with its Debian package", name, strings.Join(places, ", "))
			continue
		}
		for _, place := range places {
			if file, _, _ := strings.Cut(place, ":"); !strings.HasSuffix(file, "_test.go") && !strings.HasPrefix(file, forTests) && !demo[name] {
				t.Errorf("%s is executed by a command (%s): name it in the list run of scripts/setup", name, place)
				break
			}
		}
	}
}

// TestExecutedPrograms checks the search itself, on code in every form that it follows.
func TestExecutedPrograms(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("lab/lab.go", `package lab
import "os/exec"
type Space struct{}
func (s *Space) Output(ctx any, name string, args ...string) { exec.CommandContext(ctx, name, args...) }
func Need(programs ...string) { for _, p := range programs { exec.LookPath(p) } }
func indirect(name string) { Need("first", name) }
func (s *Space) command(name string) { exec.Command(name) }
func direct() { indirect("second"); exec.Command("third").Output() }
`)
	write("other/other_test.go", `package other
import ("os/exec"; l "heddle/lab")
const constant = "fourth"
var list = []string{"fifth", "sixth"}
func f(s *l.Space, o struct{ program string }) {
	s.Output(nil, constant)
	for _, p := range list { exec.LookPath(p) }
	for _, p := range []string{"seventh"} { exec.LookPath(p) }
	l.Need("eighth", "/usr/bin/ninth")
	l.Need(list...)
	s.Output(nil, "sh", "-c", "tenth a | eleventh && A=b twelfth $(thirteenth); exec fourteenth")
	for _, row := range [][]string{{"fifteenth", "not"}} { exec.Command(row[0], row[1:]...) }
	p, err := exec.LookPath("sixteenth"); exec.Command(p)
	with := func(name string, args ...string) { exec.Command(name, args...) }
	with("seventeenth", "not")
	s.command("not")
}
func (s *l.Space) command(name string) {}
const script = "#!/bin/sh\n[ $1 != bound ] || twentieth | grep '^(a|not)='\ncase $1 in a|not) ;; *) twenty-second;; esac\nfor i in 1 2; do twenty-first; done\n"
`)
	write("other/testdata/a.txtar", "exec eighteenth x\n! exec nineteenth\n-- file --\nexec not\n")
	found := slices.Sorted(maps.Keys(executedPrograms(t, dir)))
	want := strings.Fields("eighteenth eighth eleventh fifteenth fifth first fourteenth fourth grep nineteenth ninth second seventeenth seventh sh sixteenth sixth tenth third thirteenth twelfth twentieth twenty-first twenty-second")
	if !slices.Equal(found, want) {
		t.Errorf("found %q\nwant  %q", found, want)
	}
}

// setupPrograms returns the programs in the lists of scripts/setup: those for the demo, and all.
func setupPrograms(t *testing.T) (demo, all map[string]bool) {
	t.Helper()
	text, err := os.ReadFile("scripts/setup")
	if err != nil {
		t.Fatal(err)
	}
	demo, all = map[string]bool{}, map[string]bool{}
	for _, list := range regexp.MustCompile(`(?m)^(\w+)=\(([^)]*)\)`).FindAllStringSubmatch(string(text), -1) {
		for _, entry := range strings.Fields(list[2]) {
			name, _, _ := strings.Cut(entry, "=")
			all[path.Base(name)] = true
			if list[1] == "run" {
				demo[path.Base(name)] = true
			}
		}
	}
	return demo, all
}

// executedPrograms returns the base names of the programs that the Go code and the test scripts
// below dir execute or look for, each with its places in the sources.
func executedPrograms(t *testing.T, dir string) map[string][]string {
	t.Helper()
	s := &search{t: t, root: dir, files: token.NewFileSet(), code: map[string]*folder{}, found: map[string][]string{},
		executors: map[string]bool{"exec.Command 0": true, "exec.CommandContext 1": true, "exec.LookPath 0": true}}
	err := filepath.WalkDir(dir, func(name string, entry os.DirEntry, err error) error {
		if name == "dist" { // what scripts/outside downloads
			return filepath.SkipDir
		}
		if err != nil || entry.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		switch path.Ext(rel) {
		case ".txtar":
			return s.script(name, rel)
		case ".go":
			file, err := parser.ParseFile(s.files, name, nil, 0)
			if err != nil {
				return err
			}
			s.add(path.Dir(filepath.ToSlash(rel)), file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// A function whose parameter is executed is an executor too: its callers name the program.
	// Until no more are found.
	for known := 0; known != len(s.executors); {
		known = len(s.executors)
		s.unknown = nil
		for _, f := range s.code {
			f.walk(s)
		}
	}
	for _, u := range s.unknown {
		t.Error(u)
	}
	return s.found
}

// search holds what is known while the sources are walked. An executor is "folder.Function N",
// "folder..method N", ".Method N" or "exec.Function N": its argument N names a program; with "…"
// after N, all arguments from there on do.
type search struct {
	t         *testing.T
	root      string
	files     *token.FileSet
	code      map[string]*folder
	executors map[string]bool
	found     map[string][]string
	unknown   []string
}

// folder is the code of one directory.
type folder struct {
	name   string
	files  []*ast.File
	values map[string]ast.Expr // of its constants and variables
}

func (s *search) add(name string, file *ast.File) {
	f := s.code[name]
	if f == nil {
		f = &folder{name: name, values: map[string]ast.Expr{}}
		s.code[name] = f
	}
	f.files = append(f.files, file)
	for _, d := range file.Decls {
		general, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range general.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok && len(v.Names) == len(v.Values) {
				for i, n := range v.Names {
					f.values[n.Name] = v.Values[i]
				}
			}
		}
	}
}

// script takes in a testscript: its lines "exec PROGRAM".
func (s *search) script(name, rel string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	commands, _, _ := strings.Cut("\n"+string(text), "\n-- ")
	for _, line := range regexp.MustCompile(`(?m)^(?:! |\? )?exec (\S+)(.*)$`).FindAllStringSubmatch(commands, -1) {
		s.program(line[1], rel)
	}
	return nil
}

func (s *search) program(name, place string) {
	name = path.Base(name)
	if !slices.Contains(s.found[name], place) {
		s.found[name] = append(s.found[name], place)
	}
}

// method is the first part of a method's key. Types are not looked at; but what is not exported
// belongs to the folder.
func (f *folder) method(name string) string {
	if ast.IsExported(name) {
		return "." + name
	}
	return f.name + ".." + name
}

func (f *folder) walk(s *search) {
	for _, file := range f.files {
		imports := map[string]string{}
		for _, i := range file.Imports {
			target, _ := strconv.Unquote(i.Path.Value)
			name := path.Base(target)
			if i.Name != nil {
				name = i.Name.Name
			}
			imports[name] = target
		}
		for _, d := range file.Decls {
			v := visit{search: s, folder: f, imports: imports}
			if function, ok := d.(*ast.FuncDecl); ok {
				key := f.name + "." + function.Name.Name
				if function.Recv != nil {
					key = f.method(function.Name.Name)
				}
				v.scopes = []scope{{key: key, params: function.Type.Params}}
			}
			v.node(d)
		}
	}
}

// scope is a function around the place under consideration. A literal's key is that of the variable
// that holds it.
type scope struct {
	key    string
	params *ast.FieldList
}

// visit walks one declaration.
type visit struct {
	*search
	folder  *folder
	imports map[string]string
	scopes  []scope
	locals  map[string][]ast.Expr // what its local variables are given; for a range, what is ranged over
}

func (v *visit) node(root ast.Node) {
	if v.locals == nil {
		v.locals = map[string][]ast.Expr{}
		ast.Inspect(root, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if id, ok := left.(*ast.Ident); ok && id.Name != "_" && (len(n.Rhs) == len(n.Lhs) || i == 0) {
						v.locals[id.Name] = append(v.locals[id.Name], n.Rhs[min(i, len(n.Rhs)-1)])
					}
				}
			case *ast.ValueSpec:
				for i, id := range n.Names {
					if i < len(n.Values) {
						v.locals[id.Name] = append(v.locals[id.Name], n.Values[i])
					}
				}
			case *ast.RangeStmt:
				if id, ok := n.Value.(*ast.Ident); ok {
					v.locals[id.Name] = append(v.locals[id.Name], n.X)
				}
			}
			return true
		})
	}
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			inner := *v
			key := "literal"
			for name, values := range v.locals {
				if slices.Contains(values, ast.Expr(n)) {
					key = v.folder.name + "." + name
				}
			}
			inner.scopes = append(slices.Clone(v.scopes), scope{key: key, params: n.Type.Params})
			inner.node(n.Body)
			return false
		case *ast.CallExpr:
			v.call(n)
		case *ast.BasicLit:
			if text, ok := literal(n); ok && strings.HasPrefix(text, "#!/bin/") {
				v.shell(n, v.place(n))
			}
		}
		return true
	})
}

// call takes in the programs that a call names, if what it calls is an executor.
func (v *visit) call(c *ast.CallExpr) {
	var key string
	switch f := c.Fun.(type) {
	case *ast.Ident:
		key = v.folder.name + "." + f.Name
	case *ast.SelectorExpr:
		key = v.folder.method(f.Sel.Name)
		if x, ok := f.X.(*ast.Ident); ok && v.imports[x.Name] != "" {
			target := v.imports[x.Name]
			key = strings.TrimPrefix(target, "heddle/") + "." + f.Sel.Name
			if target == "os/exec" {
				key = "exec." + f.Sel.Name
			}
		}
	default:
		return
	}
	for i, arg := range c.Args {
		named := v.executors[fmt.Sprint(key, " ", i)]
		for from := 0; from <= i && !named; from++ {
			named = v.executors[fmt.Sprint(key, " ", from, "…")]
		}
		if !named {
			continue
		}
		v.value(arg, 0)
		if text, ok := literal(arg); ok && (text == "sh" || text == "bash") && i+2 < len(c.Args) {
			v.shell(c.Args[i+2], v.place(arg))
		}
	}
}

// value takes in the programs that an expression may hold.
func (v *visit) value(e ast.Expr, depth int) {
	if depth > 8 {
		return
	}
	if text, ok := literal(e); ok {
		v.program(text, v.place(e))
		return
	}
	switch e := e.(type) {
	case *ast.CompositeLit:
		for _, element := range e.Elts {
			if inner, ok := element.(*ast.CompositeLit); ok && len(inner.Elts) > 0 {
				element = inner.Elts[0] // a row: the program, then its arguments
			}
			v.value(element, depth+1)
		}
		return
	case *ast.IndexExpr:
		if text := v.text(e); text == "os.Args[0]" {
			return
		}
		if index, ok := e.Index.(*ast.BasicLit); ok && index.Value == "0" {
			v.value(e.X, depth+1)
			return
		}
	case *ast.CallExpr:
		if s, ok := e.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "LookPath" {
			return // which is taken in itself
		}
	case *ast.Ident:
		if v.parameter(e.Name) {
			return
		}
		if values := v.locals[e.Name]; len(values) > 0 {
			for _, x := range values {
				v.value(x, depth+1)
			}
			return
		}
		if x, ok := v.folder.values[e.Name]; ok {
			v.value(x, depth+1)
			return
		}
	}
	if name, ok := elsewhere[v.folder.name+" "+v.text(e)]; ok {
		v.program(name, v.place(e))
		return
	}
	v.unknown = append(v.unknown, fmt.Sprintf("%s: cannot follow %s to the program that it names", v.place(e), v.text(e)))
}

// parameter makes an executor of the function around whose parameter this is; it reports whether
// there is one.
func (v *visit) parameter(name string) bool {
	for _, s := range slices.Backward(v.scopes) {
		position := 0
		for _, field := range s.params.List {
			for _, id := range field.Names {
				if id.Name == name {
					more := ""
					if _, variadic := field.Type.(*ast.Ellipsis); variadic {
						more = "…"
					}
					v.executors[fmt.Sprint(s.key, " ", position, more)] = true
					return true
				}
				position++
			}
			if len(field.Names) == 0 {
				position++
			}
		}
	}
	return false
}

// shellWord finds the words where a shell expects a command.
var shellWord = regexp.MustCompile("(?:^|[;|&\\n`]|\\$\\()\\s*(?:(?:then|do|else|exec|if|while|until)\\s+)*(?:[A-Za-z_]\\w*=\\S*\\s+)*([A-Za-z][\\w.-]*)")

// shellQuiet finds what a shell does not execute: strings in single quotes and the patterns of
// case.
var shellQuiet = regexp.MustCompile(`'[^']*'|(?m:^|[\s;])[^\s()$;]+\)`)

// shellOwn are words of the shell itself.
var shellOwn = strings.Fields("case cd do done elif else esac eval exec exit export fi for if in kill local read return set shift test then trap until wait while")

// shell takes in the commands of a shell script in a string.
func (v *visit) shell(e ast.Expr, place string) {
	if c, ok := e.(*ast.CallExpr); ok && len(c.Args) > 0 {
		e = c.Args[0] // a format
	}
	text, ok := literal(e)
	if !ok {
		return
	}
	for _, match := range shellWord.FindAllStringSubmatch(shellQuiet.ReplaceAllString(text, " "), -1) {
		if !slices.Contains(shellOwn, match[1]) {
			v.program(match[1], place)
		}
	}
}

func (v *visit) place(n ast.Node) string {
	p := v.files.Position(n.Pos())
	rel, err := filepath.Rel(v.root, p.Filename)
	if err != nil {
		v.t.Fatal(err)
	}
	return fmt.Sprintf("%s:%d", filepath.ToSlash(rel), p.Line)
}

// text is an expression as the sources have it.
func (v *visit) text(e ast.Expr) string {
	from, to := v.files.Position(e.Pos()), v.files.Position(e.End())
	source, err := os.ReadFile(from.Filename)
	if err != nil {
		v.t.Fatal(err)
	}
	return string(source[from.Offset:to.Offset])
}

func literal(e ast.Expr) (string, bool) {
	b, ok := e.(*ast.BasicLit)
	if !ok || b.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(b.Value)
	return text, err == nil
}
