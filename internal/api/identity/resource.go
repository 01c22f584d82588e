package identity

import (
	"net/http"

	"heddle/internal/store/records"
)

// resource serves the five calls that domains, projects, users and roles have in common.
type resource[T any] struct {
	*directory
	table   *records.Table[T]
	kind    string   // such as "user"; the collection has an s
	filters []string // attributes by which lists can be filtered
	shows   level    // of the call that shows one object

	render func(r *http.Request, o *T) object
	// mayShow returns an error unless the caller may see the object. May be nil.
	mayShow func(c *call, r records.Reader, id string) error
	// create makes an object of a request.
	create func(c *call, f *fields) (*T, error)
	// change returns a function that changes an object as the request says; a transaction may call
	// it more than once.
	change func(c *call, f *fields) (func(o *T) error, error)
	// mayDelete returns an error unless the object can be deleted. May be nil.
	mayDelete func(c *call, o *T) error
}

func (x *resource[T]) routes() []route {
	all := "/v3/" + x.kind + "s"
	one := all + "/{id}"
	return []route{
		{"GET " + all, "list_" + x.kind + "s", admin, x.reading(x.list)},
		{"POST " + all, "create_" + x.kind, admin, x.post},
		{"GET " + one, "get_" + x.kind, x.shows, x.reading(x.show)},
		{"PATCH " + one, "update_" + x.kind, admin, x.patch},
		{"DELETE " + one, "delete_" + x.kind, admin, x.remove},
	}
}

func (x *resource[T]) list(c *call, snap *records.Snap) error {
	var all []object
	for o := range x.table.All(snap) {
		all = append(all, x.render(c.r, o))
	}
	return c.list(x.kind+"s", all, x.filters...)
}

func (x *resource[T]) show(c *call, snap *records.Snap) error {
	o, err := x.visible(c, snap)
	return x.answer(c, http.StatusOK, o, err)
}

// visible returns the object that the path names, if the caller may see it.
func (x *resource[T]) visible(c *call, snap *records.Snap) (*T, error) {
	if x.mayShow != nil {
		if err := x.mayShow(c, snap, c.path("id")); err != nil {
			return nil, err
		}
	}
	return x.table.Get(snap, c.path("id"))
}

func (x *resource[T]) answer(c *call, status int, o *T, err error) error {
	if err != nil {
		return err
	}
	return c.one(status, x.kind, x.render(c.r, o))
}

func (x *resource[T]) post(c *call) error {
	o, err := x.create(c, c.fields(x.kind))
	if err == nil {
		err = x.update(c.ctx(), func(tx *records.Tx) error { return x.table.Put(tx, o) })
	}
	return x.answer(c, http.StatusCreated, o, err)
}

func (x *resource[T]) patch(c *call) error {
	change, err := x.change(c, c.fields(x.kind))
	if err != nil {
		return err
	}
	o, err := amend(c.ctx(), x.directory, x.table, c.path("id"), change)
	return x.answer(c, http.StatusOK, o, err)
}

func (x *resource[T]) remove(c *call) error {
	return c.done(x.update(c.ctx(), func(tx *records.Tx) error {
		o, err := x.table.Get(tx, c.path("id"))
		if err == nil && x.mayDelete != nil {
			err = x.mayDelete(c, o)
		}
		if err != nil {
			return err
		}
		return x.table.Delete(tx, c.path("id"))
	}))
}

// changing returns a resource.change where the request alone decides: change puts its attributes
// over those of o.
func changing[T any](change func(f *fields, o *T) error) func(*call, *fields) (func(*T) error, error) {
	return func(_ *call, body *fields) (func(*T) error, error) {
		return func(o *T) error { return change(body.again(), o) }, nil
	}
}
