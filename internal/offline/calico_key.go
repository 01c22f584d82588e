package offline

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"strings"

	"heddle/calico"
	"heddle/internal/strictjson"
)

// Keys says of each path what key of Calico's data model it is: one JSON object a line.
func Keys(paths []string, out io.Writer) error {
	w := bufio.NewWriter(out)
	for _, path := range paths {
		key, _ := calico.ParseKey(path)
		if err := describeKey(key).print(w); err != nil {
			return err
		}
	}
	return w.Flush()
}

// KeyPaths reads what Keys prints and prints the paths, one a line. When a line is wrong it prints
// nothing.
func KeyPaths(in io.Reader, out io.Writer) error {
	var paths strings.Builder
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		path, err := keyPath(lines.Bytes())
		if err != nil {
			return fileErrorf(fmt.Sprintf("line %d", n), "%v", err)
		}
		paths.WriteString(path + "\n")
	}
	if err := lines.Err(); err != nil {
		return fileErrorf("", "%v", err)
	}
	_, err := io.WriteString(out, paths.String())
	return err
}

// keyText is a key as JSON has it. Ids are in the order of the key's path.
type keyText struct {
	kind   calico.Kind // "": none
	ids    []keyID
	legacy bool
}

type keyID struct {
	name  string
	value any
}

// The names of ids that are no names of a key's fields.
const (
	idVersion = "version" // of a CIDR or an address: 4 or 6
	idLegacy  = "legacy"
)

// describeKey takes a key's fields for its ids; nil is no key.
func describeKey(key calico.Key) keyText {
	if key == nil {
		return keyText{}
	}
	t := keyText{kind: key.Kind(), legacy: key.Kind() == calico.KindProfileRefcount}
	fields := reflect.ValueOf(key)
	for i := range fields.NumField() {
		name := strings.ToLower(fields.Type().Field(i).Name)
		switch value := fields.Field(i).Interface().(type) {
		case bool:
			t.legacy = value
		case netip.Prefix:
			t.ids = append(t.ids, keyID{name, value.String()}, keyID{idVersion, version(value.Addr())})
		case netip.Addr:
			t.ids = append(t.ids, keyID{name, value.String()}, keyID{idVersion, version(value)})
		default:
			t.ids = append(t.ids, keyID{name, value})
		}
	}
	return t
}

func version(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

func (t keyText) print(w io.Writer) error {
	var text strings.Builder
	kind := any(t.kind)
	if t.kind == "" {
		kind = nil
	}
	text.WriteString(`{"kind": ` + quoteJSON(kind) + `, "ids": {`)
	for i, id := range t.ids {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString(quoteJSON(id.name) + ": " + quoteJSON(id.value))
	}
	text.WriteString("}")
	if t.legacy {
		text.WriteString(`, "legacy": true`)
	}
	_, err := fmt.Fprintln(w, text.String()+"}")
	return err
}

// quoteJSON writes a string, a number or null.
func quoteJSON(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "null" // never: strings and numbers alone come here
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// keyPath is the path of a key given as JSON.
func keyPath(line []byte) (string, error) {
	var given struct {
		Kind   *string                    `json:"kind"`
		IDs    map[string]json.RawMessage `json:"ids"`
		Legacy bool                       `json:"legacy"`
	}
	if err := strictjson.Unmarshal(line, &given); err != nil {
		return "", fmt.Errorf(`want one object a line, like {"kind": "Tier", "ids": {"tier": "default"}}: %w`, err)
	}
	if given.Kind == nil {
		return "", fmt.Errorf("kind: is null, which no key has")
	}
	empty := calico.EmptyKey(calico.Kind(*given.Kind))
	if empty == nil {
		return "", fmt.Errorf("kind: %q: there is no such kind", *given.Kind)
	}
	key := reflect.New(reflect.TypeOf(empty)).Elem()
	if legacy := key.FieldByName("Legacy"); legacy.IsValid() {
		legacy.SetBool(given.Legacy)
	} else if given.Legacy && empty.Kind() != calico.KindProfileRefcount {
		return "", fmt.Errorf("legacy: the legacy tree has no %s", empty.Kind())
	}
	if err := setIDs(key, given.IDs); err != nil {
		return "", err
	}
	path, err := key.Interface().(calico.Key).Path()
	if strings.ContainsAny(path, "\r\n") {
		return "", fmt.Errorf("%q: has a line's end in it, and keys are printed one a line", path)
	}
	return path, err
}

// setIDs sets a key's fields. Each must be given; the version may be left out.
func setIDs(key reflect.Value, ids map[string]json.RawMessage) error {
	family := 0
	for i := range key.NumField() {
		field := key.Type().Field(i)
		name := strings.ToLower(field.Name)
		if name == idLegacy {
			continue
		}
		raw, ok := ids[name]
		if !ok {
			return fmt.Errorf("ids.%s: is missing", name)
		}
		delete(ids, name)
		target := key.Field(i)
		if err := json.Unmarshal(raw, target.Addr().Interface()); err != nil {
			return fmt.Errorf("ids.%s: %s: want %s", name, raw, wantID(target.Interface()))
		}
		switch value := target.Interface().(type) {
		case netip.Prefix:
			family = version(value.Addr())
		case netip.Addr:
			family = version(value)
		}
	}
	if raw, ok := ids[idVersion]; ok && family != 0 {
		if text := strings.Trim(string(raw), `"`); text != fmt.Sprint(family) {
			return fmt.Errorf("ids.%s: %s: the address is one of IPv%d", idVersion, raw, family)
		}
		delete(ids, idVersion)
	}
	for name := range ids {
		return fmt.Errorf("ids.%s: a %s has no such id", name, key.Interface().(calico.Key).Kind())
	}
	return nil
}

func wantID(v any) string {
	switch v.(type) {
	case netip.Prefix:
		return `a CIDR like "192.0.2.0/24"`
	case netip.Addr:
		return `an address like "192.0.2.1"`
	}
	return "a string"
}
