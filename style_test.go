package heddle

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// commentColumns is the width of prose in code, with tabs of four.
const commentColumns = 100

// A doc comment begins with the name and what it does or is, not with a riddle.
var (
	isWhat      = regexp.MustCompile(`^(An? |The )?[\w.\[\], ]{1,60}? (is|are) (what|whose|that which|how|whether|where|when|who|why) `)
	saysWhether = regexp.MustCompile(`^\w+ (says|tells|asks) (whether|if|that|what|which|how|who) `)
)

// sources calls visit with each Go file of the module that people write.
func sources(t *testing.T, visit func(set *token.FileSet, name, text string, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "dist" || entry.Name() == "bin" || entry.Name() == "testdata") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, text, parser.ParseComments)
		if err != nil {
			return err
		}
		if !ast.IsGenerated(file) {
			visit(set, name, string(text), file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFormatted(t *testing.T) {
	sources(t, func(_ *token.FileSet, name, text string, _ *ast.File) {
		if formatted, err := format.Source([]byte(text)); err != nil || string(formatted) != text {
			t.Errorf("%s is not as gofmt formats it (%v)", name, err)
		}
	})
}

func TestCommentsAreNarrow(t *testing.T) {
	sources(t, func(set *token.FileSet, name, text string, file *ast.File) {
		lines := strings.Split(text, "\n")
		for _, group := range file.Comments {
			for _, comment := range group.List {
				line := lines[set.Position(comment.Pos()).Line-1]
				if !strings.HasPrefix(strings.TrimSpace(line), "//") || strings.Contains(line, "://") || strings.Contains(line, "//go:") {
					continue // beside code; with an address; a directive
				}
				if n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")); n > commentColumns {
					t.Errorf("%s: a comment of %d columns, at most %d should be", set.Position(comment.Pos()), n, commentColumns)
				}
			}
		}
	})
}

func TestDocCommentsSayWhatThingsAre(t *testing.T) {
	sources(t, func(set *token.FileSet, _, _ string, file *ast.File) {
		check := func(doc *ast.CommentGroup) {
			text := strings.Join(strings.Fields(doc.Text()), " ")
			if isWhat.MatchString(text) || saysWhether.MatchString(text) {
				t.Errorf("%s: %q: begin with the name and a verb (returns, reports whether), or \"X is a <noun>\"", set.Position(doc.Pos()), text[:min(len(text), 60)])
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				check(n.Doc)
				return false
			case *ast.GenDecl:
				check(n.Doc)
			case *ast.TypeSpec:
				check(n.Doc)
			case *ast.ValueSpec:
				check(n.Doc)
			case *ast.Field:
				check(n.Doc)
			}
			return true
		})
	})
}

// A struct with many fields and many methods is several things in one.
func TestStructsAreOneThing(t *testing.T) {
	const mostFields, mostMethods = 20, 25
	fields, methods := map[string]int{}, map[string]int{}
	sources(t, func(_ *token.FileSet, name, _ string, file *ast.File) {
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		dir := filepath.Dir(name) + "."
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Recv != nil {
					methods[dir+receiver(decl.Recv.List[0].Type)]++
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok {
						if s, ok := spec.Type.(*ast.StructType); ok {
							fields[dir+spec.Name.Name] = s.Fields.NumFields()
						}
					}
				}
			}
		}
	})
	for name, n := range fields {
		if n > mostFields && methods[name] > mostMethods {
			t.Errorf("%s has %d fields and %d methods: take it apart", name, n, methods[name])
		}
	}
}

// receiver returns the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
