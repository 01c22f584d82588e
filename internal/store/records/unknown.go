package records

import (
	"bytes"
	"encoding/json"
	"sync"

	"heddle/internal/store/snapshot"
)

// Members that this version does not know
//
// A newer version may have written members that T lacks. Put keeps them when it replaces a record
// that was stored with some, so that an update by an older version does not lose them:
//
//   - members of the record, and of objects that are members of it at any depth;
//   - members of an element of a list, if the new list has an element with the same id, or without
//     an id an equal one.
//
// They go with what they belong to: with the record, with an object or element that is removed, and
// with an element without an id that is changed. A record that is deleted and put again in one
// transaction is a new one. A table of [NewDerivedTable] keeps none.
//
// The snapshot has the stored values of such records alone, so the others cost nothing.

// decoder returns the function that decodes records of type T. partial reports that the record may
// lack something of the value.
func decoder[T any]() func(value []byte) (record any, partial bool, err error) {
	if _, own := any(new(T)).(json.Unmarshaler); own {
		return decodeOwn[T]
	}
	strict := newStrictDecoders()
	return func(value []byte) (record any, partial bool, err error) {
		v := new(T)
		if strict.decode(value, v) {
			return v, false, nil
		}
		v = new(T)
		return v, true, json.Unmarshal(value, v)
	}
}

// strictDecoders decode values that have members of known names alone. They are used again, which
// spares a buffer for each record.
type strictDecoders struct{ free sync.Pool }

type strictDecoder struct {
	in      bytes.Reader
	decoder *json.Decoder
}

func newStrictDecoders() *strictDecoders {
	return &strictDecoders{sync.Pool{New: func() any {
		d := new(strictDecoder)
		d.decoder = json.NewDecoder(&d.in)
		d.decoder.DisallowUnknownFields()
		return d
	}}}
}

// decode reports whether it has decoded all of the value.
func (s *strictDecoders) decode(value []byte, v any) bool {
	d := s.free.Get().(*strictDecoder)
	begin := d.decoder.InputOffset()
	d.in.Reset(value)
	if d.decoder.Decode(v) != nil || d.decoder.InputOffset()-begin != int64(len(value)) {
		return false // the decoder may be in the midst of something: it is not used again
	}
	d.in.Reset(nil)
	s.free.Put(d)
	return true
}

// decodeOwn decodes a type with a decoder of its own, to which strictness is unknown: it may have
// left something out unless its encoder returns the same value.
func decodeOwn[T any](value []byte) (record any, partial bool, err error) {
	v := new(T)
	if err := json.Unmarshal(value, v); err != nil {
		return nil, false, err
	}
	known, err := json.Marshal(v)
	return v, !bytes.Equal(known, value), err
}

// withUnknown returns the encoded record with the members of the stored one that T lacks.
func (tx *Tx) withUnknown(d *definition, id string, value []byte) ([]byte, error) {
	stored := tx.snap.Stored(d.name, id)
	if stored == nil {
		return value, nil
	}
	known, err := json.Marshal(tx.snap.Get(d.name, id).Record)
	if err != nil {
		return nil, err
	}
	return merge(stored, known, value)
}

// merge returns value with what known lacks of stored. Known is stored as this version encodes it.
func merge(stored, known, value json.RawMessage) (json.RawMessage, error) {
	switch kind := value[0]; {
	case stored[0] != kind || known[0] != kind:
		return value, nil
	case kind == '{':
		return mergeObjects(stored, known, value)
	case kind == '[':
		return mergeLists(stored, known, value)
	}
	return value, nil
}

func mergeObjects(stored, known, value json.RawMessage) (json.RawMessage, error) {
	var s, k, v map[string]json.RawMessage
	if err := unmarshalAll(stored, &s, known, &k, value, &v); err != nil {
		return nil, err
	}
	for name, member := range s {
		before, isKnown := k[name]
		now, set := v[name]
		switch {
		case set && isKnown:
			merged, err := merge(member, before, now)
			if err != nil {
				return nil, err
			}
			v[name] = merged
		case !set && !isKnown:
			v[name] = member
		}
	}
	return json.Marshal(v)
}

func mergeLists(stored, known, value json.RawMessage) (json.RawMessage, error) {
	var s, k, v []json.RawMessage
	if err := unmarshalAll(stored, &s, known, &k, value, &v); err != nil {
		return nil, err
	}
	if len(s) != len(k) {
		return value, nil // the decoder left elements out: which is which is not known
	}
	places := map[string][]int{}
	for i, element := range k {
		places[identity(element)] = append(places[identity(element)], i)
	}
	for j, element := range v {
		same := places[identity(element)]
		if len(same) == 0 {
			continue
		}
		places[identity(element)] = same[1:]
		merged, err := merge(s[same[0]], k[same[0]], element)
		if err != nil {
			return nil, err
		}
		v[j] = merged
	}
	return json.Marshal(v)
}

// identity returns an element's id, or the whole element if it has none.
func identity(element json.RawMessage) string {
	var object struct {
		ID json.RawMessage `json:"id"`
	}
	if element[0] == '{' && json.Unmarshal(element, &object) == nil && object.ID != nil {
		return "id " + string(object.ID)
	}
	return string(element)
}

// unmarshalAll decodes values, each followed by where to put it.
func unmarshalAll(pairs ...any) error {
	for i := 0; i < len(pairs); i += 2 {
		if err := json.Unmarshal(pairs[i].(json.RawMessage), pairs[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// read decodes what is stored under an id, as a [snapshot.Partial] if the stored value is needed to
// replace the record.
func (d *definition) read(id string, value []byte) (any, error) {
	record, partial, err := d.decodeAs(id, value)
	switch {
	case err != nil:
		return nil, err
	case partial && !d.derived:
		return snapshot.Partial{Record: record}, nil
	}
	return record, nil
}
