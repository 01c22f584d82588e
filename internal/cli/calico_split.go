package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"heddle/internal/sourceline"
)

// documentText is one document of a file.
type documentText struct {
	text  []byte
	above int // lines of the file before its first one
}

// place returns the place in a file of the value at a path in the document, as FILE:LINE. Without
// such a value that is where the document begins.
func (d documentText) place(file, path string) string {
	return fmt.Sprintf("%s:%d", file, d.above+max(1, sourceline.Find(d.text, path)))
}

// padded returns the document with an empty line for each above it: errors of YAML have lines, too.
func (d documentText) padded() []byte {
	return append(bytes.Repeat([]byte("\n"), d.above), d.text...)
}

// splitDocuments splits a file into its documents, without empty ones: a YAML stream at its
// markers, or consecutive JSON texts, as jq writes them.
func splitDocuments(text []byte) []documentText {
	if docs, ok := splitJSON(text); ok {
		return docs
	}
	var docs []documentText
	var doc documentText
	number := 0 // of the line
	flush := func() {
		if hasContent(doc.text) {
			docs = append(docs, doc)
		}
		doc = documentText{above: number}
	}
	for line := range bytes.Lines(text) {
		if rest, start := cutMarker(line, "---"); start {
			flush()
			line = rest // a document may begin here
		} else if _, end := cutMarker(line, "..."); end {
			number++
			flush()
			continue
		}
		doc.text = append(doc.text, line...)
		number++
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
func splitJSON(text []byte) (docs []documentText, ok bool) {
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
		above := bytes.Count(text[:d.InputOffset()-int64(len(doc))], []byte("\n"))
		docs = append(docs, documentText{doc, above})
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
