package offline

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"heddle/calico/selector"
)

// SelectorOptions change what Selector reads and how it prints.
type SelectorOptions struct {
	JSON       bool
	Extensions bool // read the operators of later versions
}

// Selector prints the canonical text of a selector and says whether labels, each written
// label=value, match it. An error is a *FileError.
func Selector(text string, labels []string, opts SelectorOptions, out io.Writer) (match bool, err error) {
	var extensions []selector.Option
	if opts.Extensions {
		extensions = append(extensions, selector.Extensions())
	}
	s, err := selector.Parse(text, extensions...)
	if err != nil {
		return false, fileErrorf("", "%v", err)
	}
	given, err := parseLabels(labels)
	if err != nil {
		return false, err
	}
	match = s.Match(given)
	if !opts.JSON {
		_, err = fmt.Fprintln(out, s)
		return match, err
	}
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return match, e.Encode(struct {
		Canonical string `json:"canonical"`
		UID       string `json:"uid"`
		Match     bool   `json:"match"`
	}{s.String(), s.UID(), match})
}

// parseLabels reads labels written label=value. A value may hold anything, also "=", and may be
// empty.
func parseLabels(texts []string) (selector.Map, error) {
	labels := selector.Map{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || !selector.ValidLabel(name) {
			return nil, fileErrorf(text, "want label=value, the label of letters, digits and _./-")
		}
		if _, twice := labels[name]; twice {
			return nil, fileErrorf(text, "label %s is given twice", name)
		}
		labels[name] = value
	}
	return labels, nil
}
