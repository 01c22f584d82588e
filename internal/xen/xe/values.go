package xe

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
)

// What stands for values that are not there.
const (
	nothing  = "<not in database>"
	vanished = "<invalid reference>"
	slow     = "<expensive field>"
)

// reader finds the objects that references lead to, each class or object once.
type reader struct {
	ctx context.Context
	api api
	// whole classes are read at once when many objects are shown.
	many    bool
	objects client.Objects // what has been read
	whole   map[string]bool
}

// api sends xe's requests to a pool.
type api interface {
	Call(ctx context.Context, method string, args ...any) (any, error)
	Records(ctx context.Context, class string) (map[string]model.Record, error)
}

func newReader(ctx context.Context, a api, many bool) *reader {
	return &reader{ctx: ctx, api: a, many: many, objects: client.Objects{}, whole: map[string]bool{}}
}

// errVanished is a reference to an object that is not there any more.
var errVanished = errors.New("the object is gone")

// record is an object of a class.
func (r *reader) record(class, ref string) (model.Record, error) {
	if found, ok := r.objects[class][ref]; ok {
		return found, nil
	}
	if r.objects[class] == nil {
		r.objects[class] = map[string]model.Record{}
	}
	if model.Lookup(class) == nil {
		return r.foreign(class, ref)
	}
	if r.many && !r.whole[class] {
		all, err := r.api.Records(r.ctx, class)
		if err != nil {
			return nil, err
		}
		r.objects[class], r.whole[class] = all, true
	}
	if found, ok := r.objects[class][ref]; ok {
		return found, nil
	}
	if r.whole[class] {
		return nil, errVanished
	}
	v, err := r.api.Call(r.ctx, class+".get_record", ref)
	if client.Code(err) == "HANDLE_INVALID" {
		return nil, errVanished
	}
	if err != nil {
		return nil, err
	}
	found := v.(model.Record)
	r.objects[class][ref] = found
	return found, nil
}

// foreign is an object of a class that only other servers have, as far as it is shown: its uuid.
func (r *reader) foreign(class, ref string) (model.Record, error) {
	v, err := r.api.Call(r.ctx, class+".get_uuid", ref)
	switch client.Code(err) {
	case "HANDLE_INVALID", "MESSAGE_METHOD_UNKNOWN":
		return nil, errVanished
	}
	uuid, ok := v.(string)
	if err == nil && !ok {
		err = errVanished
	}
	if err != nil {
		return nil, err
	}
	found := model.Record{"uuid": uuid}
	r.objects[class][ref] = found
	return found, nil
}

// value follows a field's path from an object. The value is nil when a reference on the way leads
// nowhere; then the text says why.
func (r *reader) value(f *field, object model.Record) (v any, missing string, err error) {
	for _, step := range f.path[:len(f.path)-1] {
		ref := object[step.Name].(string)
		if ref == model.NullRef {
			return nil, nothing, nil
		}
		object, err = r.record(step.Type.Class, ref)
		if errors.Is(err, errVanished) {
			return nil, vanished, nil
		}
		if err != nil {
			return nil, "", err
		}
	}
	return object[f.last().Name], "", nil
}

// text is a field of an object as it is shown.
func (r *reader) text(f *field, object model.Record) (string, error) {
	v, missing, err := r.value(f, object)
	if err != nil || missing != "" {
		return missing, err
	}
	return r.format(f.last().Type, v)
}

// format is a value as it is shown.
func (r *reader) format(t model.Type, v any) (string, error) {
	elements, err := r.elements(t, v)
	return strings.Join(elements, "; "), err
}

// elements are those of a set or map as they are shown; any other value is one element.
func (r *reader) elements(t model.Type, v any) ([]string, error) {
	switch v := v.(type) {
	case []string:
		all := make([]string, len(v))
		for i, e := range v {
			var err error
			if all[i], err = r.scalar(*t.Elem, e); err != nil {
				return nil, err
			}
		}
		return all, nil
	case []int64:
		all := make([]string, len(v))
		for i, e := range v {
			all[i] = strconv.FormatInt(e, 10)
		}
		return all, nil
	}
	if t.Kind == model.Map {
		return members(v), nil
	}
	text, err := r.scalar(t, v)
	return []string{text}, err
}

// scalar is a value that is neither set nor map as it is shown.
func (r *reader) scalar(t model.Type, v any) (string, error) {
	switch v := v.(type) {
	case string:
		if t.Kind == model.Ref {
			return r.uuid(t.Class, v)
		}
		return v, nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case float64:
		return strconv.FormatFloat(v, 'f', 3, 64), nil
	case bool:
		return strconv.FormatBool(v), nil
	case time.Time:
		return v.Format("20060102T15:04:05Z"), nil
	}
	return "", nil // void
}

// uuid returns the text that is shown for a reference.
func (r *reader) uuid(class, ref string) (string, error) {
	if ref == model.NullRef || ref == "" {
		return nothing, nil
	}
	object, err := r.record(class, ref)
	if errors.Is(err, errVanished) {
		return vanished, nil
	}
	if err != nil {
		return "", err
	}
	uuid, _ := object["uuid"].(string)
	return uuid, nil
}

// members returns those of a map from text to text, with their keys in order.
func members(v any) []string {
	m, _ := v.(map[string]string)
	all := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, key+": "+m[key])
	}
	return all
}
