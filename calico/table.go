package calico

import (
	"strings"
	"unicode/utf8"
)

// table describes the JSON form of an object of type O.
type table[O any] struct {
	columns []column[O] // in the order in which members are written
	start   O           // an object without members
	// unknown returns where to keep members without a column. Without it they are refused or
	// skipped.
	unknown func(o *O) *Unknown
	skip    bool
}

// column is one member of an object.
type column[O any] struct {
	name  string
	read  func(r *reader, o *O) // reads a value that is not null
	write func(w *writer, o *O) // writes the member, or nothing; nil: the member is only read
	// unless names a column that makes this one, another spelling of it, irrelevant.
	unless string
	// refusal is the reason why an object of this type must not have the member.
	refusal string
}

// format reads and writes the values of type V that a member has.
type format[V any] struct {
	read  func(r *reader) V
	write func(w *writer, v V)
	omit  func(v V) bool // reports whether the member is left out; nil: it never is
}

// member returns the column of a field of O.
func member[O, V any](name string, field func(o *O) *V, f format[V]) column[O] {
	begin := quoted(name)
	return column[O]{
		name: name,
		read: func(r *reader, o *O) { *field(o) = f.read(r) },
		write: func(w *writer, o *O) {
			if v := *field(o); f.omit == nil || !f.omit(v) {
				w.begin(begin)
				f.write(w, v)
			}
		},
	}
}

// refused returns columns that an object of this type must not have.
func refused[O any](reason string, names ...string) []column[O] {
	columns := make([]column[O], len(names))
	for i, name := range names {
		columns[i] = column[O]{name: name, refusal: reason}
	}
	return columns
}

// given is the set of columns that an object was read with, those with null left out.
type given uint64

func (t *table[O]) has(g given, name string) bool { return g&(1<<t.find(name, 0)) != 0 }

// find returns the position of a column, or -1. It tries next first: members come in order.
func (t *table[O]) find(name string, next int) int {
	for range t.columns {
		if next == len(t.columns) {
			next = 0
		}
		if t.columns[next].name == name {
			return next
		}
		next++
	}
	return -1
}

// object reads an object of its own.
func (t *table[O]) object(r *reader) *O {
	o := new(O)
	*o = t.start
	t.read(r, o)
	return o
}

// read reads members into o. Null counts as absent.
func (t *table[O]) read(r *reader, o *O) (g given) {
	next := 0
	r.object(func(name string) {
		i := t.find(name, next)
		if i < 0 {
			t.readUnknown(r, o, name)
			return
		}
		next = i + 1
		c := &t.columns[i]
		switch {
		case c.refusal != "":
			r.wrong(c.refusal)
		case r.null():
		case c.unless != "" && t.has(g, c.unless):
			c.read(r, new(O))
		default:
			c.read(r, o)
			g |= 1 << i
		}
	})
	return g
}

func (t *table[O]) readUnknown(r *reader, o *O, name string) {
	switch {
	case t.skip:
		r.skip()
	case t.unknown == nil:
		r.fail(r.pos, "unknown member")
	default:
		raw, unknown := r.raw(), t.unknown(o)
		if *unknown == nil {
			*unknown = Unknown{}
		}
		(*unknown)[strings.Clone(name)] = raw
	}
}

// write writes an object that has been checked.
func (t *table[O]) write(w *writer, o *O) {
	w.open('{')
	for i := range t.columns {
		if write := t.columns[i].write; write != nil {
			write(w, o)
		}
	}
	if t.unknown != nil {
		w.unknown(*t.unknown(o))
	}
	w.end('}')
}

func (t *table[O]) writeList(w *writer, list []O) {
	w.open('[')
	for i := range list {
		w.comma()
		t.write(w, &list[i])
	}
	w.end(']')
}

// checkUnknown refuses unknown members that are not JSON, or that have a column.
func (t *table[O]) checkUnknown(o *O) *Error {
	unknown := *t.unknown(o)
	for _, name := range sortedNames(unknown) {
		if !utf8.ValidString(name) {
			return refuse(entry("", name), nil, "is not UTF-8 text")
		}
		if t.find(name, 0) >= 0 {
			return refuse(name, nil, "is a known member and cannot be among the unknown ones")
		}
		if err := readAll(unknown[name], nil, (*reader).skip); err != nil {
			return err.in(name)
		}
	}
	return nil
}
