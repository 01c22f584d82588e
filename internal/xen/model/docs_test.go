package model

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/xenapi-classes.md anew")

// TestDocs: docs/xenapi-classes.md says what the table says.
func TestDocs(t *testing.T) {
	t.Parallel()
	const file = "../../../docs/xenapi-classes.md"
	want := document()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not what the table says; run this test with -update:\n%s", file, diff)
	}
}

const preamble = `# XenAPI: classes, calls, errors

Made from the table in ` + "`internal/xen/model`" + ` by its test; do not edit. [xenapi.md](xenapi.md) says how to use them.

Each class has the calls that its fields imply: ` + "`get_all`, `get_all_records`, `get_all_records_where`, `get_record`, `get_by_uuid`, `get_by_name_label`" + ` where there is a
` + "`name_label`, and for each field F `get_F`; for fields that clients write `set_F`, of maps also `add_to_F` and `remove_from_F`, of sets `add_F` and `remove_F`" + `. Reading
needs the role ` + "`read-only`" + `, writing the role that the class or the field names; a role includes those after it: `

// document is the whole file.
func document() string {
	var b strings.Builder
	b.WriteString(preamble)
	for i, r := range ladder {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "`%s`", r)
	}
	fmt.Fprintf(&b, ". `%s` stands beside them: it reads, and it alone with `%s` writes what names it.\n\n", TunnelController, PoolAdmin)
	b.WriteString("The access of a field is *creation* (fixed then), *system* (kept by it) or *clients* (they write it); *far side of* is what refers here by that field.\n" +
		"Messages marked *async* may also be called as `Async.CLASS.MESSAGE`, which answers a task. The session, which every call takes first, is left out.\n")
	for _, c := range append(append([]*Class{}, Classes()...), &eventBatchClass, &systemClass) {
		writeClass(&b, c)
	}
	b.WriteString("\n## Errors\n\n| code | parameters | meaning |\n| --- | --- | --- |\n")
	for _, e := range errorCodes {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", e.Code, errorParams(e), e.Text)
	}
	return b.String()
}

func writeClass(b *strings.Builder, c *Class) {
	fmt.Fprintf(b, "\n## %s\n\n%s", c.Name, c.Doc)
	switch {
	case c.Value:
		b.WriteString(" These are values, not objects.\n")
	case len(c.Fields) == 0:
		b.WriteString("\n")
	case c.NoList:
		b.WriteString(" There is no list of them.\n")
	default:
		fmt.Fprintf(b, " Changes need `%s`.\n", c.Role)
	}
	if len(c.Fields) > 0 {
		b.WriteString("\n| field | type | access | default | |\n| --- | --- | --- | --- | --- |\n")
	}
	for i := range c.Fields {
		f := &c.Fields[i]
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", f.Name, spell(f.Type), access(f), initialText(f), f.Doc)
	}
	if len(c.Messages) > 0 {
		b.WriteString("\n| message | result | needs | errors of its own | |\n| --- | --- | --- | --- | --- |\n")
	}
	for i := range c.Messages {
		m := &c.Messages[i]
		call := Calls()[c.Name+"."+m.Name]
		needs := "`" + string(call.Role) + "`"
		switch {
		case m.NoLogin:
			needs = "no session"
		case m.Async:
			needs += ", async"
		}
		fmt.Fprintf(b, "| %s(%s) | %s | %s | %s | %s |\n", m.Name, params(call), spell(m.Result), needs, strings.Join(m.Errors, ", "), m.Doc)
	}
}

// params are those of a call, with brackets around what may be left out.
func params(c *Call) string {
	all := make([]string, len(c.Params))
	for i, p := range c.Params {
		all[i] = p.Name + ": " + spell(p.Type)
		if p.Optional {
			all[i] = "[" + all[i] + " = " + valueOf(p.Default) + "]"
		}
	}
	return strings.Join(all, ", ")
}

func errorParams(e ErrorCode) string {
	all := make([]string, len(e.Params))
	for i, p := range e.Params {
		all[i] = p.Name
		if p.Class != "" && p.Class != p.Name {
			all[i] += " (" + p.Class + ")"
		}
	}
	if e.Many {
		all = append(all, "…")
	}
	return strings.Join(all, ", ")
}

// spell writes a type for people.
func spell(t Type) string {
	switch t.Kind {
	case Enum:
		return "`" + strings.Join(t.Values, "` `") + "`"
	case Ref:
		return t.Class + " ref"
	case Set:
		return "set of " + spell(*t.Elem)
	case Map:
		return "map string → " + spell(*t.Elem)
	case RecordOf:
		return strings.TrimSpace(t.Class + " record")
	}
	return map[Kind]string{Void: "", String: "string", Int: "int", Float: "float", Bool: "bool", Time: "datetime"}[t.Kind]
}

func access(f *Field) string {
	if f.Far != nil {
		return "far side of " + f.Far.Class + "." + f.Far.Field
	}
	text := [...]string{Constructed: "creation", Dynamic: "system", Writable: "clients"}[f.Access]
	if f.SetRole != "" {
		text += " (`" + string(f.SetRole) + "`)"
	}
	return text
}

// initialText is a field's default, unless it is the type's zero value.
func initialText(f *Field) string {
	if f.Default == nil || cmp.Equal(f.Default, Zero(f.Type)) && f.Type.Kind != Enum {
		return ""
	}
	return valueOf(f.Default)
}

func valueOf(v any) string {
	switch v := v.(type) {
	case map[string]string:
		if len(v) == 0 {
			return "{}"
		}
		return strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(v), "map["), "]"), ":", "=")
	case []string:
		return fmt.Sprintf("%q", v)
	case string:
		if v == "" {
			return `""`
		}
	}
	return valueText(v)
}
