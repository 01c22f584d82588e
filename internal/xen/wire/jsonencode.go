package wire

import (
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"heddle/internal/xen/model"
)

// JSONReply returns a server's answer to a call, in the call's version of JSON-RPC: a value of the
// model's Go type for t, or the failure if there is one.
func JSONReply(call *JSONCall, t model.Type, value any, failure *model.Error) []byte {
	b := make([]byte, 0, 1024)
	switch {
	case call.Version2 && failure != nil:
		b = appendJSONText(append(b, `{"jsonrpc":"2.0","error":{"code":1,"message":`...), failure.Code)
		b = appendJSON(append(b, `,"data":`...), model.Type{}, append([]string{}, failure.Params...))
		b = append(b, '}')
	case call.Version2:
		b = appendJSON(append(b, `{"jsonrpc":"2.0","result":`...), t, value)
	case failure != nil:
		b = appendJSON(append(b, `{"result":null,"error":`...), model.Type{}, description(failure))
	default:
		b = append(appendJSON(append(b, `{"result":`...), t, value), `,"error":null`...)
	}
	b = append(append(b, `,"id":`...), call.ID...)
	return append(b, '}')
}

// EncodeJSONCall is a call by JSON-RPC 2.0 with parameters of the model's Go types, the session
// among them. Its id is 0: a connection carries one call at a time.
func EncodeJSONCall(method string, params ...any) []byte {
	b := appendJSONText(append(make([]byte, 0, 512), `{"jsonrpc":"2.0","method":`...), method)
	b = appendJSONArray(append(b, `,"params":`...), model.Type{}, params)
	return append(b, `,"id":0}`...)
}

// appendJSON appends a value by its Go type. The type t gives the order of records' fields.
func appendJSON(b []byte, t model.Type, v any) []byte {
	switch v := v.(type) {
	case nil: // void
		return append(b, `""`...)
	case string:
		return appendJSONText(b, v)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case float64:
		return appendFloat(b, v)
	case bool:
		return strconv.AppendBool(b, v)
	case time.Time:
		b = v.UTC().AppendFormat(append(b, '"'), timeLayout)
		return append(b, '"')
	case []string:
		return appendJSONArray(b, t, v)
	case []int64:
		return appendJSONArray(b, t, v)
	case []model.Record:
		return appendJSONArray(b, t, v)
	case []any:
		return appendJSONArray(b, t, v)
	case map[string]string:
		return appendJSONObject(b, t, v)
	case map[string]int64:
		return appendJSONObject(b, t, v)
	case map[string]model.Record:
		return appendJSONObject(b, t, v)
	case map[string]any:
		return appendJSONObject(b, t, v)
	case model.Record:
		return appendJSONRecord(b, t, v)
	default: // our own mistake: a text that is not understood harms less than no answer
		return appendJSONText(b, fmt.Sprint(v))
	}
}

func appendJSONArray[T any](b []byte, t model.Type, elements []T) []byte {
	b = append(b, '[')
	for i, v := range elements {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(b, elem(t), v)
	}
	return append(b, ']')
}

func appendJSONObject[T any](b []byte, t model.Type, members map[string]T) []byte {
	b = append(b, '{')
	start := len(b)
	for i, name := range sortedKeys(members) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendJSONText(b, name), ':')
		b = appendJSON(b, elem(t), members[name])
		if i == 0 {
			b = reserve(b, start, len(members))
		}
	}
	return append(b, '}')
}

func appendJSONRecord(b []byte, t model.Type, r model.Record) []byte {
	fields := inOrder(t, r)
	if fields == nil {
		return appendJSONObject(b, model.Type{}, r)
	}
	b = append(b, '{')
	for i, f := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendJSONText(b, f.Name), ':')
		b = appendJSON(b, f.Type, r[f.Name])
	}
	return append(b, '}')
}

// appendJSONText appends a string. Of what is not UTF-8, a replacement character is left.
func appendJSONText(b []byte, text string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		b = append(b, text[start:i]...)
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20:
			const digits = "0123456789abcdef"
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&0xf])
		default:
			b = utf8.AppendRune(b, r)
		}
		i += size
		start = i
	}
	return append(append(b, text[start:]...), '"')
}
