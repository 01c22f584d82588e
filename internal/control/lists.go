package control

import (
	"container/heap"
	"iter"
	"slices"
	"strings"

	"heddle/internal/store/records"
)

// A list walks the narrowest index that its query and the caller's rights allow, in order of ids, and leaves out what the
// query's other fields or the rights do not let through. It is walked as far as it is asked for: its cost follows the
// answer, not the store.

// among says whether a list of a query lets a value through: it is empty, or has it.
func among(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }

// amongAny is among for an object with several values, of which one is enough.
func amongAny[T any](list []string, values []T, text func(T) string) bool {
	return len(list) == 0 || slices.ContainsFunc(values, func(v T) bool { return slices.Contains(list, text(v)) })
}

// byID are the objects with these ids.
func (res resource[T, V]) byID(r records.Reader, ids []string) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, id := range distinct(ids) {
			if o, ok := res.table.Peek(r, id); ok && !yield(o) {
				return
			}
		}
	}
}

// by are the objects with one of these values in an index.
func (res resource[T, V]) by(r records.Reader, index string, values []string) iter.Seq[*T] {
	var parts []iter.Seq[*T]
	for _, value := range distinct(values) {
		parts = append(parts, res.table.By(r, index, value))
	}
	return res.union(parts...)
}

// union is the objects of sequences that are in order of ids each, in that order, each once.
func (res resource[T, V]) union(parts ...iter.Seq[*T]) iter.Seq[*T] {
	if len(parts) == 1 {
		return parts[0]
	}
	return func(yield func(*T) bool) {
		var heads heads[T]
		for _, part := range parts {
			next, stop := iter.Pull(part)
			defer stop()
			if o, ok := next(); ok {
				heads = append(heads, head[T]{res.standard(o).ID, o, next})
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
				first.id, first.object = res.standard(o).ID, o
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
