package xapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// readStrict decodes JSON into v, a pointer's element, and refuses members that v has no field for; null stands for
// nothing. Errors name the place.
func readStrict(place string, raw json.RawMessage, v reflect.Value) error {
	if string(raw) == "null" {
		return nil
	}
	switch v.Kind() {
	case reflect.Struct:
		return readObject(place, raw, v)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return readStrict(place, raw, v.Elem())
	case reflect.Slice:
		var items []json.RawMessage
		if err := json.Unmarshal(raw, &items); err != nil {
			return fmt.Errorf("%s: want a list", place)
		}
		v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
		for i, item := range items {
			if err := readStrict(fmt.Sprintf("%s[%d]", place, i), item, v.Index(i)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := json.Unmarshal(raw, v.Addr().Interface()); err != nil {
		return fmt.Errorf("%s: want a %s", place, v.Kind())
	}
	return nil
}

func readObject(place string, raw json.RawMessage, v reflect.Value) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil || members == nil {
		return fmt.Errorf("%s: want an object", place)
	}
	fields := map[string]reflect.Value{}
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = v.Field(i)
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		field, known := fields[name]
		if !known {
			return fmt.Errorf("%s.%s: unknown field; want %s", place, name, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		if err := readStrict(place+"."+name, members[name], field); err != nil {
			return err
		}
	}
	return nil
}
