package offline

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/strictjson"
	"heddle/internal/topology/packet"
)

// node is a value of the input with its place in it. The readers below return a FileError that
// names the place; those of optional values take null for their zero value.
type node struct {
	place string
	value any // nil, bool, json.Number, string, []any, map[string]any
}

// parse reads a file, YAML or JSON.
func parse(in io.Reader) (node, error) {
	text, err := io.ReadAll(in)
	if err != nil {
		return node{}, err
	}
	return parseText(text)
}

func parseText(text []byte) (node, error) {
	if !json.Valid(text) {
		var err error
		if text, err = DocumentJSON(text); err != nil {
			return node{}, &FileError{Problem: "neither YAML nor JSON: " + strings.TrimPrefix(err.Error(), "yaml: "), cause: err}
		}
	}
	var n node
	err := strictjson.Unmarshal(text, &n.value)
	if wrong := (*strictjson.Error)(nil); errors.As(err, &wrong) {
		return n, &FileError{Place: wrong.Place(), Problem: wrong.Reason}
	}
	return n, err
}

// kind names what the value is, for messages.
func (n node) kind() string {
	switch n.value.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case json.Number:
		return "a number"
	case string:
		return "a text"
	case []any:
		return "a list"
	}
	return "an object"
}

func (n node) wants(what string) error {
	if text, ok := n.value.(string); ok {
		return fileErrorf(n.place, "%q is not %s", text, what)
	}
	if number, ok := n.value.(json.Number); ok {
		return fileErrorf(n.place, "%s is not %s", number, what)
	}
	return fileErrorf(n.place, "is %s, want %s", n.kind(), what)
}

// String is the value as JSON.
func (n node) String() string {
	text, _ := json.Marshal(n.value) // of what JSON has been read into
	return string(text)
}

func (n node) null() bool { return n.value == nil }

// under is the place of a field of the object.
func (n node) under(field string) string {
	if n.place == "" {
		return field
	}
	return n.place + "." + field
}

// at is the place of an element of the list.
func (n node) at(i int) string { return n.place + "[" + strconv.Itoa(i) + "]" }

// object reads an object that has no fields but the known ones. Asking the result for an absent
// field gives null; null is an object without fields.
func (n node) object(known ...string) (object, error) {
	o, err := n.anyObject()
	if err != nil {
		return o, err
	}
	for _, name := range o.names() {
		if !slices.Contains(known, name) {
			return o, fileErrorf(o.under(name), "unknown field%s", suggest(name, known))
		}
	}
	return o, nil
}

// anyObject reads an object with fields of any name.
func (n node) anyObject() (object, error) {
	o := object{node: n}
	if n.value == nil {
		return o, nil
	}
	var ok bool
	if o.fields, ok = n.value.(map[string]any); !ok {
		return o, n.wants("an object")
	}
	return o, nil
}

// object is a value with named fields.
type object struct {
	node
	fields map[string]any
}

func (o object) has(name string) bool { _, ok := o.fields[name]; return ok }

func (o object) get(name string) node { return node{o.under(name), o.fields[name]} }

// names are the fields in order.
func (o object) names() []string {
	return slices.Sorted(maps.Keys(o.fields))
}

// eachField reads every field of an object with fields of any name, in their order.
func (n node) eachField(read func(name string, field node) error) error {
	o, err := n.anyObject()
	if err != nil {
		return err
	}
	for _, name := range o.names() {
		if err := read(name, o.get(name)); err != nil {
			return err
		}
	}
	return nil
}

// suggest offers the known name that differs least, if it differs little for its length.
func suggest(name string, known []string) string {
	best, least := "", 2+len(name)/4
	for _, k := range known {
		if d := distance(name, k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// distance is the number of letters to insert, remove or change to make one text the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0]++
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// list reads a list; null is an empty one.
func (n node) list() ([]node, error) {
	if n.value == nil {
		return nil, nil
	}
	values, ok := n.value.([]any)
	if !ok {
		return nil, n.wants("a list")
	}
	nodes := make([]node, len(values))
	for i, v := range values {
		nodes[i] = node{n.at(i), v}
	}
	return nodes, nil
}

// each reads every element of a list.
func each[T any](n node, read func(node) (T, error)) ([]T, error) {
	nodes, err := n.list()
	if err != nil || nodes == nil {
		return nil, err
	}
	list := make([]T, len(nodes))
	for i, element := range nodes {
		if list[i], err = read(element); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// text reads a text; a number is taken as it is spelled.
func (n node) text() (string, error) {
	switch v := n.value.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	}
	if _, isFlag := n.value.(bool); isFlag {
		return "", n.wants("a text (YAML takes y, n, on, off for booleans: put the text in quotes)")
	}
	return "", n.wants("a text")
}

// oneOf reads one of the words, in their spelling; null is "".
func (n node) oneOf(words ...string) (string, error) {
	word, err := n.text()
	if err != nil || word == "" || slices.Contains(words, word) {
		return word, err
	}
	return "", n.wants("one of " + strings.Join(words, ", "))
}

// flag reads a boolean in any of Neutron's spellings (neutron-api §1).
func (n node) flag(ifNull bool) (bool, error) {
	switch v := n.value.(type) {
	case nil:
		return ifNull, nil
	case bool:
		return v, nil
	case json.Number, string:
		text, _ := n.text()
		switch strings.ToLower(text) {
		case "true", "1":
			return true, nil
		case "false", "0":
			return false, nil
		}
	}
	return false, n.wants("a boolean")
}

// number reads a whole number from low to high, also spelled as a text; ok is false for null.
func (n node) number(low, high int) (v int, ok bool, err error) {
	if n.value == nil {
		return 0, false, nil
	}
	text, err := n.text()
	if err != nil {
		return 0, false, n.wants("a number")
	}
	if v, err = strconv.Atoi(text); err != nil || v < low || v > high {
		return 0, false, n.wants("a whole number from " + strconv.Itoa(low) + " to " + strconv.Itoa(high))
	}
	return v, true, nil
}

// addr reads an address; null is the invalid one.
func (n node) addr() (netip.Addr, error) {
	text, err := n.text()
	if err != nil || n.value == nil {
		return netip.Addr{}, err
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, n.wants("an IP address")
	}
	return a.Unmap(), nil
}

// prefix reads a prefix and clears its host bits; an address stands for itself alone, null is the
// invalid one.
func (n node) prefix() (netip.Prefix, error) {
	text, err := n.text()
	if err != nil || n.value == nil {
		return netip.Prefix{}, err
	}
	if !strings.Contains(text, "/") {
		a, err := n.addr()
		if err != nil {
			return netip.Prefix{}, n.wants("an address with a prefix length")
		}
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, n.wants("an address with a prefix length")
	}
	return p.Masked(), nil
}

// mac reads a MAC address; null is the zero one.
func (n node) mac() (packet.MAC, error) {
	text, err := n.text()
	if err != nil || n.value == nil {
		return packet.MAC{}, err
	}
	m, err := packet.ParseMAC(text)
	if err != nil {
		return m, n.wants("a MAC address like fa:16:3e:00:00:01")
	}
	return m, nil
}
