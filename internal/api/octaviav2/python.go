package octaviav2

import (
	"bytes"
	"encoding/json"
	"strings"

	"heddle/internal/neutron"
)

// Octavia's messages show values as Python prints them.

// pyText is str() of a decoded JSON value.
func pyText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil && len(raw) > 0 && raw[0] == '"' {
		return s
	}
	return pyRepr(raw)
}

// pyRepr is repr() of a JSON value; the keys of objects stay in their order.
func pyRepr(raw json.RawMessage) string {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var b strings.Builder
	if writeRepr(&b, d) != nil {
		return "None"
	}
	return b.String()
}

// writeRepr writes the next value of d.
func writeRepr(b *strings.Builder, d *json.Decoder) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	switch t := token.(type) {
	case json.Delim:
		return writeItems(b, d, t)
	case string:
		b.WriteString(neutron.PythonString(t))
	case json.Number:
		b.WriteString(t.String())
	case bool:
		b.WriteString(map[bool]string{true: "True", false: "False"}[t])
	default:
		b.WriteString("None")
	}
	return nil
}

// writeItems writes the rest of an object or a list.
func writeItems(b *strings.Builder, d *json.Decoder, open json.Delim) error {
	b.WriteByte(byte(open))
	for first := true; d.More(); first = false {
		if !first {
			b.WriteString(", ")
		}
		if open == '{' {
			if err := writeRepr(b, d); err != nil {
				return err
			}
			b.WriteString(": ")
		}
		if err := writeRepr(b, d); err != nil {
			return err
		}
	}
	end, err := d.Token()
	if err == nil {
		b.WriteByte(byte(end.(json.Delim)))
	}
	return err
}
