package wire

import (
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"heddle/internal/xen/model"
)

const xmlHead = `<?xml version="1.0"?>`

// XMLReply returns a server's answer: a value of the Go type for t, or the failure, if any.
func XMLReply(t model.Type, value any, failure *model.Error) []byte {
	b := append(make([]byte, 0, 1024), xmlHead+"<methodResponse><params><param><value><struct><member><name>Status</name><value>"...)
	if failure != nil {
		b = append(b, "Failure</value></member><member><name>ErrorDescription</name>"...)
		b = appendXML(b, model.Type{}, description(failure))
	} else {
		b = append(b, "Success</value></member><member><name>Value</name>"...)
		b = appendXML(b, t, value)
	}
	return append(b, "</member></struct></value></param></params></methodResponse>"...)
}

// description is a failure's code and parameters in one list.
func description(failure *model.Error) []string {
	return append([]string{failure.Code}, failure.Params...)
}

// XMLBareReply is an answer without a status: that of system.listMethods.
func XMLBareReply(t model.Type, value any) []byte {
	b := append(make([]byte, 0, 1024), xmlHead+"<methodResponse><params><param>"...)
	b = appendXML(b, t, value)
	return append(b, "</param></params></methodResponse>"...)
}

// XMLValue returns a value alone, as in the result of a task: <value>…</value>, or "" for none.
func XMLValue(t model.Type, value any) string {
	if value == nil {
		return ""
	}
	return string(appendXML(nil, t, value))
}

// EncodeXMLCall is a call with parameters of the model's Go types, the session among them.
func EncodeXMLCall(method string, params ...any) []byte {
	b := append(make([]byte, 0, 512), xmlHead+"<methodCall><methodName>"...)
	b = appendXMLText(b, method)
	b = append(b, "</methodName><params>"...)
	for _, p := range params {
		b = append(b, "<param>"...)
		b = appendXML(b, model.Type{}, p)
		b = append(b, "</param>"...)
	}
	return append(b, "</params></methodCall>"...)
}

// appendXML appends a <value> by its Go type. The type t gives the order of records' fields.
func appendXML(b []byte, t model.Type, v any) []byte {
	b = append(b, "<value>"...)
	switch v := v.(type) {
	case nil: // void
	case string:
		b = appendXMLText(b, v)
	case int64:
		b = strconv.AppendInt(b, v, 10)
	case float64:
		b = append(appendFloat(append(b, "<double>"...), v), "</double>"...)
	case bool:
		if v {
			b = append(b, "<boolean>1</boolean>"...)
		} else {
			b = append(b, "<boolean>0</boolean>"...)
		}
	case time.Time:
		b = append(v.UTC().AppendFormat(append(b, "<dateTime.iso8601>"...), timeLayout), "</dateTime.iso8601>"...)
	case []string:
		b = appendXMLArray(b, t, v)
	case []int64:
		b = appendXMLArray(b, t, v)
	case []model.Record:
		b = appendXMLArray(b, t, v)
	case []any:
		b = appendXMLArray(b, t, v)
	case map[string]string:
		b = appendXMLStruct(b, t, v)
	case map[string]int64:
		b = appendXMLCounts(b, v)
	case map[string]model.Record:
		b = appendXMLStruct(b, t, v)
	case map[string]any:
		b = appendXMLStruct(b, t, v)
	case model.Record:
		b = appendXMLRecord(b, t, v)
	default: // our own mistake: a text that is not understood harms less than no answer
		b = appendXMLText(b, fmt.Sprint(v))
	}
	return append(b, "</value>"...)
}

func appendXMLArray[T any](b []byte, t model.Type, elements []T) []byte {
	b = append(b, "<array><data>"...)
	for _, v := range elements {
		b = appendXML(b, elem(t), v)
	}
	return append(b, "</data></array>"...)
}

func appendXMLStruct[T any](b []byte, t model.Type, members map[string]T) []byte {
	b = append(b, "<struct>"...)
	start := len(b)
	for i, name := range sortedKeys(members) {
		b = appendXML(appendXMLName(b, name), elem(t), members[name])
		b = append(b, "</member>"...)
		if i == 0 {
			b = reserve(b, start, len(members))
		}
	}
	return append(b, "</struct>"...)
}

func appendXMLRecord(b []byte, t model.Type, r model.Record) []byte {
	fields := inOrder(t, r)
	if fields == nil {
		return appendXMLStruct(b, model.Type{}, r)
	}
	b = append(b, "<struct>"...)
	for _, f := range fields {
		b = appendXML(appendXMLName(b, f.Name), f.Type, r[f.Name])
		b = append(b, "</member>"...)
	}
	return append(b, "</struct>"...)
}

// appendXMLCounts appends the one kind of map whose numbers go as integers: what event.from counts.
func appendXMLCounts(b []byte, counts map[string]int64) []byte {
	b = append(b, "<struct>"...)
	for _, name := range sortedKeys(counts) {
		b = append(appendXMLName(b, name), "<value><i4>"...)
		b = append(strconv.AppendInt(b, counts[name], 10), "</i4></value></member>"...)
	}
	return append(b, "</struct>"...)
}

func appendXMLName(b []byte, name string) []byte {
	b = append(b, "<member><name>"...)
	return append(appendXMLText(b, name), "</name>"...)
}

// appendXMLText appends text. Of what XML cannot carry, a replacement character is left.
func appendXMLText(b []byte, text string) []byte {
	start := 0
	for i := 0; i < len(text); {
		if c := text[i]; c >= 0x20 && c < utf8.RuneSelf && c != '&' && c != '<' && c != '>' {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		b = append(b, text[start:i]...)
		b = appendXMLCharacter(b, r)
		i += size
		start = i
	}
	return append(b, text[start:]...)
}

func appendXMLCharacter(b []byte, r rune) []byte {
	switch {
	case r == '&':
		return append(b, "&amp;"...)
	case r == '<':
		return append(b, "&lt;"...)
	case r == '>':
		return append(b, "&gt;"...)
	case r == '\r': // a bare one would be read as a line's end
		return append(b, "&#13;"...)
	case !isCharacter(r):
		r = utf8.RuneError
	}
	return utf8.AppendRune(b, r)
}
