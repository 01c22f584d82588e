// Package records keeps typed records in the store: tables with unique keys and with references
// between them, changed by transactions that commit as a whole or not at all.
//
// A record is one key. Relations between records are further keys, written in the same transaction:
//
//	/heddle/unique/<table>/<name>/<value>                          id of the record with the value
//	/heddle/idx/<target table>/<target id>/<table>.<field>/<id>    <id> refers to the target
//	/heddle/guard/<key>/                                           written by Touch and Mark
//
// Reads come from a replica's snapshot. A commit is conditional on what was read with Get, Need and
// Referrers, on the old state of each record written, on the presence of what it refers to, and on
// the absence of new references to what is deleted; otherwise the transaction runs again on a newer
// snapshot. Lists that grow with other records are index keys, so that new records of one parent do
// not conflict.
package records

import (
	"fmt"
	"slices"
	"strings"

	"heddle/internal/store/snapshot"
)

// Prefixes of the keys between records.
const (
	uniquePrefix = "/heddle/unique/"
	idxRoot      = "/heddle/idx/"
	guardRoot    = "/heddle/guard/"
)

// Table holds the records of type T under one prefix, stored as JSON. It is a [snapshot.Table].
type Table[T any] struct{ def *definition }

// definition is a table without its type.
type definition struct {
	name         string
	before, tail string // a key is before + id, or, for ids that begin with "<parent>/", before + parent + tail + rest
	split        bool
	id           func(any) string
	decode       func([]byte) (record any, partial bool, err error)
	derived      bool // see NewDerivedTable
	indexes      []snapshot.Index
	uniques      []snapshot.Index // their names and keys
	all          []snapshot.Index // indexes, uniques and refs, as the replica has them
	refs         []reference
	incoming     []incoming // references to this table
}

type reference struct {
	field  string
	target *definition
	ids    func(any) []string
	action Action
}

type incoming struct {
	from *definition
	reference
}

// Option adds an index, a unique key or a reference to a table.
type Option[T any] func(*definition)

// Target is a table that can be referred to.
type Target interface {
	definition(self *definition) *definition
}

func (t *Table[T]) definition(*definition) *definition { return t.def }

type self struct{}

func (self) definition(d *definition) *definition { return d }

// Self is the Target of references between the records of one table.
func Self() Target { return self{} }

// NewTable returns the table of records under prefix; id returns a record's id. A prefix with a
// segment "*", such as /heddle/state/*/ports/, is for ids <parent>/<rest>, whose parent replaces
// the star.
//
// It panics if two indexes, unique keys or references have the same name.
func NewTable[T any](name, prefix string, id func(*T) string, opts ...Option[T]) *Table[T] {
	d := &definition{name: name, id: func(r any) string { return id(r.(*T)) }, decode: decoder[T]()}
	d.before, d.tail, d.split = strings.Cut(prefix, "*")
	for _, o := range opts {
		o(d)
	}
	d.all = slices.Concat(d.indexes, d.uniques)
	for _, r := range d.refs {
		d.all = append(d.all, snapshot.Index{Name: r.field, Values: r.ids})
	}
	names := map[string]bool{}
	for _, i := range d.all {
		if names[i.Name] {
			panic(fmt.Sprintf("table %s has two indexes named %s", name, i.Name))
		}
		names[i.Name] = true
	}
	return &Table[T]{d}
}

// NewDerivedTable is NewTable for records that are made anew each time, from other records or by
// the only one that reports them. Put writes them as they are: what an older version makes must not
// be mixed with parts of what a newer one made.
func NewDerivedTable[T any](name, prefix string, id func(*T) string, opts ...Option[T]) *Table[T] {
	t := NewTable(name, prefix, id, opts...)
	t.def.derived = true
	return t
}

// Index adds an index, by which readers find records.
func Index[T any](name string, values func(*T) []string) Option[T] {
	return func(d *definition) {
		d.indexes = append(d.indexes, snapshot.Index{Name: name, Values: func(r any) []string { return values(r.(*T)) }})
	}
}

// Unique adds a key that no two records may share; "" is no key. It is also an index.
func Unique[T any](name string, keys func(*T) []string) Option[T] {
	return func(d *definition) {
		d.uniques = append(d.uniques, snapshot.Index{Name: name, Values: func(r any) []string { return filled(keys(r.(*T))) }})
	}
}

// Ref adds references to records of target, by their ids; "" is no reference. A target must exist;
// on defines what its deletion does. It is also an index, named by the field.
func Ref[T any](field string, target Target, ids func(*T) []string, on Action) Option[T] {
	return func(d *definition) {
		to := target.definition(d)
		r := reference{field, to, func(r any) []string { return filled(ids(r.(*T))) }, on}
		d.refs = append(d.refs, r)
		to.incoming = append(to.incoming, incoming{d, r})
	}
}

// filled returns the values that are not empty, each once.
func filled(values []string) []string {
	var out []string
	for _, v := range values {
		if v != "" && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// Action defines what a deletion does to the records that refer to the deleted one.
type Action struct {
	kind  actionKind
	clear func(record any, target string)
}

type actionKind uint8

const (
	refuse actionKind = iota + 1
	cascade
	clearWith
)

// Refuse refuses the deletion with an [InUseError].
func Refuse() Action { return Action{kind: refuse} }

// Cascade deletes the referrers too.
func Cascade() Action { return Action{kind: cascade} }

// ClearWith makes f remove the reference from each referrer, of which it gets a copy.
func ClearWith[T any](f func(record *T, target string)) Action {
	return Action{clearWith, func(r any, target string) { f(r.(*T), target) }}
}

// Name returns the table's name.
func (t *Table[T]) Name() string { return t.def.name }

// Key returns the store's key of the record with this id.
func (t *Table[T]) Key(id string) string { return t.def.key(id) }

// ID returns a record's id.
func (t *Table[T]) ID(record *T) string { return t.def.id(record) }

// KeyOf returns the store's key of a record.
func (t *Table[T]) KeyOf(record *T) string { return t.def.key(t.def.id(record)) }

// UniqueKey returns the store's key for a value of a unique key, which holds the record's id.
func (t *Table[T]) UniqueKey(name, value string) string { return t.def.uniqueKey(name, value) }

// Values returns a record's values in an index.
func (t *Table[T]) Values(index string, record *T) []string { return t.def.index(index).Values(record) }

// Source describes the table to a replica.
func (t *Table[T]) Source() snapshot.Source { return t.def.source() }

func (d *definition) source() snapshot.Source {
	s := snapshot.Source{Name: d.name, Prefix: d.before, Decode: d.read, Indexes: d.all}
	if d.split {
		s.ID, s.Key = d.splitID, d.key
	}
	return s
}

// decodeAs decodes the record with this id.
func (d *definition) decodeAs(id string, value []byte) (record any, partial bool, err error) {
	record, partial, err = d.decode(value)
	if err != nil {
		return nil, false, err
	}
	if says := d.id(record); says != id {
		return nil, false, fmt.Errorf("the record says that its id is %q", says)
	}
	return record, partial, nil
}

func (d *definition) key(id string) string {
	if !d.split {
		return d.before + id
	}
	parent, rest, _ := strings.Cut(id, "/")
	return d.before + parent + d.tail + rest
}

// splitID returns the id for a key of a split table. A tail without a slash at its end, as in
// /heddle/state/*/alive, is for one record a parent, whose id is the parent's.
func (d *definition) splitID(key string) (string, bool) {
	parent, rest, ok := strings.Cut(key[len(d.before):], "/")
	if !ok {
		return "", false
	}
	rest, ok = strings.CutPrefix("/"+rest, d.tail)
	switch whole := !strings.HasSuffix(d.tail, "/"); {
	case !ok, whole != (rest == ""):
		return "", false
	case whole:
		return parent, true
	}
	return parent + "/" + rest, true
}

func (d *definition) uniqueKey(name, value string) string {
	return uniquePrefix + d.name + "/" + name + "/" + value
}

// idxPrefix returns the prefix of all references to the record with this id.
func (d *definition) idxPrefix(id string) string { return idxRoot + d.name + "/" + id + "/" }

// idxField returns the prefix of those of one field; the id of the referrer follows.
func (r *reference) idxField(from *definition, target string) string {
	return r.target.idxPrefix(target) + from.name + "." + r.field + "/"
}

func (d *definition) reference(field string) *reference {
	for i := range d.refs {
		if d.refs[i].field == field {
			return &d.refs[i]
		}
	}
	panic(fmt.Sprintf("table %s has no reference named %s", d.name, field))
}
