package identity

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"heddle/internal/api"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
)

// directory reads and changes the tables.
type directory struct {
	*tables
	replica *replica.Replica
	db      *records.DB
	changed func() // called after each change by this server
}

// update commits what f writes and returns once this server's own view includes it.
func (d *directory) update(ctx context.Context, f func(tx *records.Tx) error) error {
	rev, err := d.db.Update(ctx, f)
	if err == nil {
		_, err = d.replica.At(ctx, rev)
	}
	if err == nil {
		d.changed()
	}
	return explain(err)
}

// amend changes one record and returns it; edit receives a copy.
func amend[T any](ctx context.Context, d *directory, t *records.Table[T], id string, edit func(o *T) error) (*T, error) {
	var o *T
	err := d.update(ctx, func(tx *records.Tx) error {
		old, err := t.Get(tx, id)
		if err != nil {
			return err
		}
		o = clone(old)
		if err := edit(o); err != nil {
			return err
		}
		return t.Put(tx, o)
	})
	return o, err
}

// view returns a snapshot with everything committed so far, by any server.
func (d *directory) view(ctx context.Context) (*records.Snap, error) {
	snap, err := d.db.View(ctx)
	return snap, explain(err)
}

// reading returns a handler that has such a snapshot.
func (d *directory) reading(h func(c *call, snap *records.Snap) error) func(*call) error {
	return func(c *call) error {
		snap, err := d.view(c.ctx())
		if err != nil {
			return err
		}
		return explain(h(c, snap))
	}
}

// grants returns the user's roles on a target, as a token carries them.
func (d *directory) grants(r records.Reader, userID string, on target) []roleGrant {
	var list []roleGrant
	for a := range d.assignments.By(r, "user", userID) {
		if a.target() == on {
			list = append(list, roleGrant{a.RoleID, a.Grant})
		}
	}
	return list
}

// targetsOf returns the projects and domains on which a user has roles, each once.
func (d *directory) targetsOf(r records.Reader, userID string) []target {
	var list []target
	seen := map[target]bool{}
	for a := range d.assignments.By(r, "user", userID) {
		if on := a.target(); !seen[on] {
			seen[on] = true
			list = append(list, on)
		}
	}
	return list
}

// domain finds a domain by its id or name; nil if there is none.
func (d *directory) domain(r records.Reader, id, name string) *Domain {
	if id != "" {
		found, _ := d.domains.Peek(r, id)
		return found
	}
	return first(d.domains, r, "name", name)
}

// find finds a user or project by its id, or by its name in a domain; nil if there is none.
func find[T any](d *directory, t *records.Table[T], r records.Reader, n *ref) *T {
	if n.ID != "" {
		o, _ := t.Peek(r, n.ID)
		return o
	}
	domain := d.domain(r, n.Domain.ID, n.Domain.Name)
	if domain == nil {
		return nil
	}
	return first(t, r, "name", inDomain(domain.ID, n.Name))
}

// explain turns errors of the store into Keystone's answers.
func explain(err error) error {
	var (
		absent *records.NotFoundError
		taken  *records.TakenError
	)
	switch {
	case errors.As(err, &absent):
		return notFound(absent.Table, absent.ID)
	case errors.As(err, &taken):
		_, name, inDomain := strings.Cut(taken.Value, "/")
		if !inDomain {
			name = taken.Value
		}
		return api.Errorf(http.StatusConflict, "Conflict occurred attempting to store %s - Duplicate entry found with name %s.", taken.Table, name)
	case errors.Is(err, store.ErrTooLarge):
		return api.Errorf(http.StatusConflict, "The request changes too many objects at once: delete what belongs to it first, such as users and projects (%v).", err)
	case errors.Is(err, store.ErrConflict):
		return api.Errorf(http.StatusConflict, "Others kept changing the same object; try again.")
	}
	return err
}

func notFound(kind, id string) error {
	return api.Errorf(http.StatusNotFound, "Could not find %s: %s.", kind, id)
}

// newID makes an id of the shape Keystone's have: 32 hex digits.
func newID() string { return strings.ReplaceAll(uuid.NewString(), "-", "") }

// clone returns a copy to change: records that were read are shared.
func clone[T any](record *T) *T {
	c := *record
	return &c
}
