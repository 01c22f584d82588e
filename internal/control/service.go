// Package control holds the operations on Neutron resources: each is one transaction that checks (who may, what is
// referred to, quotas), chooses (addresses, MACs, segments, keys), translates and commits, so that a Neutron object and
// everything derived from it change together or not at all (midonet-translations §1).
//
//	request ──▶ operation ──▶ check ──▶ choose ──▶ translate ──▶ commit ──▶ view
//	                ▲                                              │
//	                └──────────── something read has changed ──────┘
//
// What must be alone in the store (a MAC of a network, an address of a subnet, a segment, a default group) is a unique
// key of its table; what must not go away under an operation is a guarded read. Two requests conflict only if they want
// the same thing: ports made at once on one network do not, since they read it for its existence alone.
package control

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// Service is the operations over one store. It is safe for concurrent use, and any number may share a store.
type Service struct {
	db   *records.DB
	opts Options
	held held

	networks *resource[neutron.Network, neutron.NetworkView]
	subnets  *resource[neutron.Subnet, neutron.SubnetView]
	ports    *resource[neutron.Port, neutron.PortView]
	groups   *resource[neutron.SecurityGroup, neutron.SecurityGroupView]
	rules    *finder[neutron.SecurityGroup] // groups, of which it finds those with the rules that a query asks for

	// Values of ports' binding:vif_details, bound and not. Views share them.
	vifOverlay, vifRouted, vifNone map[string]any
	// working holds a token while pending work is carried out.
	working chan struct{}
}

// New returns the operations over db. It checks the options and starts nothing.
func New(db *records.DB, opts Options) (*Service, error) {
	complete, err := opts.complete()
	if err != nil {
		return nil, err
	}
	s := &Service{
		db:         db,
		opts:       complete,
		vifOverlay: map[string]any{"connectivity": "l2", "port_filter": true},
		vifRouted:  map[string]any{"connectivity": "l3", "port_filter": true},
		vifNone:    map[string]any{},
		working:    make(chan struct{}, 1),
	}
	s.networks, s.subnets, s.ports, s.groups, s.rules = s.newNetworks(), s.newSubnets(), s.newPorts(), s.newGroups(), groupsOfRules()
	return s, nil
}

// operation is one run of one transaction for one caller.
type operation struct {
	*Service
	tx     *records.Tx
	caller neutron.Caller
	now    time.Time // whole seconds, UTC
	random *rand.Rand
	hold   *hold
}

// transact runs f as one transaction, again when something it read has changed, and returns what its last run did.
func transact[R any](ctx context.Context, s *Service, c neutron.Caller, f func(*operation) (R, error)) (R, error) {
	result, err := attempt(ctx, s, c, f)
	if err != nil {
		var none R
		return none, forClient(err)
	}
	return result, nil
}

// createAll is transact for what makes objects: an error that leaves open whether they are there names their ids.
func createAll[V any](ctx context.Context, s *Service, c neutron.Caller, id func(*V) string, f func(*operation) ([]*V, error)) ([]*V, error) {
	made, err := attempt(ctx, s, c, f)
	if err == nil {
		return made, nil
	}
	ids := make([]string, len(made))
	for i, o := range made {
		ids[i] = id(o)
	}
	return nil, forClient(err, ids...)
}

// attempt runs f as one transaction, and returns what its last run did, also if that was not committed.
func attempt[R any](ctx context.Context, s *Service, c neutron.Caller, f func(*operation) (R, error)) (result R, err error) {
	h := s.held.begin()
	defer h.end()
	_, err = s.db.Update(ctx, func(tx *records.Tx) (err error) {
		h.end() // what a run before chose
		result, err = f(&operation{
			Service: s,
			tx:      tx,
			caller:  c,
			now:     s.opts.Now().UTC().Truncate(time.Second),
			random:  rand.New(rand.NewChaCha8(s.opts.Seed())),
			hold:    h,
		})
		return err
	})
	return result, err
}

// view is a snapshot with everything committed so far, by whichever server.
func (s *Service) view(ctx context.Context) (*records.Snap, error) {
	snap, err := s.db.View(ctx)
	return snap, forClient(err)
}

// perform is transact for operations without an answer.
func perform(ctx context.Context, s *Service, c neutron.Caller, f func(*operation) error) error {
	_, err := transact(ctx, s, c, func(o *operation) (struct{}, error) { return struct{}{}, f(o) })
	return err
}

// newID makes a random UUID.
func (o *operation) newID() string {
	var id uuid.UUID
	for i := range id {
		id[i] = byte(o.random.Uint32())
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // version 4, RFC 9562
	return id.String()
}

// standard returns the standard attributes of a new object, with the id that v gives it or a random one; revision is the
// number the reference gives it (neutron-api §2).
func (o *operation) standard(v neutron.Values, revision int64) neutron.Standard {
	id := v.Text("id")
	if id == "" {
		id = o.newID()
	}
	return neutron.Standard{
		ID:             id,
		ProjectID:      v.Text("project_id"),
		Name:           v.Text("name"),
		Description:    v.Text("description"),
		CreatedAt:      o.now,
		UpdatedAt:      o.now,
		RevisionNumber: revision,
	}
}

// bump notes a change of an object or of what hangs on it.
func (o *operation) bump(s *neutron.Standard) {
	s.RevisionNumber++
	s.UpdatedAt = o.now
}

// applyStandard sets the standard attributes that an update names.
func applyStandard(s *neutron.Standard, v neutron.Values) {
	if v.Has("name") {
		s.Name = v.Text("name")
	}
	if v.Has("description") {
		s.Description = v.Text("description")
	}
}
