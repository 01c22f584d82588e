package offline

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"heddle/internal/neutron"
)

// resource is one type of a step: how its data is read and what the operations do with it. An operation that returns an
// error has changed nothing.
type resource interface {
	// check refuses unknown fields of data, whatever their values.
	check(data object) error
	// apply carries out the operation.
	apply(w *world, s *step) error
}

// resources are the types that translate takes, by name.
func resources() map[string]resource {
	return map[string]resource{
		"network":             networkResource(),
		"subnet":              subnetResource(),
		"port":                portResource(),
		"security_group":      groupResource(),
		"security_group_rule": ruleResource(),
		"port_binding":        bindingResource(),
		"host":                hostResource(),
	}
}

// setter puts the value of one attribute into an object; null means the attribute's cleared value.
type setter[T any] func(o *T, v node) error

// table says how the attributes of objects T are read and stored.
type table[T any] struct {
	what       string               // the type, for messages
	attributes map[string]setter[T] // what has an effect
	ignored    []string             // what is accepted without one
	nested     map[string][]string  // the fields of the objects in an attribute's list
	objects    func(w *world) map[string]*T
	fresh      func(w *world, std neutron.Standard) *T      // a new object with the defaults of a create
	validate   func(w *world, o, old *T, data object) error // checks and completes what is about to be stored; old is nil at create
	remove     func(w *world, o *T) error                   // takes along or refuses because of what depends on it; may be nil
}

func (t *table[T]) known() []string {
	return append(slices.Sorted(maps.Keys(t.attributes)), t.ignored...)
}

func (t *table[T]) check(data object) error {
	if _, err := data.object(append(t.known(), "id")...); err != nil {
		return err
	}
	for attribute, fields := range t.nested {
		nodes, err := data.get(attribute).list()
		if err != nil {
			continue // a wrong value is refused when the step is applied
		}
		for _, n := range nodes {
			if _, isObject := n.value.(map[string]any); !isObject {
				continue
			}
			if _, err := n.object(fields...); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *table[T]) apply(w *world, s *step) error {
	id, err := idOf(s.data.get("id"))
	if err != nil {
		return err
	}
	old := t.objects(w)[id]
	switch s.op {
	case "create":
		if old != nil {
			return refuse(neutron.Conflict, "%s %s exists already", t.what, id)
		}
		project, err := projectOf(s.data)
		if err != nil {
			return err
		}
		return t.put(w, s, id, t.fresh(w, neutron.Standard{ID: id, ProjectID: project, CreatedAt: bornAt(s.number)}), nil)
	case "update":
		if old == nil {
			return notFound(t.what, id)
		}
		changed := *old
		return t.put(w, s, id, &changed, old)
	}
	if old == nil {
		return nil // deleting what is gone is success (midonet-translations §1.3)
	}
	if t.remove != nil {
		if err := t.remove(w, old); err != nil {
			return err
		}
	}
	delete(t.objects(w), id)
	return nil
}

// put sets what the step names on o and stores it.
func (t *table[T]) put(w *world, s *step, id string, o, old *T) error {
	for _, name := range s.data.names() {
		set := t.attributes[name]
		if set == nil {
			continue
		}
		if err := set(o, s.data.get(name)); err != nil {
			return err
		}
	}
	if err := t.validate(w, o, old, s.data); err != nil {
		return err
	}
	t.objects(w)[id] = o
	return nil
}

// idOf reads an id that must be there, in canonical spelling.
func idOf(n node) (string, error) {
	if n.null() {
		return "", refuse(neutron.Invalid, "%s is missing", n.place)
	}
	return optionalID(n)
}

// optionalID reads a UUID; null is "".
func optionalID(n node) (string, error) {
	text, err := n.text()
	if err != nil || text == "" {
		return "", err
	}
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return "", n.wants("a UUID")
	}
	return id.String(), nil
}

// projectOf reads the owner under either of its names.
func projectOf(data object) (string, error) {
	if !data.has("project_id") {
		return data.get("tenant_id").text()
	}
	return data.get("project_id").text()
}

// bornAt stands for the time of the i-th step: objects are ordered by it.
func bornAt(i int) time.Time { return time.Unix(int64(i), 0).UTC() }

// refuse is the error of a step.
func refuse(k neutron.Kind, format string, args ...any) error {
	return &neutron.Error{Kind: k, Message: fmt.Sprintf(format, args...)}
}

func notFound(what, id string) error {
	return refuse(neutron.NotFound, "%s %s could not be found", what, id)
}

// refusal is the step's error as the output has it.
type refusal struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

// refusalOf sorts an error of apply; a value that could not be read is invalid.
func refusalOf(err error) *refusal {
	if err == nil {
		return nil
	}
	r := &refusal{Kind: "invalid", Message: err.Error()}
	var e *neutron.Error
	if !errors.As(err, &e) {
		return r
	}
	switch e.Kind {
	case neutron.Conflict:
		r.Kind = "conflict"
	case neutron.NotFound:
		r.Kind = "notFound"
	case neutron.Unsupported:
		r.Kind = "unsupported"
	}
	return r
}

// Setters for attributes that are read alike everywhere.

func setText[T any](field func(*T) *string) setter[T] {
	return func(o *T, v node) (err error) { *field(o), err = v.text(); return err }
}

func setFlag[T any](field func(*T) *bool, ifNull bool) setter[T] {
	return func(o *T, v node) (err error) { *field(o), err = v.flag(ifNull); return err }
}

func setID[T any](field func(*T) *string) setter[T] {
	return func(o *T, v node) (err error) { *field(o), err = optionalID(v); return err }
}
