package control

import (
	"container/heap"
	"context"
	"iter"
	"slices"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// A list walks the narrowest index that its query and the caller's rights allow, in order of ids, and leaves out what the
// query's other fields or the rights do not let through. It is walked as far as it is asked for: its cost follows the
// answer, not the store.

// listed is how the objects T of one resource are found, and answered as V.
type listed[T, V any] struct {
	*Service
	resource   neutron.Resource
	table      *records.Table[T]
	standard   func(o *T) *neutron.Standard
	owner      func(r records.Reader, o *T) (owner neutron.Owner, ok bool) // false: what it belongs to is gone
	candidates func(r records.Reader, c neutron.Caller, q neutron.Query) iter.Seq[*T]
	asked      func(o *T, q neutron.Query) bool // beside the standard attributes
	answer     func(r records.Reader, o *T, q neutron.Query) *V
}

// show returns an object that the caller may see.
func (l listed[T, V]) show(ctx context.Context, c neutron.Caller, id string) (*V, error) {
	snap, err := l.view(ctx)
	if err != nil {
		return nil, err
	}
	o, ok := l.table.Peek(snap, id)
	if !ok || !l.sees(snap, c, o) {
		return nil, l.resource.NotFound(id)
	}
	return l.answer(snap, o, neutron.Query{}), nil
}

// list returns the objects that the caller may see, of those that the query asks for.
func (l listed[T, V]) list(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*V], error) {
	snap, err := l.view(ctx)
	if err != nil {
		return nil, err
	}
	return l.over(snap, c, q), nil
}

func (l listed[T, V]) over(snap *records.Snap, c neutron.Caller, q neutron.Query) iter.Seq[*V] {
	return func(yield func(*V) bool) {
		for o := range l.candidates(snap, c, q) {
			s := l.standard(o)
			if q.Before != "" && s.ID >= q.Before {
				return
			}
			if q.InRange(s.ID) && among(q.IDs, s.ID) && among(q.Names, s.Name) && among(q.ProjectIDs, s.ProjectID) &&
				l.asked(o, q) && l.sees(snap, c, o) && !yield(l.answer(snap, o, q)) {
				return
			}
		}
	}
}

func (l listed[T, V]) sees(r records.Reader, c neutron.Caller, o *T) bool {
	if c.Owns(l.standard(o).ProjectID) {
		return true
	}
	owner, ok := l.owner(r, o)
	return ok && neutron.CanSee(c, l.resource, owner)
}

// among says whether a list of a query lets a value through: it is empty, or has it.
func among(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }

// amongAny is among for an object with several values, of which one is enough.
func amongAny[T any](list []string, values []T, text func(T) string) bool {
	return len(list) == 0 || slices.ContainsFunc(values, func(v T) bool { return slices.Contains(list, text(v)) })
}

// byID are the objects with these ids.
func (l listed[T, V]) byID(r records.Reader, ids []string) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, id := range distinct(ids) {
			if o, ok := l.table.Peek(r, id); ok && !yield(o) {
				return
			}
		}
	}
}

// by are the objects with one of these values in an index.
func (l listed[T, V]) by(r records.Reader, index string, values []string) iter.Seq[*T] {
	var parts []iter.Seq[*T]
	for _, value := range distinct(values) {
		parts = append(parts, l.table.By(r, index, value))
	}
	return l.union(parts...)
}

// union is the objects of sequences that are in order of ids each, in that order, each once.
func (l listed[T, V]) union(parts ...iter.Seq[*T]) iter.Seq[*T] {
	if len(parts) == 1 {
		return parts[0]
	}
	return func(yield func(*T) bool) {
		var heads heads[T]
		for _, part := range parts {
			next, stop := iter.Pull(part)
			defer stop()
			if o, ok := next(); ok {
				heads = append(heads, head[T]{l.standard(o).ID, o, next})
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
				first.id, first.object = l.standard(o).ID, o
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
