package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/internal/offline"
	"heddle/internal/strictjson"
)

// document is an object as `heddle calico get -o yaml` writes it and apply reads it. Stored values
// that are not JSON, such as settings, are text.
type document struct {
	Kind     calico.Kind     `json:"kind"`
	Metadata map[string]any  `json:"metadata,omitempty"`
	Spec     json.RawMessage `json:"spec"`
	// Invalid has the reason why the stored value is invalid; spec is then that value. It is never
	// applied.
	Invalid string `json:"invalid,omitempty"`
}

// manifest is a document that was read and checked.
type manifest struct {
	kind   calicoKind
	ids    []string
	key    calico.Key // nil of a profile
	object any        // nil of a profile
	// profile is the object of the kind Profile.
	profile *client.Profile
}

func (m manifest) String() string {
	return strings.TrimSpace(string(m.kind.kind) + " " + m.kind.name(m.ids))
}

// locatedError is an error with the path of the value that it is about.
type locatedError struct {
	path string
	error
}

func (e *locatedError) Unwrap() error { return e.error }

// fieldError returns an error about the field at a path.
func fieldError(path string, err error) error {
	return &locatedError{path, fmt.Errorf("%s: %w", path, err)}
}

// pathOf returns the path of the value that an error is about, "" if the error has none.
func pathOf(err error) string {
	var located *locatedError
	var wrong *strictjson.Error
	switch {
	case errors.As(err, &located):
		return located.path
	case errors.As(err, &wrong):
		return wrong.Place()
	}
	return ""
}

// readManifests reads all documents of a YAML stream or JSON text. The error has a line for each
// invalid one, with the line in the file, the document and the field.
func readManifests(name string, text []byte) ([]manifest, error) {
	var all []manifest
	var wrong []error
	for i, doc := range splitDocuments(text) {
		items, isList, err := readDocument(doc.text)
		if err != nil {
			_, _, err = readDocument(doc.padded())
			wrong = append(wrong, fmt.Errorf("%s: document %d: %w", doc.place(name, pathOf(err)), i+1, err))
		}
		for j, item := range items {
			m, err := item.manifest()
			if err == nil {
				all = append(all, m)
				continue
			}
			path, number := pathOf(err), ""
			if isList {
				path, number = itemPath(j, path), fmt.Sprintf(", item %d", j+1)
			}
			wrong = append(wrong, fmt.Errorf("%s: document %d%s: %w", doc.place(name, path), i+1, number, err))
		}
	}
	return all, errors.Join(wrong...)
}

// itemPath returns the path in a list of what has a path in an item.
func itemPath(i int, path string) string {
	return strings.TrimSuffix(fmt.Sprintf("[%d].%s", i, path), ".")
}

// readDocument reads one document: an object, or a list of objects.
func readDocument(text []byte) (docs []document, isList bool, err error) {
	raw, err := offline.DocumentJSON(text)
	if errors.Is(err, offline.ErrManyDocuments) {
		err = errors.New("another document follows; put a line --- between them")
	}
	if err != nil {
		return nil, false, err
	}
	if !bytes.HasPrefix(raw, []byte("[")) {
		d, err := decodeDocument(raw)
		if err != nil {
			return nil, false, err
		}
		return []document{d}, false, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, true, err
	}
	docs = make([]document, len(list))
	for i, item := range list {
		if docs[i], err = decodeDocument(item); err != nil {
			return nil, true, &locatedError{itemPath(i, pathOf(err)), fmt.Errorf("item %d: %w", i+1, err)}
		}
	}
	return docs, true, nil
}

func decodeDocument(raw []byte) (d document, err error) {
	if !bytes.HasPrefix(raw, []byte("{")) {
		return d, errors.New("want an object with kind, metadata and spec")
	}
	if err := strictjson.Unmarshal(raw, &d); err != nil {
		return d, err
	}
	if d.Kind == "" {
		return d, errors.New("kind is missing")
	}
	return d, nil
}

// manifest checks a document.
func (d document) manifest() (manifest, error) {
	k, err := findKind(string(d.Kind))
	if err != nil {
		return manifest{}, fieldError("kind", err)
	}
	m := manifest{kind: k}
	if m.ids, err = k.metadata(d.Metadata); err != nil {
		return m, fmt.Errorf("%s: %w", k.kind, err)
	}
	refuse := func(err error) (manifest, error) { return m, fmt.Errorf("%s: %w", m, err) }
	if d.Invalid != "" {
		return refuse(errors.New("it is marked invalid: mend spec and take invalid out"))
	}
	if k.kind == profileKind {
		if m.profile, err = readProfile(m.ids[0], d.Spec); err != nil {
			return refuse(err)
		}
		return m, nil
	}
	if m.key, err = k.key(m.ids, false); err != nil {
		return refuse(fieldError("metadata", err))
	}
	if _, err := m.key.Path(); err != nil {
		return refuse(fieldError("metadata", err))
	}
	value, err := storedValue(d.Spec)
	if err != nil {
		return refuse(err)
	}
	if m.object, err = calico.Decode(m.key, value); err != nil {
		return refuse(specError("spec", err))
	}
	return m, nil
}

// specError returns an error of the bindings with its place in a document.
func specError(place string, err error) error {
	var wrong *calico.Error
	if !errors.As(err, &wrong) {
		return fieldError(place, err)
	}
	if wrong.Field != "" && wrong.Field[0] != '[' {
		place += "."
	}
	reason := wrong.Reason
	if wrong.Value != "" {
		reason = wrong.Value + ": " + reason
	}
	return fieldError(place+wrong.Field, errors.New(reason))
}

// metadata returns the ids in a document's metadata, in the order of k.ids. A policy's tier is
// optional; a version (4 or 6), as `heddle calico key` prints it, must be that of the address.
func (k calicoKind) metadata(given map[string]any) ([]string, error) {
	ids := make([]string, len(k.ids))
	for name, v := range given {
		i := slices.Index(k.ids, name)
		text, ok := v.(string)
		switch {
		case i < 0 && name != "version":
			return nil, fieldError("metadata."+name, fmt.Errorf("no such id of this kind: want %s", k.wantedIDs()))
		case i < 0:
		case !ok || text == "":
			// 1.10 and yes would have become 1.1 and true on the way here.
			return nil, fieldError("metadata."+name, errors.New("want text, in quotes where YAML takes it for something else"))
		default:
			ids[i] = text
		}
	}
	for i, id := range ids {
		switch {
		case id != "":
		case k.kind == calico.KindPolicy && k.ids[i] == "tier":
			ids[i] = defaultTier
		default:
			return nil, fieldError("metadata", fmt.Errorf("%s is missing: want %s", k.ids[i], k.wantedIDs()))
		}
	}
	if v, ok := given["version"]; ok {
		version := "4"
		if strings.Contains(strings.Join(ids, " "), ":") {
			version = "6"
		}
		if !slices.Contains(k.ids, "cidr") && !slices.Contains(k.ids, "ip") || fmt.Sprint(v) != version {
			return nil, fieldError("metadata.version", fmt.Errorf("%v is not that of the address", v))
		}
	}
	return ids, nil
}

func (k calicoKind) wantedIDs() string {
	if len(k.ids) == 0 {
		return "none"
	}
	return strings.Join(k.ids, ", ")
}

// storedValue returns the stored form of a spec: JSON as it is, and a scalar as bare text.
func storedValue(spec json.RawMessage) ([]byte, error) {
	s := bytes.TrimSpace(spec)
	switch {
	case len(s) == 0 || string(s) == "null":
		return nil, errors.New("spec is missing")
	case s[0] == '{' || s[0] == '[':
		return s, nil
	case s[0] == '"':
		var text string
		err := json.Unmarshal(s, &text)
		return []byte(text), err
	case bytes.ContainsAny(s, ".eE") && s[0] != 't' && s[0] != 'f': // a fraction: 1.10 would have become 1.1 on the way here
		return nil, fieldError("spec", fmt.Errorf("%s: put it in quotes", s))
	}
	return s, nil // a whole number or a truth
}

// specOf returns the spec of a stored value.
func specOf(value []byte) json.RawMessage {
	s := bytes.TrimSpace(value)
	if len(s) > 0 && (s[0] == '{' || s[0] == '[') && json.Valid(s) {
		return s
	}
	text, err := json.Marshal(string(value))
	if err != nil {
		return json.RawMessage(`""`) // a string can always be written
	}
	return text
}

// profileSpec is the spec of a profile: any part may be missing.
type profileSpec struct {
	Rules  json.RawMessage `json:"rules,omitempty"`
	Tags   json.RawMessage `json:"tags,omitempty"`
	Labels json.RawMessage `json:"labels,omitempty"`
}

func readProfile(id string, raw json.RawMessage) (*client.Profile, error) {
	var spec profileSpec
	if err := strictjson.Unmarshal(raw, &spec); err != nil {
		return nil, &locatedError{strings.TrimSuffix("spec."+pathOf(err), "."), fmt.Errorf("spec: %w", err)}
	}
	if spec.Rules == nil && spec.Tags == nil && spec.Labels == nil {
		return nil, fieldError("spec", errors.New("it is empty: want rules, tags or labels"))
	}
	p := &client.Profile{ID: id}
	err := cmp.Or(
		decodePart("spec.rules", calico.ProfileRulesKey{Profile: id}, spec.Rules, &p.Rules),
		decodePart("spec.tags", calico.ProfileTagsKey{Profile: id}, spec.Tags, &p.Tags),
		decodePart("spec.labels", calico.ProfileLabelsKey{Profile: id}, spec.Labels, &p.Labels))
	return p, err
}

// decodePart reads a part of a profile, unless it is missing.
func decodePart[T any](place string, key calico.Key, raw json.RawMessage, part *T) error {
	if raw == nil || string(raw) == "null" {
		return nil
	}
	object, err := calico.Decode(key, raw)
	if err != nil {
		return specError(place, err)
	}
	var ok bool
	if *part, ok = object.(T); !ok {
		return fmt.Errorf("%s: it is a %T", place, object)
	}
	return nil
}

// documentOf returns the document of a stored object.
func documentOf(k calicoKind, e client.Entry) document {
	d := document{Kind: k.kind, Metadata: k.metadataOf(idsOf(e.Key))}
	if e.Err == nil {
		if value, err := calico.Encode(e.Key, e.Object); err == nil {
			d.Spec = specOf(value)
			return d
		}
	} else {
		d.Invalid = e.Err.Error()
	}
	d.Spec = specOf(e.Raw)
	return d
}

func (k calicoKind) metadataOf(ids []string) map[string]any {
	if len(ids) == 0 {
		return nil
	}
	m := map[string]any{}
	for i, id := range ids {
		m[k.ids[i]] = id
	}
	return m
}

// writeYAML writes documents as a stream that readManifests reads.
func writeYAML(w io.Writer, docs []document) error {
	for i, d := range docs {
		text, err := d.yaml()
		if err != nil {
			return err
		}
		if i > 0 {
			if _, err := io.WriteString(w, "---\n"); err != nil {
				return err
			}
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

func writeAnyYAML(w io.Writer, v any) error {
	text, err := yaml.Marshal(v)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// yaml writes the members in the order in which people read them.
func (d document) yaml() ([]byte, error) {
	type member struct {
		name  string
		value any
	}
	members := []member{{"kind", d.Kind}}
	if len(d.Metadata) > 0 {
		members = append(members, member{"metadata", d.Metadata})
	}
	if d.Invalid != "" {
		members = append(members, member{"invalid", d.Invalid})
	}
	var out []byte
	for _, m := range append(members, member{"spec", d.Spec}) {
		text, err := yaml.Marshal(map[string]any{m.name: m.value})
		if err != nil {
			return nil, err
		}
		out = append(out, text...)
	}
	return out, nil
}

// addPart adds a part of a profile to its document.
func (d *document) addPart(e client.Entry) {
	var spec profileSpec
	if d.Spec != nil && json.Unmarshal(d.Spec, &spec) != nil {
		return // it was made here
	}
	part := documentOf(calicoKind{kind: e.Key.Kind(), ids: []string{"profile"}}, e)
	if part.Invalid != "" {
		d.Invalid = strings.TrimPrefix(d.Invalid+"; "+part.Invalid, "; ")
	}
	switch e.Key.(type) {
	case calico.ProfileRulesKey:
		spec.Rules = part.Spec
	case calico.ProfileTagsKey:
		spec.Tags = part.Spec
	case calico.ProfileLabelsKey:
		spec.Labels = part.Spec
	}
	if raw, err := json.Marshal(spec); err == nil {
		d.Spec = raw
	}
}
