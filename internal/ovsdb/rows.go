package ovsdb

import (
	"fmt"
	"math"
	"slices"
)

// RowReader reads the columns of one row. A column that is not there has its zero value: the schema
// has been checked. The first column of a wrong type is remembered as an error, and makes the
// client give the connection up.
type RowReader struct {
	row Row
	err error
}

// NewRowReader reads a row, such as one that a [Select] has found.
func NewRowReader(row Row) *RowReader { return &RowReader{row: row} }

// Err returns the error of the first column of a wrong type.
func (r *RowReader) Err() error { return r.err }

func (r *RowReader) fail(column, want string) {
	if r.err == nil {
		r.err = fmt.Errorf("column %s: %T, not %s", column, r.row[column], want)
	}
}

// one is a column's only element; nil when it has none.
func (r *RowReader) one(column string) any {
	set := elements(r.row[column])
	switch len(set) {
	case 0:
		return nil
	case 1:
		return set[0]
	}
	r.fail(column, "one value")
	return nil
}

// scalar reads a column of at most one value.
func scalar[T any](r *RowReader, column string, without T) T {
	value := r.one(column)
	if value == nil {
		return without
	}
	v, ok := value.(T)
	if !ok {
		r.fail(column, fmt.Sprintf("%T", without))
		return without
	}
	return v
}

// Text reads a string; "" when there is none.
func (r *RowReader) Text(column string) string { return scalar(r, column, "") }

// UUID reads a reference; "" when there is none.
func (r *RowReader) UUID(column string) UUID { return scalar(r, column, UUID("")) }

// Truth reads a boolean; false when there is none.
func (r *RowReader) Truth(column string) bool { return scalar(r, column, false) }

// Number reads an integer; a switch writes some as reals.
func (r *RowReader) Number(column string, without int64) int64 {
	if f, ok := r.one(column).(float64); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return int64(f)
	}
	return scalar(r, column, without)
}

// List reads a set, in order.
func List[T interface {
	~string | ~int64
}](r *RowReader, column string) []T {
	set := elements(r.row[column])
	if len(set) == 0 {
		return nil
	}
	all := make([]T, 0, len(set))
	for _, e := range set {
		v, ok := e.(T)
		if !ok {
			r.fail(column, fmt.Sprintf("a set of %T", v))
			return nil
		}
		all = append(all, v)
	}
	slices.Sort(all)
	return all
}

// Pairs reads a map; nil when it is empty.
func Pairs[K, V interface {
	comparable
	~string | ~int64
}](r *RowReader, column string) map[K]V {
	value, ok := r.row[column]
	if !ok {
		return nil
	}
	m, ok := value.(Map)
	if !ok {
		r.fail(column, "a map")
		return nil
	}
	if len(m) == 0 {
		return nil
	}
	all := make(map[K]V, len(m))
	for k, v := range m {
		key, ok := k.(K)
		to, alsoOK := v.(V)
		if !ok || !alsoOK {
			r.fail(column, fmt.Sprintf("a map of %T to %T", key, to))
			return nil
		}
		all[key] = to
	}
	return all
}

// Strings reads a map of strings; nil when it is empty.
func (r *RowReader) Strings(column string) map[string]string { return Pairs[string, string](r, column) }
