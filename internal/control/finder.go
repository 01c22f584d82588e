package control

import (
	"container/heap"
	"iter"
	"slices"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// finder finds the objects that match a query. It walks the narrowest index for the query and the
// caller's rights, in order of ids, and filters by the rest. It walks only as far as the caller
// reads: its cost follows the answer, not the store.
type finder[T any] struct {
	table *records.Table[T]
	// criteria are in order: the first that the query names finds the candidates.
	criteria []criterion[T]
	// visible are objects among which are all that a caller may see who is no admin.
	visible func(r records.Reader, c neutron.Caller) []iter.Seq[*T]
}

// criterion is a field of a query.
type criterion[T any] struct {
	values func(q *neutron.Query) []string // that objects may have; none: all do
	index  string                          // of the table, by these values; "" if none is
	find   func(r records.Reader, c neutron.Caller, values []string) iter.Seq[*T]
	admins bool // for others there is a narrower way than to find candidates by it
}

// by returns a criterion with an index.
func by[T any](t *records.Table[T], index string, values func(q *neutron.Query) []string) criterion[T] {
	return criterion[T]{values: values, index: index, find: func(r records.Reader, _ neutron.Caller, values []string) iter.Seq[*T] {
		var parts []iter.Seq[*T]
		for _, value := range distinct(values) {
			parts = append(parts, t.By(r, index, value))
		}
		return union(t, parts...)
	}}
}

// byID returns the criterion of the objects' own ids, if values are those.
func byID[T any](t *records.Table[T], values func(q *neutron.Query) []string) criterion[T] {
	return criterion[T]{values: values, find: func(r records.Reader, _ neutron.Caller, ids []string) iter.Seq[*T] {
		return func(yield func(*T) bool) {
			for _, id := range distinct(ids) {
				if o, ok := t.Peek(r, id); ok && !yield(o) {
					return
				}
			}
		}
	}}
}

// byOwnID returns the criterion of the ids that queries ask for.
func byOwnID[T any](t *records.Table[T]) criterion[T] {
	return byID(t, func(q *neutron.Query) []string { return q.IDs })
}

// byName returns the criterion of the objects' names.
func byName[T any](t *records.Table[T]) criterion[T] {
	return by(t, "name", func(q *neutron.Query) []string { return q.Names })
}

// byProject returns the criterion of the projects whose the objects are.
func byProject[T any](t *records.Table[T]) criterion[T] {
	return by(t, "project", func(q *neutron.Query) []string { return q.ProjectIDs })
}

// ofProject returns a finder of objects that their project sees, by ids and these criteria.
func ofProject[T any](t *records.Table[T], criteria ...criterion[T]) finder[T] {
	return finder[T]{t, append([]criterion[T]{byOwnID(t)}, criteria...), func(r records.Reader, c neutron.Caller) []iter.Seq[*T] {
		return []iter.Seq[*T]{t.By(r, "project", c.ProjectID)}
	}}
}

// forAdmins returns a finder of objects that only admins see, by ids and these criteria.
func forAdmins[T any](t *records.Table[T], criteria ...criterion[T]) finder[T] {
	return finder[T]{t, append([]criterion[T]{byOwnID(t)}, criteria...), func(records.Reader, neutron.Caller) []iter.Seq[*T] { return nil }}
}

// onlyAdmins has a criterion find candidates for admins alone.
func (c criterion[T]) onlyAdmins() criterion[T] {
	c.admins = true
	return c
}

// flag returns a flag of a query as the values of its index.
func flag(set bool) []string {
	if set {
		return []string{"true"}
	}
	return nil
}

// candidates returns objects in order of ids, among which are all that the query asks for and the
// caller may see, and the criterion that all of them meet, or -1.
func (f *finder[T]) candidates(r records.Reader, c neutron.Caller, q *neutron.Query) (found iter.Seq[*T], met int) {
	for i := range f.criteria {
		criterion := &f.criteria[i]
		if values := criterion.values(q); len(values) > 0 && (c.Admin() || !criterion.admins) {
			return criterion.find(r, c, values), i
		}
	}
	if c.Admin() {
		return f.table.All(r), -1
	}
	return union(f.table, f.visible(r, c)...), -1
}

// matches reports whether an object meets the criteria with an index, except the one already met.
func (f *finder[T]) matches(o *T, q *neutron.Query, met int) bool {
	for i := range f.criteria {
		criterion := &f.criteria[i]
		if i == met || criterion.index == "" {
			continue
		}
		if values := criterion.values(q); len(values) > 0 && !among(values, f.table.Values(criterion.index, o)...) {
			return false
		}
	}
	return true
}

// among reports whether a list of a query lets one of these values through: it is empty, or has it.
func among(list []string, values ...string) bool {
	return len(list) == 0 || slices.ContainsFunc(values, func(value string) bool { return slices.Contains(list, value) })
}

// union returns the objects of sequences that are in order of ids each, in that order, each once.
func union[T any](t *records.Table[T], parts ...iter.Seq[*T]) iter.Seq[*T] {
	if len(parts) == 1 {
		return parts[0]
	}
	return func(yield func(*T) bool) {
		var heads heads[T]
		for _, part := range parts {
			next, stop := iter.Pull(part)
			defer stop()
			if o, ok := next(); ok {
				heads = append(heads, head[T]{t.ID(o), o, next})
			}
		}
		heap.Init(&heads)
		last := ""
		for len(heads) > 0 {
			first := &heads[0]
			if first.id != last && !yield(first.object) {
				return
			}
			last = first.id
			if o, ok := first.next(); ok {
				first.id, first.object = t.ID(o), o
				heap.Fix(&heads, 0)
			} else {
				heap.Pop(&heads)
			}
		}
	}
}

// head is the next object of a sequence.
type head[T any] struct {
	id     string
	object *T
	next   func() (*T, bool)
}

// heads is a heap of what comes next in several sequences.
type heads[T any] []head[T]

func (h heads[T]) Len() int           { return len(h) }
func (h heads[T]) Less(i, j int) bool { return strings.Compare(h[i].id, h[j].id) < 0 }
func (h heads[T]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *heads[T]) Push(x any)        { *h = append(*h, x.(head[T])) }

func (h *heads[T]) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

// distinct sorts texts and keeps one of equal ones.
func distinct(texts []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(texts)))
}
