package console

import (
	"encoding"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"heddle/internal/api"
	"heddle/internal/api/operator"
)

var update = flag.Bool("update", false, "write the description of the API and the page's types anew")

// typesFile has the types of answers for the page's scripts.
const typesFile = "web/src/answers.ts"

// TestDescription holds the description of the API, and the types of the page, to what the handlers
// take and answer; with -update it writes them.
func TestDescription(t *testing.T) {
	d := describe(t, (&console{}).calls())
	raw, err := json.MarshalIndent(d.document(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{"openapi.json": append(raw, '\n'), typesFile: d.typescript()} {
		if *update {
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != string(want) {
			t.Errorf("%s is not what the calls are: go test ./internal/api/console -run TestDescription -update (%v)", name, err)
		}
	}
	document, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := document.Validate(t.Context(), openapi3.IsOpenAPI31OrLater()); err != nil {
		t.Error(err)
	}
}

// jsonSchema is a JSON schema.
type jsonSchema map[string]any

// description is a description of calls in the making.
type description struct {
	t       *testing.T
	calls   []api.Call
	schemas map[string]jsonSchema
	names   map[reflect.Type]string
	bodies  map[reflect.Type]bool // types that are read, of whose members none is required
	source  map[string]*packageSource
}

// packageSource is a summary of what the source of a package says of its types.
type packageSource struct {
	docs  map[string]string   // of types, and of fields as Type.Field
	enums map[string][]string // values of constants, by their type
}

func describe(t *testing.T, calls []api.Call) *description {
	d := &description{t: t, calls: calls, schemas: map[string]jsonSchema{}, names: map[reflect.Type]string{}, bodies: map[reflect.Type]bool{}, source: map[string]*packageSource{}}
	slices.SortFunc(d.calls, func(a, b api.Call) int {
		_, pathA, _ := strings.Cut(a.Pattern, " ")
		_, pathB, _ := strings.Cut(b.Pattern, " ")
		return strings.Compare(pathA+" "+a.Pattern, pathB+" "+b.Pattern)
	})
	for _, c := range calls {
		if c.Body != nil {
			d.read(c.Body)
		}
	}
	return d
}

// read marks the types that a body has.
func (d *description) read(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		d.read(t.Elem())
	case reflect.Struct:
		if !d.bodies[t] {
			d.bodies[t] = true
			for i := range t.NumField() {
				d.read(t.Field(i).Type)
			}
		}
	}
}

func (d *description) document() jsonSchema {
	paths := jsonSchema{}
	for _, c := range d.calls {
		method, path, _ := strings.Cut(c.Pattern, " ")
		if paths[path] == nil {
			paths[path] = jsonSchema{}
		}
		paths[path].(jsonSchema)[strings.ToLower(method)] = d.operation(&c, path)
	}
	schemas := jsonSchema{"Error": jsonSchema{"type": "object", "required": []string{"error"}, "properties": jsonSchema{"error": jsonSchema{
		"type": "object", "required": []string{"code", "message"}, "properties": jsonSchema{"code": jsonSchema{"type": "integer"}, "message": jsonSchema{"type": "string"}},
	}}}}
	for name, s := range d.schemas {
		schemas[name] = s
	}
	return jsonSchema{
		"openapi": "3.1.0",
		"info": jsonSchema{"title": "Heddle's API for operators", "version": "1",
			"description": "Every call but those of /v1/why, /v1/ports, /v1/history, /v1/revisions and /v1/openapi.json wants the role admin."},
		"security": []jsonSchema{{"token": []string{}}},
		"paths":    paths,
		"components": jsonSchema{
			"schemas":         schemas,
			"securitySchemes": jsonSchema{"token": jsonSchema{"type": "apiKey", "in": "header", "name": api.TokenHeader}},
		},
	}
}

var inPath = regexp.MustCompile(`\{(\w+)\}`)

func (d *description) operation(c *api.Call, path string) jsonSchema {
	var answer jsonSchema
	if c.Stream != "" {
		item := jsonSchema{"type": "string", "contentMediaType": "application/json", "contentSchema": d.schema(c.Item)}
		answer = jsonSchema{c.Stream: jsonSchema{"schema": item}}
	} else {
		answer = content(d.schema(c.Answer))
	}
	op := jsonSchema{"summary": c.Summary, "responses": jsonSchema{
		"200":     jsonSchema{"description": "the answer", "content": answer},
		"default": jsonSchema{"description": "why there is no answer", "content": content(jsonSchema{"$ref": "#/components/schemas/Error"})},
	}}
	var parameters []jsonSchema
	for _, name := range inPath.FindAllStringSubmatch(path, -1) {
		parameters = append(parameters, jsonSchema{"name": name[1], "in": "path", "required": true, "schema": jsonSchema{"type": "string"}})
	}
	for _, p := range c.Query {
		s := jsonSchema{"type": "string"}
		if p.Many {
			s = jsonSchema{"type": "array", "items": s}
		}
		parameters = append(parameters, jsonSchema{"name": p.Name, "in": "query", "description": p.Text, "schema": s})
	}
	if parameters != nil {
		op["parameters"] = parameters
	}
	if c.Body != nil {
		op["requestBody"] = jsonSchema{"required": true, "content": content(d.schema(c.Body))}
	}
	return op
}

func content(s jsonSchema) jsonSchema { return jsonSchema{"application/json": jsonSchema{"schema": s}} }

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
	textType = reflect.TypeFor[encoding.TextMarshaler]()
	jsonType = reflect.TypeFor[json.Marshaler]()
)

// schema returns the schema of values of a type.
func (d *description) schema(t reflect.Type) jsonSchema {
	switch {
	case t == timeType:
		return jsonSchema{"type": "string", "format": "date-time"}
	case t == rawType || t.Kind() == reflect.Interface:
		return jsonSchema{}
	case t.Kind() == reflect.Pointer:
		return d.schema(t.Elem())
	case t.Implements(textType) || reflect.PointerTo(t).Implements(textType):
		return jsonSchema{"type": "string"}
	case reflect.PointerTo(t).Implements(jsonType):
		d.t.Fatalf("%s has JSON of its own, which nothing describes here", t)
	}
	switch t.Kind() {
	case reflect.Bool:
		return jsonSchema{"type": "boolean"}
	case reflect.String:
		return d.words(t)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return jsonSchema{"type": "integer"}
	case reflect.Float32, reflect.Float64:
		return jsonSchema{"type": "number"}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return jsonSchema{"type": "string", "contentEncoding": "base64"}
		}
		return jsonSchema{"type": "array", "items": d.schema(t.Elem())}
	case reflect.Map:
		return jsonSchema{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case reflect.Struct:
		return d.object(t)
	}
	d.t.Fatalf("%s: no schema", t)
	return nil
}

// words returns the schema of a string type, with its values if it has constants.
func (d *description) words(t reflect.Type) jsonSchema {
	s := jsonSchema{"type": "string"}
	if t.PkgPath() != "" {
		if values := d.of(t).enums[t.Name()]; values != nil {
			s["enum"] = values
		}
	}
	return s
}

// object returns a reference to the schema of a struct, or the schema of one without a name.
func (d *description) object(t reflect.Type) jsonSchema {
	s := jsonSchema{"type": "object"}
	name, known := d.names[t]
	if t.Name() != "" && !known {
		name = d.name(t)
		d.names[t], d.schemas[name] = name, s
		if doc := d.of(t).docs[t.Name()]; doc != "" {
			s["description"] = doc
		}
	}
	if !known {
		properties, required := jsonSchema{}, []string{}
		d.fields(t, properties, &required)
		s["properties"] = properties
		if len(required) > 0 && !d.bodies[t] {
			s["required"] = required
		}
	}
	switch {
	case t == reflect.TypeFor[operator.Selection]():
		return jsonSchema{"oneOf": []jsonSchema{{"const": "outside"}, {"$ref": "#/components/schemas/" + name}}}
	case name != "":
		return jsonSchema{"$ref": "#/components/schemas/" + name}
	}
	return s
}

// name returns the name of a type in the description, which no other has.
func (d *description) name(t reflect.Type) string {
	name := strings.ToUpper(t.Name()[:1]) + strings.TrimSuffix(t.Name()[1:], "View")
	if d.schemas[name] != nil {
		of := filepath.Base(t.PkgPath())
		name = strings.ToUpper(of[:1]) + of[1:] + name
	}
	return name
}

func (d *description) fields(t reflect.Type, properties jsonSchema, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case f.Anonymous && name == "" && inner.Kind() == reflect.Struct:
			optional := &[]string{}
			if f.Type.Kind() != reflect.Pointer {
				optional = required
			}
			d.fields(inner, properties, optional)
			continue
		case name == "-" || !f.IsExported():
			continue
		case name == "":
			name = f.Name
		}
		s := d.schema(f.Type)
		may := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		if f.Type.Kind() == reflect.Pointer && !may {
			s = jsonSchema{"anyOf": []jsonSchema{s, {"type": "null"}}}
		}
		if doc := d.of(t).docs[t.Name()+"."+f.Name]; doc != "" {
			s["description"] = doc
		}
		properties[name] = s
		if !may {
			*required = append(*required, name)
		}
	}
}

// of returns what the source of a type's package says.
func (d *description) of(t reflect.Type) *packageSource {
	if s := d.source[t.PkgPath()]; s != nil {
		return s
	}
	s := &packageSource{map[string]string{}, map[string][]string{}}
	d.source[t.PkgPath()] = s
	dir, ours := strings.CutPrefix(t.PkgPath(), "heddle/")
	if !ours {
		return s
	}
	dir = filepath.Join("../../..", dir)
	entries, err := fs.ReadDir(os.DirFS(dir), ".")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".go" || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, parser.ParseComments)
		if err != nil {
			d.t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if g, ok := decl.(*ast.GenDecl); ok {
				s.add(g)
			}
		}
	}
	return s
}

func (s *packageSource) add(g *ast.GenDecl) {
	for _, spec := range g.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			s.docs[spec.Name.Name] = text(spec.Doc, g.Doc)
			if of, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range of.Fields.List {
					for _, name := range f.Names {
						s.docs[spec.Name.Name+"."+name.Name] = text(f.Doc, f.Comment)
					}
				}
			}
		case *ast.ValueSpec:
			of, ok := spec.Type.(*ast.Ident)
			if g.Tok != token.CONST || !ok {
				continue
			}
			for _, v := range spec.Values {
				if literal, ok := v.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					value, _ := strconv.Unquote(literal.Value) // it was parsed
					s.enums[of.Name] = append(s.enums[of.Name], value)
				}
			}
		}
	}
}

// ofSpecification is a reference to the specification, which users do not have.
var ofSpecification = regexp.MustCompile(` \([a-z-]+ §[0-9]+\)`)

// text returns the first comment that there is, in one line.
func text(comments ...*ast.CommentGroup) string {
	for _, c := range comments {
		if c != nil {
			return ofSpecification.ReplaceAllString(strings.Join(strings.Fields(c.Text()), " "), "")
		}
	}
	return ""
}

// typescript returns the types of bodies and answers for the page.
func (d *description) typescript() []byte {
	var b strings.Builder
	b.WriteString("// Types of the operators' API, made from those of the server: make generate.\n")
	for _, name := range slices.Sorted(maps.Keys(d.schemas)) {
		s := d.schemas[name]
		b.WriteString("\n")
		if doc, ok := s["description"].(string); ok {
			b.WriteString("/** " + doc + " */\n")
		}
		b.WriteString("export interface " + name + " " + typescriptOf(s, "") + "\n")
	}
	return []byte(b.String())
}

func typescriptOf(s jsonSchema, indent string) string {
	if ref, ok := s["$ref"].(string); ok {
		return ref[strings.LastIndexByte(ref, '/')+1:]
	}
	for _, choice := range []string{"anyOf", "oneOf"} {
		if of, ok := s[choice].([]jsonSchema); ok {
			var all []string
			for _, one := range of {
				all = append(all, typescriptOf(one, indent))
			}
			return strings.Join(all, " | ")
		}
	}
	if c, ok := s["const"]; ok {
		return strconv.Quote(c.(string))
	}
	if values, ok := s["enum"].([]string); ok {
		var all []string
		for _, v := range values {
			all = append(all, strconv.Quote(v))
		}
		return strings.Join(all, " | ")
	}
	switch s["type"] {
	case "object":
		if of, ok := s["additionalProperties"].(jsonSchema); ok {
			return "Record<string, " + typescriptOf(of, indent) + ">"
		}
		required, _ := s["required"].([]string)
		properties := s["properties"].(jsonSchema)
		var b strings.Builder
		b.WriteString("{\n")
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			optional := "?"
			if slices.Contains(required, name) {
				optional = ""
			}
			b.WriteString(indent + "  " + name + optional + ": " + typescriptOf(properties[name].(jsonSchema), indent+"  ") + ";\n")
		}
		b.WriteString(indent + "}")
		return b.String()
	case "array":
		of := typescriptOf(s["items"].(jsonSchema), indent)
		if strings.ContainsAny(of, " {") {
			of = "(" + of + ")"
		}
		return of + "[]"
	case "integer", "number":
		return "number"
	case "boolean", "string", "null":
		return s["type"].(string)
	}
	return "unknown"
}

// described has the answers of a server held to the description.
func described(t *testing.T, next http.Handler) http.Handler {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(openAPI)
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/events" { // a stream
			next.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		if _, path, ok := strings.Cut(r.Pattern, " "); ok && answer.Code == http.StatusOK {
			var v any
			operation := document.Paths.Value(path).GetOperation(r.Method)
			err := json.Unmarshal(answer.Body.Bytes(), &v)
			if err == nil {
				err = operation.Responses.Value("200").Value.Content["application/json"].Schema.Value.VisitJSON(v, openapi3.EnableJSONSchema2020())
			}
			if err != nil {
				t.Errorf("%s: the answer is not as described: %v\n%s", r.Pattern, err, answer.Body)
			}
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	})
}
