package simulate

import (
	"cmp"
	"slices"

	"heddle/internal/topology"
)

// object is the common part of all objects with an id. It exists as long as it is defined or
// anything refers to it: a reference holds the place of an object yet to come.
type object struct {
	id   string
	refs int // references and definitions
	mark uint64
}

func (o *object) head() *object { return o }

type placed interface{ head() *object }

// hold returns the object with that id, made if need be, and counts one reference to it.
func hold[T any, P interface {
	*T
	placed
}](objects map[string]P, id string) P {
	o, ok := objects[id]
	if !ok {
		o = new(T)
		o.head().id = id
		objects[id] = o
	}
	o.head().refs++
	return o
}

// release gives back one reference; the last one takes the object away.
func release[P placed](objects map[string]P, o P) {
	h := o.head()
	h.refs--
	if h.refs == 0 {
		delete(objects, h.id)
	}
}

// claims are the definitions of one object: two while it passes from one owner to another. Then
// that of the lower owner counts, whichever came first.
type claims[T any] []claim[T]

type claim[T any] struct {
	owner topology.Owner
	def   *T
}

func compareOwners(a, b topology.Owner) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
}

// set replaces the owner's definition, nil taking it away, and returns the one it had.
func (c *claims[T]) set(owner topology.Owner, def *T) (had *T) {
	i, found := slices.BinarySearchFunc(*c, owner, func(x claim[T], o topology.Owner) int { return compareOwners(x.owner, o) })
	switch {
	case found && def != nil:
		had, (*c)[i].def = (*c)[i].def, def
	case found:
		had = (*c)[i].def
		*c = slices.Delete(*c, i, i+1)
	case def != nil:
		*c = slices.Insert(*c, i, claim[T]{owner, def})
	}
	return had
}

func (c claims[T]) top() *T {
	if len(c) == 0 {
		return nil
	}
	return c[0].def
}

// define sets the owner's definition of an object (nil: none) and keeps the count of references.
func define[T any, O any, P interface {
	*O
	placed
}](objects map[string]P, id string, c func(P) *claims[T], owner topology.Owner, def *T) P {
	o := hold(objects, id)
	had := c(o).set(owner, def)
	switch {
	case def != nil && had == nil:
		return o // the reference taken stands for the definition
	case def == nil && had != nil:
		o.head().refs--
	}
	release(objects, o)
	return o
}

// users counts who refers to an object.
type users[P comparable] map[P]int

func (u *users[P]) add(p P) {
	if *u == nil {
		*u = users[P]{}
	}
	(*u)[p]++
}

func (u users[P]) remove(p P) {
	if u[p]--; u[p] <= 0 {
		delete(u, p)
	}
}
