package identity

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"heddle/internal/api"
)

// Longest names, in characters, as Keystone limits them.
const (
	maxName     = 64 // domains, projects
	maxLongName = 255
	maxText     = 64 << 10
)

// fields holds the attributes of one object in a request body. Each reader takes an attribute out,
// so that those unknown to the server are left. The first error is kept.
type fields struct {
	left extra
	err  error
}

// readFields reads {"<kind>": {…}}.
func readFields(r *http.Request, kind string) *fields {
	var body map[string]json.RawMessage
	if err := api.ReadJSON(r, &body); err != nil {
		return &fields{err: err}
	}
	raw, ok := body[kind]
	if !ok {
		return &fields{err: api.Errorf(http.StatusBadRequest, "Expecting to find %s in request body.", kind)}
	}
	f := &fields{}
	if err := json.Unmarshal(raw, &f.left); err != nil || f.left == nil {
		f.err = api.Errorf(http.StatusBadRequest, "Invalid input for field '%s': an object belongs there.", kind)
	}
	return f
}

// again returns a copy, for a transaction that may run more than once.
func (f *fields) again() *fields { return &fields{left: maps.Clone(f.left), err: f.err} }

func (f *fields) fail(name, format string, args ...any) {
	if f.err == nil {
		f.err = api.Errorf(http.StatusBadRequest, "Invalid input for field '%s': "+format, append([]any{name}, args...)...)
	}
}

// take removes an attribute and decodes it into v; given is false when it is absent.
func (f *fields) take(name string, v any, kind string) (given, null bool) {
	raw, ok := f.left[name]
	if !ok || f.err != nil {
		return false, false
	}
	delete(f.left, name)
	if bytes.Equal(raw, []byte("null")) {
		return true, true
	}
	if json.Unmarshal(raw, v) != nil {
		f.fail(name, "%s belongs there.", kind)
		return false, false
	}
	return true, false
}

// name reads a name of 1 to limit characters.
func (f *fields) name(into *string, limit int) {
	var s string
	given, null := f.take("name", &s, "a text")
	switch {
	case !given:
	case null || strings.TrimSpace(s) == "":
		f.fail("name", "it may not be empty.")
	case utf8.RuneCountInString(s) > limit:
		f.fail("name", "it may have %d characters.", limit)
	case strings.ContainsRune(s, 0):
		f.fail("name", "it may not hold a NUL character.")
	default:
		*into = s
	}
}

// text reads a text; null empties it. It reports whether the attribute was given.
func (f *fields) text(name string, into *string) bool {
	var s string
	given, _ := f.take(name, &s, "a text")
	if len(s) > maxText {
		f.fail(name, "it may have %d bytes.", maxText)
	} else if given {
		*into = s
	}
	return given
}

func (f *fields) flag(name string, into *bool) {
	var b bool
	if given, null := f.take(name, &b, "true or false"); null {
		f.fail(name, "true or false belongs there.")
	} else if given {
		*into = b
	}
}

// tags reads a project's tags.
func (f *fields) tags(into *[]string) {
	var list []string
	if given, _ := f.take("tags", &list, "a list of texts"); !given {
		return
	}
	checked, err := checkTags(list)
	if err != nil && f.err == nil {
		f.err = err
	}
	*into = checked
}

// checkTags sorts a project's tags: at most 80, each of 1 to 255 characters without comma and
// slash.
func checkTags(list []string) ([]string, error) {
	list = unique(slices.Clone(list))
	for _, t := range list {
		if t == "" || utf8.RuneCountInString(t) > maxLongName || strings.ContainsAny(t, ",/") {
			return nil, api.Errorf(http.StatusBadRequest, "Invalid input for field 'tags': a tag has 1 to %d characters and neither comma nor slash.", maxLongName)
		}
	}
	if len(list) > 80 {
		return nil, api.Errorf(http.StatusBadRequest, "Invalid input for field 'tags': a project may have 80 tags.")
	}
	return list, nil
}

func unique(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// rest merges the attributes that are left into an object's own extras; null removes one.
// Attributes that the server adds to its answers, as named in shown, are ignored, so that a client
// may send an answer back.
func (f *fields) rest(into *extra, shown ...string) {
	if f.err != nil {
		return
	}
	*into = maps.Clone(*into) // a record's own is shared
	size := 0
	for name, raw := range f.left {
		if name == "id" || name == "links" || name == "options" || slices.Contains(shown, name) {
			continue
		}
		if *into == nil {
			*into = extra{}
		}
		(*into)[name] = raw
		if bytes.Equal(raw, []byte("null")) {
			delete(*into, name)
		}
	}
	for name, raw := range *into {
		size += len(name) + len(raw)
	}
	if size > maxText {
		f.fail("extra", "attributes unknown to the server may have %d bytes together.", maxText)
	}
}

// domain reads the domain of a new object; without one it is the caller's.
func (f *fields) domain(c *call) string {
	var id string
	f.text("domain_id", &id)
	return cmp.Or(id, c.ownDomain())
}

// named returns the first error, also if the object has no name.
func (f *fields) named(name, kind string) error {
	if f.err == nil && name == "" {
		return missing("name", kind)
	}
	return f.err
}

// same refuses an update that names another value for an attribute that cannot change.
func (f *fields) same(name, value string) {
	got := value
	if f.text(name, &got) && got != value {
		f.fail(name, "it cannot be changed.")
	}
}
