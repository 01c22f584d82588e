package neutron

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"time"

	"heddle/internal/topology/packet"
)

// Answers are appended to a byte slice, attribute by attribute, to build no maps for long lists.

const timeFormat = "2006-01-02T15:04:05Z" // whole seconds, UTC (neutron-api §2)

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x80 || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil {
				panic(err) // a string can always be written
			}
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func appendStringOrNull(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return appendString(b, s)
}

// appendObject appends an object of two members.
func appendObject[A, B any](b []byte, name1 string, v1 A, append1 func([]byte, A) []byte, name2 string, v2 B, append2 func([]byte, B) []byte) []byte {
	b = append(append(append(b, `{"`...), name1...), `":`...)
	b = append1(b, v1)
	b = append(append(append(b, `,"`...), name2...), `":`...)
	return append(append2(b, v2), '}')
}

func appendTime(b []byte, t time.Time) []byte {
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, timeFormat)
	return append(b, '"')
}

func appendMAC(b []byte, m packet.MAC) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	for i, x := range m {
		if i > 0 {
			b = append(b, ':')
		}
		b = append(b, digits[x>>4], digits[x&15])
	}
	return append(b, '"')
}

func appendAddr(b []byte, a netip.Addr) []byte {
	b = append(b, '"')
	b = a.AppendTo(b)
	return append(b, '"')
}

func appendPrefix(b []byte, p netip.Prefix) []byte {
	b = append(b, '"')
	b = p.AppendTo(b)
	return append(b, '"')
}

func appendIntOrNull(b []byte, n *int) []byte {
	if n == nil {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, int64(*n), 10)
}

// appendList appends a JSON array; nil is an empty one.
func appendList[T any](b []byte, list []T, item func([]byte, T) []byte) []byte {
	b = append(b, '[')
	for i, x := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = item(b, x)
	}
	return append(b, ']')
}

// appendValue appends any value that encoding/json can write; nil maps are {}.
func appendValue(b []byte, v map[string]any) []byte {
	if len(v) == 0 {
		return append(b, "{}"...)
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // it came from JSON
	}
	return append(b, text...)
}
