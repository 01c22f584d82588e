package control

import (
	"context"
	"iter"
	"reflect"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// resource implements what all kinds of objects have in common, for objects T shown as V.
type resource[T, V any] struct {
	service *Service
	finder[T]
	name       neutron.Resource
	standard   func(o *T) *neutron.Standard
	attributes func(o *V) *neutron.Standard // those of an answer
	// owner says whose an object is, or false if what it belongs to is gone; nil: its project's
	// alone.
	owner  func(r records.Reader, o *T) (owner neutron.Owner, ok bool)
	answer func(r records.Reader, o *T, q neutron.Query) *V
	// shared reports whether an object, or what it belongs to, is shared with the caller, and mark
	// says so in an answer; nil: owner says it. See shareable.
	shared func(r records.Reader, c neutron.Caller, o *T) bool
	mark   func(r records.Reader, c neutron.Caller, o *V)
	// refusal returns what is said instead of an error about an object that cannot be changed; may
	// be nil.
	refusal func(o *operation, id string, err error) error
	prepare func(o *operation, vs []neutron.Values) error // before any is made; may be nil
	make    func(o *operation, ctx context.Context, v neutron.Values) (*T, error)
}

// asStored returns the resource of objects that answers show as they are stored.
func asStored[T any](s *Service, name neutron.Resource, f finder[T], standard func(o *T) *neutron.Standard,
	make func(o *operation, ctx context.Context, v neutron.Values) (*T, error)) *resource[T, T] {
	return &resource[T, T]{service: s, finder: f, name: name, standard: standard, attributes: standard, make: make,
		answer: func(_ records.Reader, o *T, _ neutron.Query) *T { return o }}
}

// sees reports whether the caller may see an object.
func (res *resource[T, V]) sees(r records.Reader, c neutron.Caller, o *T) bool {
	if c.Owns(res.standard(o).ProjectID) && (c.Admin() || !res.name.ForAdmins()) {
		return true
	}
	owner, ok := res.ownerFor(r, c, o)
	return ok && neutron.CanSee(c, res.name, owner)
}

// ownerFor is owner, with what policies share with the caller.
func (res *resource[T, V]) ownerFor(r records.Reader, c neutron.Caller, o *T) (owner neutron.Owner, ok bool) {
	owner, ok = neutron.Owner{ProjectID: res.standard(o).ProjectID}, true
	if res.owner != nil {
		owner, ok = res.owner(r, o)
	}
	if ok && res.shared != nil && !c.Owns(owner.ProjectID) {
		owner.Shared = res.shared(r, c, o)
	}
	return owner, ok
}

// answerTo is answer, with what depends on the caller.
func (res *resource[T, V]) answerTo(r records.Reader, c neutron.Caller, o *T, q neutron.Query) *V {
	v := res.answer(r, o, q)
	if res.mark != nil && !q.WithoutComputed {
		res.mark(r, c, v)
	}
	return v
}

// create makes objects, all or none, and answers them.
func (res *resource[T, V]) create(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*V, error) {
	id := func(o *V) string { return res.attributes(o).ID }
	return createAll(ctx, res.service, c, id, func(o *operation) ([]*V, error) {
		if err := o.authorizeEach(res.name, vs); err != nil {
			return nil, err
		}
		if res.prepare != nil {
			if err := res.prepare(o, vs); err != nil {
				return nil, err
			}
		}
		if err := o.chargeEach(res.name.Name(), vs); err != nil {
			return nil, err
		}
		made := make([]*V, len(vs))
		for i, v := range vs {
			object, err := res.make(o, ctx, v)
			if err != nil {
				return nil, err
			}
			made[i] = res.answerTo(o.tx, c, object, neutron.Query{})
		}
		return made, nil
	})
}

// show answers an object that the caller may see.
func (res *resource[T, V]) show(ctx context.Context, c neutron.Caller, id string) (*V, error) {
	snap, err := res.service.view(ctx)
	if err != nil {
		return nil, err
	}
	o, ok := res.table.Peek(snap, id)
	if !ok || !res.sees(snap, c, o) {
		return nil, res.name.NotFound(id)
	}
	return res.answerTo(snap, c, o, neutron.Query{}), nil
}

// list answers the objects that the caller may see, of those that the query asks for.
func (res *resource[T, V]) list(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*V], error) {
	snap, err := res.service.view(ctx)
	if err != nil {
		return nil, err
	}
	return res.in(snap, c, q), nil
}

// in is list in a snapshot.
func (res *resource[T, V]) in(snap *records.Snap, c neutron.Caller, q neutron.Query) iter.Seq[*V] {
	return func(yield func(*V) bool) {
		candidates, met := res.candidates(snap, c, &q)
		for o := range candidates {
			id := res.table.ID(o)
			if q.Before != "" && id >= q.Before {
				return
			}
			if q.InRange(id) && res.matches(o, &q, met) && res.sees(snap, c, o) && !yield(res.answerTo(snap, c, o, q)) {
				return
			}
		}
	}
}

// toChange finds an object for an update or a delete: one that the caller may see, may change so,
// and that is of the revision he insists on.
func (res *resource[T, V]) toChange(o *operation, id string, op neutron.Op, v neutron.Values, ifMatch *int64) (*T, error) {
	object, owner, err := res.inTransaction(o, id)
	if err == nil {
		err = neutron.Authorize(o.caller, res.name, op, v, owner)
	}
	switch {
	case err == nil:
		return object, checkRevision(ifMatch, res.standard(object).RevisionNumber)
	case res.refusal != nil:
		return nil, res.refusal(o, id, err)
	}
	return nil, err
}

// modify updates an object as a request wants: set changes a copy, in which the attributes that all
// objects have are set already, and put stores what differs.
func (res *resource[T, V]) modify(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64,
	set func(o *operation, changed, old *T) error, put func(o *operation, changed *T) error) (*V, error) {
	return transact(ctx, res.service, c, func(o *operation) (*V, error) {
		old, err := res.toChange(o, id, neutron.Update, v, ifMatch)
		if err != nil {
			return nil, err
		}
		changed := *old
		applyStandard(res.standard(&changed), v)
		if set != nil {
			if err := set(o, &changed, old); err != nil {
				return nil, err
			}
		}
		if !reflect.DeepEqual(&changed, old) {
			o.bump(res.standard(&changed))
			if err := put(o, &changed); err != nil {
				return nil, err
			}
		}
		return res.answerTo(o.tx, c, &changed, neutron.Query{}), nil
	})
}

// remove deletes an object as a request wants.
func (res *resource[T, V]) remove(ctx context.Context, c neutron.Caller, id string, ifMatch *int64, drop func(o *operation, object *T) error) error {
	return perform(ctx, res.service, c, func(o *operation) error {
		object, err := res.toChange(o, id, neutron.Delete, nil, ifMatch)
		if err != nil {
			return err
		}
		return drop(o, object)
	})
}

// put returns a function that stores an object in a table alone.
func put[T any](t *records.Table[T]) func(*operation, *T) error {
	return func(o *operation, object *T) error { return t.Put(o.tx, object) }
}

// inTransaction finds an object that the caller may see, and whose it is.
func (res *resource[T, V]) inTransaction(o *operation, id string) (*T, neutron.Owner, error) {
	object, err := res.table.Get(o.tx, id)
	if err != nil {
		return nil, neutron.Owner{}, res.name.NotFound(id)
	}
	owner, ok := res.ownerFor(o.tx, o.caller, object)
	if !ok || !neutron.CanSee(o.caller, res.name, owner) {
		return nil, neutron.Owner{}, res.name.NotFound(id)
	}
	return object, owner, nil
}

// onNetwork returns the owner of what is on a network.
func onNetwork[T any](networkID func(o *T) string, owner func(o *T, n *neutron.Network) neutron.Owner) func(records.Reader, *T) (neutron.Owner, bool) {
	return func(r records.Reader, o *T) (neutron.Owner, bool) {
		n, ok := schema.Networks.Peek(r, networkID(o))
		if !ok {
			return neutron.Owner{}, false
		}
		return owner(o, n), true
	}
}

// authorizeEach reports whether the caller may make all of these objects.
func (o *operation) authorizeEach(name neutron.Resource, vs []neutron.Values) error {
	for _, v := range vs {
		owner := neutron.Owner{ProjectID: v.Text("project_id")}
		if v.Has("network_id") {
			n, err := o.networkFor(v.Text("network_id"))
			if err != nil {
				return err
			}
			owner.NetworkProjectID = n.ProjectID
			owner.Shared = !o.caller.Owns(n.ProjectID) && sharedWith(o.tx, o.caller.ProjectID, neutron.Networks, n.ID)
		}
		if err := neutron.Authorize(o.caller, name, neutron.Create, v, owner); err != nil {
			return err
		}
	}
	return nil
}
