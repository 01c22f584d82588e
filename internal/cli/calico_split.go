package cli

import (
	"bytes"
	"encoding/json"
	"io"
)

// splitDocuments splits a file into its documents, without empty ones: a YAML stream at its
// markers, or consecutive JSON texts, as jq writes them.
func splitDocuments(text []byte) [][]byte {
	if docs, ok := splitJSON(text); ok {
		return docs
	}
	var docs [][]byte
	var doc []byte
	flush := func() {
		if hasContent(doc) {
			docs = append(docs, doc)
		}
		doc = nil
	}
	for line := range bytes.Lines(text) {
		if rest, start := cutMarker(line, "---"); start {
			flush()
			line = rest // a document may begin here
		} else if _, end := cutMarker(line, "..."); end {
			flush()
			continue
		}
		doc = append(doc, line...)
	}
	flush()
	return docs
}

// cutMarker cuts a YAML marker off the beginning of a line, if a space or the end follows.
func cutMarker(line []byte, marker string) (rest []byte, found bool) {
	rest, found = bytes.CutPrefix(line, []byte(marker))
	if !found || len(rest) > 0 && !bytes.ContainsRune([]byte(" \t\r\n"), rune(rest[0])) {
		return line, false
	}
	return rest, true
}

// splitJSON splits a text that consists of JSON objects and lists.
func splitJSON(text []byte) (docs [][]byte, ok bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		var doc json.RawMessage
		err := d.Decode(&doc)
		if err == io.EOF {
			return docs, len(docs) > 0
		}
		if err != nil || doc[0] != '{' && doc[0] != '[' {
			return nil, false
		}
		docs = append(docs, doc)
	}
}

// hasContent reports whether a document is more than comments and directives.
func hasContent(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		if s := bytes.TrimSpace(line); len(s) > 0 && s[0] != '#' && line[0] != '%' {
			return true
		}
	}
	return false
}
